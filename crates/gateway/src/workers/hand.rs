//! [`WorkInHand`]: the Attempts and offered Runs that use the slots of a worker.

use std::time::Duration;

use tenure_core::Rejection;
use tenure_core::id::{AttemptId, RunId};
use tenure_core::view::ClaimResult;
use tenure_ports::bus::{Holding, Pulse, Recorded};
use tenure_ports::map::IdMap;
use tenure_sdk::worker::PastAttempts;
use tokio::time::Instant;

use super::stale;
use super::{CONCURRENCY_MAX, FETCH_GAP};

/// A Run that was offered counts as in hand for so long after the client last asked something under
/// it: after a lease in which nobody does, the scheduler offers it to another worker.
pub(super) const OFFER: Duration = Duration::from_secs(30);

/// An Attempt of which the client has said nothing for so many leases is no longer in its hands. The
/// scheduler says so before; this is for a signal that got lost.
const LEASES_IN_HAND: u32 = 2;

/// The longest lease that an Attempt has on the word of the client alone: the longest that schedulers give by
/// default. A link lives for the longest lease in hand, however silent its client is.
const SAID_LEASE_MS_MAX: u64 = 86_400_000;

/// How many Attempts that are over are remembered. A grant is repeated, and a signal comes late, within seconds.
const ENDED_MAX: usize = 1_024;

/// An open Attempt in the worker's hands.
#[derive(Debug)]
struct AttemptInHand {
    holding: Holding,
    /// Whether its Step was lost before (LEASE-19).
    was_lost: bool,
    /// Whether its final report is under way: its slot is free.
    is_said: bool,
    /// When the client last spoke of it, or when it came.
    spoken: Instant,
}

/// What is in the hands of a worker.
#[derive(Debug, Default)]
pub(super) struct WorkInHand {
    open: IdMap<AttemptId, AttemptInHand>,
    /// Runs that were offered, and when the client last spoke of them, or when they came.
    offers: IdMap<RunId, Instant>,
    /// A grant that comes again for one of these is not handed out.
    ended: PastAttempts<ENDED_MAX>,
}

impl WorkInHand {
    /// How many slots are used.
    pub(super) fn slots(&self) -> usize {
        self.open.values().filter(|one| !one.is_said).count() + self.offers.len()
    }

    /// How many Attempts are in hand on Steps that were lost before.
    pub(super) fn lost(&self) -> u64 {
        self.open.values().filter(|one| one.was_lost && !one.is_said).count() as u64
    }

    /// The longest lease in hand.
    pub(super) fn longest_lease(&self) -> Duration {
        let longest = self.open.values().map(|one| one.holding.lease_ms).max();
        Duration::from_millis(longest.unwrap_or_default())
    }

    /// Whether an Attempt is in hand, or was.
    pub(super) fn knows(&self, attempt: AttemptId) -> bool {
        self.open.contains_key(&attempt) || self.ended.has(attempt)
    }

    /// Whether an Attempt is known to be over.
    pub(super) fn has_ended(&self, attempt: AttemptId) -> bool {
        self.ended.has(attempt)
    }

    /// Whether the client has sent the final report on an Attempt.
    pub(super) fn is_ending(&self, attempt: AttemptId) -> bool {
        self.open.get(&attempt).is_some_and(|one| one.is_said)
    }

    /// Takes an Attempt in hand.
    pub(super) fn take(&mut self, holding: Holding, was_lost: bool, now: Instant) {
        let attempt = holding.attempt_id;
        self.open.insert(attempt, AttemptInHand { holding, was_lost, is_said: false, spoken: now });
    }

    /// An Attempt is over. Answers what was in hand.
    pub(super) fn end(&mut self, attempt: AttemptId) -> Option<Holding> {
        self.ended.note(attempt);
        self.open.remove(&attempt).map(|one| one.holding)
    }

    /// Takes the offer of a Run in hand; answers whether it is new.
    pub(super) fn take_offer(&mut self, run: RunId, now: Instant) -> bool {
        self.offers.insert(run, now).is_none()
    }

