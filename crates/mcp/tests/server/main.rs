//! The server against a real scheduler in this process, spoken to as a host of models does: JSON on streams.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

mod eras;
mod host;
mod house;
mod refusals;
mod resources;
mod schemas;
mod tools;
mod waits;
