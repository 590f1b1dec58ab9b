//! Looking at a data directory or a cluster: Tasks, Steps, Attempts, logs.
//!
//! Everything here only reads; what changes a Task is in [`command`](super::command), though some of it
//! stands under the same nouns on the command line. It takes no lock, so it works beside a process that is running
//! Tasks on the same directory; it cuts nothing off and repairs nothing; and it starts no
//! scheduler, so looking never moves a Task. What it shows is the log (law 1), folded by the same
//! reducer that the scheduler runs.
//!
//! What the log does not say is said to be unknown: a lease is renewed in the memory of the process
//! at work, so whether a claimed Step is alive is judged by whether there is such a process
//! ([`host`]).
//!
//! Of a cluster, whose owners say how long leases last, the logs that are asked for are fetched first
//! ([`cluster`]), and then looked at in the same way.
//!
//! [`data`] finds and folds Tasks; [`human`], [`sheet`] and [`status`] are how answers look; the
//! rest is one module per noun.

mod attempt;
mod doctor;
pub(crate) mod graph;
mod inbox;
mod lease;
mod pool;
mod refused;
mod runs;
mod step;
mod suspended;
mod task;
mod top;
mod wal;
pub(crate) mod worker;

use clap::Subcommand;

use crate::cli::answer::{Exit, Failure};

/// What can be looked at.
#[derive(Debug, Subcommand)]
pub(crate) enum InspectCommand {
    /// Look at tasks
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Show what happens to a task, until it has ended: `task watch`
    Watch(task::WatchArgs),
    /// Look at the steps of a task
    #[command(subcommand)]
    Step(step::StepCommand),
    /// Look at the attempts of a task
    #[command(subcommand)]
    Attempt(attempt::AttemptCommand),
    /// Look at runs, the licences to claim a step, or cancel one
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Show what waits for somebody, with the command that answers it
    Inbox(inbox::InboxArgs),
    /// Look into the logs, the only truth
    #[command(subcommand)]
    Wal(wal::WalCommand),
    /// Look at the pools of a cluster
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Look at the leases of a cluster
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Look at what a cluster runs on, and say what to change
    Doctor(Box<doctor::DoctorArgs>),
    /// Watch a cluster: nodes, pools, workers, and what has run longest
    Top(Box<top::TopArgs>),
}

/// Answers a question about a data directory or a cluster.
pub(crate) fn run(command: InspectCommand) -> Result<Exit, Failure> {
    match command {
        InspectCommand::Task(command) => task::run(command),
        InspectCommand::Watch(args) => task::watch(&args),
        InspectCommand::Step(command) => step::run(command),
        InspectCommand::Attempt(command) => attempt::run(command),
        InspectCommand::Runs(command) => runs::run(command),
        InspectCommand::Inbox(args) => inbox::run(&args),
        InspectCommand::Wal(command) => wal::run(command),
        InspectCommand::Pool(command) => pool::run(command),
        InspectCommand::Lease(command) => lease::run(command),
        InspectCommand::Doctor(args) => doctor::run(*args),
        InspectCommand::Top(args) => top::run(&args),
    }
}
