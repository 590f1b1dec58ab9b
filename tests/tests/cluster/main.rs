//! A cluster of real processes, and what may happen to it.
//!
//! Every test breaks something on a cluster of its own, heals it, and then holds the logs of all Tasks
//! against what clients were told (`tenure_tests::cluster::verdict`). Figures are printed.

#![allow(clippy::print_stdout)]

mod agents;
mod alike;
mod away;
mod begin;
mod caller;
mod common;
mod disk;
mod fleet;
mod gateways;
mod idle;
mod large;
mod mcp;
mod mischief;
mod model;
mod moved;
mod network;
mod parts;
mod programs;
mod python;
mod redis;
mod refused;
mod replicas;
mod restore;
mod rights;
mod schedulers;
mod stopping;
mod suspended;
mod whole;
mod workers;
