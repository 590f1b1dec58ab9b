//! The worker side: what runs a step.

pub mod exec;
