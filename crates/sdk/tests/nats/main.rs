//! Workers and clients over a real NATS server, against a node that does what the test tells it.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod back;
mod client;
mod fence;
mod leave;
mod lost;
mod node;
mod outputs;
mod server;
#[allow(dead_code)] // Other tests use more of it.
#[path = "../../../cluster/tests/real/servers.rs"]
mod servers;
mod superseded;
mod unused;
mod warnings;
mod worker;
