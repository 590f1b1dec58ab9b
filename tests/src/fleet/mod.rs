//! A fleet of unruly workers, for as long as one likes: some freeze, leave, are killed or lose their directory;
//! some lie about their room, refuse or fail what they are given, or stand still in a handler; some Steps kill
//! whoever runs them. Every Task must end, hardly a Step suffer for its neighbours twice, and nobody keep anything.
//!
//! [`workers`] are the fleet and what happens to it; [`work`] is what it is given, and how that is judged.

pub mod work;
pub mod workers;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::workers::Workers;
use crate::cluster::{Cluster, PATIENCE, Plan, audit, until, verdict};

/// How long a lease lasts: a machine that is busy must not end it.
const LEASE_MS: u64 = 6_000;

/// How long Tasks may take to end once nothing more is broken.
const ENDS: Duration = Duration::from_secs(90);

/// Runs it: the same seed draws the same work and the same faults.
///
/// # Errors
/// What is wrong. The logs of all processes and all Tasks stay, and it says where.
#[allow(clippy::print_stdout)] // Figures are for whoever runs it.
pub fn run(seed: u64, lasts: Duration) -> Result<()> {
    println!("fleet: seed {seed}, {lasts:?}");
    let mut cluster =
        Cluster::start(Plan { schedulers: 2, workers: 0, lease_ms: LEASE_MS, ..Plan::default() })?;
    let done = run_on(&mut cluster, seed, lasts);
    if done.is_err() {
        cluster.print_tails();
        let kept = cluster.keep();
        return done.with_context(|| format!("seed {seed}; logs are in {}", kept.display()));
    }
    done
}

#[allow(clippy::print_stdout)] // As above.
fn run_on(cluster: &mut Cluster, seed: u64, lasts: Duration) -> Result<()> {
    let mut workers = Workers::start(cluster, seed)?;
    let client = cluster.client("publisher")?;
    let publishers = work::start(&client, seed);
    let ends = Instant::now() + lasts;
    while Instant::now() < ends && publishers.is_well() {
        workers.disturb()?;
    }
    let published = publishers.finish();
    workers.heal()?;
    println!("fleet: {} tasks were handed in; {workers}", cluster.records.acknowledged());
    published?;
    let begun = Instant::now();
    let mut live = Vec::new();
    let ended = until("every task ends", ENDS, || {
        workers.start_again()?;
        live = client.live_tasks(PATIENCE)?;
        Ok(live.is_empty())
    });
    ended.with_context(|| format!("{} live: {:?}", live.len(), &live[..live.len().min(9)]))?;
    println!("fleet: the last task ended {:?} after the last fault", begun.elapsed());
    let tasks = verdict::check(cluster)?;
    println!("fleet: {}", work::judge(&client, workers.faults(), lasts)?);
    let (clean_after, links) = audit::wait_clean(cluster)?;
    println!("fleet: {tasks} logs are sound; {links}; nothing was left over after {clean_after:?}");
    Ok(())
}
