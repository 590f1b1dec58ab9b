//! The actors on doubles of their ports, which fail when they are told to. One binary for all of them: each
//! would compile the actors anew.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod common;

mod again;
mod answers;
mod append;
mod away;
mod blobs;
mod bus;
mod cache;
mod capacity;
mod clocks;
mod counts;
mod creation;
mod defects;
mod durable;
mod family;
mod history;
mod isolation;
mod leases;
mod live;
mod outages;
mod ownership;
mod pool;
mod races;
mod reads;
mod rest;
mod runs;
mod runtime;
mod scope;
mod sessions;
mod snapshots;
mod spared;
mod storm;
mod supervised;
mod suspended;
mod time;
mod turns;
