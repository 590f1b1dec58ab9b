//! The handler `mcp` against a server of tools, over its standard input and output and over HTTP: a scheduler on a
//! directory, a worker, and steps that call tools.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod broken;
mod calls;
mod http;
mod questions;
mod run;
mod tasks;
