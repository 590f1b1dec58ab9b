//! A process of `tenure dev`.

#![allow(dead_code)] // Each test binary uses its part.

use nix::sys::signal::Signal;

use crate::support::{Place, Running};

/// The process, and its address.
pub(crate) struct Dev {
    pub(crate) process: Running,
    pub(crate) url: String,
}

impl Dev {
    pub(crate) fn start(place: &Place, more: &[&str]) -> Self {
        let mut process = place.start(&[&["dev", "--http", "127.0.0.1:0"], more].concat());
        let said = process.hears("HTTP API at ");
        let url = said.split_once("HTTP API at ").unwrap().1.split(',').next().unwrap();
        Self { url: url.to_owned(), process }
    }

    pub(crate) fn stop(self) {
        self.process.signal(Signal::SIGINT);
        self.process.end().with(0);
    }
}
