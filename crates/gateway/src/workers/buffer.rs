//! [`DeliveryBuffer`]: what came for a worker and waits for its client to fetch it.
//!
//! Deliveries are numbered from 1. A client acknowledges all up to a number with its next request;
//! until then it gets them again, each under the same number. So an answer that gets lost on its way
//! costs nothing, and a client that gets a delivery twice recognises it.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_core::Rejection;
use tenure_core::id::{AttemptId, RunId};
use tenure_wire::bus::worker::Delivery as Sent;

/// How many signals (deliveries that use no capacity) wait at most. What is dropped then comes again
/// with a heartbeat: pulses say what was lost and what is to stop, and nodes repeat late input.
pub(super) const SIGNALS_MAX: usize = 1_024;

/// How many bytes the waiting signals have at most, as one with late input may be long.
pub(super) const SIGNAL_BYTES_MAX: usize = 4 << 20;

/// How many bytes of Steps and Runs wait until no more are asked for. What comes all the same goes back, so
/// that a link holds these and one claim more.
pub(super) const WORK_BYTES_MAX: usize = 16 << 20;

/// How many deliveries an answer has at most.
pub(super) const PAGE_MAX: usize = 128;

/// About how many bytes an answer has. The first delivery goes into it however long it is.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// What a delivery is about, as far as the gateway counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// A Step to run.
    Grant(AttemptId),
    /// A Run to claim a Step under.
    Offer(RunId),
    /// Anything that uses no capacity.
    Signal,
}

impl About {
    const fn uses_capacity(self) -> bool {
        matches!(self, Self::Grant(_) | Self::Offer(_))
    }
}

/// A delivery with its number.
#[derive(Debug)]
struct WaitingDelivery {
    number: u64,
    about: About,
    json: Arc<RawValue>,
}

/// The form in which a client gets a delivery: that of the bus, with its number.
#[derive(Serialize)]
struct NumberedDelivery<'a> {
    number: u64,
    #[serde(flatten)]
    delivery: &'a Sent,
}

/// What a client gets at a time.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DeliveryPage {
    /// The deliveries, in order.
    pub(super) deliveries: Vec<Arc<RawValue>>,
    /// The number to acknowledge them with.
    pub(super) last: u64,
}

/// The deliveries of a link that its client has not acknowledged.
#[derive(Debug, Default)]
pub(super) struct DeliveryBuffer {
    waiting: VecDeque<WaitingDelivery>,
    /// Number of the last delivery that came.
    last: u64,
    /// The client has acknowledged all up to this number.
    acknowledged: u64,
    /// The client was sent all up to this number.
    handed: u64,
    /// How many Steps and Runs the client has acknowledged.
    taken: u64,
    signals: WaitingLoad,
    work: WaitingLoad,
}

/// How many deliveries of a kind wait, and how long they are together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct WaitingLoad {
    count: usize,
    bytes: usize,
}

impl WaitingLoad {
    fn with(self, bytes: usize) -> Self {
        Self { count: self.count + 1, bytes: self.bytes + bytes }
    }

    fn without(self, bytes: usize) -> Self {
        Self { count: self.count - 1, bytes: self.bytes - bytes }
    }
}

impl DeliveryBuffer {
    /// Adds a delivery; answers whether it was added. A signal is dropped where too many wait.
    pub(super) fn push(&mut self, about: About, delivery: &Sent) -> bool {
        let numbered = NumberedDelivery { number: self.last + 1, delivery };
        let Ok(json) = serde_json::value::to_raw_value(&numbered) else { return false };
        let load = self.load(about).with(json.get().len());
        let is_over = load.count > SIGNALS_MAX || load.bytes > SIGNAL_BYTES_MAX;
        if is_over && !about.uses_capacity() {
            return false;
        }
        *self.load(about) = load;
        self.last += 1;
        self.waiting.push_back(WaitingDelivery { number: self.last, about, json: Arc::from(json) });
        true
    }

    /// Drops what the client has.
    ///
    /// # Errors
    /// `validation_error` for a number that nothing had yet: the client speaks of another link, and
    /// would otherwise acknowledge what it never gets.
    pub(super) fn acknowledge(&mut self, after: u64) -> Result<(), Rejection> {
        if after > self.last {
            let message = format!("the last delivery on this link has the number {}", self.last);
            return Err(Rejection::invalid("after", message).with("last", self.last));
        }
        self.acknowledged = self.acknowledged.max(after);
        self.handed = self.handed.max(after);
        let acknowledged = self.remove(|it| it.number <= after);
        self.taken += acknowledged.iter().filter(|it| it.uses_capacity()).count() as u64;
        Ok(())
    }

