//! What the scheduler asks of its surroundings: a log, leases, and a bus to workers.
//!
//! A port is a small trait whose documentation is the contract: what holds after `Ok`, what is
//! unknown after `Err`, what order calls have. Each port has one conformance suite here, run by
//! every adapter, and a double that can be told to fail.

pub mod bus;
pub mod journal;
pub mod leases;

pub use journal::Journal;
pub use leases::Leases;
