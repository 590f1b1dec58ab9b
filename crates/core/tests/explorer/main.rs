//! An explorer of the core: it tries every command, report, timer, loss and failed append on every state of small
//! Tasks, and checks after each that the laws of the contract hold.
//!
//! The Tasks are all DAGs of two and of three Steps, under each policy of dispatch and completion (`shapes`). From
//! each state it tries the whole alphabet (`inputs`): what a right caller would send, and what a late, doubled or
//! wrong one would. States are visited breadth first, the shortest history first, and two states that will go on
//! alike count as one (`key`). Beyond the depth that the time allows, histories that a seed draws go on (`search`).
//! After each input the laws of what it may change (`changes`), of what must be accepted (`allowed`) and of the state
//! that it leaves (`laws`) are checked, and from each live state somebody who follows the rules and the advice that
//! the Task gives has to be able to bring it to its end (`finish`).
//!
//! A law that is broken is printed with the shortest sequence of inputs found. By hand it runs longer:
//!
//! ```text
//! TENURE_EXPLORE_SECONDS=600 TENURE_EXPLORE_SEED=7 cargo test --release -p tenure-core --test explorer
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.
#![allow(clippy::disallowed_types, clippy::print_stdout)] // It measures time, and says what it has found.

mod allowed;
mod changes;
mod finish;
mod inputs;
mod key;
mod laws;
mod search;
mod shapes;
mod world;

use std::time::Duration;

/// How long a run explores breadth first, all shapes together; it goes deep for half as long.
const SECONDS: u64 = 60;

/// How many states it reaches at least, however busy the machine is.
const LEAST: usize = 200;

fn seconds() -> Duration {
    let given = std::env::var("TENURE_EXPLORE_SECONDS").ok();
    Duration::from_secs(given.map_or(SECONDS, |given| given.parse().expect("a number of seconds")))
}

fn seed() -> u64 {
    let given = std::env::var("TENURE_EXPLORE_SEED").ok();
    given.map_or(1, |given| given.parse().expect("a number"))
}

/// TERM-26, RECOVER-01, WAL-07, WAL-11, VIEW-16, VIEW-17 and the tables of section 3, breadth first from every shape.
#[test]
fn every_state_of_a_small_task_keeps_the_laws() {
    let found = search::breadth_first(&shapes::all(), seconds());
    println!("{found}");
    assert!(found.states > LEAST, "it explored hardly anything: {found}");
}

/// The same laws far from the beginning, on histories that a seed draws.
#[test]
fn long_histories_keep_the_laws() {
    let found = search::deep(&shapes::all(), seed(), seconds() / 2);
    println!("{found}, seed {}", seed());
    assert!(found.states > LEAST, "it explored hardly anything: {found}");
}
