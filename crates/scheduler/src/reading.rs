//! Who reads a Task, and what it holds until that is done.
//!
//! The actor of a Task that is not in memory reads it from its log, and goes on when the reader has gone: whoever asks
//! again finds the Task. So what a reader holds, such as its turn, goes with its request: it is held until the log has
//! been read, and is charged for the time. A log for which nobody waits any more is not begun. Before a request reaches
//! a Task that is not in memory, a long log is read in the turn of whoever asks (LIVE-04).

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tenure_core::status::Role;
use tenure_core::{Caller, Code, Rejection};
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::fair::principal;
use crate::handle::Scheduler;
use crate::task::shared::LentTask;

/// What a reader holds while Tasks are read for it.
pub trait ReadHold: Send + Sync {
    /// Charges the reader for so much time of a processor.
    fn charge(&self, busy: Duration);
}

/// Gives callers their turns to have logs read: a long log that is read for a command, a report or a claim costs a
/// node as much as one that is read for whoever asks to see it.
pub trait ReadTurns: fmt::Debug + Send + Sync {
    /// Waits for the turn of a principal in a role.
    ///
    /// # Errors
    /// `unavailable`: its reads have taken more than they may, or too many of them wait.
    fn turn<'a>(
        &'a self,
        role: Role,
        principal: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn ReadHold>, Rejection>>;
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

/// Carries out a read, and charges a reader for the time for which it has a processor.
async fn charging<T>(hold: &Arc<dyn ReadHold>, read: impl Future<Output = T>) -> T {
    let mut read = pin!(HOLD.scope(Arc::clone(hold), read));
    poll_fn(|cx| {
        let begun = Instant::now();
        let polled = read.as_mut().poll(cx);
        hold.charge(begun.elapsed());
        polled
    })
    .await
}

/// How many bytes of a log are read at the cost of a node, without a turn: that takes less than a millisecond.
const READ_FREELY: u64 = 64 << 10;

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// LIVE-04: before a request reaches a Task that is not in memory, has its log read in the turn of whoever asks, if
    /// the log is long.
    ///
    /// # Errors
    /// The caller gets no turn now, or there is no place in memory.
    pub(crate) async fn recall(&self, key: &TaskKey, caller: &Caller) -> Result<(), Rejection> {
        if self.node.config.turns.is_none() || !self.is_away(key) {
            return Ok(());
        }
        let node = &self.node;
        let bytes = match node.journal.log_bytes(key) {
            Some(bytes) => bytes,
            None if node.ended.holds(key) => 0,
            None => node.journal.ended(key).await.map_or(0, |ended| ended.bytes),
        };
        if bytes <= READ_FREELY {
            return Ok(());
        }
        match self.in_turn(caller, self.read(key, |_| ())).await? {
            Err(refused) if refused.code == Code::Unavailable => Err(refused),
            _ => Ok(()), // The request itself finds what else there is to say.
        }
    }

    /// Whether a request has a log read that is read for nobody else: the Task was put away, or it has ended. A live
    /// Task without an address is read anyway, as this node has just taken it over.
    pub(crate) fn is_away(&self, key: &TaskKey) -> bool {
        let Some(address) = self.node.directory.get(key) else {
            return self.node.journal.log_bytes(key).is_none();
        };
        address.shared().is_stored()
    }

    /// LIVE-04: carries out reads in the turn of a caller, who is charged for them. What is read in a turn already, or
    /// by the scheduler itself, goes on at once.
    ///
    /// # Errors
    /// The caller gets no turn now.
    pub(crate) async fn in_turn<T>(
        &self,
        caller: &Caller,
        reads: impl Future<Output = T>,
    ) -> Result<T, Rejection> {
        let has_turn = HOLD.try_with(|_| ()).is_ok();
        match &self.node.config.turns {
            Some(turns) if !has_turn && caller.role != Role::System => {
                let hold = turns.turn(caller.role, principal(caller)).await?;
                Ok(charging(&hold, reads).await)
            }
            _ => Ok(reads.await),
        }
    }
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
        charging(hold, read).await
    }
}
