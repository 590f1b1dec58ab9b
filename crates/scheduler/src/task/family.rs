//! Parents and children, whichever partitions they live in: each sends the other what it must know,
//! and each decides for itself (CANCEL-03, CANCEL-04, REL-05).
//!
//! A parent records a child before the child is made (`relations.rs`). A child asks its parent when
//! it begins, when it is read from its log, and from time to time, so that a lost message does no
//! harm. A parent that is being closed notifies its children at once; one that completes does not, as
//! few children end with it (REL-09).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::command::create::ParentEnd;
use tenure_core::id::TaskId;
use tenure_core::status::{End, TaskStatus};
use tenure_core::view::View;
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};

use super::address::Address;
use super::stored::StoredTask;
use super::{ActorTask, Begin, Life, Msg};
use crate::node::NodeShared;
use crate::peers::FamilyNotice;

/// How often a child asks (CANCEL-03).
const ASK: Duration = Duration::from_secs(30);

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Asks the parent now and from time to time, as long as the Task is on this node.
    pub(super) fn watch_parent(&mut self, myself: &Address) {
        let Life::Known(task) = &self.life else { return };
        if task.is_terminal() {
            return;
        }
        let Some(parent) = &task.head().spec.parent_task_id else { return };
        let (actor, node, parent) = (myself.clone(), Arc::clone(&self.node), self.key_of(parent));
        let is_spared = Arc::clone(self.spared.get_or_insert_default());
        let outlives = task.outlives_parent();
        tokio::spawn(async move {
            while !is_spared.load(Ordering::Acquire) {
                // A parent that has completed need not be read again.
                let ended = node.journal.entry(&parent).await.ok().flatten().and_then(|e| e.ended);
                let completed = ended == Some(End::Completed);
                if completed && outlives {
                    return;
                }
                let asks = match completed {
                    true => Msg::ParentCloses(ParentEnd::Completed),
                    false => Msg::AskParent,
                };
                if actor.cast(asks).is_err() {
                    return; // The Task has left this address.
                }
                tokio::time::sleep(ASK).await;
            }
        });
    }

    pub(super) fn ask_parent(&self, myself: &Address) {
        let (parent, outlives) = match &self.life {
            Life::Known(task) => match &task.head().spec.parent_task_id {
                Some(parent) => (parent, task.outlives_parent()),
                None => return,
            },
            Life::Stored(StoredTask { parent: Some((parent, outlives)), .. }) => {
                (parent, *outlives)
            }
            Life::Stored(_) | Life::New | Life::Unreadable(_) => return,
        };
        let key = self.key_of(parent);
        if self.node.is_elsewhere(&key).is_some() {
            let spared = self.spared.clone().filter(|_| outlives);
            tokio::spawn(ask_elsewhere(Arc::clone(&self.node), key, myself.clone(), spared));
            return;
        }
        if let Some(known) = self.node.stored_parent(&key, &self.key.task_id) {
            if let Some(end) = known.end() {
                let _ = myself.cast(Msg::ParentCloses(end));
            }
            return;
        }
        let Ok(parent) = self.node.task(&key, Begin::Open) else { return };
        let (child, id, answers) = (myself.clone(), self.key.task_id.clone(), parent.clone());
        let look = move |parent: Result<&View<'_>, &_>| {
            let Ok(parent) = parent else { return };
            // If the message is lost, the child asks again, or its parent has it ask.
            if let Some(end) = parent.end_for_children() {
                let _ = child.cast(Msg::ParentCloses(end));
            } else if parent.adopts(&id).is_some() {
                let _ = answers.cast(Msg::Adopt(id));
            }
        };
        let _ = parent.cast(Msg::Read(Box::new(look)));
    }

    /// Notifies the children that this Task is being closed, once for each intent.
    pub(super) fn tell_children(&mut self) {
        let Life::Known(task) = &self.life else { return };
        let Some(intent) = task.durable().closes_children() else { return };
        if self.children_notified.replace(intent) == Some(intent) {
            return;
        }
        for child in task.durable().children() {
            tokio::spawn(tell(Arc::clone(&self.node), self.key_of(&child)));
        }
    }

    fn key_of(&self, task: &TaskId) -> TaskKey {
        TaskKey { session_id: self.key.session_id.clone(), task_id: task.clone() }
    }
}

/// As [`ActorTask::ask_parent`], for a parent that another node owns.
async fn ask_elsewhere<J: Journal, L: Leases>(
    node: Arc<NodeShared<J, L>>,
    parent: TaskKey,
    child: Address,
    spared: Option<Arc<AtomicBool>>,
) {
    let (Some(peers), id) = (node.is_elsewhere(&parent), &child.key().task_id) else { return };
    // On an error the child asks again after [`ASK`].
    let Ok(known) = peers.parent(&parent, id).await else { return };
    if let Some(end) = known.end() {
        let _ = child.cast(Msg::ParentCloses(end));
    } else if known.adopts {
        peers.tell(&parent, FamilyNotice::Adopt(id.clone()));
    }
    if let Some(spared) = spared {
        spared.store(known.status == TaskStatus::Completed, Ordering::Release);
    }
}

/// Notifies a child that its parent is being closed; the child then asks its parent, and decides. A
/// child that has ended is left alone, and one that cannot be reached now will ask by itself.
async fn tell<J: Journal, L: Leases>(node: Arc<NodeShared<J, L>>, child: TaskKey) {
    if let Some(peers) = node.is_elsewhere(&child) {
        return peers.tell(&child, FamilyNotice::ParentCloses);
    }
    let is_live = match node.journal.entry(&child).await {
        Ok(Some(entry)) => entry.ended.is_none(),
        Ok(None) | Err(_) => false,
    };
    if is_live && let Ok(actor) = node.task(&child, Begin::Open) {
        let _ = actor.cast(Msg::AskParent); // As above.
    }
}
