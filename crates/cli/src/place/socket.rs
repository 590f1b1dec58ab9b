//! The socket in a data directory on which the process at work there answers other commands.
//!
//! Only one process at a time may write in a directory. While one does, a command that changes a Task
//! there goes to that process, over HTTP as to any gateway. Only the user of the process can open the
//! socket.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_core::id::SessionId;
use tenure_sdk::http::{HttpClient, HttpSettings};
use tokio::time::{sleep, timeout};

use super::any::AnyClient;

/// The name of the socket.
const SOCKET: &str = "http.sock";

/// How long the process at work may take to answer the first request. One that is about to end may have taken its
/// socket away.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// How long to wait for a socket: a process that has just begun makes it a moment later, and a program that embeds
/// a scheduler has none.
const APPEARS: Duration = Duration::from_millis(300);

/// How often to look for it meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// How long a command goes on asking a process that does not answer: one on the same machine answers at once, or
/// has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket of a data directory.
pub(crate) fn socket_of(data: &Path) -> PathBuf {
    data.join(SOCKET)
}

/// Whether it is a socket, and no link to one: a directory from elsewhere could have requests sent to another program.
fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// As [`at_work`], also if the process has just begun.
pub(crate) async fn soon_at_work(data: &Path, session: &SessionId) -> Option<AnyClient> {
    let path = socket_of(data);
    let appears = async {
        while !is_socket(&path) {
            sleep(LOOK).await;
        }
    };
    let _ = timeout(APPEARS, appears).await; // Whether it is there is seen next.
    at_work(data, session).await
}

/// A client of the process at work on a directory, if it answers.
pub(super) async fn at_work(data: &Path, session: &SessionId) -> Option<AnyClient> {
    let path = socket_of(data);
    if !is_socket(&path) {
        return None;
    }
    let usual = HttpSettings::new(format!("unix:{}", path.display()));
    let settings = HttpSettings { first_wait: FIRST_ANSWER, patience: PATIENCE, ..usual };
    match HttpClient::connect(&settings, session.clone()).await {
        Ok(client) => Some(client.into()),
        Err(error) => {
            tracing::debug!(%error, "the process at work does not answer on its socket");
            None
        }
    }
}
