//! `tenure worker list`: the workers of a cluster, as its nodes know them.

use clap::Args;
use serde::Serialize;
use tenure_core::id::PoolId;
use tenure_wire::bus::operate::RefusedFacts;

use super::facts::{WorkerSums, merged};
use super::refused::{name, refused, why};
use super::suspended;
use crate::answer::{Exit, Failure, Shape, Sheet, Tone, human, number, output, text, toned};
use crate::place::FleetArgs;

/// List workers.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// Only workers of this pool
    #[arg(long, value_name = "POOL")]
    pool: Option<PoolId>,

    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Serialize)]
struct WorkerListing {
    workers: Vec<WorkerSums>,
    /// Workers to which a node gave no link lately.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedFacts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

pub(super) fn run(args: &ListArgs) -> Result<Exit, Failure> {
    let (heard, exit) = args.fleet.nodes()?;
    let mut workers = merged(&heard);
    let is_meant = |name: &str| args.pool.as_ref().is_none_or(|pool| pool.as_str() == name);
    workers.retain(|worker| is_meant(worker.pool.as_str()));
    let mut refused = refused(&heard);
    refused.retain(|worker| is_meant(&worker.pool));
    let listing = WorkerListing { workers, refused, missing_partitions: heard.missing_partitions };
    args.fleet.output.answer(&listing, Shape::many("workers", "principal"), || print(&listing))?;
    Ok(exit)
}

fn print(listing: &WorkerListing) -> Result<(), Failure> {
    if listing.workers.is_empty() && listing.refused.is_empty() {
        if listing.missing_partitions.is_empty() {
            output::say("no worker: `tenure worker --pool POOL` runs one");
        }
        return Ok(());
    }
    let mut sheet = Sheet::new(&["WORKER", "POOL", "STATUS", "FREE", "UNHEARD", "SILENT", "NODES"]);
    for worker in &listing.workers {
        let status = if worker.suspended.is_some() {
            toned("suspended", Tone::Bad)
        } else if worker.draining {
            toned("leaving", Tone::Caution)
        } else {
            toned("here", Tone::Good)
        };
        sheet.row([
            toned(format_args!("{}.{}", worker.principal, worker.boot), Tone::Strong),
            text(&worker.pool),
            status,
            number(worker.free),
            number(worker.unheard),
            number(human::duration(worker.silent_ms)),
            text(worker.nodes.join(" ")),
        ]);
    }
    for worker in &listing.refused {
        sheet.row([
            toned(name(worker), Tone::Strong),
            text(&worker.pool),
            toned("refused", Tone::Bad),
            number("–"),
            number("–"),
            number(human::duration(worker.ago_ms)),
            text("–"),
        ]);
    }
    sheet.print()?;
    listing.refused.iter().for_each(|worker| output::warn(why(worker)));
    listing.workers.iter().filter_map(suspended::why).for_each(output::warn);
    Ok(())
}
