//! The server and its guard over real sockets, before routes that say who asked. No scheduler is behind
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod raw;
mod site;

mod attacks;
mod limits;
mod logins;
mod pages;
mod stops;
mod tls;
