//! Agents that speak A2A over a real socket, with a scheduler and a worker in this process.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod agents;
mod callers;
mod client;
mod delegation;
mod house;
#[allow(dead_code)] // This binary uses its part.
#[path = "../api/http.rs"]
mod http;
mod life;
mod lists;
mod model;
mod older;
mod push;
mod rest;
mod seeds;
mod sends;
mod served;
mod streams;
mod talk;
