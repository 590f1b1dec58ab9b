//! `tenure worker list`, `tenure worker drain`: the workers of a cluster, as its nodes know them.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::id::{AgentId, PoolId};
use tenure_sdk::nats::client::Heard;
use tenure_wire::bus::V;
use tenure_wire::bus::operate::{Drain, Drained, NodeFacts, RefusedFacts, SuspendedFacts};
use tenure_wire::bus::subject::Token;

use super::pool::sum;
use super::refused::{name, refused, why};
use super::suspended;
use crate::cli::answer::output::{self, Tone};
use crate::cli::answer::sheet::{Sheet, number, text, toned};
use crate::cli::answer::{Exit, Failure, Format, Shape, human};
use crate::cli::place::{FleetArgs, warn_of_missing};

/// What can be done about workers, beside being one.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers of a cluster
    List(ListArgs),
    /// Tell workers to take no more steps, to finish what they have, and to leave
    Drain(DrainArgs),
}

/// List workers.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// Only workers of this pool
    #[arg(long, value_name = "POOL")]
    pool: Option<PoolId>,

    #[command(flatten)]
    fleet: FleetArgs,
}

/// Tell workers to leave.
#[derive(Debug, Clone, Args)]
pub(crate) struct DrainArgs {
    /// The worker's name, as PRINCIPAL (all that run under it) or PRINCIPAL.BOOT (one process)
    #[arg(value_name = "WORKER", required_unless_present = "pool")]
    worker: Option<String>,

    /// Every worker of this pool
    #[arg(long, value_name = "POOL")]
    pool: Option<PoolId>,

    #[command(flatten)]
    fleet: FleetArgs,
}

/// A worker as all nodes together know it.
#[derive(Debug, Serialize)]
pub(super) struct Worker {
    pub(super) pool: PoolId,
    pub(super) principal: SmolStr,
    pub(super) boot: SmolStr,
    pub(super) free: u64,
    pub(super) unheard: u64,
    pub(super) silent_ms: u64,
    pub(super) draining: bool,
    /// A node gives it nothing for a while, as it fails what others complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suspended: Option<SuspendedFacts>,
    /// Open Attempts that it holds; none: nodes do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) running: Option<u64>,
    /// Those that it has a link with.
    nodes: Vec<SmolStr>,
}

