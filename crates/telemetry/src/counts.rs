//! The metrics, and the values that they are read from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{
    AsyncInstrument, AsyncInstrumentBuilder, Counter, Histogram, Meter, ObservableGauge,
};
use parking_lot::Mutex;
use tenure_core::Code;
use tenure_ports::observer::{LinkEnd, LiveSample, PartitionSample, PoolSample, Sample};

use crate::health::Signal;
use crate::names::{self, Metric};
use crate::process::ProcessStats;
use crate::tally::EventCounters;

/// Bucket bounds of durations, in seconds: from an append to a Step that takes days.
const SECONDS: [f64; 24] = [
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 86_400.0,
];

/// Bucket bounds of batch sizes.
const SIZES: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0];

/// The instruments that are updated as things happen.
#[derive(Debug)]
pub(crate) struct Instruments {
    pub(crate) tally: Arc<EventCounters>,
    pub(crate) task_time: Histogram<f64>,
    pub(crate) queue_time: Histogram<f64>,
    pub(crate) run_time: Histogram<f64>,
    pub(crate) refusals: Counter<u64>,
    pub(crate) overloaded: Counter<u64>,
    pub(crate) request_time: Histogram<f64>,
    pub(crate) append_time: Histogram<f64>,
    pub(crate) append_size: Histogram<u64>,
    pub(crate) lease_time: Histogram<f64>,
    pub(crate) leases: Counter<u64>,
    pub(crate) late: Histogram<f64>,
    pub(crate) frame_time: Histogram<f64>,
    pub(crate) frame_size: Histogram<u64>,
    pub(crate) heartbeats: Histogram<f64>,
    pub(crate) takeovers: Histogram<f64>,
    parted: Counter<u64>,
    dropped: Counter<u64>,
}

impl Instruments {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self {
            tally: EventCounters::new(meter),
            task_time: seconds(meter, names::TASK_TIME),
            queue_time: seconds(meter, names::QUEUE_TIME),
            run_time: seconds(meter, names::RUN_TIME),
            refusals: counter(meter, names::REFUSALS),
            overloaded: counter(meter, names::OVERLOADED),
            request_time: seconds(meter, names::REQUEST_TIME),
            append_time: seconds(meter, names::APPEND_TIME),
            append_size: sizes(meter, names::APPEND_SIZE),
            lease_time: seconds(meter, names::LEASE_TIME),
            leases: counter(meter, names::LEASES),
            late: seconds(meter, names::LATE),
            frame_time: seconds(meter, names::FRAME_TIME),
            frame_size: sizes(meter, names::FRAME_SIZE),
            heartbeats: seconds(meter, names::HEARTBEAT),
            takeovers: seconds(meter, names::TAKEOVERS),
            parted: counter(meter, names::PARTED),
            dropped: counter(meter, names::DROPPED),
        }
    }

    /// Counts commands that were refused.
    pub(crate) fn note_refused(&self, code: Code, commands: u64) {
        self.refusals.add(commands, &[KeyValue::new(names::CODE, code.as_str())]);
    }

    /// Counts workers that have gone.
    pub(crate) fn note_parted(&self, why: LinkEnd, workers: u64) {
        self.parted.add(workers, &[KeyValue::new(names::REASON, why.as_str())]);
    }

    /// Counts items of a signal that are lost.
    pub(crate) fn note_dropped(&self, signal: Signal, items: u64) {
        self.dropped.add(items, &[KeyValue::new(names::SIGNAL, signal.as_str())]);
    }

    /// Sends zeros, so that a panel shows 0 before the first event, and then the first event.
    pub(crate) fn begin(&self) {
        Signal::ALL.into_iter().for_each(|signal| self.note_dropped(signal, 0));
        Code::ALL.iter().for_each(|code| self.note_refused(*code, 0));
        LinkEnd::ALL.into_iter().for_each(|why| self.note_parted(why, 0));
        self.overloaded.add(0, &[]);
        self.tally.begin();
    }
}

fn counter(meter: &Meter, metric: Metric) -> Counter<u64> {
    let builder = meter.u64_counter(metric.name).with_unit(metric.unit);
    builder.with_description(metric.answers).build()
}

fn observable(
    meter: &Meter,
    metric: Metric,
) -> AsyncInstrumentBuilder<'_, ObservableGauge<u64>, u64> {
    let builder = meter.u64_observable_gauge(metric.name).with_unit(metric.unit);
    builder.with_description(metric.answers)
}

fn seconds(meter: &Meter, metric: Metric) -> Histogram<f64> {
    let builder = meter.f64_histogram(metric.name).with_unit(metric.unit);
    builder.with_description(metric.answers).with_boundaries(SECONDS.to_vec()).build()
}

