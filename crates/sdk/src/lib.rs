//! The library for programs that use Tenure: workers with their handlers and the step context, and
//! the client of orchestrators and observers.
//!
//! [`worker`] runs Steps: register handlers by name, start a [`WorkerPool`](worker::WorkerPool) on
//! a connection to a scheduler. The connection is a [`WorkerPort`](tenure_ports::bus::WorkerPort).
//!
//! [`client`] creates Tasks and follows them, over a [`ClientPort`].
//!
//! [`nats`] implements both ports over a network; the scheduler implements them in process.
//! [`Client::connect`](client::Client::connect) and
//! [`WorkerPool::connect`](worker::WorkerPool::connect) are all that a program needs to join a
//! cluster. With the feature `http`, the module `http` implements both over HTTP, for programs that
//! reach a gateway and nothing else: `Client::over_http` and `WorkerPool::over_http`. With the feature `a2a`,
//! the module `a2a` has a client of agents elsewhere that speak A2A, and workers a handler that hands a Step to
//! such an agent. With the feature `mcp`, the module `mcp` has a client of servers of tools that speak MCP, and
//! workers a handler that calls a tool.
//!
//! Requests and answers use types of the core, which this crate exports too: ids, records, states,
//! inputs of commands and operations of patches, views.

#[cfg(feature = "a2a")]
pub mod a2a;
mod answer;
pub mod client;
mod clock;
#[cfg(feature = "http")]
pub mod http;
mod jitter;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod nats;
mod pages;
mod patience;
mod pauses;
mod regular;
mod roll;
pub mod secrets;
pub mod worker;

pub use tenure_core::{Code, Command, Rejection, command, event, id, patch, record, status, view};
pub use tenure_ports::ClientPort;
pub use tenure_wire::bus::event::TaskEvent;
