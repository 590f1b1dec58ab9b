//! Counts by handler, and by the codes with which Attempts fail. Task files and workers may name any number of both,
//! so only so many are told apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use parking_lot::RwLock;
use smol_str::SmolStr;
use tenure_core::status::Outcome;
use tenure_ports::map::IdMap;

use crate::gauges::report;
use crate::names;

/// How many handlers are told apart.
const HANDLERS_MAX: usize = 128;

/// How many pairs of a handler and a code are told apart.
const FAILURES_MAX: usize = 512;

/// The name for all others.
const OTHER: &str = "other";

/// How Attempts have ended, by handler.
#[derive(Debug, Default)]
pub(crate) struct HandlerCounters {
    handlers: RwLock<IdMap<SmolStr, Arc<HandlerTally>>>,
    failures: RwLock<IdMap<(SmolStr, SmolStr), Arc<FailureTally>>>,
}

/// The Attempts of one handler.
#[derive(Debug)]
struct HandlerTally {
    name: [KeyValue; 1],
    /// Microseconds from claims to ends, added up.
    time_us: AtomicU64,
    /// How many there were, by outcome.
    ended: Vec<([KeyValue; 2], AtomicU64)>,
}

/// The Attempts of a handler that failed with one code.
#[derive(Debug)]
struct FailureTally {
    attributes: [KeyValue; 2],
    count: AtomicU64,
}

impl HandlerCounters {
    /// Counters that a meter reads.
    pub(crate) fn new(meter: &Meter) -> Arc<Self> {
        let this = Arc::new(Self::default());
        let of = Arc::clone(&this);
        let attempts = move |to: &dyn AsyncInstrument<u64>| {
            // With outcomes that have not happened yet: an increase shows only from a value that was there before.
            let handlers = of.handlers.read();
            for (attributes, count) in handlers.values().flat_map(|handler| &handler.ended) {
                to.observe(count.load(Ordering::Relaxed), attributes);
            }
        };
        report(meter, names::HANDLER_ATTEMPTS, Box::new(attempts));
        let of = Arc::clone(&this);
        let failures = move |to: &dyn AsyncInstrument<u64>| {
            for failure in of.failures.read().values() {
                to.observe(failure.count.load(Ordering::Relaxed), &failure.attributes);
            }
        };
        report(meter, names::FAILURES, Box::new(failures));
        let of = Arc::clone(&this);
        let metric = names::HANDLER_TIME;
        let time = meter.f64_observable_counter(metric.name).with_unit(metric.unit);
        time.with_description(metric.answers)
            .with_callback(move |to| {
                for handler in of.handlers.read().values() {
                    let time = Duration::from_micros(handler.time_us.load(Ordering::Relaxed));
                    to.observe(time.as_secs_f64(), &handler.name);
                }
            })
            .build();
        this
    }

    /// Counts the end of an Attempt, which took so many seconds from its claim on. The code is that of a failure.
    pub(crate) fn note(&self, handler: &str, outcome: Outcome, took: f64, code: Option<&str>) {
        let tally = self.of(handler);
        let took = Duration::try_from_secs_f64(took).unwrap_or_default();
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tally.time_us.fetch_add(took_us, Ordering::Relaxed);
        let found = Outcome::ALL.iter().zip(&tally.ended).find(|(it, _)| **it == outcome);
        if let Some((_, (_, count))) = found {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(code) = code {
            self.failure(handler, code).count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn of(&self, handler: &str) -> Arc<HandlerTally> {
        if let Some(known) = self.handlers.read().get(handler) {
            return Arc::clone(known);
        }
        let mut handlers = self.handlers.write();
        let name = if handlers.len() < HANDLERS_MAX { handler } else { OTHER };
        let tally = handlers.entry(SmolStr::new(name));
        Arc::clone(tally.or_insert_with(|| Arc::new(HandlerTally::new(name))))
    }

    fn failure(&self, handler: &str, code: &str) -> Arc<FailureTally> {
        let key = (SmolStr::new(handler), SmolStr::new(code));
        if let Some(known) = self.failures.read().get(&key) {
            return Arc::clone(known);
        }
        let mut failures = self.failures.write();
        let is_known_handler = self.handlers.read().contains_key(handler);
        let (handler, code) = match failures.len() < FAILURES_MAX && is_known_handler {
            true => key,
            false => (OTHER.into(), OTHER.into()),
        };
        let tally = failures.entry((handler.clone(), code.clone()));
        let new = || {
            let handler = KeyValue::new(names::HANDLER, handler.to_string());
            let attributes = [handler, KeyValue::new(names::ERROR, code.to_string())];
            Arc::new(FailureTally { attributes, count: AtomicU64::new(0) })
        };
        Arc::clone(tally.or_insert_with(new))
    }
}

impl HandlerTally {
    fn new(handler: &str) -> Self {
        let name = KeyValue::new(names::HANDLER, Arc::<str>::from(handler));
        let outcome = |it: &Outcome| {
            let attributes = [name.clone(), KeyValue::new(names::OUTCOME, it.as_str())];
            (attributes, AtomicU64::new(0))
        };
        let ended = Outcome::ALL.iter().map(outcome).collect();
        Self { name: [name], time_us: AtomicU64::new(0), ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(counters: &HandlerCounters, handler: &str, code: &str) -> u64 {
        let failures = counters.failures.read();
        let found = failures.get(&(handler.into(), code.into()));
        found.map_or(0, |failure| failure.count.load(Ordering::Relaxed))
    }

    #[test]
    fn attempts_count_by_handler_and_code() {
        let counters = HandlerCounters::default();
        counters.note("send", Outcome::Completed, 1.5, None);
        counters.note("send", Outcome::Failed, 0.5, Some("smtp_away"));
        counters.note("send", Outcome::Failed, 0.0, Some("smtp_away"));
        assert_eq!(count(&counters, "send", "smtp_away"), 2);
        let tally = counters.of("send");
        assert_eq!(tally.time_us.load(Ordering::Relaxed), 2_000_000);
        let ended = |of: Outcome| {
            let at = Outcome::ALL.iter().position(|it| *it == of).unwrap();
            tally.ended[at].1.load(Ordering::Relaxed)
        };
        assert_eq!(
            (ended(Outcome::Completed), ended(Outcome::Failed), ended(Outcome::Lost)),
            (1, 2, 0)
        );
    }

    #[test]
    fn names_that_others_choose_are_bounded() {
        let counters = HandlerCounters::default();
        for n in 0..HANDLERS_MAX + 50 {
            counters.note(&format!("h{n}"), Outcome::Failed, 0.0, Some("same"));
        }
        for n in 0..2 * FAILURES_MAX {
            counters.note("h0", Outcome::Failed, 0.0, Some(&format!("code{n}")));
        }
        assert_eq!(counters.handlers.read().len(), HANDLERS_MAX + 1);
        assert_eq!(counters.failures.read().len(), FAILURES_MAX);
        let told_apart = FAILURES_MAX - HANDLERS_MAX - 1;
        let others = (50 + 2 * FAILURES_MAX - told_apart) as u64;
        assert_eq!(count(&counters, OTHER, OTHER), others, "nothing is lost");
    }
}
