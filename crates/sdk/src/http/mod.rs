//! Tenure over HTTP: the ports of clients and of workers, for programs that reach a gateway and not the
//! servers behind it.
//!
//! | Module | What it is |
//! |---|---|
//! | [`connect`] | the settings, the address of a gateway and the way to it: TCP, TLS or a Unix socket |
//! | `link` | sends one request over a kept connection, and reads its answer |
//! | `gateways` | the gateways that a program may use, and which one it uses now |
//! | [`client`] | [`HttpClient`], a [`ClientPort`](tenure_ports::client::ClientPort) |
//! | [`metrics`] | reads what gateways count |
//! | `sse` | reads Server-Sent Events, text alone |
//! | `streams` | hints and events, read from the gateway's streams |
//! | [`worker`] | [`HttpWorker`], a [`WorkerPort`](tenure_ports::bus::WorkerPort) |
//!
//! A request of a client is the one of the bus, byte for byte, and so is its answer
//! ([`tenure_wire::bus::call`]). So this client does what that over [`nats`](crate::nats) does: it
//! repeats a request with the same `command_id` until there is a final answer or its patience runs
//! out, and every wait has a limit. What workers say goes to the gateway's routes for workers, as JSON.
//!
//! Both take the addresses of several gateways, with commas between them. When one gateway goes, they
//! go on at the next.

pub mod client;
pub mod connect;
mod gateways;
mod link;
pub mod metrics;
pub(crate) mod sse;
mod streams;
pub mod worker;

pub use client::HttpClient;
pub use connect::{HttpConnectError, HttpSettings};
pub use worker::HttpWorker;
