//! The values that are read when metrics are sent, once for all of them.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use parking_lot::Mutex;
use tenure_ports::observer::{
    LiveSample, LogSample, PartitionSample, PoolSample, Sample, WorkerSample,
};

use crate::names::{self, Kind, Metric};
use crate::pools::{PoolSeries, empty, with_closed_pools};
use crate::process::ProcessStats;

/// The function that gives a scheduler's numbers.
type SampleSource = Box<dyn Fn() -> Sample + Send + Sync>;

/// The function that gives a worker's numbers; `None` once it has ended.
type WorkerSource = Box<dyn Fn() -> Option<WorkerSample> + Send + Sync>;

/// A callback that reports values.
type Report = Box<dyn Fn(&dyn AsyncInstrument<u64>) + Send + Sync>;

/// The numbers that are read when metrics are sent.
#[derive(Default)]
pub(crate) struct Gauges {
    source: Mutex<Option<SampleSource>>,
    worker: Mutex<Option<WorkerSource>>,
    pools: Mutex<PoolSeries>,
    now: Mutex<Numbers>,
}

/// All numbers of one moment.
#[derive(Debug, Default)]
struct Numbers {
    sample: Option<Sample>,
    /// Whether the scheduler of the sample runs.
    is_running: bool,
    worker: Option<WorkerSample>,
    process: ProcessStats,
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

    /// Sets the worker to be read.
    pub(crate) fn set_worker(&self, worker: WorkerSource) {
        *self.worker.lock() = Some(worker);
    }

    /// Reads all numbers anew.
    pub(crate) fn refresh(&self, begun: Instant) {
        let sample = self.source.lock().as_ref().map(|source| source());
        let sample = sample.map(|sample| self.pools.lock().bound(sample));
        let is_running = sample.is_some();
        let worker = self.worker.lock().as_ref().and_then(|worker| worker());
        let mut now = self.now.lock();
        let before = now.sample.take();
        let sample = match (sample, before) {
            (Some(sample), Some(before)) => Some(with_closed_pools(sample, before)),
            (Some(sample), None) => Some(sample),
            (None, before) => before.map(gone),
        };
        let worker = worker.or_else(|| now.worker.take().map(idle));
        *now = Numbers { sample, is_running, worker, process: ProcessStats::now(begun) };
    }

    pub(crate) fn register(self: &Arc<Self>, meter: &Meter) {
        self.pools(meter, names::WAITING, |pool| pool.waiting);
        self.pools(meter, names::READY, |pool| pool.ready);
        self.pools(meter, names::RUNNING, |pool| pool.running);
        self.pools(meter, names::DESIRED, |pool| pool.running.saturating_add(pool.waiting));
        self.pools(meter, names::CREDITS, |pool| pool.free);
        self.pools(meter, names::WORKERS, |pool| pool.workers);
        self.pools(meter, names::LEAVING, |pool| pool.leaving);
        self.pools(meter, names::SUSPENDED, |pool| pool.suspended);
        self.worker(meter, names::WORKER_SLOTS, |worker| Some(worker.slots));
        self.worker(meter, names::WORKER_RUNNING, |worker| Some(worker.running));
        self.worker(meter, names::WORKER_HELD, |worker| Some(worker.held));
        self.worker(meter, names::WORKER_FILES, |worker| Some(worker.files?.files));
        self.worker(meter, names::WORKER_FILES_SIZE, |worker| Some(worker.files?.bytes));
        self.waits(meter);
        self.value(meter, names::TASKS, |sample| Some(sample.tasks));
        self.value(meter, names::LIVE_TASKS, |sample| Some(sample.live.tasks));
        self.value(meter, names::LIVE_SIZE, |sample| Some(sample.live.bytes));
        self.value(meter, names::TASK_MEMORY, |sample| Some(sample.live.memory));
        self.value(meter, names::UNPLACED, |sample| Some(sample.live.unplaced));
        self.value(meter, names::OVER_RATE, |sample| Some(sample.live.over_rate));
        self.value(meter, names::PARTITIONS, |sample| {
            Some(sample.partitions.as_ref()?.served.len() as u64)
        });
        self.value(meter, names::PARTITIONS_TOTAL, |sample| {
            Some(sample.partitions.as_ref()?.total.into())
        });
        self.value(meter, names::NATS_CONNECTED, |sample| Some(sample.servers?.nats.into()));
        self.value(meter, names::REDIS_CONNECTED, |sample| Some(sample.servers?.redis.into()));
        self.value(meter, names::LOG_SIZE, |sample| Some(sample.log?.bytes));
        self.value(meter, names::LOG_LIMIT, |sample| Some(sample.log?.tightest?.limit));
        self.value(meter, names::LOG_ROOM, |sample| Some(sample.log?.tightest?.free));
        self.partitions(meter);
        self.running(meter);
        self.process(meter, names::MEMORY, |process| process.memory);
        self.process(meter, names::THREADS, |process| process.threads);
        self.process(meter, names::FILES, |process| process.files);
        self.seconds(meter);
        let version = [KeyValue::new(names::VERSION, env!("CARGO_PKG_VERSION"))];
        report(meter, names::BUILD, Box::new(move |to| to.observe(1, &version)));
    }

