//! Public events: a Task's log, read once more by whoever tells of it (EVENT).
//!
//! They are made beside the Task's actor, from a state of their own: a Task that nobody follows costs
//! nothing, and one that is followed costs the same however many look on.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::status::TaskStatus;
use tenure_core::task::apply::Illegal;
use tenure_core::view::public::public_events;
use tenure_core::{Commit, Rejection, Task};
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::V;
use tenure_wire::bus::event::{EventPage, Published, TaskEvent};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::handle::Scheduler;
use crate::node::Appended;
use crate::task::open::{kept, load_until, unreadable};

/// Events of a page, about.
const PAGE_EVENTS: usize = 1_000;

/// A Task as far as its public events were told.
#[derive(Debug, Default)]
pub struct Follower(Option<Task>);

impl Follower {
    /// The last event that it knows.
    pub fn version(&self) -> u64 {
        self.0.as_ref().map_or(0, Task::version)
    }

    /// Its native status.
    fn status(&self) -> TaskStatus {
        self.0.as_ref().map_or(TaskStatus::Draft, |task| task.durable().status())
    }

    /// The public events of the next commit.
    ///
    /// # Errors
    /// It is not the next one of this Task.
    pub fn take(&mut self, commit: &Commit) -> Result<Vec<TaskEvent>, Illegal> {
        let stages = match &mut self.0 {
            Some(task) => task.replay_traced(commit)?,
            none => {
                let (task, stages) = Task::restore_traced(commit)?;
                *none = Some(task);
                stages
            }
        };
        let Some(task) = &self.0 else { return Ok(Vec::new()) };
        let events = public_events(&task.durable(), commit, &stages);
        // What cannot be written down is not in a log.
        Ok(events.iter().filter_map(|event| TaskEvent::of(event).ok()).collect())
    }

    /// What is published of a commit: nothing, if it does not follow what is known.
    pub fn publish(&mut self, commit: &Commit) -> Option<Published> {
        let after = self.version();
        if commit.first_seq != after + 1 {
            return None;
        }
        let events = self.take(commit).ok()?;
        Some(Published { after, ..self.told(events) })
    }

    /// That there is nothing behind what is known.
    pub fn stands(&self) -> Published {
        self.told(Vec::new())
    }

    fn told(&self, events: Vec<TaskEvent>) -> Published {
        let (version, status) = (self.version(), self.status());
        let page = EventPage { events, through: version, version, status };
        Published { v: V, after: version, page }
    }
}

/// Public events behind event `after`, some, from the first on, at most up to this version of the
/// Task, as its readers know it (EVENT-01); and the Task as far as they go. A long Task is read from a
/// state on that was kept of it, if there is one from before.
pub(crate) async fn read<J: Journal>(
    journal: &J,
    key: &TaskKey,
    after: u64,
    version: u64,
) -> Result<(Vec<TaskEvent>, Follower), Rejection> {
    if let Some(task) = kept(journal, key, after.min(version)).await
        && let Ok(read) = read_on(journal, key, Follower(Some(task)), after..version).await
    {
        return Ok(read);
    }
    read_on(journal, key, Follower::default(), after..version).await
}

/// As [`read`], from what is known of the Task on: events behind the first of these, up to the other.
async fn read_on<J: Journal>(
    journal: &J,
    key: &TaskKey,
    known: Follower,
    Range { start: after, end: version }: Range<u64>,
) -> Result<(Vec<TaskEvent>, Follower), Rejection> {
    let from = known.version();
    type Read = (Vec<TaskEvent>, Follower, Option<Illegal>);
    let read: Arc<Mutex<Read>> = Arc::new(Mutex::new((Vec::new(), known, None)));
    let into = Arc::clone(&read);
    let each = move |commit: Commit| {
        let (events, follower, illegal) = &mut *into.lock();
        if commit.first_seq > version {
            return ControlFlow::Break(());
        }
        match follower.take(&commit) {
            Ok(new) => events.extend(new.into_iter().filter(|event| event.wal_seq > after)),
            Err(error) => *illegal = Some(error),
        }
        match illegal.is_none() && events.len() < PAGE_EVENTS {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    };
    journal.read(key, from, each).await.map_err(|error| unreadable(&error))?;
    let (events, follower, illegal) = std::mem::take(&mut *read.lock());
    match illegal {
        Some(illegal) => Err(unreadable(&ReadError::Failed(illegal.to_string()))),
        None => Ok((events, follower)),
    }
}

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// The public events of a Task behind event `after`, up to event `last` of its log, as many as a
    /// page holds: an owner before this one may have told nobody (RECOVER-08).
    ///
    /// # Errors
    /// Its log cannot be read.
    pub async fn read_again(
        &self,
        key: &TaskKey,
        after: u64,
        last: u64,
    ) -> Result<Published, Rejection> {
        let (events, follower) = read(self.journal(), key, after, last).await?;
        let mut published = Published { after, ..follower.told(events) };
        published.page.version = last;
        Ok(published)
    }

    /// Tells the observer of a Task that ended with event `last` of its log or before: an owner before
    /// this one may not have.
    ///
    /// # Errors
    /// Its log cannot be read.
    pub async fn observe_again(&self, key: &TaskKey, last: u64) -> Result<(), Rejection> {
        if let Some(observer) = self.observer() {
            let task = load_until(self.journal(), key, last).await;
            observer.ended_before(&task.map_err(|error| unreadable(&error))?);
        }
        Ok(())
    }
}

/// Tells of a Task as long as somebody listens. A listener that is slower than the Task
/// misses some.
pub(crate) async fn publish_to<J: Journal>(
    to: Sender<Published>,
    journal: Arc<J>,
    key: TaskKey,
    mut commits: Receiver<Appended>,
) {
    let mut follower = None;
    loop {
        let appended = tokio::select! {
            appended = commits.recv() => appended,
            () = to.closed() => return,
        };
        let commit = match appended {
            Ok(appended) if appended.task == key => appended.commit,
            Ok(_) => continue,
            Err(RecvError::Lagged(_)) => {
                follower = None;
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        if follower.is_none() && commit.first_seq > 1 {
            let before = load_until(&*journal, &key, commit.first_seq - 1).await;
            follower = before.ok().map(|task| Follower(Some(task)));
        }
        let told = follower.get_or_insert_default().publish(&commit);
        match told.map(|published| to.try_send(published)) {
            Some(Err(TrySendError::Closed(_))) => return,
            Some(_) => {}
            None => follower = None, // Out of step: from the log again.
        }
    }
}
