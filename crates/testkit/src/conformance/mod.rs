//! One suite per port, run by every adapter, and histories to run it with.
//!
//! A suite takes a function that makes a fresh adapter, with whatever must live as long as the
//! adapter (a temporary directory, for example). It panics if the adapter breaks the contract.

#![allow(clippy::unwrap_used, clippy::expect_used)] // This is test code that other crates share.

mod blobs;
mod bus;
pub mod history;
mod journal;
mod leases;

pub use blobs::{QUOTA, blobs_suite};
pub use bus::{Bus, absence_suite, bus_suite};
pub use history::History;
pub use journal::{journal_suite, names_suite, read_all};
pub use leases::leases_suite;
