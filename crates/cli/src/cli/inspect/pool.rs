//! `tenure pool list`: where workers and waiting Steps meet, over all nodes.

use std::collections::{BTreeMap, BTreeSet};

use clap::Subcommand;
use serde::Serialize;
use tenure_core::id::PoolId;
use tenure_sdk::nats::client::Heard;
use tenure_wire::bus::operate::NodeFacts;

use super::args::{FleetArgs, Format, Shape};
use super::sheet::{Sheet, number, toned};
use super::worker::warn_of_missing;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{self, Tone};

/// Pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List the pools of a cluster: workers, room, and what waits
    List(FleetArgs),
}

/// A pool over all nodes.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Facts {
    pub(super) workers: usize,
    pub(super) free: u64,
    pub(super) waiting: u64,
    /// For how long the Step has been ready that has waited longest of those next in line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) oldest_ms: Option<u64>,
    /// Open Attempts; none: nodes do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) running: Option<u64>,
}

#[derive(Serialize)]
struct Pool {
    pool: PoolId,
    #[serde(flatten)]
    facts: Facts,
}

#[derive(Serialize)]
struct Listing {
    pools: Vec<Pool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

pub(super) fn run(command: PoolCommand) -> Result<Exit, Failure> {
    let PoolCommand::List(args) = command;
    let heard = args.ask(async |client| Ok(client.port().nodes().await?))?;
    warn_of_missing(&heard.missing_partitions);
    let pools = merged(&heard).into_iter().map(|(pool, facts)| Pool { pool, facts }).collect();
    let listing = Listing { pools, missing_partitions: heard.missing_partitions };
    if args.output != Format::Table {
        let shape = Shape::many("pools", "pool");
        args.output.answer(&listing, shape, || Ok::<_, Failure>(()))?;
        return Ok(Exit::Ok);
    }
    if listing.pools.is_empty() {
        output::say("no pool: there is no worker, and nothing waits for one");
        return Ok(Exit::Ok);
    }
    let mut sheet = Sheet::new(&["POOL", "WORKERS", "FREE", "WAITING"]);
    for Pool { pool, facts } in &listing.pools {
        let waiting = match facts.waiting > 0 && facts.workers == 0 {
            true => toned(facts.waiting, Tone::Bad),
            false => number(facts.waiting),
        };
        let name = toned(pool, Tone::Strong);
        sheet.row([name, number(facts.workers), number(facts.free), waiting]);
    }
    sheet.print()?;
    Ok(Exit::Ok)
}

/// Every pool once: a worker counts once, however many nodes it has links with.
pub(super) fn merged(heard: &Heard<NodeFacts>) -> BTreeMap<PoolId, Facts> {
    let mut pools: BTreeMap<PoolId, Facts> = BTreeMap::new();
    let mut workers: BTreeMap<&PoolId, BTreeSet<_>> = BTreeMap::new();
    for node in &heard.answers {
        for pool in &node.pools {
            let facts = pools.entry(pool.pool.clone()).or_default();
            facts.free += pool.free;
            facts.waiting += pool.waiting;
            facts.oldest_ms = facts.oldest_ms.max(pool.oldest_ms);
            facts.running = sum(facts.running, pool.running);
        }
        for seen in &node.workers {
            workers.entry(&seen.pool).or_default().insert((&seen.principal, &seen.boot));
        }
    }
    for (pool, of) in workers {
        pools.entry(pool.clone()).or_default().workers = of.len();
    }
    pools
}

/// What is known of two nodes together.
pub(super) fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (known, None) | (None, known) => known,
    }
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::operate::{PoolFacts, WorkerFacts};

    use super::*;

    #[test]
    fn a_worker_with_two_links_is_one_worker() {
        let pool: PoolId = "default".parse().unwrap();
        let node = |name: &str, waiting| NodeFacts {
            node: name.into(),
            partitions: 1,
            owned: vec![0],
            workers: vec![WorkerFacts {
                pool: pool.clone(),
                principal: "w".into(),
                boot: "b".into(),
                free: 2,
                unheard: 0,
                silent_ms: 0,
                draining: false,
                holds: None,
            }],
            more: false,
            pools: vec![PoolFacts {
                pool: pool.clone(),
                workers: 1,
                free: 2,
                waiting,
                oldest_ms: (waiting > 3).then_some(900),
                running: Some(waiting),
                ended: None,
            }],
            at: None,
            tasks: None,
            counts: None,
        };
        let answers = vec![node("n1", 3), node("n2", 4)];
        let pools = merged(&Heard { answers, missing_partitions: Vec::new() });
        assert_eq!(
            pools[&pool],
            Facts { workers: 1, free: 4, waiting: 7, oldest_ms: Some(900), running: Some(7) }
        );
    }
}
