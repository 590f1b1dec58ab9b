//! Ends a Task's stay on this node, as another node takes it or it has ended; and confirms its leases after a change
//! of owners.

use tenure_core::Rejection;
use tenure_core::task::Waits;
use tenure_ports::leases::Lease;
use tenure_ports::{Journal, Leases};

use super::address::Address;
use super::{ActorTask, Begin, Life, Msg, Waiting};
use crate::node::not_owner;
use crate::pool::{Left, Msg as PoolMsg};

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Ends the Task's stay once it has no append in flight. Callers that wait are told to ask the
    /// next owner, and the pools withdraw its Steps.
    ///
    /// `of` is the epoch that is over; a Task of a newer one stays.
    pub(crate) fn leave_epoch(&mut self, myself: &Address, of: Option<u64>) {
        if of.is_none_or(|epoch| epoch >= self.epoch) {
            self.leave(myself);
        }
    }

    /// Has pools take back what they were sent of a Task that is not in memory, or whose actor ends.
    pub(super) fn withdraw(&mut self, myself: &Address) {
        for pool in std::mem::take(&mut self.offered) {
            let nothing = Left::nothing(myself);
            self.node.tell_pool(&pool, PoolMsg::Ready(self.key.clone(), nothing));
        }
    }

    /// Whether it was left.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left
    }

    /// Ends the Task's stay, whatever its epoch.
    pub(super) fn leave(&mut self, myself: &Address) {
        if self.flight.is_some() || self.is_left {
            // The append is fenced or succeeds; when it returns, the actor checks the ownership
            // again.
            return;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            if let Waiting::Ask(ask) = waiting {
                let _ = ask.reply_to.send(Err(not_owner(&self.key))); // The caller may have gone.
            }
        }
        for held in self.late.take_all() {
            let _ = held.reply_to.send(Err(moved())); // As above.
        }
        self.watchers.clear();
        self.held.clear();
        self.pauses = true;
        self.is_left = true;
        self.offer(myself);
        self.withdraw(myself);
        self.life = Life::New;
        self.share = None;
        self.pools.clear();
        self.waits.tell(Waits::default());
        self.node.directory.remove(&self.key, myself);
        self.node.journal.release(&self.key);
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        // If this node owns the partition again, in another epoch, the scheduler that resumed it
        // found this address.
        if self.node.journal.epoch(&self.key).is_some_and(|epoch| epoch != self.epoch) {
            // The node may be stopping.
            if let Ok(address) = self.node.task(&self.key, Begin::Open) {
                let _ = address.cast(Msg::Read(Box::new(|_| {}))); // A reader may have begun it, and have gone.
            }
        }
    }

    /// Whether the Task needs no actor now: the next message gets it one.
    pub(super) fn may_rest(&self) -> bool {
        let is_known = self.is_shared || matches!(self.life, Life::Known(_) | Life::Stored(_));
        is_known && self.flight.is_none() && self.waiting.is_empty()
    }

    /// Ends the stay of a Task that was left, or that is over and has no unread message. Answers
    /// whether the stay has ended. Callers that waited for the end of the Task or of its Runs are
    /// answered by then.
    pub(super) fn retire(&mut self, myself: &Address) -> bool {
        if self.is_left {
            myself.close();
            return true;
        }
        let idle = self.flight.is_none() && self.waiting.is_empty();
        let over = match &self.life {
            _ if self.is_shared => false, // If the Task had ended, the actor would have taken the message.
            Life::Known(task) => task.is_terminal(),
            Life::Stored(_) => false,
            Life::Unreadable(_) | Life::New => !self.pauses,
        };
        let ends = idle && over && myself.end();
        if ends {
            self.pools.clear();
            self.withdraw(myself);
            self.answer_late([]); // Callers that still wait, as the log cannot be read or another node has it.
            if let (Some(bytes), Life::Known(_)) = (self.ended_bytes, &self.life)
                && let Life::Known(task) = std::mem::replace(&mut self.life, Life::New)
            {
                let version = task.version();
                self.node.ended.put(self.key.clone(), task, version, bytes);
            }
            self.node.directory.remove(&self.key, myself);
            self.node.journal.release(&self.key);
            if let Some((_, timer)) = self.timer.take() {
                timer.abort();
            }
        }
        ends
    }

    /// Makes sure that every open Attempt has a lease (LEASE-15).
    pub(crate) fn raise_leases(&self) {
        self.node.raise_leases(self.open_leases());
    }

    /// A lease for each open Attempt, with all of its duration.
    pub(crate) fn open_leases(&self) -> Vec<Lease> {
        let Life::Known(task) = &self.life else { return Vec::new() };
        let lease = |attempt: &tenure_core::task::Attempt| Lease {
            task: self.key.clone(),
            attempt_id: attempt.attempt_id,
            duration_ms: attempt.lease_ms,
        };
        task.open_attempts().map(lease).collect()
    }
}

/// The command stands; a caller that waits for what it began asks again.
fn moved() -> Rejection {
    Rejection::in_doubt("the task has moved to another node; repeat the command with the same id")
}
