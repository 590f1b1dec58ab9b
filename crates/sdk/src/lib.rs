//! For users of Tenure: workers with handlers, the step context, and the orchestrator's client.
//!
//! [`worker`] runs Steps: register handlers by name, start a [`WorkerPool`](worker::WorkerPool) on
//! a connection to a scheduler. The connection is a [`WorkerPort`](tenure_ports::bus::WorkerPort).
//! In process the scheduler itself has it.

mod clock;
pub mod worker;
