//! The rules of Task mode, each with a test that fails without it. `docs/macp-rules.md` has their names, such as G-02.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub)]

mod common;

mod rules_answers;
mod rules_commitment;
mod rules_envelope;
mod rules_fuzz;
mod rules_lease;
mod rules_lifecycle;
mod rules_policy;
mod rules_pool;
mod rules_record;
mod rules_replay;
mod rules_start;
mod rules_task;

#[global_allocator]
static METER: tenure_testkit::fuzz::Meter = tenure_testkit::fuzz::Meter;
