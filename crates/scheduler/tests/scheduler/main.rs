//! The actors on doubles of their ports, which fail when they are told to. One binary for all of them: each
//! would compile the actors anew.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod common;

mod answers;
mod apart;
mod append;
mod bus;
mod clocks;
mod counts;
mod creation;
mod durable;
mod family;
mod folds;
mod kept;
mod leases;
mod ownership;
mod pool;
mod races;
mod rest;
mod room;
mod runs;
mod runtime;
mod scope;
mod spared;
mod storm;
mod supervised;
mod suspended;
mod time;
