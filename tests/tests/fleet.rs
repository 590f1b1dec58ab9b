//! A fleet of unruly workers.
//!
//! `TENURE_FLEET_SECONDS` says for how long, `TENURE_FLEET_SEED` how: the same seed draws the same work and the
//! same faults. `./check fleet` runs it for ten minutes.

use std::time::Duration;

use anyhow::Result;
use tenure_tests::fleet::run;
use tenure_tests::random::{now_ms, said};

/// How long it lasts where nothing is said.
const SHORT_SECONDS: u64 = 25;

/// What it draws from then.
const SEED: u64 = 20_261_125;

/// DISP-18, DISP-19, LEASE-18, LEASE-19: whatever workers and Steps do, every Task ends, hardly a Step loses
/// more than one Attempt through its neighbours, and nothing is left over.
#[test]
fn however_unruly_workers_are_every_task_ends_and_nothing_is_left_over() -> Result<()> {
    let (seconds, seed) = (said("TENURE_FLEET_SECONDS")?, said("TENURE_FLEET_SEED")?);
    let seed = match seed {
        Some(seed) => seed,
        None if seconds.is_some() => now_ms()?,
        None => SEED,
    };
    run(seed, Duration::from_secs(seconds.unwrap_or(SHORT_SECONDS)))
}
