//! Agents that speak A2A over gRPC: a whole server on real sockets, with a scheduler and a worker in this process.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

#[path = "../a2a/agents.rs"]
mod agents;
mod caller;
mod errors;
#[allow(dead_code)] // This binary uses its part.
#[path = "../a2a/house.rs"]
mod house;
#[allow(dead_code)] // As above.
#[path = "../api/http.rs"]
mod http;
mod methods;
mod site;
#[allow(dead_code)] // As above.
#[path = "../a2a/talk.rs"]
mod talk;
mod tls;
