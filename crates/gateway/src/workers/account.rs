//! [`LinkAccount`]: what the gateway counts for a worker that speaks HTTP.
//!
//! The account decides and waits for nothing: [`HttpLink`](super::link::HttpLink) carries out what
//! it decides. It states the worker's capacity: the Steps that the worker runs at a time, less those
//! in its hands; or what the worker itself says, if it counts by itself. It does so only while the
//! client fetches deliveries. What was never sent to a client that has stopped fetching goes back, so
//! that another worker runs it.

use std::time::Duration;

use tenure_core::Rejection;
use tenure_core::command::GiveBack;
use tenure_core::event::ReleaseReason;
use tenure_core::id::AttemptId;
use tenure_core::view::{ClaimResult, RunOffer};
use tenure_ports::bus::{Credit, Delivery, Holding};
use tenure_wire::bus::output::OutputRequest;
use tenure_wire::bus::worker::Delivery as Sent;
use tokio::time::Instant;

use super::FETCH_GAP;
use super::buffer::{About, DeliveryBuffer, DeliveryPage};
use super::hand::WorkInHand;

/// How many Steps and Runs wait at most for a client to acknowledge them, whatever its concurrency:
/// a claim may have a megabyte.
pub(super) const UNACKNOWLEDGED_MAX: usize = 128;

/// A link is dropped when its client was silent for so long, or for the longest lease in its hands
/// if that is longer.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// What to do with a delivery that came.
#[derive(Debug, PartialEq)]
pub(super) enum Arrival {
    /// It waits for the client.
    Waits,
    /// It says nothing new, or there is no place for it.
    Dropped,
    /// The client does not get it: the Step goes back.
    Returned(ReturnedStep),
    /// Somebody wants to see what a command wrote, which the gateway does not have.
    ReadOutput(Box<OutputRequest>),
}

/// A Step that goes back without having reached the client.
#[derive(Debug, PartialEq)]
pub(super) struct ReturnedStep {
    /// Its Attempt.
    pub(super) holding: Holding,
    /// Why it goes back.
    pub(super) how: GiveBack,
}

/// What a request for deliveries gets.
#[derive(Debug)]
pub(super) enum FetchAnswer {
    /// This is the answer: deliveries, or nothing because a later request has taken its place.
    Page(DeliveryPage),
    /// There is nothing yet. This is the answer when its time is over.
    Nothing(DeliveryPage),
}

/// How the client fetches deliveries.
#[derive(Debug, Default)]
struct Fetching {
    /// The number of the newest request.
    turn: u64,
    /// Whether it waits.
    is_waiting: bool,
    /// When the last one ended.
    ended: Option<Instant>,
}

impl Fetching {
    /// When the client counts as absent if it does not ask again. `None`: it has never asked.
    fn absent_at(&self) -> Option<Instant> {
        self.ended.map(|ended| ended + FETCH_GAP)
    }

    fn is_present(&self, now: Instant) -> bool {
        self.is_waiting || self.absent_at().is_some_and(|at| now < at)
    }
}

/// The last statement of capacity.
#[derive(Debug, Default)]
struct StatedCapacity {
    number: u64,
    /// How many Steps and Runs may come in all since the worker joined.
    window: u64,
    lost: u64,
}

/// What is counted for a link.
#[derive(Debug)]
pub(super) struct LinkAccount {
    /// How many Steps the worker runs at a time: none if it takes no more.
    pub(super) concurrency: usize,
    /// What is in the worker's hands.
    pub(super) hand: WorkInHand,
    /// What a worker that counts by itself has said of its capacity last, in the counts of this link.
    room: Option<Credit>,
    buffer: DeliveryBuffer,
    seen: u64,
    stated: StatedCapacity,
    is_draining: bool,
    fetching: Fetching,
    /// When the client last said something.
    touched: Instant,
    is_over: bool,
}

impl LinkAccount {
    /// The account of a worker that joins.
    pub(super) fn new(concurrency: usize, now: Instant) -> Self {
        Self {
            concurrency,
            hand: WorkInHand::default(),
            room: None,
            buffer: DeliveryBuffer::default(),
            seen: 0,
            stated: StatedCapacity::default(),
            is_draining: false,
            fetching: Fetching::default(),
            touched: now,
            is_over: false,
        }
    }

