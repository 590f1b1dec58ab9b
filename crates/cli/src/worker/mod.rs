//! `tenure worker`: runs Steps of a pool, lists workers, or asks some to leave.

mod clean;
mod drain;
mod facts;
mod list;
mod refused;
mod run;
mod suspended;

use clap::{Args, Subcommand};
use tenure_telemetry::Telemetry;

#[cfg(test)]
pub(crate) use self::facts::idle;
pub(crate) use self::facts::{WorkerSums, merged};
pub(crate) use self::refused::finding as refused;
pub(crate) use self::run::{RunArgs, RunningWorker, wind_down};
pub(crate) use self::suspended::finding as suspended;
use crate::answer::{Exit, Failure};
use crate::metrics::MetricsArgs;
use crate::telemetry::LogFormat;

/// Run steps of a pool, or look after those who do.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    command: Option<WorkerCommand>,

    #[command(flatten)]
    run: run::RunArgs,
}

/// What can be done about workers, beside being one.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers of a cluster
    List(list::ListArgs),
    /// Tell workers to take no more steps, to finish what they have, and to leave
    Drain(drain::DrainArgs),
    /// Remove from this machine what commands of old attempts wrote
    Clean(clean::CleanArgs),
}

impl WorkerArgs {
    /// Whether this process is a worker, and no command about others.
    pub(crate) fn runs(&self) -> bool {
        self.command.is_none()
    }

    /// Its name in lists of workers and in logs of Tasks. Through a gateway it begins with the principal of
    /// its token, which is not known before it has joined.
    pub(crate) fn id(&self) -> String {
        format!("{}.{}", self.run.name, self.run.boot)
    }

    /// The name that the user gave this process, if any.
    pub(crate) fn given_name(&self) -> Option<String> {
        let name = self.run.name.to_string();
        (name != run::NAME).then_some(name)
    }

    /// Where the worker serves its metrics.
    pub(crate) fn metrics(&self) -> &MetricsArgs {
        &self.run.metrics
    }

    /// The format of its log.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.run.log.log_format
    }
}

/// Runs a worker, or a command about others.
pub(crate) fn run(args: &WorkerArgs, telemetry: Option<&Telemetry>) -> Result<Exit, Failure> {
    match &args.command {
        Some(WorkerCommand::List(args)) => list::run(args),
        Some(WorkerCommand::Drain(args)) => drain::run(args),
        Some(WorkerCommand::Clean(args)) => clean::run(args),
        None => run::run(&args.run, telemetry),
    }
}