    /// What the client gets now, if there is anything.
    pub(super) fn page(&mut self) -> Option<DeliveryPage> {
        let mut bytes = self.waiting.front()?.json.get().len();
        let fits = |it: &&WaitingDelivery| {
            bytes += it.json.get().len();
            bytes <= PAGE_BYTES
        };
        let rest = self.waiting.iter().skip(1).take(PAGE_MAX - 1).take_while(fits);
        let of_page = self.waiting.iter().take(1).chain(rest);
        let deliveries: Vec<_> = of_page.map(|it| Arc::clone(&it.json)).collect();
        let last = self.waiting.get(deliveries.len().checked_sub(1)?)?.number;
        self.handed = self.handed.max(last);
        Some(DeliveryPage { deliveries, last })
    }

    /// The answer where nothing waits.
    pub(super) fn nothing(&self) -> DeliveryPage {
        DeliveryPage { deliveries: Vec::new(), last: self.acknowledged }
    }

    /// Number up to which the client has acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many Steps and Runs wait.
    pub(super) fn work(&self) -> usize {
        self.work.count
    }

    /// Whether the Steps and Runs that wait are as long as they may be together.
    pub(super) fn is_full(&self) -> bool {
        self.work.bytes >= WORK_BYTES_MAX
    }

    /// What deliveries of this kind come to.
    fn load(&mut self, about: About) -> &mut WaitingLoad {
        match about.uses_capacity() {
            true => &mut self.work,
            false => &mut self.signals,
        }
    }

    /// How many Steps and Runs the client has got, or is about to get.
    pub(super) fn sent(&self) -> u64 {
        self.taken + self.work() as u64
    }

    /// Takes back the grant of an Attempt that the client was never sent; answers whether it was there.
    pub(super) fn withdraw(&mut self, attempt: AttemptId) -> bool {
        let handed = self.handed;
        let is_it = |it: &WaitingDelivery| it.number > handed && it.about == About::Grant(attempt);
        !self.remove(is_it).is_empty()
    }

    /// Drops the grants of Attempts that are over, so that no client begins one of them.
    pub(super) fn forget(&mut self, is_over: impl Fn(AttemptId) -> bool) {
        self.remove(|it| matches!(it.about, About::Grant(attempt) if is_over(attempt)));
    }

    /// Takes back the Steps and Runs that the client was never sent.
    pub(super) fn take_back(&mut self) -> Vec<About> {
        let handed = self.handed;
        self.remove(|it| it.number > handed && it.about.uses_capacity())
    }

    /// Takes back the Steps and Runs that the client says it does not have.
    pub(super) fn take_back_after(&mut self, after: u64) -> Vec<About> {
        self.remove(|it| it.number > after && it.about.uses_capacity())
    }

