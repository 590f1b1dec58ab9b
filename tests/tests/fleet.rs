//! A fleet of unruly workers.
//!
//! `TENURE_FLEET_SECONDS` says for how long, `TENURE_FLEET_SEED` how: the same seed draws the same work and the
//! same faults. `./check fleet` runs it for ten minutes.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// How long it lasts where nothing is said.
const SHORT_SECONDS: u64 = 25;

/// What it draws from then.
const SEED: u64 = 20_261_125;

/// DISP-18, LEASE-18, LEASE-19: whatever workers and Steps do, every Task ends, hardly a Step loses more than one
/// Attempt through its neighbours, and nothing is left over.
#[test]
fn however_unruly_workers_are_every_task_ends_and_nothing_is_left_over() -> Result<()> {
    let number = |name: &str| -> Result<Option<u64>> {
        let said = std::env::var(name).ok();
        said.map(|said| said.parse().with_context(|| format!("{name}={said}"))).transpose()
    };
    let seconds = number("TENURE_FLEET_SECONDS")?.unwrap_or(SHORT_SECONDS);
    tenure_tests::fleet::run(
        number("TENURE_FLEET_SEED")?.unwrap_or(SEED),
        Duration::from_secs(seconds),
    )
}
