//!
//! | Module | What it is |
//! |---|---|
//! | [`connect`] | a connection with a reply multiplexer of its own |
//! | [`worker`] | [`NatsWorker`], a [`WorkerPort`](tenure_ports::bus::WorkerPort) |
//!
//! The messages and subjects are those of [`tenure_wire::bus`]. Nothing here waits without a limit:

pub mod connect;
mod mux;
mod patience;
pub mod worker;

pub use connect::{ConnectError, Connection, Settings};
pub use worker::NatsWorker;