    /// The metrics that are in seconds.
    fn seconds(self: &Arc<Self>, meter: &Meter) {
        let this = Arc::clone(self);
        let oldest = meter.f64_observable_gauge(names::OLDEST.name).with_unit(names::OLDEST.unit);
        let oldest = oldest.with_description(names::OLDEST.answers);
        oldest
            .with_callback(move |to| {
                this.each_pool(|pool, attributes| {
                    to.observe(pool.oldest.as_secs_f64(), attributes);
                });
            })
            .build();
        let this = Arc::clone(self);
        let uptime = meter.f64_observable_gauge(names::UPTIME.name).with_unit(names::UPTIME.unit);
        let uptime = uptime.with_description(names::UPTIME.answers);
        uptime
            .with_callback(move |to| {
                to.observe(this.now.lock().process.uptime.as_secs_f64(), &[]);
            })
            .build();
        let this = Arc::clone(self);
        let cpu = meter.f64_observable_counter(names::CPU.name).with_unit(names::CPU.unit);
        let cpu = cpu.with_description(names::CPU.answers);
        let modes = ["user", "system"].map(|mode| [KeyValue::new(names::CPU_MODE, mode)]);
        cpu.with_callback(move |to| {
            let process = this.now.lock().process;
            to.observe(process.cpu_user.as_secs_f64(), &modes[0]);
            to.observe(process.cpu_system.as_secs_f64(), &modes[1]);
        })
        .build();
    }

    fn waits(self: &Arc<Self>, meter: &Meter) {
        let this = Arc::clone(self);
        let each = move |to: &dyn AsyncInstrument<u64>| {
            let now = this.now.lock();
            for (why, count) in now.sample.iter().flat_map(|sample| &sample.waits) {
                to.observe(*count, &[KeyValue::new(names::REASON, why.as_str())]);
            }
        };
        report(meter, names::STEPS_WAITING, Box::new(each));
    }

    fn partitions(self: &Arc<Self>, meter: &Meter) {
        let this = Arc::clone(self);
        let each = move |to: &dyn AsyncInstrument<u64>| {
            let now = this.now.lock();
            let known = now.sample.as_ref().and_then(|sample| sample.partitions.as_ref());
            for partition in known.into_iter().flat_map(|known| 0..known.total) {
                let is_served = known.is_some_and(|known| known.served.contains(&partition));
                let number = KeyValue::new(names::PARTITION, i64::from(partition));
                to.observe(is_served.into(), &[number]);
            }
        };
        report(meter, names::PARTITION_SERVED, Box::new(each));
    }

    /// Whether the scheduler runs; one that has no cluster does not say so.
    fn running(self: &Arc<Self>, meter: &Meter) {
        let this = Arc::clone(self);
        let one = move |to: &dyn AsyncInstrument<u64>| {
            let now = this.now.lock();
            if now.sample.as_ref().is_some_and(|sample| sample.partitions.is_some()) {
                to.observe(now.is_running.into(), &[]);
            }
        };
        report(meter, names::SCHEDULER_RUNNING, Box::new(one));
    }

