//! Supervision: partitions supervise Tasks, the node supervises partitions and pools.
//!
//! A Task's actor fails only when it no longer knows its state, or because of a defect; either way
//! the log has the truth, and another actor reads the Task again.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tenure_ports::{Journal, Leases};

use crate::node::NodeShared;
use crate::task::host::ActorFailure;
use crate::task::{Begin, Msg as TaskMsg, ReadFn};

/// Supervisors take no messages; they only handle what happens to their children.
#[derive(Debug)]
pub(crate) enum NoMessage {}

/// Supervises the Tasks of one partition, and has a Task read again whose actor failed.
pub(crate) struct PartitionActor<J, L>(pub(crate) std::marker::PhantomData<fn() -> (J, L)>);

/// The state of a partition's supervisor. Dropping it removes the node's Tasks, however the
/// supervisor ends: Tasks that rest hold a reference to the node.
pub(crate) struct PartitionSupervisor<J: Journal, L: Leases>(Arc<NodeShared<J, L>>);

impl<J: Journal, L: Leases> Drop for PartitionSupervisor<J, L> {
    fn drop(&mut self) {
        self.0.directory.clear();
    }
}

impl<J: Journal, L: Leases> Actor for PartitionActor<J, L> {
    type Msg = NoMessage;
    type State = PartitionSupervisor<J, L>;
    type Arguments = Arc<NodeShared<J, L>>;

    async fn pre_start(
        &self,
        _: ActorRef<NoMessage>,
        node: Arc<NodeShared<J, L>>,
    ) -> Result<PartitionSupervisor<J, L>, ActorProcessingErr> {
        Ok(PartitionSupervisor(node))
    }

    async fn post_stop(
        &self,
        myself: ActorRef<NoMessage>,
        _: &mut PartitionSupervisor<J, L>,
    ) -> Result<(), ActorProcessingErr> {
        // Without this a stopping supervisor kills its children in the middle of an append.
        myself.drain_children_and_wait(None).await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<NoMessage>,
        event: SupervisionEvent,
        PartitionSupervisor(node): &mut PartitionSupervisor<J, L>,
    ) -> Result<(), ActorProcessingErr> {
        let SupervisionEvent::ActorFailed(who, error) = event else { return Ok(()) };
        // An actor that failed by a defect could not say which Task it served.
        let failed = error.downcast_ref::<ActorFailure>().map(|failed| failed.task.clone());
        let key = failed.or_else(|| node.directory.of_actor(who.get_id()));
        if let Some(key) = key
            && let Some(address) = node.directory.close_failed(&key, who.get_id())
        {
            tracing::error!(task = %key, %error, "the task's actor failed; its log is read again");
            node.journal.release(&key);
            node.withdraw(&key, &address);
            node.directory.remove(&key, &address);
            // If another node owns the Task now, that one reads it.
            if let Ok(actor) = node.task(&key, Begin::Open) {
                let nudge: ReadFn = Box::new(|_| {});
                let _ = actor.cast(TaskMsg::Read(nudge)); // A terminal Task retires after this.
            }
        }
        Ok(())
    }
}

/// Supervises partitions and pools. Neither fails by design. If one does, the node is broken, and
/// the process ends: otherwise it would own partitions and answer nobody (mechanisms 18).
pub(crate) struct NodeActor;

impl Actor for NodeActor {
    type Msg = NoMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<NoMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_stop(
        &self,
        myself: ActorRef<NoMessage>,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        myself.drain_children_and_wait(None).await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<NoMessage>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, error) = event {
            tracing::error!(%error, "an actor of the node failed; the process ends");
            std::process::abort();
        }
        Ok(())
    }
}
