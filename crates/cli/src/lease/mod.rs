//! `tenure lease …`: the leases of a cluster's open Attempts.

mod audit;
mod list;

use clap::Subcommand;

pub(crate) use self::audit::{LeaseAudit, compare};
use crate::answer::{Exit, Failure};
use crate::place::FleetArgs;

/// Leases.
#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// List the leases of the attempts of a session
    List(FleetArgs),
    /// Hold leases against logs: an open attempt has a lease, and a lease an open attempt
    Audit(FleetArgs),
}

pub(crate) fn run(command: LeaseCommand) -> Result<Exit, Failure> {
    match command {
        LeaseCommand::List(args) => list::run(&args),
        LeaseCommand::Audit(args) => audit::run(&args),
    }
}