    fn value(
        self: &Arc<Self>,
        meter: &Meter,
        metric: Metric,
        value: impl Fn(&Sample) -> Option<u64> + Send + Sync + 'static,
    ) {
        let this = Arc::clone(self);
        let one = move |to: &dyn AsyncInstrument<u64>| {
            if let Some(value) = this.now.lock().sample.as_ref().and_then(&value) {
                to.observe(value, &[]);
            }
        };
        report(meter, metric, Box::new(one));
    }

    fn process(self: &Arc<Self>, meter: &Meter, metric: Metric, value: fn(&ProcessStats) -> u64) {
        let this = Arc::clone(self);
        let one = move |to: &dyn AsyncInstrument<u64>| {
            to.observe(value(&this.now.lock().process), &[]);
        };
        report(meter, metric, Box::new(one));
    }

    fn worker(
        self: &Arc<Self>,
        meter: &Meter,
        metric: Metric,
        value: fn(&WorkerSample) -> Option<u64>,
    ) {
        let this = Arc::clone(self);
        let one = move |to: &dyn AsyncInstrument<u64>| {
            let now = this.now.lock();
            if let Some((worker, value)) = now.worker.as_ref().and_then(|it| Some((it, value(it)?)))
            {
                to.observe(value, &[KeyValue::new(names::POOL, worker.pool.to_string())]);
            }
        };
        report(meter, metric, Box::new(one));
    }

    fn pools(self: &Arc<Self>, meter: &Meter, metric: Metric, value: fn(&PoolSample) -> u64) {
        let this = Arc::clone(self);
        let each = move |to: &dyn AsyncInstrument<u64>| {
            this.each_pool(|pool, attributes| to.observe(value(pool), attributes));
        };
        report(meter, metric, Box::new(each));
    }

    fn each_pool(&self, mut observe: impl FnMut(&PoolSample, &[KeyValue])) {
        let now = self.now.lock();
        for pool in now.sample.iter().flat_map(|sample| &sample.pools) {
            observe(pool, &[KeyValue::new(names::POOL, pool.pool.to_string())]);
        }
    }
}

/// Has the meter ask for a metric of whole numbers, as the kind of the metric says.
pub(crate) fn report(meter: &Meter, metric: Metric, values: Report) {
    let Metric { name, unit, answers, .. } = metric;
    match metric.kind {
        Kind::Counter => {
            let builder = meter.u64_observable_counter(name).with_unit(unit);
            builder.with_description(answers).with_callback(move |to| values(to)).build();
        }
        Kind::UpDownCounter => {
            let builder = meter.i64_observable_up_down_counter(name).with_unit(unit);
            let values = move |to: &dyn AsyncInstrument<i64>| values(&SignedInstrument(to));
            builder.with_description(answers).with_callback(values).build();
        }
        Kind::Gauge | Kind::Histogram => {
            let builder = meter.u64_observable_gauge(name).with_unit(unit);
            builder.with_description(answers).with_callback(move |to| values(to)).build();
        }
    }
}

/// Counts that may fall have a sign in OpenTelemetry, even where they are never negative.
struct SignedInstrument<'a>(&'a dyn AsyncInstrument<i64>);

impl AsyncInstrument<u64> for SignedInstrument<'_> {
    fn observe(&self, value: u64, attributes: &[KeyValue]) {
        self.0.observe(i64::try_from(value).unwrap_or(i64::MAX), attributes);
    }
}

/// A worker that has ended.
fn idle(last: WorkerSample) -> WorkerSample {
    WorkerSample { slots: 0, running: 0, held: 0, ..last }
}

