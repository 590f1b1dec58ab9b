//! Reads a Task from its log, or from a snapshot and the log behind it (RECOVER).

use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tenure_core::event::LeaseEnd;
use tenure_core::id::AttemptId;
use tenure_core::task::apply::Illegal;
use tenure_core::{Code, Commit, Rejection, RejectionKind, Task};
use tenure_ports::bus::Delivery;
use tenure_ports::journal::{EncodedSnapshot, ReadError, TaskKey};
use tenure_ports::{Journal, Leases};
use tenure_wire::stored::decode_snapshot;

use super::address::Address;
use super::{ActorTask, Life, Waiting};
use crate::count::InHand;
use crate::live::PlaceOwner;
use crate::reading::{WaitingReader, spawn_charged};

/// How often the actor tries again to read a log that failed but is not known to be damaged.
const UNREAD_MAX: u32 = 5;
/// How often the wait for a log that does not answer doubles; the actor tries until it answers.
const SILENT_MAX: u32 = 2;

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Replays the log, without side effects (RECOVER-07). First the actor decides what an earlier
    /// boot left open, and what fell due meanwhile (LEASE-15, RECOVER-09). In a cluster it spares
    /// Steps their time limits for as long as leases: workers may have many reports to send
    /// (mechanisms 6).
    pub(super) async fn open(&mut self, myself: &Address, reader: Option<&mut WaitingReader>) {
        self.read_log(myself, reader).await;
        let Life::Known(task) = &self.life else { return };
        self.lead = self.node.clock.lead(task.updated_at());
        self.waits.tell(task.waits());
        if task.is_terminal() {
            return;
        }
        self.is_open = true;
        self.pools.add(task.pools());
        if let Some(observer) = &self.node.config.observer {
            observer.opened(task);
        }
        let orphans: Vec<AttemptId> = task
            .open_attempts()
            .filter(|a| self.node.config.embedded && !self.node.knows(&a.worker_id))
            .filter(|a| !a.on_behalf) // Its worker was never in this process.
            .map(|a| a.attempt_id)
            .collect();
        self.grant_again();
        self.push_inputs();
        self.raise_leases();
        if !self.node.config.embedded {
            self.spared_until = self.node.after_grace();
        }
        if !orphans.is_empty() {
            tracing::info!(task = %self.key, count = orphans.len(), "attempts of an earlier boot end");
            self.waiting.push_front(Waiting::Expired(orphans, LeaseEnd::HostRestarted));
        }
        self.waiting.push_back(Waiting::Due);
        self.watch_parent(myself);
        self.offer(myself);
        self.flush_soon(myself);
    }

    /// Reads the log, once there is a place in memory for the Task, and changes nothing else. If the reader for whom
    /// that is has gone before it begins, the Task stays unread.
    pub(super) async fn read_log(
        &mut self,
        myself: &Address,
        mut reader: Option<&mut WaitingReader>,
    ) {
        let was_unread = std::mem::take(&mut self.is_unread);
        myself.shared().note_away(); // Heartbeats wait for it there, and not in the mailbox (LEASE-14).
        let ended = self.node.journal.ended(&self.key).await;
        self.ended_bytes = ended.as_ref().map(|ended| ended.bytes);
        if let Some(ended) = ended
            && let Some(task) = self.node.ended.take(&self.key)
            && task.version() == ended.version
        {
            self.life = Life::Known(task);
            return;
        }
        let bytes = self.ended_bytes.or_else(|| self.node.journal.log_bytes(&self.key));
        let place = match bytes {
            Some(bytes) => {
                let owner = match &self.share {
                    _ if self.ended_bytes.is_some() => PlaceOwner::Ended,
                    Some(share) => PlaceOwner::Share(share),
                    None => PlaceOwner::Unread,
                };
                let place = self.node.live.place(owner, bytes);
                let place = match &mut reader {
                    Some(reader) => reader.unless_gone(place).await,
                    None => Some(place.await),
                };
                let Some(place) = place else {
                    self.is_unread = was_unread;
                    return;
                };
                place.map(Some)
            }
            None => Ok(None), // There may be no such Task.
        };
        let place = match place {
            Ok(place) => place,
            Err(why) => {
                self.failed_reads = (self.failed_reads + 1).min(SILENT_MAX); // It passes.
                self.pause(myself);
                self.life = Life::Unreadable(unplaced(&why));
                return;
            }
        };
        // If a panic ended the actor, its supervisor would read the log again at once, and so on.
        let read = AssertUnwindSafe(load(&*self.node.journal, &self.key)).catch_unwind();
        let read = match reader {
            Some(reader) => reader.charged(read).await,
            None => read.await,
        };
        self.life = match read.unwrap_or_else(|_| Err(ReadError::Failed("a defect".into()))) {
            Ok(task) => Life::Known(Box::new(task)),
            Err(ReadError::NotFound | ReadError::NotOwner) => Life::New,
            Err(error) => {
                let again = match error {
                    ReadError::Unavailable(_) => Some((self.failed_reads + 1).min(SILENT_MAX)),
                    ReadError::Damaged { .. } => None,
                    _ => Some(self.failed_reads + 1).filter(|times| *times <= UNREAD_MAX),
                };
                match error {
                    ReadError::Unavailable(_) => {
                        tracing::debug!(task = %self.key, %error, "the log does not answer");
                    }
                    _ => tracing::error!(task = %self.key, %error, "the task's log cannot be read"),
                }
                if let Some(times) = again {
                    self.failed_reads = times; // The trouble may pass.
                    self.pause(myself);
                }
                Life::Unreadable(unreadable(&error))
            }
        };
        let Life::Known(task) = &self.life else { return };
        self.failed_reads = 0;
        if task.is_terminal() {
            self.share = None;
            return;
        }
        match (&mut self.share, place) {
            (Some(share), Some(place)) => share.bring_back(place),
            (Some(_), None) => {}
            (None, place) => {
                let (session, maker) = (&self.key.session_id, &task.head().created_by_agent_id);
                let bytes = bytes.unwrap_or(0);
                self.share = Some(self.node.live.count(session, maker, bytes, place));
            }
        }
        self.note_work();
    }
}

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Sends grants of open Attempts again, as the log may hold a claim whose grant was never sent.
    /// A worker ignores a grant that it has. Whoever claimed on behalf of a worker knows of that claim.
    fn grant_again(&mut self) {
        let Life::Known(task) = &self.life else { return };
        let view = task.durable();
        for attempt in task.open_attempts().filter(|attempt| !attempt.on_behalf) {
            let pool = &task.run_at(attempt.run).worker_pool_id;
            let hand = self.node.hand(&attempt.worker_id, pool).ok();
            let was_lost = task.step_at(attempt.step).state.was_lost();
            let in_hand = hand.map(|hand| InHand::new(hand, was_lost, None));
            self.held.extend(in_hand.map(|it| (attempt.attempt_id, it)));
            let Some(worker) = self.node.worker(&attempt.worker_id) else { continue };
            let Some(claim) = self.node.claim(&view, attempt.attempt_id) else { continue };
            if let Some(pool) = self.node.pool_if_open(&worker.pool) {
                pool.charge(&worker);
            }
            let _ = worker.inbox.unbounded_send(Delivery::Grant(Box::new(claim))); // Gone: its lease runs out.
            self.notify_again.push(attempt.attempt_id);
        }
    }
}

