//! A node on real servers, spoken to as any program in any language would.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod alike;
mod bus;
mod calls;
mod clocks;
mod clusters;
mod common;
mod doubt;
mod features;
mod frozen;
mod handlers;
mod leave;
mod limits;
mod meters;
mod orders;
mod outputs;
mod parents;
mod protocol;
mod random;
mod rates;
mod reads;
mod reasons;
mod rivals;
mod runtime;
mod scope;
#[path = "../../../cluster/tests/real/servers.rs"]
#[allow(dead_code)] // Other tests use more of it.
mod servers;
mod shares;
mod verbs;
mod workers;
