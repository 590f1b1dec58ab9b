//! The address of a Task on its node. A message sent to it reaches the Task whether an actor is
//! busy with the Task or not.
//!
//! Step 4 of the walk in docs/architecture.md.

use std::any::Any;
use std::fmt;
use std::mem::replace;
use std::sync::Arc;

use parking_lot::Mutex;
use ractor::{ActorId, ActorRef, MessagingErr};
use tenure_ports::journal::TaskKey;

use super::shared::SharedTask;
use super::{Begin, Msg};

/// A Task on this node, from when it is read or made until it is over or the node leaves it.
///
/// Only a busy Task has an actor. A Task with which nothing happens rests, and the first message to
/// it gets it a free actor: an actor and its mailboxes take as much memory as a small Task.
#[derive(Clone)]
pub(crate) struct Address(Arc<Stay>);

struct Stay {
    key: TaskKey,
    place: Mutex<ActorState>,
    shared: SharedTask,
}

enum ActorState {
    /// An actor serves it, which has so many messages for it to read.
    Busy { actor: ActorRef<ActorMessage>, unread: u64 },
    /// No actor serves it; its state is here.
    Resting(Box<dyn Resting>),
    /// The Task is no longer on this node, or has another address.
    Over,
}

/// A Task without an actor.
pub(crate) trait Resting: Any + Send {
    /// Gets a free actor for the Task. None if the node is stopping.
    fn lend(&self) -> Option<ActorRef<ActorMessage>>;

    /// Takes the Task from where readers find it. Answers whether nobody reads it just now.
    fn try_fetch(&mut self, address: &Address) -> bool;

    /// Puts the Task where readers find it.
    fn share(&mut self, address: &Address);
}

/// A message to an actor of Tasks.
pub(crate) enum ActorMessage {
    /// Serve a Task that this node does not have yet.
    Begin(Address, Begin),
    /// Serve a Task that rested.
    Resume(Address, Box<dyn Resting>),
    /// A message for a Task that the actor serves.
    For(Address, Msg),
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.0.key)
    }
}

impl fmt::Debug for ActorMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(to, _) => write!(f, "Begin({})", to.key()),
            Self::Resume(to, _) => write!(f, "Resume({})", to.key()),
            Self::For(to, msg) => write!(f, "For({}, {msg:?})", to.key()),
        }
    }
}

impl Address {
    /// Has a free actor serve a Task. None if the actor has ended.
    pub(crate) fn begin(actor: ActorRef<ActorMessage>, key: TaskKey, begin: Begin) -> Option<Self> {
        let place = Mutex::new(ActorState::Busy { actor: actor.clone(), unread: 0 });
        let address = Self(Arc::new(Stay { key, place, shared: SharedTask::default() }));
        actor.cast(ActorMessage::Begin(address.clone(), begin)).ok()?;
        Some(address)
    }

    /// The address of a Task that is on no node.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        let (session_id, task_id) = ("s".parse().unwrap(), "t".parse().unwrap());
        let (key, place) = (TaskKey { session_id, task_id }, Mutex::new(ActorState::Over));
        Self(Arc::new(Stay { key, place, shared: SharedTask::default() }))
    }

    pub(crate) fn key(&self) -> &TaskKey {
        &self.0.key
    }

    /// Where readers find the Task.
    pub(crate) fn shared(&self) -> &SharedTask {
        &self.0.shared
    }

    /// Whether this is the same stay.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sends the Task a message.
    ///
    /// # Errors
    /// The message, if the Task has no longer this address, or the node is stopping.
    pub(crate) fn cast(&self, msg: Msg) -> Result<(), Msg> {
        let place = &mut *self.0.place.lock();
        self.wake(place);
        let ActorState::Busy { actor, unread } = place else { return Err(msg) };
        match actor.cast(ActorMessage::For(self.clone(), msg)) {
            Ok(()) => {
                *unread += 1;
                Ok(())
            }
            Err(MessagingErr::SendErr(ActorMessage::For(_, msg))) => Err(msg),
            Err(_) => Ok(()), // The only possible error is that of an actor that has ended.
        }
    }

    /// Gives a Task that rests an actor, unless the node is stopping.
    fn wake(&self, place: &mut ActorState) {
        while let ActorState::Resting(state) = place
            && let Some(actor) = state.lend()
        {
            let ActorState::Resting(state) = replace(place, ActorState::Over) else { return };
            *place = match actor.cast(ActorMessage::Resume(self.clone(), state)) {
                Ok(()) => ActorState::Busy { actor, unread: 0 },
                // That actor has ended; there are others.
                Err(MessagingErr::SendErr(ActorMessage::Resume(_, state))) => {
                    ActorState::Resting(state)
                }
                Err(_) => return,
            };
        }
    }

    /// Whether there are messages behind the one that is being handled.
    pub(super) fn has_more(&self) -> bool {
        matches!(&*self.0.place.lock(), ActorState::Busy { unread, .. } if *unread > 1)
    }

    /// Notes that the actor has handled a message. Answers whether there is no other.
    pub(super) fn note_read(&self) -> bool {
        match &mut *self.0.place.lock() {
            ActorState::Busy { unread, .. } => {
                *unread = unread.saturating_sub(1);
                *unread == 0
            }
            ActorState::Resting(_) | ActorState::Over => false,
        }
    }

    /// Has the Task rest. If there is a message for it, gives the state back.
    pub(super) fn rest<S: Resting>(&self, state: Box<S>) -> Result<(), Box<S>> {
        let place = &mut *self.0.place.lock();
        match place {
            ActorState::Busy { unread: 0, .. } => {
                *place = ActorState::Resting(state);
                Ok(())
            }
            _ => Err(state),
        }
    }

    /// Ends the Task's stay, unless there is a message for it.
    pub(super) fn end(&self) -> bool {
        let place = &mut *self.0.place.lock();
        let is_unread = matches!(place, ActorState::Busy { unread, .. } if *unread > 0);
        if !is_unread {
            *place = ActorState::Over;
            self.0.shared.empty();
        }
        !is_unread
    }

    /// Ends the Task's stay on this node, whatever messages there are.
    pub(crate) fn close(&self) {
        *self.0.place.lock() = ActorState::Over;
        self.0.shared.empty();
    }

    /// Applies `look` to a Task that rests and that nobody reads. The Task goes on resting if `look`
    /// answers true. Answers whether it did so.
    pub(crate) fn at_rest<S: Resting>(&self, look: impl FnOnce(&mut S) -> bool) -> bool {
        let place = &mut *self.0.place.lock();
        let ActorState::Resting(state) = place else { return false };
        let state: &mut dyn Any = &mut **state;
        let Some(state) = state.downcast_mut::<S>() else { return false };
        if !state.try_fetch(self) {
            return false;
        }
        let stays = look(state);
        state.share(self);
        if !stays {
            *place = ActorState::Over;
        }
        true
    }

    /// Whether this actor is busy with the Task.
    pub(crate) fn is_with(&self, id: ActorId) -> bool {
        matches!(&*self.0.place.lock(), ActorState::Busy { actor, .. } if actor.get_id() == id)
    }
}
