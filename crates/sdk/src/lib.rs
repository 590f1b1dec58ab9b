//! For users of Tenure: workers with handlers and the step context.
//!
//! [`worker`] runs Steps: register handlers by name, start a [`WorkerPool`](worker::WorkerPool) on
//! a connection to a scheduler. The connection is a [`WorkerPort`](tenure_ports::bus::WorkerPort):
//! in process here, over a network in a cluster.

pub mod worker;
