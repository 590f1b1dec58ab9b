//! The actor that serves Tasks, one after another. It reads the message, and passes it to the Task
//! that it serves.
//!
//! Step 4 of the walk in docs/architecture.md.

use std::any::Any;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tenure_core::event::LeaseEnd;
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};

use super::address::{ActorMessage, Address, Resting};
use super::{ActorTask, Begin, Life, Msg, Waiting};
use crate::node::NodeShared;

/// The ractor actor; its state is [`ActorHost`].
pub(crate) struct TaskActor<J, L>(std::marker::PhantomData<fn() -> (J, L)>);

impl<J, L> TaskActor<J, L> {
    pub(crate) fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

/// An actor that no longer knows the state of its Task.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct ActorFailure {
    pub(crate) task: TaskKey,
    why: ActorProcessingErr,
}

/// The state of the actor: the Task that it serves, if any.
pub(crate) struct ActorHost<J, L> {
    node: Arc<NodeShared<J, L>>,
    serves: Option<(Address, Box<ActorTask<J, L>>)>,
}

impl<J: Journal, L: Leases> Actor for TaskActor<J, L> {
    type Msg = ActorMessage;
    type State = ActorHost<J, L>;
    type Arguments = Arc<NodeShared<J, L>>;

    async fn pre_start(
        &self,
        _: ActorRef<ActorMessage>,
        node: Arc<NodeShared<J, L>>,
    ) -> Result<ActorHost<J, L>, ActorProcessingErr> {
        Ok(ActorHost { node, serves: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<ActorMessage>,
        letter: ActorMessage,
        host: &mut ActorHost<J, L>,
    ) -> Result<(), ActorProcessingErr> {
        match letter {
            ActorMessage::For(address, mut msg) => match &mut host.serves {
                Some((own, state)) if own.is(&address) => {
                    if state.lacks_task_for(&msg) {
                        Box::pin(state.recall(own, &mut msg)).await; // Boxed, as below.
                    }
                    match msg {
                        Msg::Lend(reader) => {
                            state.share(own);
                            state.lend(own, reader);
                        }
                        msg => {
                            if !state.try_fetch(own) {
                                Box::pin(state.fetch(own)).await;
                            }
                            let done = state.handle(own, msg).await;
                            done.map_err(|why| ActorFailure { task: own.key().clone(), why })?;
                        }
                    }
                    let is_idle = own.note_read();
                    let is_wanted = own.shared().is_wanted();
                    if is_idle || state.is_left {
                        if own.shared().is_over() {
                            Box::pin(state.fetch(own)).await;
                        }
                        host.retire(&myself);
                        host.rest(&myself);
                    }
                    if is_idle || is_wanted {
                        host.share();
                    }
                }
                _ => host.forward(address.key(), msg),
            },
            ActorMessage::Resume(address, state) => {
                let state: Box<dyn Any> = state;
                host.serves = state.downcast().ok().map(|state| (address, state));
            }
            ActorMessage::Begin(address, begin) => {
                Box::pin(host.begin(address, begin)).await;
                host.rest(&myself);
                host.share();
            }
        }
        Ok(())
    }

    /// Waits for the append in flight. Its callers learn that the outcome of their command is not known; they find out
    /// by sending it again with the same id.
    async fn post_stop(
        &self,
        _: ActorRef<ActorMessage>,
        host: &mut ActorHost<J, L>,
    ) -> Result<(), ActorProcessingErr> {
        let flight = host.serves.as_mut().and_then(|(_, state)| state.flight.take());
        if let Some(append) = flight.and_then(|flight| flight.append) {
            let _ = append.await; // A panic in it has been logged.
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<ActorMessage>,
        _: SupervisionEvent,
        _: &mut ActorHost<J, L>,
    ) -> Result<(), ActorProcessingErr> {
        Ok(()) // A Task has no children; the default would stop it.
    }
}

impl<J: Journal, L: Leases> ActorHost<J, L> {
    async fn begin(&mut self, address: Address, begin: Begin) {
        let mut state = Box::new(ActorTask::new(address.key().clone(), Arc::clone(&self.node)));
        match begin {
            Begin::Create => {}
            Begin::Open => state.open(&address, None).await,
            Begin::Look => state.is_unread = true,
        }
        self.serves = Some((address, state));
    }

    /// Lets go of a Task that is over, and becomes free.
    fn retire(&mut self, myself: &ActorRef<ActorMessage>) {
        if let Some((_, state)) = self.serves.take_if(|(address, state)| state.retire(address)) {
            self.node.take_back(&state.key, myself);
        }
    }

    /// Lets the Task rest if nothing happens with it, and becomes free.
    fn rest(&mut self, myself: &ActorRef<ActorMessage>) {
        let Some((address, state)) = self.serves.take_if(|(_, state)| state.may_rest()) else {
            return;
        };
        let (key, mut state) = (state.key.clone(), state);
        state.rested = Some(tokio::time::Instant::now());
        state.note_work();
        state.share(&address);
        match address.rest(state) {
            Ok(()) => self.node.take_back(&key, myself),
            Err(state) => self.serves = Some((address, state)),
        }
    }

    /// Puts the Task where readers find it.
    fn share(&mut self) {
        if let Some((address, state)) = &mut self.serves {
            state.share(address);
        }
    }

    /// Sends a message for a Task that was left to the Task's new address.
    fn forward(&self, key: &TaskKey, msg: Msg) {
        match msg {
            Msg::Ask(_) | Msg::Read(_) | Msg::Lend(_) | Msg::WaitForEnd(_) => {
                if let Ok(successor) = self.node.task(key, Begin::Open) {
                    // If that one is gone too, the caller gets an error.
                    let _ = successor.cast(msg);
                }
            }
            // Credits go back to their pool by themselves.
            Msg::Credits(_)
            | Msg::Unacknowledged(_)
            | Msg::Over(_)
            | Msg::Landed(_)
            | Msg::Flush
            | Msg::Timer(_)
            | Msg::Later
            | Msg::Again
            | Msg::AskParent
            | Msg::ParentCloses(_)
            | Msg::Asked(..)
            | Msg::Seen(..)
            | Msg::Silence
            | Msg::Raise
            | Msg::Ensure
            | Msg::Leave(_)
            | Msg::Adopt(_) => {}
        }
    }
}

impl<J: Journal, L: Leases> ActorTask<J, L> {
    async fn handle(&mut self, myself: &Address, msg: Msg) -> Result<(), ActorProcessingErr> {
        match msg {
            Msg::Ask(ask) => self.gather(myself, Waiting::Ask(ask)),
            Msg::Credits(credits) => self.gather(myself, Waiting::Credits(credits)),
            Msg::Unacknowledged(attempt) => {
                if !self.notify_again.contains(&attempt) {
                    self.gather(myself, Waiting::Unacknowledged(attempt));
                }
            }
            Msg::Over(leases) => {
                let attempts = leases.keys().copied().collect();
                self.over = leases;
                self.gather(myself, Waiting::Expired(attempts, LeaseEnd::LeaseExpired));
            }
            Msg::Flush => {
                self.flush_is_due = false;
                self.flush(myself);
            }
            // What may wait is boxed: the library of actors moves the future of each message several times.
            Msg::Landed(landed) => {
                if let Some(failed) = self.land(myself, landed)? {
                    Box::pin(self.not_created(myself, failed)).await;
                }
            }
            Msg::Timer(generation) => self.wake(myself, generation),
            Msg::Later => self.set_timer(myself),
            Msg::Again => Box::pin(self.try_again(myself)).await,
            Msg::AskParent => self.ask_parent(myself),
            Msg::ParentCloses(end) => self.gather(myself, Waiting::ParentCloses(end)),
            Msg::Adopt(child) => self.gather(myself, Waiting::Adopt(child)),
            Msg::Read(reader) => self.read(reader),
            Msg::Lend(reader) => self.lend(myself, reader),
            Msg::Asked(run, worker) => self.note_asked(myself, run, &worker),
            Msg::Seen(who, held) => self.note_seen(&who, &held),
            Msg::Silence => self.end_silence(myself),
            Msg::WaitForEnd(watcher) => self.watch(watcher),
            Msg::Raise => self.raise_leases(),
            Msg::Ensure => self.node.ensure_leases(self.open_leases()),
            Msg::Leave(of) => self.leave_epoch(myself, of),
        }
        Ok(())
    }
}

impl<J: Journal, L: Leases> Resting for ActorTask<J, L> {
    fn lend(&self) -> Option<ActorRef<ActorMessage>> {
        self.node.lend(&self.key).ok()
    }

    fn try_fetch(&mut self, address: &Address) -> bool {
        if self.is_shared {
            let Some(taken) = address.shared().try_take(false) else { return false };
            self.is_shared = false;
            self.life = taken.map_or(Life::New, Life::Known);
        }
        true
    }

    fn share(&mut self, address: &Address) {
        ActorTask::share(self, address);
    }
}
