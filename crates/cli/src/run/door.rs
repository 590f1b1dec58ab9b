//! The socket in the data directory on which `tenure run` serves other commands on its Tasks.

use std::time::Duration;

use tenure_gateway::server::{ServerLimits, ServerSettings};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::host::RunHost;
use crate::gateway::{HttpHost, SpokenHere};
use crate::place::{files_of, socket_of};

/// When a run opens the socket. One that is over before needs none, and most commands wait for longer.
const SOON: Duration = Duration::from_millis(50);

/// The most connections: a command has a few.
const CONNECTIONS_MAX: usize = 64;

/// How long a run that ends waits for the last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The socket of a run. Without one (the path may be too long for a socket, or the file system have none)
/// commands are refused, because the directory is in use.
#[derive(Debug)]
pub(super) struct RunDoor {
    opened: JoinHandle<Option<HttpHost>>,
    /// Dropping this keeps a socket that is not open yet from being opened.
    closes: oneshot::Sender<()>,
}

impl RunDoor {
    /// Opens the socket of a data directory soon.
    pub(super) fn open(host: &RunHost) -> Self {
        let (scheduler, data) = (host.scheduler().clone(), host.data.clone());
        let (closes, closed) = oneshot::channel::<()>();
        let opened = tokio::spawn(async move {
            // From here on nothing is cut off in the middle: a socket that is made is also removed.
            if timeout(SOON, closed).await.is_ok() {
                return None;
            }
            let limits = ServerLimits {
                connections_max: CONNECTIONS_MAX,
                grace: LAST_ANSWERS,
                ..ServerLimits::default()
            };
            let unix = vec![socket_of(&data)];
            let backend = tenure_embedded::backend(scheduler, files_of(&data).ok()?);
            let settings = ServerSettings { unix, limits, ..ServerSettings::default() };
            match HttpHost::start(backend, settings, SpokenHere::default(), 1).await {
                Ok(opened) => Some(opened),
                Err(failure) => {
                    tracing::debug!(why = failure.message, "other commands do not reach this run");
                    None
                }
            }
        });
        Self { opened, closes }
    }

    /// Closes the socket, when the last answers are sent.
    pub(super) async fn close(self) {
        drop(self.closes);
        if let Ok(Some(opened)) = self.opened.await {
            opened.stop().await;
        }
    }
}