/// The numbers of a scheduler that has ended. They are sent so that its last numbers do not look
/// like the present.
fn gone(last: Sample) -> Sample {
    let LiveSample { unplaced, over_rate, .. } = last.live;
    Sample {
        tasks: 0,
        partitions: last
            .partitions
            .map(|it| PartitionSample { total: it.total, ..PartitionSample::default() }),
        servers: None,
        counts: last.counts,
        waits: last.waits.into_iter().map(|(why, _)| (why, 0)).collect(),
        pools: last.pools.into_iter().map(empty).collect(),
        live: LiveSample { unplaced, over_rate, ..LiveSample::default() },
        log: last.log.map(|log| LogSample { bytes: 0, ..log }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::eligibility::Obstacle;
    use tenure_ports::observer::{FileTotals, LogCapacity, ServerSample};

    use super::*;
    use crate::pools::tests::pool;

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
            live: LiveSample { tasks: 6, bytes: 7, over_rate: 3, ..LiveSample::default() },
            log: Some(LogSample { bytes: 9, tightest: Some(LogCapacity { limit: 20, free: 11 }) }),
        };
        let gauges = Gauges::default();
        let now = || gauges.now.lock().sample.clone();
        gauges.refresh(Instant::now());
        assert_eq!(now(), None, "no scheduler was here");
        let there = sample.clone();
        gauges.set_source(Some(Box::new(move || there.clone())));
        gauges.refresh(Instant::now());
        assert_eq!(now(), Some(sample.clone()));
        assert!(gauges.now.lock().is_running);
        gauges.set_source(None);
        gauges.refresh(Instant::now());
        let left = now().unwrap();
        let none = PartitionSample { total: 8, served: [].into() };
        assert_eq!((left.tasks, left.partitions, left.counts), (0, Some(none), sample.counts));
        assert!(!gauges.now.lock().is_running, "otherwise it would be missed");
        assert_eq!(left.servers, None, "nobody tries to reach them any more");
        assert_eq!(left.live, LiveSample { over_rate: 3, ..LiveSample::default() });
        assert_eq!(left.log.map(|log| log.bytes), Some(0), "the next owner counts them");
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

    fn sample(pools: Vec<PoolSample>) -> Sample {
        Sample { pools, ..Sample::default() }
    }

    /// A gauge keeps its last value for ever unless it is told another.
    #[test]
    fn a_pool_that_has_closed_has_nothing_left() {
        let gauges = Gauges::default();
        let told: Arc<Mutex<Vec<PoolSample>>> = Arc::default();
        let source = Arc::clone(&told);
        gauges.set_source(Some(Box::new(move || sample(source.lock().clone()))));
        let now = || {
            gauges.refresh(Instant::now());
            let pools = gauges.now.lock().sample.clone().unwrap().pools;
            pools.iter().map(|it| (it.pool.to_string(), it.waiting, it.workers)).collect::<Vec<_>>()
        };
        *told.lock() = vec![pool("a", 4), pool("b", 5)];
        assert_eq!(now(), [("a".into(), 4, 1), ("b".into(), 5, 1)]);
        *told.lock() = vec![pool("b", 6)];
        assert_eq!(now(), [("b".into(), 6, 1), ("a".into(), 0, 0)], "once more, with zeros");
        assert_eq!(now(), [("b".into(), 6, 1)], "it is not carried along");
    }

    #[test]
    fn a_worker_that_has_ended_has_no_slots() {
        let gauges = Gauges::default();
        let told: Arc<Mutex<Option<WorkerSample>>> = Arc::default();
        let source = Arc::clone(&told);
        gauges.set_worker(Box::new(move || source.lock().clone()));
        let now = || {
            gauges.refresh(Instant::now());
            gauges.now.lock().worker.clone()
        };
        assert_eq!(now(), None);
        let files = Some(FileTotals { files: 5, bytes: 6 });
        let pool = "p".parse().unwrap();
        let worker = WorkerSample { pool, slots: 4, running: 2, held: 3, files };
        *told.lock() = Some(worker.clone());
        assert_eq!(now(), Some(worker.clone()));
        *told.lock() = None;
        let none = Some(WorkerSample { slots: 0, running: 0, held: 0, ..worker });
        assert_eq!((now(), now()), (none.clone(), none));
    }

    #[test]
    fn the_place_that_is_fuller_is_the_tighter_one() {
        let [half, most] =
            [(100, 50), (1_000, 100)].map(|(limit, free)| LogCapacity { limit, free });
        assert_eq!((half.tighter(most), most.tighter(half)), (most, most));
        let huge = LogCapacity { limit: u64::MAX, free: u64::MAX };
        assert_eq!(huge.tighter(half), half);
    }
}
