//! What the tests of many crates share; no crate of the product is built with it.
//!
//! [`conformance`] has one suite for each port, which every adapter runs. [`MemoryJournal`] is the
//! simplest possible journal, and [`Faulty`] makes any other fail when a test tells it to. [`MemoryBlobs`]
//! is the simplest store of blobs.
//! [`wired`] makes a bus in process carry bytes. [`fuzz`] feeds decoders with mutated samples.
//!
//! Crates name this one only among their `dev-dependencies`: a test of the workspace refuses any
//! other dependency on it.

pub mod blobs;
pub mod conformance;
pub mod faulty;
pub mod fuzz;
pub mod memory;
pub mod wired;

pub use blobs::MemoryBlobs;
pub use faulty::Faulty;
pub use memory::MemoryJournal;
