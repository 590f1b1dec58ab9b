//! Agents that speak MACP over gRPC: a whole server on real sockets, with a scheduler in this process, or before a
//! cluster of real servers.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod agent;
mod bounds;
mod callers;
mod cluster;
mod errands;
mod killed;
mod lifecycle;
mod lists;
mod messages;
mod others;
mod outlived;
mod policies;
mod pools;
mod repair;
#[allow(dead_code)] // Other tests use more of it.
#[path = "../../../cluster/tests/real/servers.rs"]
mod servers;
mod site;
mod streams;
mod task;