    /// Number of the last delivery that the client has acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.buffer.acknowledged()
    }

    /// Whether the link is over.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether an operator wants the worker to leave.
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    fn accepts(&self) -> bool {
        !self.is_draining && !self.is_over && (self.concurrency > 0 || self.room.is_some())
    }

    /// The worker joins again. If it counts by itself, it says its capacity anew: its process may be another one.
    pub(super) fn join_again(&mut self, concurrency: usize) {
        self.concurrency = concurrency;
        self.room = None;
    }

    /// The worker counts by itself, and says its capacity. An older statement that comes late counts for
    /// nothing.
    pub(super) fn take_room(&mut self, room: Credit) {
        if self.room.is_none_or(|last| room.number > last.number) {
            self.room = Some(room);
        }
    }

    /// How many Steps the worker would take now.
    fn wanted(&self) -> u64 {
        match self.room {
            Some(room) => room.free.saturating_add(room.seen).saturating_sub(self.buffer.sent()),
            None => self.concurrency.saturating_sub(self.hand.slots()) as u64,
        }
    }

    /// How many Attempts the worker has on Steps that were lost before. One that counts by itself knows
    /// of those that came over other links, and not yet of those that wait here.
    fn lost(&self) -> u64 {
        self.hand.lost().max(self.room.map_or(0, |room| room.lost))
    }

    fn free(&self, now: Instant) -> u64 {
        if !self.accepts() || !self.fetching.is_present(now) || self.buffer.is_full() {
            return 0;
        }
        self.wanted().min(UNACKNOWLEDGED_MAX.saturating_sub(self.buffer.work()) as u64)
    }

    /// The worker's capacity now, as a new statement.
    pub(super) fn restate(&mut self, now: Instant) -> Credit {
        let (free, seen, lost) = (self.free(now), self.seen, self.lost());
        let number = self.stated.number + 1;
        self.stated = StatedCapacity { number, window: free + seen, lost };
        Credit { free, seen, lost, number }
    }

    /// The worker's capacity, if it is not as it was last stated.
    pub(super) fn credit(&mut self, now: Instant) -> Option<Credit> {
        let is_as_stated =
            self.stated.window == self.free(now) + self.seen && self.stated.lost == self.lost();
        (!is_as_stated).then(|| self.restate(now))
    }

    /// Takes in what came from the scheduler.
    pub(super) fn arrive(&mut self, delivery: Delivery, now: Instant) -> Arrival {
        match delivery {
            Delivery::Grant(claim) => self.take_grant(claim, now),
            Delivery::Crossed(claim) => {
                self.seen += 1;
                self.turn_back(&claim, ReleaseReason::Surplus)
            }
            Delivery::Run(offer) => self.take_offer(offer, now),
            Delivery::Lost(attempt) => self.take_loss(attempt),
            Delivery::CancelRequested(attempt, _) if self.hand.has_ended(attempt) => {
                Arrival::Dropped
            }
            Delivery::Drain(_) => {
                self.is_draining = true;
                self.queue(About::Signal, delivery)
            }
            Delivery::CancelRequested(..) | Delivery::Input(_) => {
                self.queue(About::Signal, delivery)
            }
            Delivery::ReadOutput(asked) => Arrival::ReadOutput(asked),
        }
    }

    fn queue(&mut self, about: About, delivery: Delivery) -> Arrival {
        match self.buffer.push(about, &Sent::from(delivery)) {
            true => Arrival::Waits,
            false => Arrival::Dropped,
        }
    }

    /// A grant that comes twice counts as seen twice, and is handed out once.
    fn take_grant(&mut self, claim: Box<ClaimResult>, now: Instant) -> Arrival {
        self.seen += 1;
        let attempt = claim.attempt_id;
        if !self.accepts() {
            return self.turn_back(&claim, ReleaseReason::Draining);
        }
        if self.hand.knows(attempt) {
            return Arrival::Dropped;
        }
        if self.buffer.is_full() {
            return self.turn_back(&claim, ReleaseReason::Surplus);
        }
        self.hand.take(Holding::of(&claim), claim.was_lost, now);
        self.queue(About::Grant(attempt), Delivery::Grant(claim))
    }

    /// A Step that the client does not get goes back, once.
    fn turn_back(&mut self, claim: &ClaimResult, why: ReleaseReason) -> Arrival {
        if self.hand.knows(claim.attempt_id) {
            return Arrival::Dropped;
        }
        self.hand.end(claim.attempt_id);
        let how = GiveBack::because(why);
        Arrival::Returned(ReturnedStep { holding: Holding::of(claim), how })
    }

    /// An offer that the client does not get is made to another worker after a lease.
    fn take_offer(&mut self, offer: Box<RunOffer>, now: Instant) -> Arrival {
        self.seen += 1;
        let run = offer.run_id;
        // A worker that counts by itself does not say which Runs it has let go.
        let takes = self.accepts() && !self.buffer.is_full();
        match takes && (self.hand.take_offer(run, now) || self.room.is_some()) {
            true => self.queue(About::Offer(run), Delivery::Run(offer)),
            false => Arrival::Dropped,
        }
    }

    /// The client need not learn of the end of an Attempt that it was never sent, or that it has ended
    /// itself or is ending: that answer may come after this. A client that loses an Attempt and asks for
    /// nothing may have gone: it gets no work until it asks again.
    fn take_loss(&mut self, attempt: AttemptId) -> Arrival {
        let is_its_own = self.hand.has_ended(attempt) || self.hand.is_ending(attempt);
        let is_news = !is_its_own && !self.buffer.withdraw(attempt);
        self.hand.end(attempt);
        if is_news {
            self.fetching.ended = None;
        }
        match is_news {
            true => self.queue(About::Signal, Delivery::Lost(attempt)),
            false => Arrival::Dropped,
        }
    }

    /// The client has said something.
    pub(super) fn touch(&mut self, now: Instant) {
        self.touched = self.touched.max(now);
    }

    /// The client asks for deliveries, and acknowledges those that it has. Answers the number of the
    /// request, which takes the place of an earlier one that still waits.
    ///
    /// # Errors
    /// `validation_error`: nothing had that number.
    pub(super) fn begin_fetch(
        &mut self,
        after: Option<u64>,
        now: Instant,
    ) -> Result<u64, Rejection> {
        self.touch(now);
        if let Some(after) = after {
            self.buffer.acknowledge(after)?;
        }
        self.hand.forget(now);
        self.buffer.forget(|attempt| self.hand.has_ended(attempt));
        self.fetching.turn += 1;
        self.fetching.is_waiting = true;
        Ok(self.fetching.turn)
    }

    /// What a request for deliveries gets now.
    pub(super) fn fetch(&mut self, turn: u64) -> FetchAnswer {
        if turn != self.fetching.turn {
            return FetchAnswer::Page(self.buffer.nothing());
        }
        match self.buffer.page() {
            Some(page) => FetchAnswer::Page(page),
            None => FetchAnswer::Nothing(self.buffer.nothing()),
        }
    }

    /// A request for deliveries was answered, or its client has gone.
    pub(super) fn end_fetch(&mut self, turn: u64, now: Instant) {
        self.touch(now);
        if turn == self.fetching.turn {
            self.fetching.is_waiting = false;
            self.fetching.ended = Some(now);
        }
    }

    /// When [`settle`](Self::settle) or [`is_silent`](Self::is_silent) may have something to say;
    /// `None` as long as a request for deliveries waits.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if self.fetching.is_waiting {
            return None;
        }
        let absent_at = self.fetching.absent_at().filter(|at| *at > now);
        let silent_at = self.silent_at();
        Some(absent_at.map_or(silent_at, |at| at.min(silent_at)))
    }

    fn silent_at(&self) -> Instant {
        self.touched + SILENCE.max(self.hand.longest_lease())
    }

    /// Whether the client was silent for a lease.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        !self.fetching.is_waiting && now >= self.silent_at()
    }

    /// Takes back what was never sent to a client that has stopped asking.
    pub(super) fn settle(&mut self, now: Instant) -> Vec<ReturnedStep> {
        if self.fetching.is_present(now) {
            return Vec::new();
        }
        let unsent = self.buffer.take_back();
        self.give_back(unsent)
    }

    /// The Steps among these deliveries go back. The scheduler offers Runs again by itself.
    fn give_back(&mut self, unsent: Vec<About>) -> Vec<ReturnedStep> {
        let mut returned = Vec::new();
        for about in unsent {
            match about {
                About::Grant(attempt) => {
                    let how = GiveBack::because(ReleaseReason::Surplus);
                    let held = self.hand.end(attempt);
                    returned.extend(held.map(|holding| ReturnedStep { holding, how }));
                }
                About::Offer(run) => self.hand.end_offer(run),
                About::Signal => {}
            }
        }
        returned
    }

    /// Ends the link. Answers the Steps that go back at once: those that were never sent, or, if the
    /// client says up to which number it has got deliveries, those behind that.
    pub(super) fn close(&mut self, after: Option<u64>) -> Vec<ReturnedStep> {
        self.is_over = true;
        let unsent = match after {
            Some(after) => self.buffer.take_back_after(after),
            None => self.buffer.take_back(),
        };
        self.give_back(unsent)
    }
}

#[cfg(test)]
mod tests;
