//! Gives a Step to another worker than the one whose turn it is, where that one suits it better.
//!
//! Steps that were lost before run apart from each other (LEASE-19): a Step that crashed a worker
//! must not take other Steps along, again and again. A Step that was lost once runs alone where
//! workers have places for such Steps; one that was lost twice waits for a place. Other Steps go to
//! workers that have no lost Step in hand, as long as these have capacity. A Step whose last
//! Attempts ended badly goes to a worker that had none of them (DISP-18).

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::command::NextStepNeeds;
use tenure_core::eligibility::has_handler;
use tenure_core::id::SessionId;

use super::members::LOOKED_AT;
use super::{CreditPermit, Pool, Worker};
use crate::count::Hand;

/// How long a place is held for a Step at most, as others that were lost twice wait for it.
const KEPT_MAX: Duration = Duration::from_secs(30);

/// The one place of a worker for a Step that was lost before. Dropping this frees the place.
#[derive(Debug)]
pub(crate) struct IsolationPermit {
    pool: Arc<Pool>,
    worker: Arc<Worker>,
}

impl IsolationPermit {
    /// Takes the place, unless another Step has it.
    pub(super) fn try_take(pool: &Arc<Pool>, worker: &Arc<Worker>) -> Option<Self> {
        let is_taken = worker.hand.try_isolate();
        is_taken.then(|| Self { pool: Arc::clone(pool), worker: Arc::clone(worker) })
    }

    /// Holds the place until the Step has run for so long, 30 s at most, or the returned value is
    /// dropped.
    pub(crate) fn keep_for(self, lasts: Duration) -> Reservation {
        Reservation(tokio::spawn(async move {
            tokio::time::sleep(lasts.min(KEPT_MAX)).await;
            drop(self);
        }))
    }
}

impl Drop for IsolationPermit {
    fn drop(&mut self) {
        self.worker.hand.end_isolation();
        self.pool.suits_again(&self.worker);
    }
}

/// A place that is held for a Step in hand.
#[derive(Debug)]
pub(crate) struct Reservation(tokio::task::JoinHandle<()>);

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.abort(); // This drops the permit that the task owns.
    }
}

/// The rank of a worker whose place is taken, for a Step that was lost.
const PLACE_TAKEN: u8 = 3;

/// How well a worker suits a Step that was lost; the least rank is the best (LEASE-19). 0: the
/// worker is idle. 1: it has no lost Step in hand. 2: it has one, and its place is free. 3: its
/// place is taken.
fn rank_for_lost(hand: &Hand) -> u8 {
    match () {
        () if hand.is_isolating() => PLACE_TAKEN,
        () if hand.has_lost() => 2,
        () => u8::from(!hand.is_idle()),
    }
}

impl CreditPermit {
    /// A credit of another worker that suits the Step better, if one has capacity (DISP-18,
    /// LEASE-19). Among equal workers, those come first with which none of the Step's last Attempts
    /// ended badly.
    pub(crate) fn instead(
        &self,
        next_step_needs: &NextStepNeeds,
        session: &SessionId,
    ) -> Option<Self> {
        if next_step_needs.is_assigned {
            return None;
        }
        let own = &*self.worker;
        let (is_back, is_last) = (
            next_step_needs.tried.contains(&own.id),
            next_step_needs.tried.first() == Some(&own.id),
        );
        let rank = |hand: &Hand| match next_step_needs.was_lost {
            true => rank_for_lost(hand),
            false => u8::from(hand.has_lost()),
        };
        let below = match is_back {
            true if next_step_needs.is_suspect => PLACE_TAKEN, // Such a Step waits for a place.
            true => u8::MAX,
            false => rank(&own.hand),
        };
        // The order is another each time, and so in each node, as several nodes may lose Steps at
        // the same time.
        let order = next_step_needs.was_lost.then(RandomState::new);
        let key = |it: &Worker| {
            let (rank, is_tried) = (rank(&it.hand), next_step_needs.tried.contains(&it.id));
            let can =
                it.id != own.id && has_handler(it.handlers.as_deref(), &next_step_needs.handler);
            let may = can && rank < below && (!is_tried || is_last);
            let first = if next_step_needs.was_lost {
                (rank, is_tried)
            } else {
                (u8::from(is_tried), rank > 0)
            };
            may.then(|| (first, order.as_ref().map(|order| order.hash_one(&it.id))))
        };
        let is_rare = next_step_needs.was_lost || is_back;
        let looked_at = if is_rare { usize::MAX } else { LOOKED_AT };
        let worker = {
            let members = &mut self.pool.state.lock().members;
            let serving = members.serving(session);
            members.take_best(looked_at, serving, key)?
        };
        let mut other = Self::of(&self.pool, worker, 1);
        let has_place = next_step_needs.was_lost && other.take_isolation();
        (has_place || !next_step_needs.is_suspect).then_some(other)
    }
}