fn sizes(meter: &Meter, metric: Metric) -> Histogram<u64> {
    let builder = meter.u64_histogram(metric.name).with_unit(metric.unit);
    builder.with_description(metric.answers).with_boundaries(SIZES.to_vec()).build()
}

/// The function that gives a scheduler's numbers.
type SampleSource = Box<dyn Fn() -> Sample + Send + Sync>;

/// The numbers that are read when metrics are sent, once for all of them.
#[derive(Default)]
pub(crate) struct Gauges {
    source: Mutex<Option<SampleSource>>,
    now: Mutex<(Option<Sample>, ProcessStats)>,
}

impl std::fmt::Debug for Gauges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauges").finish_non_exhaustive()
    }
}

impl Gauges {
    /// Sets the scheduler to be read, or none.
    pub(crate) fn set_source(&self, source: Option<SampleSource>) {
        *self.source.lock() = source;
    }

    /// Reads all numbers anew.
    pub(crate) fn refresh(&self, begun: Instant) {
        let sample = self.source.lock().as_ref().map(|source| source());
        let mut now = self.now.lock();
        let sample = sample.or_else(|| now.0.take().map(gone));
        *now = (sample, ProcessStats::now(begun));
    }

    pub(crate) fn register(self: &Arc<Self>, meter: &Meter) {
        self.pools(meter, names::WAITING, |pool| pool.waiting);
        self.pools(meter, names::READY, |pool| pool.ready);
        self.pools(meter, names::RUNNING, |pool| pool.running);
        self.pools(meter, names::CREDITS, |pool| pool.free);
        self.pools(meter, names::WORKERS, |pool| pool.workers);
        self.pools(meter, names::LEAVING, |pool| pool.leaving);
        self.pools(meter, names::SUSPENDED, |pool| pool.suspended);
        let this = Arc::clone(self);
        let oldest = meter.f64_observable_gauge(names::OLDEST.name).with_unit(names::OLDEST.unit);
        let oldest = oldest.with_description(names::OLDEST.answers);
        oldest
            .with_callback(move |to| {
                this.each_pool(|pool, attributes| {
                    to.observe(pool.oldest.as_secs_f64(), attributes)
                });
            })
            .build();
        let this = Arc::clone(self);
        observable(meter, names::STEPS_WAITING)
            .with_callback(move |to| {
                let now = this.now.lock();
                for (why, count) in now.0.iter().flat_map(|sample| &sample.waits) {
                    to.observe(*count, &[KeyValue::new(names::REASON, why.as_str())]);
                }
            })
            .build();
        self.gauge(meter, names::TASKS, |sample, _| Some(sample?.tasks));
        self.gauge(meter, names::LIVE_TASKS, |sample, _| Some(sample?.live.tasks));
        self.gauge(meter, names::LIVE_SIZE, |sample, _| Some(sample?.live.bytes));
        self.gauge(meter, names::TASK_MEMORY, |sample, _| Some(sample?.live.memory));
        self.gauge(meter, names::UNPLACED, |sample, _| Some(sample?.live.unplaced));
        self.gauge(meter, names::OVER_RATE, |sample, _| Some(sample?.live.over_rate));
        self.gauge(meter, names::PARTITIONS, |sample, _| {
            Some(sample?.partitions.as_ref()?.served.len() as u64)
        });
        self.gauge(meter, names::PARTITIONS_TOTAL, |sample, _| {
            Some(sample?.partitions.as_ref()?.total.into())
        });
        self.gauge(meter, names::NATS_CONNECTED, |sample, _| Some(sample?.servers?.nats.into()));
        self.gauge(meter, names::REDIS_CONNECTED, |sample, _| Some(sample?.servers?.redis.into()));
        let this = Arc::clone(self);
        observable(meter, names::PARTITION_SERVED)
            .with_callback(move |to| {
                let now = this.now.lock();
                let Some(known) = now.0.as_ref().and_then(|sample| sample.partitions.as_ref())
                else {
                    return;
                };
                for partition in 0..known.total {
                    let number = KeyValue::new(names::PARTITION, i64::from(partition));
                    to.observe(known.served.contains(&partition).into(), &[number]);
                }
            })
            .build();
        self.gauge(meter, names::MEMORY, |_, process| Some(process.memory));
        self.gauge(meter, names::THREADS, |_, process| Some(process.threads));
        self.gauge(meter, names::FILES, |_, process| Some(process.files));
        let this = Arc::clone(self);
        let uptime = meter.f64_observable_gauge(names::UPTIME.name).with_unit(names::UPTIME.unit);
        let uptime = uptime.with_description(names::UPTIME.answers);
        uptime.with_callback(move |to| observe(to, this.now.lock().1.uptime)).build();
        let this = Arc::clone(self);
        let cpu = meter.f64_observable_counter(names::CPU.name).with_unit(names::CPU.unit);
        let cpu = cpu.with_description(names::CPU.answers);
        cpu.with_callback(move |to| observe(to, this.now.lock().1.cpu)).build();
    }

