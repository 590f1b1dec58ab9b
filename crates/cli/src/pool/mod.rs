//! `tenure pool …`: the pools of a cluster.

mod facts;

use clap::Subcommand;
use serde::Serialize;
use tenure_core::id::PoolId;
use tenure_core::sessions::SessionPattern;

#[cfg(test)]
pub(crate) use self::facts::quiet;
pub(crate) use self::facts::{PoolSums, WaitCounts, longest, merged, most_first, waits};
use crate::answer::{Exit, Failure, Shape, Sheet, Tone, human, number, output, text, toned};
use crate::place::FleetArgs;

/// Pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List the pools of a cluster: workers, free capacity, and what waits
    List(FleetArgs),
}

pub(crate) fn run(command: PoolCommand) -> Result<Exit, Failure> {
    let PoolCommand::List(args) = command;
    list(&args)
}

#[derive(Serialize)]
struct ListedPool {
    pool: PoolId,
    #[serde(flatten)]
    facts: PoolSums,
}

#[derive(Serialize)]
struct PoolListing {
    pools: Vec<ListedPool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<WaitCounts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

fn list(args: &FleetArgs) -> Result<Exit, Failure> {
    let (heard, exit) = args.nodes()?;
    let pools =
        merged(&heard).into_iter().map(|(pool, facts)| ListedPool { pool, facts }).collect();
    let (waits, missing_partitions) = (waits(&heard), heard.missing_partitions);
    let listing = PoolListing { pools, waits, missing_partitions };
    args.output.answer(&listing, Shape::many("pools", "pool"), || print(&listing))?;
    Ok(exit)
}

fn print(listing: &PoolListing) -> Result<(), Failure> {
    if listing.pools.is_empty() {
        if listing.missing_partitions.is_empty() {
            output::say("no pool: there is no worker, and nothing waits for one");
        }
        return Ok(());
    }
    let mut sheet =
        Sheet::new(&["POOL", "WORKERS", "RUNNING", "FREE", "WAITING", "OLDEST", "WAITS LONGEST"]);
    for ListedPool { pool, facts } in &listing.pools {
        let waiting = match facts.waiting > 0 && facts.workers == 0 {
            true => number(facts.waiting).in_tone(Tone::Bad),
            false => number(facts.waiting),
        };
        let known = |ms: Option<String>| ms.unwrap_or_else(|| "–".into());
        sheet.row([
            toned(pool, Tone::Strong),
            number(facts.workers),
            number(known(facts.running.map(human::count))),
            number(facts.free),
            waiting,
            number(known(facts.oldest_ms.map(human::duration))),
            text(longest(facts.longest.as_ref(), facts.oldest_ms)),
        ]);
    }
    sheet.print()?;
    for ListedPool { pool, facts } in &listing.pools {
        if let Some(sessions) = &facts.sessions {
            let names: Vec<&str> = sessions.iter().map(SessionPattern::as_str).collect();
            output::say(format_args!("pool {pool} serves the sessions {}", names.join(", ")));
        }
    }
    let waits = listing.waits.iter().flat_map(most_first);
    let waits: Vec<String> = waits.map(|(why, n)| format!("{} {why}", human::count(n))).collect();
    if !waits.is_empty() {
        output::say(format_args!("steps that wait, and why: {}", waits.join(", ")));
    }
    Ok(())
}
