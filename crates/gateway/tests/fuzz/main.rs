//! Mutated requests at every door of a gateway, and mutated files that it reads: there is an answer, within bounds,
//! and none that says that the gateway itself is at fault.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod site;

mod a2a;
mod files;
mod http;
mod mcp;

use tenure_testkit::fuzz::Meter;

#[global_allocator]
static METER: Meter = Meter;
