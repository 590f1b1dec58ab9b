//! Counts on plain atomics what happens for each Step; the SDK reads them when it sends metrics. An
//! instrument would look up its attributes each time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, BoundHistogram, Histogram, Meter};
use parking_lot::RwLock;
use tenure_core::event::Body;
use tenure_core::id::PoolId;
use tenure_core::status::{Outcome, TaskStatus};
use tenure_ports::map::IdMap;
use tenure_ports::observer::{Called, LeaseCall};

use crate::names::{self, Metric};

/// How many pools are told apart: the authors of task files may name any number.
const POOLS_MAX: usize = 240;

/// How many series of an instrument the SDK takes at most.
const SERIES_MAX: usize = 2_000;

const _: () = assert!((POOLS_MAX + 1) * Outcome::ALL.len() <= SERIES_MAX);

/// The name for all other pools.
const OTHER: &str = "other";

/// How often each kind of event has happened.
#[derive(Debug)]
pub(crate) struct EventCounters {
    /// Whether a scheduler counts here: then a count of nothing is sent as 0.
    has_begun: AtomicBool,
    created: AtomicU64,
    /// By status.
    ended: Vec<TimedTally<1>>,
    /// By type.
    events: Vec<AtomicU64>,
    /// Leases of calls to their store, by call.
    leases: Vec<TimedTally<1>>,
    /// Requests that were not refused, by operation.
    answers: RwLock<IdMap<&'static str, BoundHistogram<f64>>>,
    pools: RwLock<IdMap<PoolId, Arc<PoolTally>>>,
}

/// The same for one pool.
#[derive(Debug)]
pub(crate) struct PoolTally {
    pool: [KeyValue; 1],
    claims: AtomicU64,
    waits: BoundSeries,
    /// By outcome.
    ended: Vec<TimedTally<2>>,
}

/// How often something has happened in one way.
#[derive(Debug)]
struct TimedTally<const N: usize> {
    attributes: [KeyValue; N],
    count: AtomicU64,
    times: BoundSeries,
}

impl<const N: usize> TimedTally<N> {
    fn new(attributes: [KeyValue; N]) -> Self {
        Self { attributes, count: AtomicU64::new(0), times: BoundSeries::default() }
    }

    /// Counts so many of these things, which took so many seconds together. Answers their attributes.
    fn note(&self, count: u64, times: &Histogram<f64>, took: f64) -> &[KeyValue] {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.times.record(times, &self.attributes, took);
        &self.attributes
    }
}

/// A series of a histogram. Its attributes are looked up only once, at its first value.
#[derive(Debug, Default)]
struct BoundSeries(OnceLock<BoundHistogram<f64>>);

impl BoundSeries {
    /// Takes in a value. The histogram and the attributes are the same each time.
    fn record(&self, histogram: &Histogram<f64>, attributes: &[KeyValue], value: f64) {
        self.0.get_or_init(|| histogram.bind(attributes)).record(value);
    }
}

impl EventCounters {
    /// Counters that a meter reads.
    pub(crate) fn new(meter: &Meter) -> Arc<Self> {
        let status = |it: &TaskStatus| TimedTally::new([KeyValue::new(names::STATUS, it.as_str())]);
        let call = |it: &LeaseCall| TimedTally::new([KeyValue::new(names::CALL, it.as_str())]);
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let this = Arc::new(Self {
            has_begun: AtomicBool::new(false),
            created: AtomicU64::new(0),
            ended: TaskStatus::ALL.iter().map(status).collect(),
            events: zeros(Body::TYPES.len()),
            leases: LeaseCall::ALL.iter().map(call).collect(),
            answers: RwLock::default(),
            pools: RwLock::default(),
        });
        this.register(meter, names::CREATED, |tally, to| {
            if tally.has_begun.load(Ordering::Relaxed) {
                to.observe(tally.created.load(Ordering::Relaxed), &[]);
            }
        });
        this.register(meter, names::ENDED, |tally, to| {
            for ended in &tally.ended {
                observe(to, &ended.count, &ended.attributes);
            }
        });
        this.register(meter, names::LEASES, |tally, to| {
            // With calls that have had no leases yet: an increase shows only from a value that was there before.
            for call in tally.leases.iter().filter(|_| tally.has_begun.load(Ordering::Relaxed)) {
                to.observe(call.count.load(Ordering::Relaxed), &call.attributes);
            }
        });
        this.register(meter, names::EVENTS, |tally, to| {
            for (name, count) in Body::TYPES.iter().zip(&tally.events) {
                observe(to, count, &[KeyValue::new(names::EVENT, *name)]);
            }
        });
        this.register(meter, names::CLAIMS, |tally, to| {
            let pools = tally.pools.read();
            pools.values().for_each(|pool| observe(to, &pool.claims, &pool.pool));
        });
        this.register(meter, names::ATTEMPTS_ENDED, |tally, to| {
            let pools = tally.pools.read();
            // Includes outcomes that have not happened yet: an increase shows only from a value
            // that was there before.
            for ended in pools.values().flat_map(|pool| &pool.ended) {
                to.observe(ended.count.load(Ordering::Relaxed), &ended.attributes);
            }
        });
        this
    }

