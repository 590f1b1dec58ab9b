//! For users of Tenure: workers with handlers, the step context, and the orchestrator's client.
//!
//! [`worker`] runs Steps: register handlers by name, start a [`WorkerPool`](worker::WorkerPool) on
//! a connection to a scheduler. The connection is a [`WorkerPort`](tenure_ports::bus::WorkerPort).
//! [`nats`] has the one over a network; the scheduler itself has the one in process.

mod clock;
pub mod nats;
pub mod worker;