    /// The client asks something under a Run.
    pub(super) fn use_offer(&mut self, run: RunId, now: Instant) {
        if let Some(spoken) = self.offers.get_mut(&run) {
            *spoken = now;
        }
    }

    /// The client does nothing more with a Run.
    pub(super) fn end_offer(&mut self, run: RunId) {
        self.offers.remove(&run);
    }

    /// The client has claimed a Step under a Run: the Attempt takes the slot of the offer.
    pub(super) fn claimed(&mut self, claim: &ClaimResult, now: Instant) {
        self.end_offer(claim.run_id);
        if !self.knows(claim.attempt_id) {
            self.take(Holding::of(claim), claim.was_lost, now);
        }
    }

    /// Compares the token that the client sends with that of the claim, if the claim came over this
    /// link. The scheduler compares it in any case.
    ///
    /// # Errors
    /// `stale_attempt`
    pub(super) fn check_token(&self, attempt: AttemptId, token: u64) -> Result<(), Rejection> {
        match self.open.get(&attempt) {
            Some(one) if one.holding.fencing_token != token => Err(stale(attempt)),
            _ => Ok(()),
        }
    }

    /// A final report is about to be sent: the slot of its Attempt is free from now on.
    pub(super) fn begin_final(&mut self, attempt: AttemptId) {
        if let Some(one) = self.open.get_mut(&attempt) {
            one.is_said = true;
        }
    }

    /// Nobody waits for the answer to a final report any more: whether it came is not known, and until the
    /// client says it again, its Attempt uses its slot.
    pub(super) fn drop_final(&mut self, attempt: AttemptId) {
        if let Some(one) = self.open.get_mut(&attempt) {
            one.is_said = false;
        }
    }

    /// Notes the answer to a report.
    pub(super) fn note_answer(
        &mut self,
        attempt: AttemptId,
        is_final: bool,
        answer: &Result<Recorded, Rejection>,
        now: Instant,
    ) {
        let is_over = match answer {
            Ok(_) => is_final,
            Err(refused) => refused.code.ends_attempt(),
        };
        if is_over {
            self.end(attempt);
            return;
        }
        let Some(one) = self.open.get_mut(&attempt) else { return };
        one.spoken = now;
        if is_final && answer.as_ref().is_err_and(|refused| !refused.code.is_retryable()) {
            one.is_said = false; // The content was refused: the Attempt goes on.
        }
    }

    /// Notes the answer to a heartbeat for an Attempt. One that is not known came over another link
    /// of the same worker: it is in hand from now on.
    pub(super) fn note_pulse(
        &mut self,
        (mut holding, was_lost): (Holding, bool),
        pulse: &Pulse,
        now: Instant,
    ) {
        let attempt = holding.attempt_id;
        holding.lease_ms = holding.lease_ms.min(SAID_LEASE_MS_MAX);
        if matches!(pulse, Pulse::Lost(_)) {
            self.end(attempt);
        } else if let Some(one) = self.open.get_mut(&attempt) {
            one.spoken = now;
        } else if matches!(pulse, Pulse::Renewed { .. })
            && !self.ended.has(attempt)
            && self.open.len() < CONCURRENCY_MAX
        {
            self.take(holding, was_lost, now);
        }
    }

