//! Makes the public events of a Task for its readers, by folding its log once more (EVENT).
//!
//! This happens beside the Task's actor, on a state of its own: a Task that nobody follows costs
//! nothing, and a followed one costs the same however many followers it has.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::status::TaskStatus;
use tenure_core::task::apply::Illegal;
use tenure_core::view::public::public_events;
use tenure_core::{Commit, Rejection, Task};
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::event::{EventPage, Published, TaskEvent};
use tenure_wire::bus::{V, encode};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::handle::Scheduler;
use crate::node::{Appended, NodeShared};
use crate::task::open::{kept, load_until, unreadable};

/// About how many events a page has, and how many bytes: half of what the bus allows for an answer
/// in parts.
const PAGE_EVENTS: usize = 1_000;
const PAGE_BYTES: usize = 256 << 10;

/// The state of a Task up to which its public events have been made.
#[derive(Debug, Default)]
pub struct Follower(Option<Task>);

impl Follower {
    /// The version of that state.
    pub fn version(&self) -> u64 {
        self.0.as_ref().map_or(0, Task::version)
    }

    /// The native status at that version.
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
        // Events that cannot be encoded are not in a log.
        Ok(events.iter().filter_map(|event| TaskEvent::of(event).ok()).collect())
    }

    /// The message that publishes a commit; none if the commit does not follow the known state.
    pub fn publish(&mut self, commit: &Commit) -> Option<Published> {
        let after = self.version();
        if commit.first_seq != after + 1 {
            return None;
        }
        let events = self.take(commit).ok()?;
        Some(Published { after, ..self.told(events) })
    }

    /// The message that nothing follows the known state.
    pub fn stands(&self) -> Published {
        self.told(Vec::new())
    }

    fn told(&self, events: Vec<TaskEvent>) -> Published {
        let (version, status) = (self.version(), self.status());
        let page = EventPage { events, through: version, version, status };
        Published { v: V, after: version, page }
    }
}

/// A Task up to where a reader has got its public events, page by page.
#[derive(Debug, Default)]
pub(crate) struct FollowedTask {
    follower: Follower,
    /// Public events that the follower has made and the reader has not got yet: a commit may have
    /// more than a page.
    rest: VecDeque<TaskEvent>,
}

/// A page of public events.
pub(crate) struct FollowedPage {
    pub(crate) events: Vec<TaskEvent>,
    /// The event of the log up to which the page is complete.
    pub(crate) through: u64,
    pub(crate) status: TaskStatus,
    /// The Task's state, if there are no more events.
    pub(crate) follower: Option<Follower>,
}

/// A page of public events behind event `after`, from the first on, up to `version` of the Task at
/// most (EVENT-01). A reader that goes on where its last page ended finds the cached state;
/// otherwise a long Task is read from a snapshot on, if there is one from before `after`.
pub(crate) async fn read<J: Journal, L: Leases>(
    node: &NodeShared<J, L>,
    key: &TaskKey,
    after: u64,
    version: u64,
) -> Result<FollowedPage, Rejection> {
    let journal = &*node.journal;
    let from = match node.told.take(&(key.clone(), after)) {
        Some(told) => Some(told),
        None => kept(journal, key, after.min(version)).await.map(|task| {
            let follower = Follower(Some(task));
            FollowedTask { follower, ..FollowedTask::default() }
        }),
    };
    let mut read = Err(unreadable(&ReadError::NotFound));
    if let Some(told) = from {
        read = read_on(journal, key, told, after..version).await;
    }
    if read.is_err() {
        read = read_on(journal, key, FollowedTask::default(), after..version).await;
    }
    let (events, told) = read?;
    let status = told.follower.status();
    let through = match told.rest.is_empty() {
        true => told.follower.version().max(after),
        false => events.last().map_or(after, |event| event.wal_seq),
    };
    let follower = match through >= version {
        true => Some(told.follower),
        false => {
            let (events, bytes) =
                (told.follower.version(), told.rest.len() * size_of::<TaskEvent>());
            node.told.put((key.clone(), through), told, events, bytes as u64);
            None
        }
    };
    Ok(FollowedPage { events, through, status, follower })
}

/// As [`read`], from the state in `told` on: events behind the start of the range, up to its end.
async fn read_on<J: Journal>(
    journal: &J,
    key: &TaskKey,
    told: FollowedTask,
    Range { start: after, end: version }: Range<u64>,
) -> Result<(Vec<TaskEvent>, FollowedTask), Rejection> {
    let from = told.follower.version();
    let mut begun = PageBuilder { told, ..PageBuilder::default() };
    begun.fill(after);
    if begun.is_full() {
        return Ok((begun.page, begun.told));
    }
    let read = Arc::new(Mutex::new(begun));
    let into = Arc::clone(&read);
    let each = move |commit: Commit| {
        let mut gathered = into.lock();
        if commit.first_seq > version {
            return ControlFlow::Break(());
        }
        match gathered.told.follower.take(&commit) {
            Ok(new) => gathered.told.rest.extend(new),
            Err(error) => gathered.illegal = Some(error),
        }
        gathered.fill(after);
        match gathered.illegal.is_none() && !gathered.is_full() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    };
    journal.read(key, from, each).await.map_err(|error| unreadable(&error))?;
    let PageBuilder { told, page, illegal, .. } = std::mem::take(&mut *read.lock());
    match illegal {
        Some(illegal) => Err(unreadable(&ReadError::Failed(illegal.to_string()))),
        None => Ok((page, told)),
    }
}

/// A page in the making.
#[derive(Default)]
struct PageBuilder {
    told: FollowedTask,
    page: Vec<TaskEvent>,
    bytes: usize,
    illegal: Option<Illegal>,
}

impl PageBuilder {
    /// Puts events on the page as long as it has capacity. Events that share their place in the log
    /// stay on one page.
    fn fill(&mut self, after: u64) {
        while let Some(next) = self.told.rest.pop_front() {
            if next.wal_seq <= after {
                continue;
            }
            let is_apart = self.page.last().is_none_or(|last| last.wal_seq != next.wal_seq);
            if is_apart && self.is_full() {
                self.told.rest.push_front(next);
                return;
            }
            self.bytes += encode(&next).map_or(PAGE_BYTES, |bytes| bytes.len());
            self.page.push(next);
        }
    }

    fn is_full(&self) -> bool {
        self.page.len() >= PAGE_EVENTS || self.bytes >= PAGE_BYTES
    }
}

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// The public events of a Task behind event `after`, up to event `last` of its log, as many as
    /// a page holds: the owner before this one may have sent them to nobody (RECOVER-08).
    ///
    /// # Errors
    /// Its log cannot be read.
    pub async fn read_again(
        &self,
        key: &TaskKey,
        after: u64,
        last: u64,
    ) -> Result<Published, Rejection> {
        let FollowedPage { events, through, status, .. } =
            read(&self.node, key, after, last).await?;
        let page = EventPage { events, through, version: last, status };
        Ok(Published { v: V, after, page })
    }

    /// Sends the observer a Task that ended with event `last` of its log or before: the owner
    /// before this one may not have done so.
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

/// Publishes the public events of a Task as long as somebody listens. A listener that is slower
/// than the Task misses some.
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
            None => follower = None, // Out of step: the state is read from the log again.
        }
    }
}
