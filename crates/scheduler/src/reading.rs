//! Who reads a Task, and what it holds until that is done.
//!
//! The actor of a Task that is not in memory reads it from its log, and goes on when the reader has gone: whoever asks
//! again finds the Task. So what a reader holds, such as its turn, goes with its request: it is held until the log has
//! been read, and is charged for the time. A log for which nobody waits any more is not begun.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::Rejection;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::task::shared::LentTask;

/// What a reader holds while Tasks are read for it.
pub trait ReadHold: Send + Sync {
    /// Charges the reader for so much time of a processor.
    fn charge(&self, busy: Duration);
}

tokio::task_local! {
    static HOLD: Arc<dyn ReadHold>;
}

/// Carries out a read. What the reader holds is held until every log has been read of which that was begun, even if
/// this is dropped before.
pub async fn read_holding<T>(hold: Arc<dyn ReadHold>, read: impl Future<Output = T>) -> T {
    HOLD.scope(hold, read).await
}

/// Runs what takes long on a thread for that, and charges the reader for it.
pub(crate) fn spawn_charged<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let hold = HOLD.try_with(Arc::clone).ok();
    spawn_blocking(move || {
        let begun = Instant::now();
        let done = work();
        if let Some(hold) = hold {
            hold.charge(begun.elapsed());
        }
        done
    })
}

/// A reader that waits for a Task.
pub(crate) struct WaitingReader {
    to: oneshot::Sender<Result<LentTask, Rejection>>,
    hold: Option<Arc<dyn ReadHold>>,
}

impl WaitingReader {
    /// A reader, and where it gets the Task.
    pub(crate) fn new() -> (Self, oneshot::Receiver<Result<LentTask, Rejection>>) {
        let (to, lent) = oneshot::channel();
        (Self { to, hold: HOLD.try_with(Arc::clone).ok() }, lent)
    }

    pub(crate) fn has_gone(&self) -> bool {
        self.to.is_closed()
    }

    /// Lends the Task to the reader.
    pub(crate) fn lend(self, lent: Result<LentTask, Rejection>) {
        let _ = self.to.send(lent); // The reader may have gone.
    }

    /// Waits for this while the reader waits.
    pub(crate) async fn unless_gone<T>(&mut self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = wait => Some(done),
            () = self.to.closed() => None,
        }
    }

    /// Reads a log for the reader, and charges the reader for the time.
    pub(crate) async fn charged<T>(&self, read: impl Future<Output = T>) -> T {
        let Some(hold) = &self.hold else { return read.await };
        let mut read = pin!(HOLD.scope(Arc::clone(hold), read));
        poll_fn(|cx| {
            let begun = Instant::now();
            let polled = read.as_mut().poll(cx);
            hold.charge(begun.elapsed());
            polled
        })
        .await
    }
}
