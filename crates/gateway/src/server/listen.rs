//! The sockets on which a server listens.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use uuid::Uuid;

/// How long a server waits that cannot accept connections now, as the process or the machine has too
/// many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that accepts connections.
#[derive(Debug)]
pub(super) enum ServerListener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// It goes away with the listener.
        _file: SocketFile,
    },
}

/// A connection as it was accepted.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(TcpStream, IpAddr),
    Unix(UnixStream),
}

impl Accepted {
    /// The address of the other end, if it has one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(_, address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl ServerListener {
    pub(super) async fn tcp(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self::Tcp)
    }

    pub(super) fn unix(path: &Path) -> io::Result<Self> {
        let (listener, file) = SocketFile::bind(path)?;
        Ok(Self::Unix { listener, _file: file })
    }

    /// The address with the port that was chosen; `None` for a Unix socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix { .. } => None,
        }
    }

    /// The next connection. What goes wrong with one does not end the others.
    pub(super) async fn accept(&self) -> Accepted {
        loop {
            let accepted = match self {
                Self::Tcp(listener) => listener.accept().await.map(|(stream, from)| {
                    // Answers are short, and a caller waits for each.
                    let _ = stream.set_nodelay(true);
                    Accepted::Tcp(stream, from.ip())
                }),
                Self::Unix { listener, .. } => {
                    listener.accept().await.map(|(stream, _)| Accepted::Unix(stream))
                }
            };
            match accepted {
                Ok(accepted) => return accepted,
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted now");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Whether the connection that was to be accepted is to blame, and the next one may do.
fn is_of_one_connection(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::ConnectionReset,
    ];
    kinds.contains(&error.kind())
}

/// The file of a Unix socket that only this user may open. It goes away when this is dropped.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// The device and number of the file, so that the file of another server stays.
    id: (u64, u64),
}

impl SocketFile {
    /// Binds a socket in a directory that nobody else may enter, and moves it to its place when
    /// nobody else may open it any more. So there is no moment at which somebody could.
    fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        make_way(path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        // The name is short: the path of a socket may have some hundred bytes.
        let (id, _) = Uuid::new_v4().as_u64_pair();
        let private = PrivateDir::make(parent.join(format!(".{:08x}", id >> 32)))?;
        let inside = private.0.join("s");
        let listener = UnixListener::bind(&inside)?;
        fs::set_permissions(&inside, Permissions::from_mode(0o600))?;
        let made = fs::symlink_metadata(&inside)?;
        fs::rename(&inside, path)?;
        Ok((listener, Self { path: path.to_owned(), id: (made.dev(), made.ino()) }))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        if is_ours {
            let _ = fs::remove_file(&self.path); // Who comes next finds a socket of nobody.
        }
    }
}

/// A directory that nobody else may enter, which goes away when this is dropped.
struct PrivateDir(PathBuf);

impl PrivateDir {
    fn make(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join("s")); // It is there if binding failed half-way.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Fails if somebody listens there, or if something else than a socket is there.
fn make_way(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let message = "there is a file that is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()), // It has died.
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_for_its_user_alone_and_goes_with_its_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        let listener = ServerListener::unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        let (connected, accepted) = tokio::join!(UnixStream::connect(&path), listener.accept());
        assert!(connected.is_ok() && accepted.address().is_none());
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_of_a_dead_server_gives_way_and_one_in_use_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let first = ServerListener::unix(&path).unwrap();
        let second = ServerListener::unix(&path).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(&path).unwrap();
        let other = ServerListener::unix(&path).unwrap();
        drop(first);
        assert!(path.exists(), "it is the socket of the other one");
        drop(other);
    }

    #[tokio::test]
    async fn what_is_no_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        fs::write(&path, "notes").unwrap();
        assert!(ServerListener::unix(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
        let long = dir.path().join("x".repeat(200)).join("s");
        assert!(ServerListener::unix(&long).is_err());
    }
}
