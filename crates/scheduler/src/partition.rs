//! Supervision: partitions hold Tasks, the node holds partitions and pools.
//!
//! A Task's actor stops only when it no longer knows its state, or because of a defect; either way
//! the log knows, and the Task is read again.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};

use crate::node::Node;
use crate::task::{Begin, Msg as TaskMsg};

/// FNV-1a 64 over session, a zero byte, and task (OWN-01).
pub fn hash(key: &TaskKey) -> u64 {
    let bytes = key.session_id.as_str().bytes().chain([0]).chain(key.task_id.as_str().bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The partition of a Task among `count` (OWN-01).
pub fn of(key: &TaskKey, count: usize) -> usize {
    usize::try_from((hash(key) >> 32) % (count.max(1) as u64)).unwrap_or(0)
}

/// What a supervisor is told: nothing but what happens to its children.
#[derive(Debug)]
pub(crate) enum Nothing {}

/// Supervises Tasks of one partition, and reads those again whose actor failed.
pub(crate) struct PartitionActor<J, L>(pub(crate) std::marker::PhantomData<fn() -> (J, L)>);

impl<J: Journal, L: Leases> Actor for PartitionActor<J, L> {
    type Msg = Nothing;
    type State = Arc<Node<J, L>>;
    type Arguments = Arc<Node<J, L>>;

    async fn pre_start(
        &self,
        _: ActorRef<Nothing>,
        node: Arc<Node<J, L>>,
    ) -> Result<Arc<Node<J, L>>, ActorProcessingErr> {
        Ok(node)
    }

    async fn post_stop(
        &self,
        myself: ActorRef<Nothing>,
        _: &mut Arc<Node<J, L>>,
    ) -> Result<(), ActorProcessingErr> {
        // Without this a stopping supervisor kills its children in the middle of an append.
        myself.drain_children_and_wait(None).await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Nothing>,
        event: SupervisionEvent,
        node: &mut Arc<Node<J, L>>,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(who, error) = event
            && let Some(key) = node.directory.remove_id(who.get_id())
        {
            tracing::error!(task = %key, %error, "the task's actor failed; its log is read again");
            node.journal.release(&key);
            if let Ok(actor) = node.task(&key, Begin::Open) {
                let nudge = Box::new(|_: Result<&_, &_>| {});
                let _ = actor.cast(TaskMsg::Read(nudge)); // A terminal Task retires after this.
            }
        }
        Ok(())
    }
}

/// Supervises partitions and pools. Neither fails by design; if one does, the node is broken and
/// says so.
pub(crate) struct NodeActor;

impl Actor for NodeActor {
    type Msg = Nothing;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Nothing>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_stop(
        &self,
        myself: ActorRef<Nothing>,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        myself.drain_children_and_wait(None).await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Nothing>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, error) = event {
            tracing::error!(%error, "an actor of the node failed");
            return Err(error);
        }
        Ok(())
    }
}
