//! The worker's end of the socket: a directory and a listener for each command, which end with it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::RunToolsOf;
use super::ask::{RunReply, answer, read_line, to_line};
use super::peer::{FirstProcess, is_of_command};
use crate::secrets::SecretMask;

/// How many connections a command has at a time; further ones wait.
const CONNECTIONS_MAX: usize = 8;

/// The longest path of a socket, in bytes: it stands in a field of fixed length.
const PATH_MAX: usize = 100;

/// The pause after a connection that could not be taken, as there are no descriptors left for it.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket of a command.
#[derive(Debug)]
pub(in crate::worker) struct RunSocket {
    dir: PathBuf,
    path: PathBuf,
    _serving: AbortOnDropHandle<()>,
}

impl RunSocket {
    /// Opens a socket for a command, whose first process is told as soon as it is known. Secrets are masked in what the
    /// command says there.
    ///
    /// # Errors
    /// The directory or the socket cannot be made.
    pub(in crate::worker) fn open(
        tools: RunToolsOf,
        mask: SecretMask,
        first: FirstProcess,
    ) -> io::Result<Self> {
        let dir = make_dir()?;
        let path = dir.join("run");
        let listener = UnixListener::bind(&path).inspect_err(|_| {
            let _ = fs::remove_dir(&dir); // Nothing is in it.
        })?;
        let serving = tokio::spawn(serve(listener, (tools, mask), first));
        Ok(Self { dir, path, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Its path.
    pub(in crate::worker) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // A directory that cannot be removed stays, and is of no use to anybody.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// A directory that is open to the user of this process alone.
fn make_dir() -> io::Result<PathBuf> {
    let name = format!("tenure-run-{}", Uuid::now_v7().simple());
    let usual = std::env::temp_dir();
    let is_short = usual.as_os_str().len() + name.len() + "//run".len() <= PATH_MAX;
    let dir = if is_short { usual } else { PathBuf::from("/tmp") }.join(name);
    DirBuilder::new().mode(0o700).create(&dir)?;
    Ok(dir)
}

async fn serve(listener: UnixListener, tools: (RunToolsOf, SecretMask), first: FirstProcess) {
    let mut all = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept(), if all.len() < CONNECTIONS_MAX => match taken {
                Ok((stream, _)) => {
                    all.spawn(serve_one(stream, tools.clone(), first.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the tools of a run cannot be taken");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = all.join_next() => {}
        }
    }
}

/// Answers one request after the other, until the other side goes away.
async fn serve_one(
    mut stream: UnixStream,
    (tools, mask): (RunToolsOf, SecretMask),
    mut first: FirstProcess,
) {
    if !is_of_command(&stream, &mut first).await {
        let (task, run) = (tools.task(), tools.run_id());
        tracing::warn!(%task, %run, "a process that is none of the command's asked for the tools of its run");
        return;
    }
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    while let Some(line) = read_line(&mut read).await {
        let reply = match answer(&tools, &mask.asked(line)).await {
            Ok(answer) => RunReply::Ok(answer),
            Err(refused) => RunReply::Error(refused),
        };
        let line = to_line(&reply).or_else(|refused| to_line(&RunReply::Error(refused)));
        let Ok(line) = line else { return };
        if write.write_all(&line).await.is_err() {
            return;
        }
    }
}
