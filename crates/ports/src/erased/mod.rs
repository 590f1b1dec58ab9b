//! Ports behind one pointer: code that is generic over a port is compiled once with these, and not once for each
//! adapter.
//!
//! A call allocates once more. Gateways, the command line and workers use ports in this way, as their requests cost
//! far more than that. An adapter says itself how it becomes one ([`ClientPort::erased`](crate::ClientPort::erased)),
//! so that its own crate has the code, and not each crate that uses it.

mod client;
mod worker;

pub use self::client::ErasedClient;
pub use self::worker::ErasedWorker;
