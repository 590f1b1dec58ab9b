//! What Tenure tells the outside: traces, metrics and logs, by OTLP.
//!
//! **Traces are made from the log.** While a Task runs nothing is kept open for it; when it has
//! ended, its state (which is a fold over its log) becomes its trace: a span for the Task, one for
//! each Attempt, and one for each of its parts. Ids follow from those of the Task and the Attempt, so
//! that whoever makes the trace makes the same one, after a crash or after days.
//!
//! **Nothing is slowed down.** The scheduler tells an [`Observer`](tenure_ports::Observer), which
//! counts, and puts ended Tasks into a queue with a bound. A thread with a runtime of its own does
//! everything else: it makes spans, reads counters, and talks to the collector. What does not fit is
//! counted and dropped. Where no endpoint is set there is no thread and no observer.
//!
//! What is deliberately absent: payloads, texts of people, secrets. Ids of Tasks and Attempts are in
//! traces and logs, never in metrics.

mod belonging;
mod counts;
mod export;
mod health;
mod logs;
pub mod names;
mod process;
mod settings;
mod tally;
pub mod trace;
mod watch;

pub use export::{ExportError, Telemetry};
pub use logs::JsonLines;
pub use settings::{BadSetting, ExportSettings, ExportTarget, Protocol};
