//! Offered tools and the extension Tasks, spoken line by line, with a scheduler and a worker in this process.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod calls;
mod elicit;
mod house;
mod lasting;
mod listening;
mod questions;
mod refusals;
mod talk;
mod tasks;
