//! Counts on plain atomics what happens for each Step; the SDK reads them when it sends metrics. An
//! instrument would look up its attributes each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use parking_lot::RwLock;
use tenure_core::event::Body;
use tenure_core::id::PoolId;
use tenure_core::status::{Outcome, TaskStatus};
use tenure_ports::map::IdMap;

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
    ended: Vec<AtomicU64>,
    /// By type.
    events: Vec<AtomicU64>,
    pools: RwLock<IdMap<PoolId, Arc<PoolTally>>>,
}

/// The same for one pool.
#[derive(Debug)]
pub(crate) struct PoolTally {
    pool: [KeyValue; 1],
    claims: AtomicU64,
    /// By outcome.
    ended: Vec<([KeyValue; 2], AtomicU64)>,
}

impl EventCounters {
    /// Counters that a meter reads.
    pub(crate) fn new(meter: &Meter) -> Arc<Self> {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let this = Arc::new(Self {
            has_begun: AtomicBool::new(false),
            created: AtomicU64::new(0),
            ended: zeros(TaskStatus::ALL.len()),
            events: zeros(Body::TYPES.len()),
            pools: RwLock::default(),
        });
        this.register(meter, names::CREATED, |tally, to| {
            if tally.has_begun.load(Ordering::Relaxed) {
                to.observe(tally.created.load(Ordering::Relaxed), &[]);
            }
        });
        this.register(meter, names::ENDED, |tally, to| {
            for (status, count) in TaskStatus::ALL.iter().zip(&tally.ended) {
                observe(to, count, &[KeyValue::new(names::STATUS, status.as_str())]);
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
            for (attributes, count) in pools.values().flat_map(|pool| &pool.ended) {
                to.observe(count.load(Ordering::Relaxed), attributes);
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

    pub(crate) fn note_end(&self, status: TaskStatus) {
        add(TaskStatus::ALL.iter().zip(&self.ended).find(|it| *it.0 == status).map(|it| it.1));
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
            let attributes = [pool.clone(), KeyValue::new(names::OUTCOME, it.as_str())];
            (attributes, AtomicU64::new(0))
        };
        let ended = Outcome::ALL.iter().map(outcome).collect();
        Self { pool: [pool], claims: AtomicU64::new(0), ended }
    }

    /// Counts a claim. Answers the attributes for it.
    pub(crate) fn note_claim(&self) -> &[KeyValue] {
        add(Some(&self.claims));
        &self.pool
    }

    /// Counts the end of an Attempt. Answers the attributes for it.
    pub(crate) fn note_end(&self, outcome: Outcome) -> &[KeyValue] {
        let found = Outcome::ALL.iter().zip(&self.ended).find(|(it, _)| **it == outcome);
        let Some((_, (attributes, count))) = found else { return &self.pool };
        add(Some(count));
        attributes
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