    fn remove(&mut self, which: impl Fn(&WaitingDelivery) -> bool) -> Vec<About> {
        let (mut removed, mut lengths) = (Vec::new(), Vec::new());
        self.waiting.retain(|it| {
            let goes = which(it);
            if goes {
                removed.push(it.about);
                lengths.push(it.json.get().len());
            }
            !goes
        });
        for (about, length) in removed.iter().zip(lengths) {
            let load = self.load(*about);
            *load = load.without(length);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tenure_core::id::Ref;
    use tenure_wire::bus::worker::LateInput;
    use uuid::Uuid;

    use super::*;

    fn attempt(number: u128) -> AttemptId {
        AttemptId(Uuid::from_u128(number))
    }

    fn lost(number: u128) -> Sent {
        Sent { lost: Some(attempt(number)), ..Sent::default() }
    }

    /// A buffer with a grant, a signal and another grant. What a grant says does not matter here.
    fn some() -> DeliveryBuffer {
        let mut buffer = DeliveryBuffer::default();
        assert!(buffer.push(About::Grant(attempt(1)), &lost(1)));
        assert!(buffer.push(About::Signal, &lost(2)));
        assert!(buffer.push(About::Grant(attempt(3)), &lost(3)));
        buffer
    }

    fn numbers(page: Option<DeliveryPage>) -> Vec<u64> {
        let read = |it: &Arc<RawValue>| serde_json::from_str::<Json>(it.get()).unwrap();
        let deliveries = page.map(|page| page.deliveries).unwrap_or_default();
        deliveries.iter().map(|it| read(it)["number"].as_u64().unwrap()).collect()
    }

    #[test]
    fn a_delivery_has_the_words_of_the_bus_and_its_number() {
        let mut buffer = some();
        let page = buffer.page().unwrap();
        assert_eq!(page.last, 3);
        let first: Json = serde_json::from_str(page.deliveries[0].get()).unwrap();
        assert_eq!(first, json!({ "number": 1, "lost": attempt(1) }));
    }

    #[test]
    fn what_is_not_acknowledged_comes_again() {
        let mut buffer = some();
        assert_eq!(numbers(buffer.page()), [1, 2, 3]);
        assert_eq!(numbers(buffer.page()), [1, 2, 3]);
        buffer.acknowledge(2).unwrap();
        assert_eq!(numbers(buffer.page()), [3]);
        buffer.acknowledge(1).unwrap();
        assert_eq!(numbers(buffer.page()), [3], "an older request changes nothing");
        buffer.acknowledge(3).unwrap();
        assert!(buffer.page().is_none());
        assert_eq!((buffer.nothing().last, buffer.work(), buffer.sent()), (3, 0, 2));
    }

    #[test]
    fn nobody_acknowledges_what_has_not_come() {
        let mut buffer = some();
        let refused = buffer.acknowledge(4).unwrap_err();
        assert_eq!(refused.details["last"], 3);
        assert_eq!(numbers(buffer.page()), [1, 2, 3]);
    }

    #[test]
    fn only_what_was_never_sent_is_taken_back() {
        let mut buffer = some();
        buffer.page();
        buffer.push(About::Grant(attempt(4)), &lost(4));
        buffer.push(About::Offer(RunId(Uuid::nil())), &lost(5));
        assert!(!buffer.withdraw(attempt(1)), "the client may have it");
        assert!(buffer.withdraw(attempt(4)));
        assert_eq!(buffer.take_back(), [About::Offer(RunId(Uuid::nil()))]);
        assert_eq!(buffer.sent(), 2, "what was taken back is not sent");
        assert_eq!((numbers(buffer.page()), buffer.work()), (vec![1, 2, 3], 2));
        assert_eq!(buffer.take_back_after(1), [About::Grant(attempt(3))]);
    }

    #[test]
    fn signals_are_dropped_where_too_many_wait_and_work_is_not() {
        let mut buffer = DeliveryBuffer::default();
        for number in 0..SIGNALS_MAX {
            assert!(buffer.push(About::Signal, &lost(number as u128)));
        }
        assert!(!buffer.push(About::Signal, &lost(0)));
        assert!(buffer.push(About::Grant(attempt(1)), &lost(1)));
        assert_eq!(numbers(buffer.page()).len(), PAGE_MAX);
        buffer.acknowledge(1).unwrap();
        assert!(buffer.push(About::Signal, &lost(0)), "one place is free again");
        assert!(!buffer.push(About::Signal, &lost(0)));
        buffer.acknowledge(buffer.last).unwrap();
        assert_eq!((buffer.signals, buffer.work), Default::default());
    }

    #[test]
    fn an_answer_ends_at_its_size_but_has_one_delivery() {
        let mut buffer = DeliveryBuffer::default();
        let refs = |count: usize| {
            let entry = Ref::new("x".repeat(4_096)).unwrap();
            let input_refs = vec![entry; count];
            let input = LateInput { attempt_id: attempt(1), after: 0, input_refs };
            Sent { input: Some(Box::new(input)), ..Sent::default() }
        };
        let half = PAGE_BYTES / 4_096 / 2 + 1;
        for count in [2 * half, half - 2, half - 2, half, half] {
            assert!(buffer.push(About::Signal, &refs(count)));
        }
        assert_eq!(numbers(buffer.page()), [1], "alone, as it is too long");
        buffer.acknowledge(1).unwrap();
        assert_eq!(numbers(buffer.page()), [2, 3]);
        buffer.acknowledge(3).unwrap();
        assert_eq!(numbers(buffer.page()), [4]);
    }

    #[test]
    fn signals_have_no_more_bytes_than_they_may() {
        let mut buffer = DeliveryBuffer::default();
        let entry = Ref::new("x".repeat(4_096)).unwrap();
        let input = LateInput { attempt_id: attempt(1), after: 0, input_refs: vec![entry; 255] };
        let long = Sent { input: Some(Box::new(input)), ..Sent::default() };
        let fitting = (0..8).take_while(|_| buffer.push(About::Signal, &long)).count();
        assert_eq!(fitting, 4);
        assert!(buffer.push(About::Signal, &lost(1)), "a short one still fits");
    }
}
