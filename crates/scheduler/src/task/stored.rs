//! A Task that rests and has left memory: its log has all of it, and the first message that concerns it has it read
//! again. What this node alone knows of it stays: its place in the lines of pools, its timer, and who waits for it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::command::create::Parent;
use tenure_core::id::{Millis, TaskId};
use tenure_core::{Rejection, Task};
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::address::Address;
use super::{ActorTask, Life, Msg};
use crate::ask::{Envelope, TaskOrder};
use crate::node::NodeShared;

/// The longest pause between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The pause after a look that found nothing, and the longest after several: whoever waits for a place waits longer.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

/// How many Tasks are looked at before other work may run.
const LOOKED_AT_ONCE: usize = 256;

/// What stays in memory of a Task that was put away.
#[derive(Debug)]
pub(crate) struct StoredTask {
    /// When something is due, on its own steady line.
    pub(super) due: Option<Millis>,
    /// Its parent, and whether it outlives the end of that.
    pub(super) parent: Option<(TaskId, bool)>,
    /// What its children are told of it: each asks twice a minute, and that does not bring it back.
    family: Option<Box<StoredFamily>>,
}

/// What the children of a Task that was put away are told of it.
#[derive(Debug)]
struct StoredFamily {
    known: Parent,
    /// The hashes of the children that it has recorded, in order. It is read for any other.
    children: Box<[u64]>,
}

impl StoredFamily {
    fn of(task: &Task) -> Option<Box<Self>> {
        let view = task.durable();
        let ids = view.children();
        let known = Parent::of(&view, ids.first()?);
        let mut children: Box<[u64]> = ids.iter().map(hash_of).collect();
        children.sort_unstable();
        Some(Box::new(Self { known, children }))
    }
}