    /// Forgets what the client has not spoken of for long.
    pub(super) fn forget(&mut self, now: Instant) {
        self.offers.retain(|_, spoken| now < *spoken + OFFER);
        let ended = &mut self.ended;
        self.open.retain(|attempt, one| {
            let lease = Duration::from_millis(one.holding.lease_ms).max(FETCH_GAP);
            let stays = now < one.spoken + LEASES_IN_HAND * lease;
            if !stays {
                ended.note(*attempt);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;

    use super::super::double::{claim, lost_claim};
    use super::*;

    const RECORDED: Recorded = Recorded { version: 1, cancel_requested: false, time_left_ms: None };

    fn holding(step: &str) -> Holding {
        Holding::of(&claim(step))
    }

    fn with(holding: &Holding) -> WorkInHand {
        let mut hand = WorkInHand::default();
        hand.take(holding.clone(), false, Instant::now());
        hand
    }

    #[tokio::test(start_paused = true)]
    async fn a_final_report_frees_its_slot_before_the_answer() {
        let (now, held) = (Instant::now(), holding("a"));
        let attempt = held.attempt_id;
        let mut hand = with(&held);
        hand.begin_final(attempt);
        assert_eq!(hand.slots(), 0);
        hand.note_answer(attempt, true, &Err(Rejection::new(Code::Unavailable, "")), now);
        assert_eq!(hand.slots(), 0, "nothing is known: the client repeats it");
        hand.note_answer(attempt, true, &Err(Rejection::invalid("output", "")), now);
        assert_eq!(hand.slots(), 1, "the content was refused");
        hand.begin_final(attempt);
        hand.note_answer(attempt, true, &Ok(RECORDED), now);
        assert!(hand.has_ended(attempt) && hand.slots() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_over_is_no_longer_in_hand() {
        let (now, held) = (Instant::now(), holding("a"));
        let mut hand = with(&held);
        hand.note_answer(held.attempt_id, false, &Ok(RECORDED), now);
        assert_eq!(hand.slots(), 1, "progress ends nothing");
        let stale = Rejection::new(Code::StaleAttempt, "");
        hand.note_answer(held.attempt_id, false, &Err(stale.clone()), now);
        assert_eq!(hand.slots(), 0);
        let mut hand = with(&held);
        hand.note_pulse((held.clone(), false), &Pulse::Lost(stale), now);
        assert_eq!(hand.slots(), 0);
    }

    /// A worker whose gateway has gone speaks through another one of what it has in hand.
    #[tokio::test(start_paused = true)]
    async fn a_renewed_attempt_of_another_link_is_in_hand() {
        let (now, held) = (Instant::now(), Holding::of(&lost_claim("a")));
        let renewed = Pulse::Renewed { cancel_requested: false, time_left_ms: None };
        let mut hand = WorkInHand::default();
        hand.note_pulse((held.clone(), true), &Pulse::Unknown, now);
        assert_eq!(hand.slots(), 0);
        hand.note_pulse((held.clone(), true), &renewed, now);
        assert_eq!((hand.slots(), hand.lost()), (1, 1));
        hand.end(held.attempt_id);
        hand.note_pulse((held, true), &renewed, now);
        assert_eq!(hand.slots(), 0, "a late answer brings nothing back");
    }

    /// A client that names a lease of a thousand years does not keep its link for so long.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_only_the_client_knows_is_a_day_at_most() {
        let renewed = Pulse::Renewed { cancel_requested: false, time_left_ms: None };
        let forged = Holding { lease_ms: u64::MAX, ..holding("a") };
        let mut hand = WorkInHand::default();
        hand.note_pulse((forged, false), &renewed, Instant::now());
        assert_eq!(hand.longest_lease(), Duration::from_secs(24 * 3_600));
        tokio::time::advance(2 * hand.longest_lease()).await;
        hand.forget(Instant::now());
        assert_eq!(hand.slots(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_speaks_of_is_forgotten() {
        let held = holding("a");
        let mut hand = with(&held);
        let run = RunId(uuid::Uuid::nil());
        assert!(hand.take_offer(run, Instant::now()));
        let lease = Duration::from_millis(held.lease_ms);
        tokio::time::advance(lease).await;
        hand.note_pulse((held.clone(), false), &Pulse::Unknown, Instant::now());
        hand.use_offer(run, Instant::now());
        tokio::time::advance(OFFER).await;
        hand.forget(Instant::now());
        assert_eq!(hand.slots(), 1, "the offer is forgotten");
        tokio::time::advance(2 * lease).await;
        hand.forget(Instant::now());
        assert_eq!(hand.slots(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn another_token_is_refused() {
        let held = holding("a");
        let hand = with(&held);
        assert!(hand.check_token(held.attempt_id, held.fencing_token).is_ok());
        let refused = hand.check_token(held.attempt_id, held.fencing_token + 1).unwrap_err();
        assert_eq!(refused.code, Code::StaleAttempt);
        let unknown = holding("b").attempt_id;
        assert!(hand.check_token(unknown, 1).is_ok(), "the scheduler knows");
    }
}
