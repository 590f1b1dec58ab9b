//! A cluster that is worked with and broken at random for as long as one likes. At the end everything
//! is whole again, and then every Task must end, every log be sound, and nobody keep anything of it.
//!
//! [`publishers`] hand in work of all kinds; [`nemesis`] kills, holds and starts again, as a seed says,
//! which is printed; [`audit`] asks from outside what is left over. What fails
//! leaves all logs where they are.

pub mod nemesis;
pub mod publishers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use self::nemesis::Nemesis;
use crate::cluster::{Cluster, PATIENCE, POOL, Plan, audit, until, verdict};

/// The other pool.
pub const SIDE: &str = "side";

/// How long Tasks may take to end once everything is whole again.
const ENDS: Duration = Duration::from_secs(90);

/// What a run is like.
#[derive(Debug, Clone)]
pub struct Soak {
    /// What everything random comes from.
    pub seed: u64,
    /// For how long it is broken.
    pub lasts: Duration,
    /// The longest that a process is held or gone.
    pub fault_max: Duration,
    /// A libfaketime, if the clocks of scheduler nodes are to be set.
    pub faketime: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// What is wrong. The logs of all processes and all Tasks stay, and it says where.
#[allow(clippy::print_stdout)] // Figures are for whoever runs it.
pub fn run(soak: &Soak) -> Result<()> {
    println!("soak: seed {}, {:?}", soak.seed, soak.lasts);
    let (schedulers, workers, faketime) = (3, 3, soak.faketime.clone());
    let plan = Plan { schedulers, workers, partitions: 8, faketime, ..Plan::default() };
    let mut cluster = Cluster::start(plan)?;
    let done = side_workers(&mut cluster).and_then(|()| run_on(&mut cluster, soak));
    if done.is_err() {
        cluster.print_tails();
        let kept = cluster.keep();
        return done.with_context(|| format!("seed {}; logs are in {}", soak.seed, kept.display()));
    }
    done
}

fn side_workers(cluster: &mut Cluster) -> Result<()> {
    let url = cluster.url();
    cluster.add_worker(SIDE, &url)?;
    cluster.add_worker(SIDE, &url)
}

#[allow(clippy::print_stdout)] // As above.
fn run_on(cluster: &mut Cluster, soak: &Soak) -> Result<()> {
    let client = cluster.client("publisher")?;
    let publishers = publishers::start(&client, soak.seed);
    let mut nemesis = Nemesis::new(soak.seed, soak.fault_max);
    let broken = nemesis.rage(cluster, soak.lasts, || publishers.is_well());
    nemesis.heal(cluster)?;
    println!("soak: {nemesis}");
    let published = publishers.finish();
    println!("soak: {} tasks were handed in", cluster.records.acknowledged());
    broken.and(published)?;
    cluster.wait_owned()?;
    let begun = Instant::now();
    let mut live = Vec::new();
    let ended = until("every task ends", ENDS, || {
        live = client.live_tasks(PATIENCE)?;
        Ok(live.is_empty())
    });
    ended.with_context(|| format!("{} live: {:?}", live.len(), &live[..live.len().min(9)]))?;
    println!("soak: the last task ended {:?} after everything was whole", begun.elapsed());
    let tasks = verdict::check(cluster)?;
    let (clean_after, links) = audit::wait_clean(cluster)?;
    println!("soak: {tasks} logs are sound; {links}; nothing was left over after {clean_after:?}");
    ensure!(nemesis.exits() == 0, "processes ended by themselves: {nemesis}");
    Ok(())
}

/// A pool of those there are, the one of Steps that name none more often.
#[must_use]
pub fn pool_of(number: u64) -> &'static str {
    if number.is_multiple_of(3) { SIDE } else { POOL }
}
