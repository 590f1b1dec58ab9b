//! The ports of the scheduler, to what is outside it: a log, blobs, leases, workers, callers,
//! and an observer.
//!
//! A port is a small trait whose documentation is the contract: what holds after `Ok`, what is
//! unknown after `Err`, what order calls have. Each port has one suite in `tenure-testkit`, which every
//! adapter runs. [`supervise`] runs the loops of adapters that must not fail unnoticed. [`downtime`] counts what
//! fails while a server is away. [`map`] has the maps by ids that the scheduler and adapters use, and [`erased`]
//! the ports behind one pointer.

pub mod blobs;
pub mod bus;
pub mod client;
pub mod downtime;
pub mod erased;
pub mod journal;
pub mod leases;
pub mod map;
pub mod observer;
pub mod placement;
pub mod supervise;

pub use blobs::BlobStore;
pub use client::ClientPort;
pub use journal::Journal;
pub use leases::Leases;
pub use observer::Observer;
