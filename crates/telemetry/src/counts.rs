//! The instruments that are updated when something happens.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use tenure_core::Code;
use tenure_ports::observer::LinkEnd;

use crate::handlers::HandlerCounters;
use crate::health::Signal;
use crate::names::{self, Metric};
use crate::tally::EventCounters;

/// Bucket bounds of durations, in seconds: from an append to a Step that takes days.
pub(crate) const SECONDS: [f64; 24] = [
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 86_400.0,
];

/// Bucket bounds of batch sizes.
const SIZES: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0];

/// The instruments that are updated as things happen.
#[derive(Debug)]
pub(crate) struct Instruments {
    pub(crate) tally: Arc<EventCounters>,
    pub(crate) handlers: Arc<HandlerCounters>,
    pub(crate) task_time: Histogram<f64>,
    pub(crate) queue_time: Histogram<f64>,
    pub(crate) run_time: Histogram<f64>,
    pub(crate) refusals: Counter<u64>,
    pub(crate) overloaded: Counter<u64>,
    pub(crate) request_time: Histogram<f64>,
    pub(crate) append_time: Histogram<f64>,
    pub(crate) append_size: Histogram<u64>,
    pub(crate) lease_time: Histogram<f64>,
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
            handlers: HandlerCounters::new(meter),
            task_time: seconds(meter, names::TASK_TIME),
            queue_time: seconds(meter, names::QUEUE_TIME),
            run_time: seconds(meter, names::RUN_TIME),
            refusals: counter(meter, names::REFUSALS),
            overloaded: counter(meter, names::OVERLOADED),
            request_time: seconds(meter, names::REQUEST_TIME),
            append_time: seconds(meter, names::APPEND_TIME),
            append_size: sizes(meter, names::APPEND_SIZE),
            lease_time: seconds(meter, names::LEASE_TIME),
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

fn seconds(meter: &Meter, metric: Metric) -> Histogram<f64> {
    let builder = meter.f64_histogram(metric.name).with_unit(metric.unit);
    builder.with_description(metric.answers).with_boundaries(SECONDS.to_vec()).build()
}

fn sizes(meter: &Meter, metric: Metric) -> Histogram<u64> {
    let builder = meter.u64_histogram(metric.name).with_unit(metric.unit);
    builder.with_description(metric.answers).with_boundaries(SIZES.to_vec()).build()
}
