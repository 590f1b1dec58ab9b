//! Streams, the log and outputs over a real socket, against a scheduler on a directory.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod house;
mod http;

mod log;
mod outputs;
mod session;
mod task;
