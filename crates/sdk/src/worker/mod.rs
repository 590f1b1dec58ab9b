//! Workers: handlers by name, the step context, a pool that runs them.
//!
//! A [`WorkerPool`] takes grants from a [`WorkerPort`](tenure_ports::bus::WorkerPort), runs up to
//! `concurrency` handlers at a time, sends heartbeats for them on its own schedule, and repeats
//! each report until it is recorded. Handlers see a [`StepContext`], but no leases, tokens or
//! versions (CTX-13).

mod attempt_files;
pub mod builtin;
mod capacity;
pub mod context;
#[cfg(feature = "a2a")]
pub mod delegate;
mod ending;
pub mod exec;
pub mod handler;
mod hosted;
mod late_input;
mod leaving;
mod observed;
mod options;
mod outputs;
mod past;
mod pool;
mod pulse;
mod remove;
mod reporter;
mod run_tools;
mod runs;
mod sampled;
mod shortage;
mod stop;
mod surplus;
#[cfg(feature = "mcp")]
pub mod tool;
mod values;
mod words;
mod written_files;

pub use attempt_files::AttemptDir;
pub use builtin::ExecSettings;
pub use context::StepContext;
#[cfg(feature = "a2a")]
pub use delegate::DelegationSettings;
pub(crate) use exec::withhold;
pub use handler::{HandlerError, Handlers};
pub use hosted::RunCommand;
pub use options::Options;
pub use outputs::{open_log, read_output_page};
pub use past::PastAttempts;
pub use pool::WorkerPool;
pub use remove::remove_tree;
pub use run_tools::{RUN_SOCKET_ENV, RunToolsClient};
pub use shortage::SHORTAGE;
