//! Sends traces, metrics and logs to a collector by OTLP.
//!
//! **Traces are made from the log.** While a Task runs nothing is held open for it. When it has
//! ended, its state (which is a fold over its log) becomes its trace: a span for the Task, one for
//! each Attempt, and one for each part of an Attempt. Ids follow from those of the Task and the
//! Attempt, so every process makes the same trace, after a crash or after days.
//!
//! **Nothing is slowed down.** The scheduler calls an [`Observer`](tenure_ports::Observer), which
//! counts, and puts ended Tasks into a queue with a bound. A thread with a runtime of its own does
//! everything else: it makes spans, reads counters, and talks to the collector. What exceeds the
//! queue is counted and dropped. If no endpoint is set, there is no thread and no observer.
//!
//! Deliberately absent: payloads, texts of people, secrets. Ids of Tasks and Attempts are in traces
//! and logs, never in metrics.

mod belonging;
mod counts;
mod exemplars;
mod export;
mod exposition;
mod gauges;
mod handlers;
mod health;
mod logs;
pub mod names;
mod pairs;
mod pools;
mod process;
mod settings;
mod tally;
pub mod trace;
mod watch;

pub use export::{ExportError, MetricsPage, Telemetry};
pub use logs::JsonLines;
pub use settings::{BadSetting, ExportSettings, ExportTarget, Protocol};
