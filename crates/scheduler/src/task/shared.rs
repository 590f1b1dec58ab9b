//! The durable state of a Task, where readers and heartbeats find it without waiting in the mailbox of its actor.
//!
//! The actor takes the Task out to handle messages, and puts it back when it has handled all of them, or earlier if
//! somebody wants to read it. Whoever asks the actor for a read is lent the Task: the read then runs on the thread of
//! whoever asked, and the actor changes nothing meanwhile. Heartbeats ask nobody, and look at the Task here.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tenure_core::Task;
use tenure_core::view::View;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::address::Address;

/// How long an actor waits for a reader that was lent the Task and does not read it. Such a reader finds the Task here
/// later.
const LENT_MAX: Duration = Duration::from_millis(250);

/// A place for the durable state of one Task.
#[derive(Debug, Default)]
pub(crate) struct SharedTask {
    place: RwLock<SharedState>,
    /// How many readers want the Task, or were lent it, and have not read it.
    wanted: AtomicUsize,
    /// Wakes the actor, which waits for readers.
    returned: Notify,
    /// Wakes readers, who wait for the actor.
    back: Notify,
}

#[derive(Default)]
enum SharedState {
    /// The actor has the Task, or reads it from its log.
    #[default]
    Away,
    /// The Task is here. Its owner put it here in this epoch.
    Here(Box<Task>, u64),
    /// The Task was put away: its log has all of it, nobody holds an Attempt, and the first message that concerns the
    /// Task has it read.
    Stored,
    /// There is no durable Task, it cannot be read, or it has left this address.
    Nothing,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Away => "Away",
            Self::Here(..) => "Here",
            Self::Stored => "Stored",
            Self::Nothing => "Nothing",
        })
    }
}

impl SharedTask {
    /// Puts the Task here.
    pub(super) fn put(&self, task: Box<Task>, epoch: u64) {
        *self.place.write() = SharedState::Here(task, epoch);
        self.back.notify_waiters();
    }

    /// Notes that there is no durable Task here.
    pub(super) fn empty(&self) {
        *self.place.write() = SharedState::Nothing;
        self.back.notify_waiters();
    }

    /// Notes that the Task was put away.
    pub(super) fn store(&self) {
        *self.place.write() = SharedState::Stored;
        self.back.notify_waiters();
    }

    /// Notes that the actor reads the Task from its log, or has made it: whoever looks for it here waits for the actor.
    pub(super) fn note_away(&self) {
        let mut place = self.place.write();
        if let SharedState::Stored | SharedState::Nothing = *place {
            *place = SharedState::Away;
        }
    }

    /// Whether the Task was put away, and nothing has had it read since.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(&*self.place.read(), SharedState::Stored)
    }

    /// Takes the Task out, once all readers have read it. None if it is not here.
    pub(super) async fn take(&self) -> Option<Box<Task>> {
        match self.try_take(false) {
            Some(taken) => taken,
            // Boxed, as it is rare and would make the future of every message larger.
            None => Box::pin(self.take_from_readers()).await,
        }
    }

    /// The same, unless somebody reads it just now.
    pub(super) fn try_take(&self, whoever_waits: bool) -> Option<Option<Box<Task>>> {
        if !whoever_waits && self.is_wanted() {
            return None;
        }
        let mut place = self.place.try_write()?;
        Some(match std::mem::take(&mut *place) {
            SharedState::Here(task, _) => Some(task),
            other => {
                *place = other;
                None
            }
        })
    }

    async fn take_from_readers(&self) -> Option<Box<Task>> {
        let mut until = Instant::now() + LENT_MAX;
        let mut whoever_waits = false;
        loop {
            let mut returned = pin!(self.returned.notified());
            returned.as_mut().enable();
            if let Some(taken) = self.try_take(whoever_waits) {
                return taken;
            }
            if timeout_at(until, returned).await.is_err() {
                (until, whoever_waits) = (Instant::now() + LENT_MAX, true);
            }
        }
    }

    /// Whether somebody wants to read the Task.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > 0
    }

    fn note_wanted(&self) {
        self.wanted.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a reader has read the Task, or has gone.
    fn note_read(&self) {
        self.wanted.fetch_sub(1, Ordering::AcqRel);
        self.returned.notify_one();
    }

    /// Whether the Task is here and has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(&*self.place.read(), SharedState::Here(task, _) if task.is_terminal())
    }

    /// Applies `look` to the Task, once its actor has put it back. None if there is none here, or if it was put here in
    /// another epoch than `epoch`.
    pub(crate) async fn look<T>(
        &self,
        epoch: Option<u64>,
        look: impl FnOnce(&View<'_>) -> T + Send,
    ) -> Option<T> {
        self.note_wanted();
        let _wants = Wanting(self);
        self.look_once(epoch, &mut Some(look)).await
    }

    /// The same. If there is no Task, `look` stays where it is.
    async fn look_once<T>(
        &self,
        epoch: Option<u64>,
        look: &mut Option<impl FnOnce(&View<'_>) -> T + Send>,
    ) -> Option<T> {
        loop {
            let mut back = pin!(self.back.notified());
            back.as_mut().enable();
            if let Some(seen) = self.look_now(epoch, look) {
                return seen;
            }
            back.await;
        }
    }

    /// What `look` sees now; none if the actor has the Task.
    fn look_now<T>(
        &self,
        epoch: Option<u64>,
        look: &mut Option<impl FnOnce(&View<'_>) -> T>,
    ) -> Option<Option<T>> {
        let place = self.place.read();
        let seen = match &*place {
            SharedState::Away => return None,
            SharedState::Stored | SharedState::Nothing => None,
            SharedState::Here(_, of) if epoch.is_some_and(|epoch| epoch != *of) => None,
            SharedState::Here(task, _) => look.take().map(|look| look(&task.durable())),
        };
        Some(seen)
    }
}

/// Somebody who wants to read a Task, until this is dropped.
struct Wanting<'a>(&'a SharedTask);

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.note_read();
    }
}

/// A Task that its actor has lent to a reader. The actor changes the Task only after the reader has read it, or has
/// gone.
#[derive(Debug)]
pub(crate) struct LentTask(Address);

impl LentTask {
    /// Lends the Task at this address.
    pub(super) fn of(address: &Address) -> Self {
        address.shared().note_wanted();
        Self(address.clone())
    }

    /// Applies `look` to the Task, on this thread. None if the Task has left its address meanwhile; `look` then stays
    /// where it is.
    pub(crate) async fn look<T>(
        self,
        look: &mut Option<impl FnOnce(&View<'_>) -> T + Send>,
    ) -> Option<T> {
        self.0.shared().look_once(None, look).await
    }
}

impl Drop for LentTask {
    fn drop(&mut self) {
        self.0.shared().note_read();
    }
}
