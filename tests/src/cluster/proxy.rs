//! A way to a server that can be cut: connections stay open, and nothing comes through. What was
//! said meanwhile arrives when the way is whole again, as it would after a fault of a network.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::spawn;
use std::time::Duration;

use anyhow::Result;

/// How often a way looks whether it is cut.
const LOOK: Duration = Duration::from_millis(5);

/// Which ways are cut.
#[derive(Debug, Default)]
struct Cuts {
    to_server: AtomicBool,
    from_server: AtomicBool,
    ends: AtomicBool,
    /// Bytes that have gone to the server, and after how many that way is cut, unless that is 0.
    gone: AtomicU64,
    gone_max: AtomicU64,
}

/// A proxy on a port of its own.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    cuts: Arc<Cuts>,
}

impl Proxy {
    /// Starts one before a server.
    ///
    /// # Errors
    /// There is no port to be had.
    pub fn before(server: u16) -> Result<Self> {
        Self::at(0, server)
    }

    /// The same on this port; 0 is any.
    ///
    /// # Errors
    /// The port is not to be had.
    pub fn at(port: u16, server: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let cuts = Arc::new(Cuts::default());
        let shared = Arc::clone(&cuts);
        spawn(move || {
            for client in listener.incoming() {
                if shared.ends.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(client) = client {
                    let _ = join(client, server, &shared); // Whoever cannot be served notices.
                }
            }
        });
        Ok(Self { port, cuts })
    }

    /// Cuts the way to the server as soon as so many bytes have gone there.
    pub fn cut_after(&self, bytes: u64) {
        self.cuts.gone_max.store(bytes, Ordering::Release);
    }

    /// Cuts one way or both, or neither.
    pub fn cut(&self, to_server: bool, from_server: bool) {
        self.cuts.to_server.store(to_server, Ordering::Release);
        self.cuts.from_server.store(from_server, Ordering::Release);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cuts.ends.store(true, Ordering::Release);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)); // Wakes the listener.
    }
}

fn join(client: TcpStream, server: u16, cuts: &Arc<Cuts>) -> Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
    }
    let ways = [(client.try_clone()?, server.try_clone()?, false), (server, client, true)];
    for (from, to, is_from_server) in ways {
        let cuts = Arc::clone(cuts);
        spawn(move || carry(from, to, &cuts, is_from_server));
    }
    Ok(())
}

fn carry(mut from: TcpStream, mut to: TcpStream, cuts: &Cuts, is_from_server: bool) {
    let cut = if is_from_server { &cuts.from_server } else { &cuts.to_server };
    let mut bytes = vec![0; 64 << 10];
    while !cuts.ends.load(Ordering::Acquire) {
        if cut.load(Ordering::Acquire) {
            std::thread::sleep(LOOK);
            continue;
        }
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => {
                // What was read as the cut came does not get through either.
                while cut.load(Ordering::Acquire) && !cuts.ends.load(Ordering::Acquire) {
                    std::thread::sleep(LOOK);
                }
                if to.write_all(&bytes[..length]).is_err() {
                    break;
                }
                if !is_from_server {
                    let gone = cuts.gone.fetch_add(length as u64, Ordering::AcqRel) + length as u64;
                    let most = cuts.gone_max.load(Ordering::Acquire);
                    cut.fetch_or(most > 0 && gone >= most, Ordering::AcqRel);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both); // The other end may be gone.
    let _ = to.shutdown(Shutdown::Both);
}