    fn register(
        self: &Arc<Self>,
        meter: &Meter,
        metric: Metric,
        read: fn(&Self, &dyn AsyncInstrument<u64>),
    ) {
        let this = Arc::clone(self);
        let builder = meter.u64_observable_counter(metric.name).with_unit(metric.unit);
        let builder = builder.with_description(metric.answers);
        builder.with_callback(move |to| read(&this, to)).build();
    }

    /// Has the counters sent from now on, so that a panel shows 0 before the first Task.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, body: &Body) {
        add(self.events.get(body.place()));
    }

    /// Counts the creation of a Task.
    pub(crate) fn note_created(&self) {
        add(Some(&self.created));
    }

    /// Counts the end of a Task, which took so many seconds. Answers the attributes for it.
    pub(crate) fn note_end(
        &self,
        times: &Histogram<f64>,
        status: TaskStatus,
        took: f64,
    ) -> &[KeyValue] {
        let found = TaskStatus::ALL.iter().zip(&self.ended).find(|(it, _)| **it == status);
        found.map_or(&[], |(_, ended)| ended.note(1, times, took))
    }

    /// Counts the answer to a request, which took so many seconds.
    pub(crate) fn note_answer(&self, times: &Histogram<f64>, operation: &'static str, took: f64) {
        if let Some(series) = self.answers.read().get(operation) {
            return series.record(took);
        }
        let series = times.bind(&[KeyValue::new(names::OPERATION, operation)]);
        series.record(took);
        self.answers.write().insert(operation, series);
    }

    /// Counts the leases of a call to their store.
    pub(crate) fn note_leases(&self, times: &Histogram<f64>, call: LeaseCall, called: Called) {
        let found = LeaseCall::ALL.iter().zip(&self.leases).find(|(it, _)| **it == call);
        let Some((_, tally)) = found else { return };
        let (items, took) = (called.items as u64, called.took.as_secs_f64());
        match called.is_ok {
            true => {
                tally.note(items, times, took);
            }
            false => {
                tally.count.fetch_add(items, Ordering::Relaxed);
                let [name] = tally.attributes.clone();
                times.record(took, &[name, KeyValue::new(names::ERROR, names::CALL_FAILED)]);
            }
        }
    }

    /// The counters of a pool.
    pub(crate) fn of(&self, pool: &PoolId) -> Arc<PoolTally> {
        if let Some(known) = self.pools.read().get(pool) {
            return Arc::clone(known);
        }
        let mut pools = self.pools.write();
        let other;
        let id = if pools.len() < POOLS_MAX {
            pool
        } else {
            other = PoolId::new(OTHER).unwrap_or_else(|_| pool.clone());
            &other
        };
        Arc::clone(pools.entry(id.clone()).or_insert_with(|| Arc::new(PoolTally::new(id))))
    }
}

impl PoolTally {
    fn new(pool: &PoolId) -> Self {
        let pool = KeyValue::new(names::POOL, Arc::<str>::from(pool.as_str()));
        let outcome = |it: &Outcome| {
            TimedTally::new([pool.clone(), KeyValue::new(names::OUTCOME, it.as_str())])
        };
        let ended = Outcome::ALL.iter().map(outcome).collect();
        Self { pool: [pool], claims: AtomicU64::new(0), waits: BoundSeries::default(), ended }
    }

    /// Counts a claim of a Step that has waited so many seconds. Answers the attributes for it.
    pub(crate) fn note_claim(&self, waits: &Histogram<f64>, waited: f64) -> &[KeyValue] {
        add(Some(&self.claims));
        self.waits.record(waits, &self.pool, waited);
        &self.pool
    }

    /// Counts the end of an Attempt, which took so many seconds. Answers the attributes for it.
    pub(crate) fn note_end(
        &self,
        times: &Histogram<f64>,
        outcome: Outcome,
        took: f64,
    ) -> &[KeyValue] {
        let found = Outcome::ALL.iter().zip(&self.ended).find(|(it, _)| **it == outcome);
        found.map_or(&self.pool, |(_, ended)| ended.note(1, times, took))
    }
}

fn add(count: Option<&AtomicU64>) {
    if let Some(count) = count {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends a count, unless nothing has happened.
fn observe(to: &dyn AsyncInstrument<u64>, count: &AtomicU64, attributes: &[KeyValue]) {
    let count = count.load(Ordering::Relaxed);
    if count > 0 {
        to.observe(count, attributes);
    }
}
