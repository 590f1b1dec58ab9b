//! Leaving a Task to another node, and making sure of leases after a change of owners.

use tenure_core::Rejection;
use tenure_core::task::Waits;
use tenure_ports::leases::Lease;
use tenure_ports::{Journal, Leases};

use super::address::Address;
use super::{ActorTask, Begin, Life, Waiting};
use crate::node::not_owner;

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
        self.offer(myself);
        self.life = Life::New;
        self.share = None;
        self.pools.clear();
        self.waits.tell(Waits::default());
        self.is_left = true;
        self.node.directory.remove(&self.key, myself);
        self.node.journal.release(&self.key);
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        // If this node owns the partition again, in another epoch, the scheduler that resumed it
        // found this address.
        if self.node.journal.epoch(&self.key).is_some_and(|epoch| epoch != self.epoch) {
            let _ = self.node.task(&self.key, Begin::Open); // The node may be stopping.
        }
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
