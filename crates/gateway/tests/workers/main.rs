//! Workers over HTTP over a real socket, against a scheduler in this process.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod callers;
mod deliveries;
mod hall;
mod hand;
#[allow(dead_code)] // This binary uses its part.
#[path = "../api/http.rs"]
mod http;
mod reports;
mod runs;
