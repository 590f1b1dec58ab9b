//! The Task aggregate of Tenure: pure, `no_std`, and the only home of the contract's rules.
//!
//! A Task is a durable DAG of Steps. Commands come in as values, with their time, ids and
//! randomness. [`Task::decide`] answers with a commit of events, or refuses and has changed
//! nothing; [`Task::replay`] folds commits into state. Live operation and replay run the same
//! reducer, so a Task is always exactly what its log says.
//!
//! Deliberately absent: clocks, randomness, I/O, async, unordered iteration. The crate's
//! `clippy.toml` keeps them out.
//!
//! Reading order: [`id`], [`status`], [`record`] define names and records; [`event`] and [`patch`] what can
//! happen; [`task`] is the state; [`command`] has the decisions; [`eligibility`] says why a Step is not
//! running, [`completion`] why a Task does not end, [`suspension`] which workers get no Steps; [`view`] is
//! what readers see.

#![no_std]

extern crate alloc;

pub mod command;
pub mod completion;
pub mod counts;
pub mod creation;
pub mod dag;
pub mod eligibility;
pub mod event;
pub mod features;
pub mod id;
pub mod limits;
pub mod operation;
pub mod patch;
pub mod read;
pub mod record;
pub mod reject;
pub mod remedy;
pub mod retry_policy;
mod rows;
pub mod rules;
pub mod runtime;
pub mod sessions;
pub mod status;
pub mod suspension;
pub mod table;
pub mod task;
pub mod trace;
mod value;
pub mod view;

pub use command::{Caller, Command, Context, Cx, Outcome, Reply, Stamp};
pub use counts::Counts;
pub use event::{Commit, Event};
pub use limits::Limits;
pub use operation::{Query, Reads, TaskQuery};
pub use reject::{Code, Rejection, RejectionKind};
pub use rules::Rules;
pub use task::Task;
pub use trace::TraceParent;
