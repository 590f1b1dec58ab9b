//! Offers dispatched Runs to workers (5.4 `take_run`).
//!
//! Which worker took a Run is in memory only (DISP-16): the offer is a message, and the claim under
//! it a command like any other. If the worker says nothing for one lease duration, the next worker
//! with capacity gets the Run.

use tenure_core::Task;
use tenure_core::id::{Millis, RunId};
use tenure_core::view::{RunOffer, RuntimeEvent, RuntimeName};
use tenure_ports::bus::Delivery;
use tenure_ports::{Journal, Leases};

use super::address::Address;
use super::{ActorTask, Life, Msg};
use crate::pool::{CreditPermit, Worker};

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Offers Runs to a worker as long as it has capacity, the oldest first.
    pub(super) fn offer_runs(&mut self, myself: &Address, permit: &mut CreditPermit) {
        let until = self.silent_until();
        let Life::Known(task) = &mut self.life else { return };
        while !self.pauses && permit.credits() > 0 {
            let steady = self.node.clock.passed().saturating_add(self.lead);
            let worker = &permit.worker;
            let next = task.run_for((&worker.id, &worker.pool), worker.handlers.as_deref(), steady);
            let Some(offer) = next.map(|run| RunOffer::of(&task.durable(), run)) else { break };
            let run_id = offer.run_id;
            let inbox = &permit.worker.inbox;
            if inbox.unbounded_send(Delivery::Run(Box::new(offer))).is_err() {
                return; // The worker has left; the Run waits for another.
            }
            task.take_run(run_id, (&permit.worker.id, &permit.worker.pool), until);
            self.node.tell(|| taken(task, run_id, self.node.clock.now()));
            if let Some(one) = permit.take_one() {
                one.spend();
            }
            self.listens = self.listens || listen_again(myself, self.node.clock.instant_of(until));
        }
    }

    /// Until when a worker that took a Run may be silent, on the node's steady line.
    fn silent_until(&self) -> Millis {
        self.node.clock.passed().saturating_add_unsigned(self.node.config.limits.lease_ms)
    }

    /// Notes that a worker asks under a Run. It keeps its own Run, or takes one that nobody has.
    pub(super) fn note_asked(&mut self, myself: &Address, run: RunId, worker: &Worker) {
        let until = self.silent_until();
        let Life::Known(task) = &mut self.life else { return };
        let was_taken = is_taken(task, run);
        if !task.take_run(run, (&worker.id, &worker.pool), until) {
            return;
        }
        if !was_taken {
            self.node.tell(|| taken(task, run, self.node.clock.now()));
        }
        self.listens = self.listens || listen_again(myself, self.node.clock.instant_of(until));
    }

    /// Offers the Runs again that silent workers took.
    pub(super) fn end_silence(&mut self, myself: &Address) {
        self.listens = false;
        let Life::Known(task) = &mut self.life else { return };
        if let Some(next) = task.give_runs_back(self.node.clock.passed()) {
            self.listens = listen_again(myself, self.node.clock.instant_of(next));
        }
        self.offer(myself);
    }
}

fn is_taken(task: &Task, run: RunId) -> bool {
    let view = task.durable();
    view.find_run(run).is_some_and(|run| view.memory_of(run).taken_by.is_some())
}

fn taken(task: &Task, run: RunId, now: Millis) -> Option<RuntimeEvent> {
    let view = task.durable();
    let run = view.find_run(run)?;
    Some(RuntimeEvent::of(&view, RuntimeName::RunTaken, run, now))
}

/// Has the actor check for silent workers at a moment.
fn listen_again(actor: &Address, at: tokio::time::Instant) -> bool {
    let actor = actor.clone();
    tokio::spawn(async move {
        tokio::time::sleep_until(at).await;
        let _ = actor.cast(Msg::Silence); // The Task may have gone.
    });
    true
}
