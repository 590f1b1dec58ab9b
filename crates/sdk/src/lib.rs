//! For users of Tenure: workers with handlers, the step context, and the orchestrator's client.
//!
//! [`worker`] runs Steps: register handlers by name, start a [`WorkerPool`](worker::WorkerPool) on
//! a connection to a scheduler. The connection is a [`WorkerPort`](tenure_ports::bus::WorkerPort).
//!
//! [`client`] creates Tasks and follows them, over a [`ClientPort`](tenure_ports::ClientPort).
//!
//! [`nats`] has both ports over a network; the scheduler itself has them in process.

mod answer;
pub mod client;
mod clock;
mod jitter;
pub mod nats;
mod pauses;
mod supervise;
pub mod worker;
