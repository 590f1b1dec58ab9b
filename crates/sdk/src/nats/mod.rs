//! Tenure over NATS: the implementations of the worker port and the client port for programs
//! outside of the scheduler.
//!
//! | Module | What it is |
//! |---|---|
//! | [`connect`] | a connection with a reply multiplexer of its own |
//! | [`worker`] | [`NatsWorker`], a [`WorkerPort`](tenure_ports::bus::WorkerPort) |
//! | [`client`] | [`NatsClient`], a [`ClientPort`](tenure_ports::client::ClientPort) |
//! | `join` | `Client::connect`, `WorkerPool::connect`: both in one call |
//!
//! The messages and subjects are those of [`tenure_wire::bus`]. Every wait here has a limit,
//! because a call to the client library can block for ever while there is no connection.

pub mod client;
pub mod connect;
mod connect_error;
mod join;
mod mux;
mod news;
mod reach;
pub mod worker;

pub use client::NatsClient;
pub use connect::{Connection, NatsSettings, without_secrets};
pub use connect_error::ConnectError;
pub use join::{JoinError, PoolMember, boot};
pub use tenure_wire::bus::subject::ClusterName;
pub use worker::NatsWorker;
