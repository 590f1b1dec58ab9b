//! Parents and children, whichever partitions they live in: they tell each other what each must
//! know, and each decides for itself (CANCEL-03, CANCEL-04, REL-05).
//!
//! A child asks its parent when it begins, when it is read from its log, and from time to time; so
//! nothing depends on a word that might get lost; one that has ended asks on until its parent has
//! recorded it. A parent that is being closed tells its children at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_core::command::create::Parent;
use tenure_core::id::TaskId;
use tenure_core::status::Intent;
use tenure_core::view::View;
use tenure_core::{Code, Rejection};
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};
use tokio::sync::oneshot;

use super::address::Address;
use super::open::unreadable;
use super::{Begin, Life, Msg, Reader, State};
use crate::node::{Node, stopped};
use crate::peers::Kin;
use crate::relations::is_damaged;

/// How often a child asks (CANCEL-03).
const ASK: Duration = Duration::from_secs(30);

/// How soon one that has ended asks again; then less and less often.
const AGAIN: Duration = Duration::from_secs(1);

impl<J: Journal, L: Leases> State<J, L> {
    /// Asks the parent now and from time to time, as long as the Task is here.
    pub(super) fn watch_parent(&mut self, myself: &Address) {
        let Life::Known(task) = &self.life else { return };
        if task.is_terminal() {
            return;
        }
        let Some(parent) = &task.head().spec.parent_task_id else { return };
        let (actor, node, parent) = (myself.clone(), Arc::clone(&self.node), self.key_of(parent));
        let is_spared = Arc::clone(self.spared.get_or_insert_default());
        tokio::spawn(async move {
            while !is_spared.load(Ordering::Acquire) {
                // The logs of parents that have ended well are not read for ever.
                let ended = node.journal.entry(&parent).await.ok().flatten().and_then(|e| e.ended);
                if ended.is_some_and(|end| end.status().spares_children()) {
                    return;
                }
                if actor.cast(Msg::AskParent).is_err() {
                    let node = Arc::downgrade(&node);
                    return until_recorded(node, parent, actor.key().task_id.clone()).await;
                }
                tokio::time::sleep(ASK).await;
            }
        });
    }

    pub(super) fn ask_parent(&self, myself: &Address) {
        let Life::Known(task) = &self.life else { return };
        let Some(parent) = &task.head().spec.parent_task_id else { return };
        let key = self.key_of(parent);
        if self.node.is_elsewhere(&key).is_some() {
            let spared = self.spared.clone().unwrap_or_default();
            tokio::spawn(ask_elsewhere(Arc::clone(&self.node), key, myself.clone(), spared));
            return;
        }
        let Ok(parent) = self.node.task(&key, Begin::Open) else { return };
        let (child, id, answers) = (myself.clone(), self.key.task_id.clone(), parent.clone());
        let look = move |parent: Result<&View<'_>, &_>| {
            let Ok(parent) = parent else { return };
            // Whoever is not reached asks again, or is asked again.
            if let Some(intent) = parent.closes_children() {
                let _ = child.cast(Msg::ParentCloses(intent));
            } else if parent.adopts(&id).is_some() {
                let _ = answers.cast(Msg::Adopt(id));
            }
        };
        let _ = parent.cast(Msg::Read(Box::new(look)));
    }

    /// Tells children that this Task is being closed, once.
    pub(super) fn tell_children(&mut self) {
        let Life::Known(task) = &self.life else { return };
        let Some(intent) = task.durable().closes_children() else { return };
        if self.children_told.replace(intent) == Some(intent) {
            return;
        }
        for child in task.durable().children() {
            tokio::spawn(tell(Arc::clone(&self.node), self.key_of(&child), intent));
        }
    }

    fn key_of(&self, task: &TaskId) -> TaskKey {
        TaskKey { session_id: self.key.session_id.clone(), task_id: task.clone() }
    }
}

/// REL-05: whatever became of the word that it was made, a child that has ended is recorded by its parent,
/// as long as that records anything.
async fn until_recorded<J: Journal, L: Leases>(
    node: Weak<Node<J, L>>,
    parent: TaskKey,
    child: TaskId,
) {
    let mut pause = AGAIN;
    while let Some(node) = node.upgrade() {
        match parent_of(&node, &parent, &child).await {
            Ok(known) if known.adopts => adopt(&node, &parent, &child),
            Ok(_) => return,
            Err(gone) if gone.code == Code::TaskNotFound || is_damaged(&gone) => return,
            Err(_) => {} // It is asked again.
        }
        drop(node);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(ASK);
    }
}

async fn parent_of<J: Journal, L: Leases>(
    node: &Arc<Node<J, L>>,
    parent: &TaskKey,
    child: &TaskId,
) -> Result<Parent, Rejection> {
    if let Some(peers) = node.is_elsewhere(parent) {
        return peers.parent(parent, child).await;
    }
    let entry = node.journal.entry(parent).await.map_err(|error| unreadable(&error))?;
    if let Some(end) = entry.and_then(|entry| entry.ended) {
        return Ok(Parent::ended(parent.task_id.clone(), end.status()));
    }
    let ((sender, known), child) = (oneshot::channel(), child.clone());
    let look: Reader = Box::new(move |parent| {
        let _ = sender.send(parent.map(|parent| Parent::of(parent, &child)).map_err(Clone::clone));
    });
    let told = node.task(parent, Begin::Open)?.cast(Msg::Read(look));
    told.map_err(|_| stopped("the parent"))?;
    known.await.map_err(|_| stopped("the parent"))?
}

fn adopt<J: Journal, L: Leases>(node: &Arc<Node<J, L>>, parent: &TaskKey, child: &TaskId) {
    if let Some(peers) = node.is_elsewhere(parent) {
        peers.tell(parent, Kin::Adopt(child.clone()));
    } else if let Ok(parent) = node.task(parent, Begin::Open) {
        let _ = parent.cast(Msg::Adopt(child.clone())); // It is told again.
    }
}

/// As [`State::ask_parent`], of a parent that another node has.
async fn ask_elsewhere<J: Journal, L: Leases>(
    node: Arc<Node<J, L>>,
    parent: TaskKey,
    child: Address,
    spared: Arc<AtomicBool>,
) {
    let (Some(peers), id) = (node.is_elsewhere(&parent), &child.key().task_id) else { return };
    // It is asked again in a while.
    let Ok(known) = peers.parent(&parent, id).await else { return };
    if let Some(intent) = known.closes_children {
        let _ = child.cast(Msg::ParentCloses(intent));
    } else if known.adopts {
        peers.tell(&parent, Kin::Adopt(id.clone()));
    }
    spared.store(known.status.spares_children(), Ordering::Release);
}

/// Tells a child that its parent is being closed. One that has ended is left alone, and one that
/// cannot be reached now will ask.
async fn tell<J: Journal, L: Leases>(node: Arc<Node<J, L>>, child: TaskKey, intent: Intent) {
    if let Some(peers) = node.is_elsewhere(&child) {
        return peers.tell(&child, Kin::ParentCloses);
    }
    let is_live = match node.journal.entry(&child).await {
        Ok(Some(entry)) => entry.ended.is_none(),
        Ok(None) | Err(_) => false,
    };
    if is_live && let Ok(actor) = node.task(&child, Begin::Open) {
        let _ = actor.cast(Msg::ParentCloses(intent));
    }
}
