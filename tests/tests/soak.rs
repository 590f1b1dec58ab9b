//! A cluster that is broken at random while it works.
//!
//! `TENURE_SOAK_SECONDS` says for how long, `TENURE_SOAK_SEED` how: the same seed draws the same faults in the
//! same order, and those of what is broken just then are left out. `./check soak` runs it for an hour. Where
//! `TENURE_SOAK_FAKETIME` names a `libfaketime.so.1` the clocks of scheduler nodes are set, too.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use anyhow::Result;
use tenure_tests::random::{now_ms, said};
use tenure_tests::soak::{Soak, run};

/// How long it lasts where nothing is said, and how long a fault lasts at most then.
const SHORT: (Duration, Duration) = (Duration::from_secs(12), Duration::from_secs(2));

/// What it is broken by then.
const SEED: u64 = 20_261_125;

/// The longest that anything is held or gone where it goes on for long.
const FAULT_MAX: Duration = Duration::from_secs(12);

/// REPORT-16, CLAIM-08, OWN-06, LEASE-16: whatever is killed and held, every Task ends, every log is sound, and
/// when all is whole again nobody keeps anything of what was.
#[test]
fn whatever_is_killed_and_held_every_task_ends_and_nothing_is_left_over() -> Result<()> {
    let (lasts, fault_max) = match said("TENURE_SOAK_SECONDS")? {
        Some(seconds) => (Duration::from_secs(seconds), FAULT_MAX),
        None => SHORT,
    };
    let seed = match said("TENURE_SOAK_SEED")? {
        Some(seed) => seed,
        None if fault_max == FAULT_MAX => now_ms()?,
        None => SEED,
    };
    let faketime = std::env::var_os("TENURE_SOAK_FAKETIME").map(Into::into);
    run(&Soak { seed, lasts, fault_max, faketime })
}
