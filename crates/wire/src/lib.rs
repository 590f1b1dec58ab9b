//! What crosses a process or is stored, in bytes.
//!
//! [`stored`] is the form of a Task's log: one JSON object a line, one event an object, a checksum
//! on every line. [`digest`] is the fingerprint of a command, which makes a repeat recognisable.
//! [`bus`] is what nodes, workers and orchestrators say to each other over the network.
//!
//! What is deliberately absent: files, sockets, and any knowledge of who reads or writes.

#[doc(hidden)]
pub use tenure_core; // For `queries!`, which names what is in it.

pub mod bus;
pub mod digest;
pub mod stored;