    fn gauge(
        self: &Arc<Self>,
        meter: &Meter,
        metric: Metric,
        value: impl Fn(Option<&Sample>, &ProcessStats) -> Option<u64> + Send + Sync + 'static,
    ) {
        let this = Arc::clone(self);
        let builder = observable(meter, metric).with_callback(move |to| {
            let (sample, process) = &*this.now.lock();
            if let Some(value) = value(sample.as_ref(), process) {
                to.observe(value, &[]);
            }
        });
        builder.build();
    }

    fn pools(self: &Arc<Self>, meter: &Meter, metric: Metric, value: fn(&PoolSample) -> u64) {
        let this = Arc::clone(self);
        let builder = observable(meter, metric).with_callback(move |to| {
            this.each_pool(|pool, attributes| to.observe(value(pool), attributes));
        });
        builder.build();
    }

    fn each_pool(&self, mut observe: impl FnMut(&PoolSample, &[KeyValue])) {
        let now = self.now.lock();
        for pool in now.0.iter().flat_map(|sample| &sample.pools) {
            observe(pool, &[KeyValue::new(names::POOL, pool.pool.to_string())]);
        }
    }
}

/// The numbers of a scheduler that has ended. They are sent so that its last numbers do not look
/// like the present.
fn gone(last: Sample) -> Sample {
    let pool = |pool: PoolSample| PoolSample {
        workers: 0,
        leaving: 0,
        suspended: 0,
        free: 0,
        waiting: 0,
        ready: 0,
        waits: Vec::new(),
        oldest: Duration::ZERO,
        running: 0,
        ..pool
    };
    Sample {
        tasks: 0,
        partitions: last
            .partitions
            .map(|it| PartitionSample { total: it.total, ..PartitionSample::default() }),
        servers: None,
        counts: last.counts,
        waits: last.waits.into_iter().map(|(why, _)| (why, 0)).collect(),
        pools: last.pools.into_iter().map(pool).collect(),
        live: LiveSample::default(),
    }
}

fn observe(to: &dyn AsyncInstrument<f64>, time: Duration) {
    to.observe(time.as_secs_f64(), &[]);
}

#[cfg(test)]
mod tests {
    use tenure_core::eligibility::Obstacle;
    use tenure_ports::observer::ServerSample;

    use super::*;

    /// The last numbers of a scheduler are not sent again once it has gone.
    #[test]
    fn a_scheduler_that_has_ended_leaves_nothing() {
        let pool = PoolSample {
            pool: "p".parse().unwrap(),
            workers: 3,
            leaving: 1,
            suspended: 1,
            free: 2,
            waiting: 9,
            ready: 8,
            waits: vec![(Obstacle::PoolSaturated, 8)],
            oldest: Duration::from_secs(7),
            running: 4,
            ended: 5,
            sessions: None,
        };
        let sample = Sample {
            tasks: 6,
            partitions: Some(PartitionSample { total: 8, served: [0, 5].into() }),
            servers: Some(ServerSample { nats: true, redis: false }),
            counts: tenure_core::Counts { claims: 11, ..tenure_core::Counts::default() },
            waits: vec![(Obstacle::RunnableNow, 10)],
            pools: vec![pool.clone()],
            live: LiveSample { tasks: 6, bytes: 7, ..LiveSample::default() },
        };
        let gauges = Gauges::default();
        let now = || gauges.now.lock().0.clone();
        gauges.refresh(Instant::now());
        assert_eq!(now(), None, "no scheduler was here");
        let there = sample.clone();
        gauges.set_source(Some(Box::new(move || there.clone())));
        gauges.refresh(Instant::now());
        assert_eq!(now(), Some(sample.clone()));
        gauges.set_source(None);
        gauges.refresh(Instant::now());
        let left = now().unwrap();
        let none = PartitionSample { total: 8, served: [].into() };
        assert_eq!((left.tasks, left.partitions, left.counts), (0, Some(none), sample.counts));
        assert_eq!(left.servers, None, "nobody tries to reach them any more");
        assert_eq!(left.live, LiveSample::default());
        assert_eq!(left.waits, [(Obstacle::RunnableNow, 0)]);
        let none = PoolSample { pool: pool.pool, ended: pool.ended, ..left.pools[0].clone() };
        assert_eq!(left.pools, [none]);
        let PoolSample {
            workers,
            leaving,
            suspended,
            free,
            waiting,
            ready,
            waits,
            oldest,
            running,
            ..
        } = left.pools[0].clone();
        assert_eq!([workers, leaving, suspended, free, waiting, ready, running], [0; 7]);
        assert_eq!(waits, []);
        assert_eq!(oldest, Duration::ZERO);
    }
}
