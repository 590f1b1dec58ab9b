//! The server and its guard over real sockets, before routes that say who asked, or before a scheduler.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod raw;
mod site;
mod whole;

mod attacks;
mod intruders;
mod limits;
mod logins;
mod pages;
mod stops;
mod tls;
