//! The rights that `deploy/nats/roles.conf` gives, tried on a real server: everything that a role
//! may do arrives, and every attack of a hostile client is refused (mechanisms 15).
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod attacks;
mod place;
#[allow(dead_code)] // Shared with the tests of the adapters, which use more of it.
#[path = "../real/servers.rs"]
mod servers;