/// Folds a Task's log: from the newest stored snapshot on, if there is one that can be used.
///
/// # Errors
/// The log does not exist, is damaged, or is not the history of a Task (RECOVER-05).
pub async fn load<J: Journal>(journal: &J, key: &TaskKey) -> Result<Task, ReadError> {
    if let Some(task) = kept(journal, key, u64::MAX).await {
        match fold(journal, key, Some(task), u64::MAX).await {
            Ok(task) => return Ok(task),
            // The snapshot may be wrong: the whole log decides.
            Err(error) => tracing::warn!(task = %key, %error, "its snapshot is not used"),
        }
        let task = load_until(journal, key, u64::MAX).await?;
        journal.forget_snapshot(key); // The log was fine, so the snapshot was wrong.
        return Ok(task);
    }
    load_until(journal, key, u64::MAX).await
}

/// Folds a Task's log up to the commit that contains `seq`.
///
/// # Errors
/// As [`load`].
pub async fn load_until<J: Journal>(
    journal: &J,
    key: &TaskKey,
    seq: u64,
) -> Result<Task, ReadError> {
    fold(journal, key, None, seq).await
}

/// The Task as of its newest stored snapshot at or before event `until`. None if there is none, or
/// if it is damaged or another Task's; then it is forgotten.
pub(crate) async fn kept<J: Journal>(journal: &J, key: &TaskKey, until: u64) -> Option<Task> {
    let EncodedSnapshot { version, bytes } = journal.kept(key, until).await?;
    let made = spawn_charged(move || decode_snapshot(&bytes).map(Task::of_snapshot)).await;
    let is_it = |task: &Task| {
        let spec = &task.head().spec;
        let of = (&spec.session_id, &spec.task_id, task.version());
        of == (&key.session_id, &key.task_id, version)
    };
    match made {
        Ok(Ok(task)) if is_it(&task) => return Some(task),
        Ok(Ok(_)) => tracing::warn!(task = %key, "its snapshot is that of another, and not used"),
        Ok(Err(error)) => tracing::warn!(task = %key, %error, "its snapshot is not used"),
        Err(error) => tracing::warn!(task = %key, %error, "its snapshot is not used"),
    }
    journal.forget_snapshot(key);
    None
}