fn hash_of(id: &TaskId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl StoredTask {
    fn of(task: &Task) -> Self {
        let parent = task.head().spec.parent_task_id.clone();
        let parent = parent.map(|id| (id, task.outlives_parent()));
        Self { due: task.next_due(), parent, family: StoredFamily::of(task) }
    }
}

impl<J: Journal, L: Leases> NodeShared<J, L> {
    /// What a child needs to know of a parent that was put away here. None if the parent has to be asked.
    pub(crate) fn stored_parent(&self, parent: &TaskKey, child: &TaskId) -> Option<Parent> {
        let address = self.directory.get(parent).filter(|it| it.shared().is_stored())?;
        self.journal.epoch(parent)?;
        let mut found = None;
        address.at_rest(|state: &mut ActorTask<J, L>| {
            if let Life::Stored(StoredTask { family: Some(family), .. }) = &state.life {
                let is_its_own = family.children.binary_search(&hash_of(child)).is_ok();
                found = is_its_own.then(|| family.known.clone());
            }
            true
        });
        found
    }
}

/// A Task that rests in memory, as a candidate to be put away.
struct Candidate {
    rested: Instant,
    bytes: u64,
    address: Address,
}

/// Puts Tasks away whenever more bytes of them are in memory than may be.
pub(crate) fn keep_within_memory<J: Journal, L: Leases>(
    node: &Arc<NodeShared<J, L>>,
) -> JoinHandle<()> {
    let (live, node) = (Arc::clone(&node.live), Arc::downgrade(node));
    tokio::spawn(async move {
        let mut pause = AGAIN.0;
        loop {
            let _ = timeout(LOOK, live.pressed()).await; // The node may have gone.
            let Some(node) = node.upgrade() else { return };
            let (before, surplus) = (live.now().memory, live.surplus());
            if surplus == 0 {
                continue;
            }
            put_away_oldest(&node, surplus).await;
            drop(node);
            if live.now().memory < before {
                pause = AGAIN.0;
                continue;
            }
            tokio::time::sleep(pause).await; // All Tasks in memory are at work, and looking through them costs time.
            pause = (pause * 2).min(AGAIN.1);
        }
    })
}

/// Puts away Tasks of so many bytes: those that have rested longest.
async fn put_away_oldest<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>, surplus: u64) {
    let mut candidates = Vec::new();
    for (at, address) in node.directory.all().into_iter().enumerate() {
        if at % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        let mut found = None;
        address.at_rest(|state: &mut ActorTask<J, L>| {
            found = state.rested_bytes();
            true
        });
        candidates.extend(found.map(|(rested, bytes)| Candidate { rested, bytes, address }));
    }
    candidates.sort_unstable_by_key(|candidate| candidate.rested);
    let mut left = surplus;
    for Candidate { bytes, address, .. } in candidates {
        if left == 0 {
            break;
        }
        let mut gone = None;
        address.at_rest(|state: &mut ActorTask<J, L>| {
            gone = state.put_away();
            true
        });
        if let Some(task) = gone {
            node.journal.release(address.key());
            drop(task); // The Task is dropped without the lock, as it may be large.
            left = left.saturating_sub(bytes);
            tokio::task::yield_now().await;
        }
    }
}

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Since when it has rested, and how many bytes it takes, if it is in memory.
    fn rested_bytes(&self) -> Option<(Instant, u64)> {
        let bytes = self.share.as_ref().map_or(0, |share| share.in_memory());
        (bytes > 0).then_some((self.rested?, bytes))
    }

    /// Drops the Task from memory, if its log has all of it and nobody is at work on it.
    fn put_away(&mut self) -> Option<Box<Task>> {
        let Life::Known(task) = &self.life else { return None };
        let is_idle = self.flight.is_none() && self.waiting.is_empty() && self.undone.is_empty();
        if !is_idle || self.pauses || !self.held.is_empty() || !task.is_all_in_log() {
            return None;
        }
        let stored = Life::Stored(StoredTask::of(task));
        let Life::Known(task) = std::mem::replace(&mut self.life, stored) else { return None };
        if let Some(share) = &mut self.share {
            share.put_away();
        }
        Some(task)
    }

    /// Whether the Task was put away, or was not read yet, and a message concerns it. That of a reader that has gone
    /// does not.
    pub(super) fn lacks_task_for(&self, msg: &Msg) -> bool {
        match msg {
            Msg::Lend(reader) if reader.has_gone() => false,
            Msg::Leave(_) => false,
            msg => self.is_unread || matches!(self.life, Life::Stored(_)) && needs_task(msg),
        }
    }

    /// Reads a Task that was put away, or was not read yet.
    pub(super) async fn recall(&mut self, myself: &Address, msg: &mut Msg) {
        let reader = match msg {
            Msg::Lend(reader) => Some(reader),
            _ => None,
        };
        if self.is_unread {
            return self.open(myself, reader).await;
        }
        self.read_log(myself, reader).await;
        if let Life::Known(_) = self.life {
            self.set_timer(myself);
        }
    }

    /// LIVE-01: refuses a command that would add to the Task while its session or the Task itself has as much as it
    /// may. A repetition adds nothing, and is not refused.
    pub(super) fn admit(&self, envelope: &Envelope, what: &TaskOrder) -> Result<(), Rejection> {
        let (Life::Known(task), TaskOrder::Command(command)) = (&self.life, what) else {
            return Ok(());
        };
        let is_repeated = || envelope.command_id().is_some_and(|id| task.remembers(id));
        if !command.grows() || is_repeated() {
            return Ok(());
        }
        self.share.as_ref().map_or(Ok(()), |share| self.node.live.admit_growth(share))
    }

    /// Notes how long the log of the Task is, and whether the Task has ended.
    pub(super) fn count_live(&mut self) {
        let Life::Known(task) = &self.life else { return };
        if task.is_terminal() {
            self.share = None;
            return;
        }
        let bytes = self.node.journal.log_bytes(&self.key).unwrap_or(0);
        match &mut self.share {
            Some(share) => share.note_bytes(bytes),
            None => {
                let maker = &task.head().created_by_agent_id;
                self.share = Some(self.node.live.count(&self.key.session_id, maker, bytes, None));
            }
        }
        self.note_work();
    }
}

impl<J, L> ActorTask<J, L> {
    /// Notes whether the Task has to stay in memory.
    pub(super) fn note_work(&mut self) {
        if let (Life::Known(task), Some(share)) = (&self.life, &mut self.share) {
            share.note_work(task.is_at_work());
        }
    }
}

#[cfg(test)]
mod tests;

/// Whether a message concerns the Task itself.
fn needs_task(msg: &Msg) -> bool {
    match msg {
        Msg::AskParent | Msg::Later | Msg::Leave(_) | Msg::Raise | Msg::Ensure => false,
        Msg::Seen(..) => false, // No Attempt of such a Task is open.
        Msg::Ask(_)
        | Msg::Credits(_)
        | Msg::Unacknowledged(_)
        | Msg::Over(_)
        | Msg::Landed(_)
        | Msg::Flush
        | Msg::Timer(_)
        | Msg::Again
        | Msg::ParentCloses(_)
        | Msg::Adopt(_)
        | Msg::Read(_)
        | Msg::Lend(_)
        | Msg::Asked(..)
        | Msg::Silence
        | Msg::WaitForEnd(_) => true,
    }
}
