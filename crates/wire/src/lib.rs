//! The forms, in bytes, of what is stored or crosses between processes.
//!
//! [`stored`] is the form of a Task's log: one JSON object a line, one event an object, a checksum
//! on every line. [`digest`] is the digest of a command, by which a repeated command is recognised.
//! [`json`] reads what others wrote within a bound. [`bus`] has the messages of nodes, workers and
//! orchestrators on the network.
//!
//! Deliberately absent: files, sockets, and any knowledge of who reads or writes.

#[doc(hidden)]
pub use tenure_core; // For `queries!`, which names what is in it.

pub mod bus;
pub mod digest;
pub mod json;
pub mod stored;
