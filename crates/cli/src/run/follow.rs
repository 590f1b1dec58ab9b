//! Gives a reader the commits of one Task, in order and without a gap, however slow it is.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::Commit;
use tenure_embedded::LocalScheduler;
use tenure_ports::Journal as _;
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_scheduler::Appended;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Follows a Task. Commits come from the scheduler as they become durable; a reader that falls too
/// far behind gets the missed ones from the log.
#[derive(Debug)]
pub(super) struct CommitFollower {
    scheduler: LocalScheduler,
    commits: Receiver<Appended>,
    key: TaskKey,
    next_seq: u64,
    /// Some commits were missed. A field, so that it survives a dropped future.
    has_gap: bool,
}

impl CommitFollower {
    /// Follows a Task from the event `next_seq` on. `commits` was subscribed to before that event
    /// could happen.
    pub(super) fn new(
        scheduler: LocalScheduler,
        commits: Receiver<Appended>,
        key: TaskKey,
        next_seq: u64,
    ) -> Self {
        Self { scheduler, commits, key, next_seq, has_gap: false }
    }

    /// Waits for commits and adds all there are to `out`. May be dropped at any time.
    ///
    /// # Errors
    /// The log cannot be read, or the scheduler has stopped.
    pub(super) async fn next(&mut self, out: &mut Vec<Arc<Commit>>) -> Result<(), ReadError> {
        while out.is_empty() {
            if self.has_gap {
                self.catch_up(out).await?;
                continue;
            }
            match self.commits.recv().await {
                Ok(appended) => self.take(appended, out),
                Err(RecvError::Lagged(_)) => self.has_gap = true,
                Err(RecvError::Closed) => {
                    return Err(ReadError::Failed("the scheduler stopped".into()));
                }
            }
            self.take_what_is_there(out);
        }
        Ok(())
    }

    /// Adds what has arrived already.
    pub(super) fn take_what_is_there(&mut self, out: &mut Vec<Arc<Commit>>) {
        while !self.has_gap {
            match self.commits.try_recv() {
                Ok(appended) => self.take(appended, out),
                Err(TryRecvError::Lagged(_)) => self.has_gap = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn take(&mut self, appended: Appended, out: &mut Vec<Arc<Commit>>) {
        let Appended { task, commit } = appended;
        if task != self.key || commit.first_seq < self.next_seq {
            return;
        }
        if commit.first_seq > self.next_seq {
            self.has_gap = true;
            return;
        }
        self.next_seq = commit.last_seq() + 1;
        out.push(commit);
    }

    /// Reads the missed commits from the log. Those still in the channel are known then.
    async fn catch_up(&mut self, out: &mut Vec<Arc<Commit>>) -> Result<(), ReadError> {
        let missed: Arc<Mutex<Vec<Arc<Commit>>>> = Arc::default();
        let into = Arc::clone(&missed);
        let each = move |commit: Commit| {
            into.lock().push(Arc::new(commit));
            ControlFlow::Continue(())
        };
        self.scheduler.journal().read(&self.key, self.next_seq - 1, each).await?;
        out.append(&mut missed.lock());
        if let Some(last) = out.last() {
            self.next_seq = last.last_seq() + 1;
        }
        self.has_gap = false;
        Ok(())
    }
}