#[derive(Serialize)]
struct Listing {
    workers: Vec<Worker>,
    /// Those that a node gave no link lately.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedFacts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

#[derive(Serialize)]
struct Told {
    workers: Vec<AgentId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

/// Does what is asked.
pub(crate) fn run(command: WorkerCommand) -> Result<Exit, Failure> {
    match command {
        WorkerCommand::List(args) => list(&args),
        WorkerCommand::Drain(args) => drain(&args),
    }
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let heard = args.fleet.nodes()?;
    let mut workers = merged(&heard);
    let is_meant = |name: &str| args.pool.as_ref().is_none_or(|pool| pool.as_str() == name);
    workers.retain(|worker| is_meant(worker.pool.as_str()));
    let mut refused = refused(&heard);
    refused.retain(|worker| is_meant(&worker.pool));
    let listing = Listing { workers, refused, missing_partitions: heard.missing_partitions };
    if args.fleet.output != Format::Table {
        let shape = Shape::many("workers", "principal");
        args.fleet.output.answer(&listing, shape, || Ok::<_, Failure>(()))?;
        return Ok(Exit::Ok);
    }
    if listing.workers.is_empty() && listing.refused.is_empty() {
        output::say("no worker: `tenure worker --pool POOL` runs one");
        return Ok(Exit::Ok);
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
    Ok(Exit::Ok)
}

/// Every worker once, with what all nodes say of it.
pub(super) fn merged(heard: &Heard<NodeFacts>) -> Vec<Worker> {
    let mut all: BTreeMap<(PoolId, SmolStr, SmolStr), Worker> = BTreeMap::new();
    for node in &heard.answers {
        for seen in &node.workers {
            let name = (seen.pool.clone(), seen.principal.clone(), seen.boot.clone());
            let new = |(pool, principal, boot): (PoolId, SmolStr, SmolStr)| Worker {
                pool,
                principal,
                boot,
                free: 0,
                unheard: 0,
                silent_ms: u64::MAX,
                draining: false,
                suspended: None,
                running: None,
                nodes: Vec::new(),
            };
            let worker = all.entry(name.clone()).or_insert_with(|| new(name));
            worker.free += seen.free;
            worker.unheard += seen.unheard;
            worker.silent_ms = worker.silent_ms.min(seen.silent_ms);
            worker.draining |= seen.draining;
            let again = |it: &SuspendedFacts| it.again_ms;
            let both = worker.suspended.take().into_iter().chain(seen.suspended.clone());
            worker.suspended = both.max_by_key(again);
            worker.running = sum(worker.running, seen.holds);
            worker.nodes.push(node.node.clone());
        }
    }
    let mut all: Vec<Worker> = all.into_values().collect();
    all.iter_mut().for_each(|worker| worker.nodes.sort_unstable());
    all
}

fn drain(args: &DrainArgs) -> Result<Exit, Failure> {
    let (principal, boot) = match &args.worker {
        Some(name) => {
            let (principal, boot) = match name.split_once('.') {
                Some((principal, boot)) => (principal, Some(boot)),
                None => (name.as_str(), None),
            };
            let token = |text: &str| Token::new(text).map_err(tenure_core::Rejection::from);
            let boot = boot.map(token).transpose()?;
            (Some(token(principal)?), boot)
        }
        None => (None, None),
    };
    let name = |token: Token| SmolStr::new(token.as_str());
    let (principal, boot) = (principal.map(name), boot.map(name));
    let which = Drain { v: V, pool: args.pool.clone(), principal, boot };
    let heard = args.fleet.ask(async |client| Ok(client.port().drain(&which).await?))?;
    warn_of_missing(&heard.missing_partitions);
    let mut workers: Vec<AgentId> =
        heard.answers.into_iter().flat_map(|node: Drained| node.workers).collect();
    workers.sort_unstable();
    workers.dedup();
    if workers.is_empty() {
        return Err(Failure::new(Exit::NotFound, "there is no such worker")
            .help("`tenure worker list` shows those that there are"));
    }
    let told = Told { workers, missing_partitions: heard.missing_partitions };
    args.fleet.output.answer(&told, Shape::many("workers", "worker_id"), || {
        told.workers.iter().try_for_each(|worker| {
            output::print(format_args!("{worker} takes no more, and leaves when it is done\n"))
        })
    })?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::operate::WorkerFacts;

    use super::*;

    fn seen(boot: &str, free: u64, silent_ms: u64, draining: bool) -> WorkerFacts {
        let (pool, principal) = ("default".parse().unwrap(), "w".into());
        let (boot, holds) = (boot.into(), draining.then_some(2));
        let (sent, seen, unheard, suspended) = (None, None, 1, None);
        WorkerFacts {
            pool,
            principal,
            boot,
            free,
            unheard,
            silent_ms,
            draining,
            suspended,
            holds,
            sent,
            seen,
        }
    }

    fn node(name: &str, workers: Vec<WorkerFacts>) -> NodeFacts {
        let owned = vec![0];
        NodeFacts { node: name.into(), partitions: 1, owned, workers, ..NodeFacts::default() }
    }

    #[test]
    fn a_worker_that_several_nodes_know_is_shown_once() {
        let one = node("n2", vec![seen("b1", 2, 900, false), seen("b2", 1, 10, false)]);
        let other = node("n1", vec![seen("b1", 3, 40, true)]);
        let heard = Heard { answers: vec![one, other], missing_partitions: Vec::new() };
        let [first, second] = &merged(&heard)[..] else { panic!("two workers") };
        assert_eq!((first.free, first.unheard, first.silent_ms, first.draining), (5, 2, 40, true));
        assert_eq!((first.running, second.running), (Some(2), None));
        assert_eq!(first.nodes, ["n1", "n2"]);
        assert_eq!((second.boot.as_str(), second.free, second.draining), ("b2", 1, false));
    }
}
