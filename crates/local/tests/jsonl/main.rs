//! The embedded adapters, seen from outside. One binary, so that it is linked once.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod blobs;
mod common;
mod conformance;
mod damage;
mod durable;
mod failures;
mod fuzz;
mod index;
mod links;
mod reading;
mod torn_tails;
mod writing;
