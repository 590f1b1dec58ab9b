//! Access to Tasks that other nodes own: a command may refer to them, and parents and children must
//! reach each other, wherever they live.

use futures::future::BoxFuture;
use tenure_core::command::create::Parent;
use tenure_core::id::TaskId;
use tenure_core::view::View;
use tenure_core::{Caller, Code, Rejection, Task};
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};

use crate::ask::Envelope;
use crate::handle::{Lane, Scheduler, ambiguous};
use crate::task::Msg;
use crate::task::open::unreadable;

/// The other nodes of a cluster.
pub trait Peers: Send + Sync + std::fmt::Debug + 'static {
    /// A Task as its owner reads it from the log.
    fn read(&self, key: &TaskKey) -> BoxFuture<'static, Result<Box<Task>, Rejection>>;

    /// What a child needs to know of its parent; the parent's owner answers.
    fn parent(
        &self,
        key: &TaskKey,
        child: &TaskId,
    ) -> BoxFuture<'static, Result<Parent, Rejection>>;

    /// The same for a child that is to be made, once the parent has recorded it durably.
    fn record(
        &self,
        key: &TaskKey,
        child: &TaskId,
    ) -> BoxFuture<'static, Result<Parent, Rejection>>;

    /// Sends the owner of a Task a notice about the Task's family. It may get lost: children ask
    /// from time to time.
    fn tell(&self, key: &TaskKey, word: FamilyNotice);
}

/// A notice to a Task about its family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FamilyNotice {
    /// The Task's parent is being closed, or was; the Task asks its parent how.
    ParentCloses,
    /// A Task was made as a child of this one.
    Adopt(TaskId),
}

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// Sets the access to the other nodes. Without it, a Task that is not here does not exist.
    pub fn set_peers(&self, peers: impl Peers) {
        self.node.set_peers(Box::new(peers));
    }

    /// Passes on another node's notice about a Task's family, if the Task lives here.
    pub fn hear_of_family(&self, key: &TaskKey, word: FamilyNotice) {
        if let Some(actor) = self.node.directory.get(key) {
            // A Task that has just left its address has ended, or asks when it is read again.
            let _ = actor.cast(match word {
                FamilyNotice::ParentCloses => Msg::AskParent,
                FamilyNotice::Adopt(child) => Msg::Adopt(child),
            });
        }
    }

    /// What a child needs to know of a parent that lives here. If the parent has ended, or was put away and knows the
    /// child, its log is not read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn parent(&self, key: &TaskKey, child: &TaskId) -> Result<Parent, Rejection> {
        let entry = self.node.journal.entry(key).await.map_err(|error| unreadable(&error))?;
        if let Some(end) = entry.and_then(|entry| entry.ended) {
            return Ok(Parent::ended(key.task_id.clone(), end.status()));
        }
        if let Some(known) = self.node.stored_parent(key, child) {
            return Ok(known);
        }
        let child = child.clone();
        self.read(key, move |task| Parent::of(task, &child)).await
    }

    /// The same for a child that is to be made, once its parent has recorded it durably (REL-05).
    ///
    /// # Errors
    /// As [`read`](Self::read); the parent ends just now, or its log cannot be written.
    pub async fn record(&self, key: &TaskKey, child: &TaskId) -> Result<Parent, Rejection> {
        let known = self.parent(key, child).await?;
        if !known.adopts {
            return Ok(known);
        }
        let id = child.clone();
        let look = move |task: &View<'_>| (Parent::of(task, &id), task.adopts(&id));
        let (known, link) = self.read(key, look).await?; // The parent may have ended meanwhile.
        if let Some(link) = link {
            let envelope = Envelope::new(Caller::system(key.session_id.clone()), None);
            let recorded =
                self.send(self.permit(Lane::Commands, &envelope.caller)?, key, envelope, link)?;
            match recorded.await.map_err(|_| ambiguous())? {
                Ok(_) => {}
                // As the parent is now, it takes no child.
                Err(over) if matches!(over.code, Code::TaskTerminal | Code::TaskCancelling) => {
                    return self.parent(key, child).await;
                }
                Err(refused) => return Err(refused),
            }
        }
        Ok(Parent { adopts: false, ..known })
    }

    /// Reads a Task wherever it lives: here at its last durable state, elsewhere from its log.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        key: &TaskKey,
        look: impl FnOnce(&View<'_>) -> T + Send + 'static,
    ) -> Result<T, Rejection> {
        match self.node.is_elsewhere(key) {
            Some(peers) => Ok(look(&peers.read(key).await?.durable())),
            None => self.read(key, look).await,
        }
    }
}
