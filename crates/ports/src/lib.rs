//! What the scheduler asks of its surroundings: a log, leases, and a bus to workers.
//!
//! A port is a small trait whose documentation is the contract: what holds after `Ok`, what is
//! unknown after `Err`, what order calls have. Each port has one suite in [`conformance`], run by
//! every adapter. [`MemoryJournal`] is the simplest adapter there can be, and [`Faulty`] makes any
//! other fail when told to. [`wired`] makes a bus in process carry bytes. All are for tests and simulations.

pub mod bus;
pub mod client;
#[doc(hidden)]
pub mod conformance;
pub mod faulty;
pub mod journal;
pub mod leases;
pub mod memory;
pub mod observer;
pub mod placement;
pub mod wired;

pub use client::ClientPort;
pub use faulty::Faulty;
pub use journal::Journal;
pub use leases::Leases;
pub use memory::MemoryJournal;
pub use observer::Observer;
