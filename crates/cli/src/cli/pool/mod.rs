//! `tenure pool …`: the pools of a cluster.

mod facts;
mod list;

use clap::Subcommand;

pub(crate) use self::facts::{Waits, longest, merged, most_first, sum, waits};
use crate::cli::answer::{Exit, Failure};
use crate::cli::place::FleetArgs;

/// Pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List the pools of a cluster: workers, room, and what waits
    List(FleetArgs),
}

pub(crate) fn run(command: PoolCommand) -> Result<Exit, Failure> {
    let PoolCommand::List(args) = command;
    list::run(&args)
}