/// Folds the commits behind a snapshot, or all of them, up to the one that contains `seq`.
async fn fold<J: Journal>(
    journal: &J,
    key: &TaskKey,
    from: Option<Task>,
    seq: u64,
) -> Result<Task, ReadError> {
    let after = from.as_ref().map_or(0, Task::version);
    let folded: Arc<Mutex<Option<Result<Task, Illegal>>>> = Arc::new(Mutex::new(from.map(Ok)));
    let into = Arc::clone(&folded);
    let each = move |commit: Commit| {
        if commit.first_seq > seq {
            return ControlFlow::Break(());
        }
        let mut slot = into.lock();
        let next = match slot.take() {
            None => Task::restore(&commit),
            Some(Ok(mut task)) => task.replay(&commit).map(|()| task),
            Some(Err(illegal)) => Err(illegal),
        };
        let flow = if next.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        *slot = Some(next);
        flow
    };
    journal.read(key, after, each).await?;
    match folded.lock().take() {
        Some(Ok(task)) => Ok(task),
        Some(Err(illegal)) => Err(ReadError::Failed(illegal.to_string())),
        None => Err(ReadError::NotFound),
    }
}

/// RECOVER-04: the answer to every command and read on the Task. A log that does not answer is not
/// a damaged one: the caller may ask again in a moment.
pub fn unreadable(error: &ReadError) -> Rejection {
    match error {
        ReadError::NotOwner => Rejection::new(Code::NotOwner, "this node does not own the task")
            .with("retry_after_ms", 100),
        ReadError::Unavailable(why) => log_away(why),
        ReadError::NotFound | ReadError::Damaged { .. } | ReadError::Failed(_) => {
            Rejection::new(Code::StorageError, format!("the task's log cannot be read: {error}"))
                .of_kind(RejectionKind::ReplayFailed)
        }
    }
}

/// The refusal of a request for whose Task there is no place in memory now. The request had no effect.
fn unplaced(why: &str) -> Rejection {
    let refused = Rejection::new(Code::Unavailable, why);
    refused.of_kind(RejectionKind::Overloaded).with("retry_after_ms", 1_000)
}

/// The log does not answer, and the request had no effect: the caller may ask again in a moment.
pub(super) fn log_away(why: &str) -> Rejection {
    Rejection::new(Code::Unavailable, format!("the log does not answer: {why}"))
        .with("retry_after_ms", 500)
}
