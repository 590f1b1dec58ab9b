//! What Tenure tells a collector, held against its logs.
//!
//! The collector is real: it takes OTLP by gRPC and by HTTP. Traces are compared with the events of
//! the log that they were made from, read by the tests' own reader.

#![allow(clippy::print_stdout)]

mod cluster;
mod collector;
mod dashboards;
mod history;
mod pages;
mod real;
mod run;
mod secrets;
mod stop;
mod tls;
