//! `tenure dev` where it speaks MACP.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod support;

use std::path::Path;

use nix::sys::signal::Signal;
use support::{Place, Running, wait_until};

/// Whether the process hears SIGHUP, and would not just die of it.
fn hears_hangups(process: &Running) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 != 0
}

/// S-07: SIGHUP has the policies read again. A file that cannot be used changes nothing, and the log says why.
#[test]
fn policies_are_read_again_on_sighup() {
    let place = Place::new();
    place.file("policies.json", "[]");
    let address = "127.0.0.1:0";
    let args = ["dev", "--http", address, "--grpc", address, "--macp", "agents"];
    let more = ["--macp-trust-tokens", "--macp-policies", "policies.json"];
    let mut command = place.command(&[&args[..], &more[..]].concat());
    let mut dev = Running::of(command.env("TENURE_LOG", "info"));
    dev.hears("HTTP API at ");
    wait_until(|| hears_hangups(&dev), Path::new("the handler of SIGHUP"));
    dev.signal(Signal::SIGHUP);
    dev.hears("policies of MACP were read again");
    place.file("policies.json", "[");
    dev.signal(Signal::SIGHUP);
    let said = dev.hears("policies of MACP that were read before count on");
    assert!(said.contains("policies.json"), "{said}");
    dev.signal(Signal::SIGINT);
    dev.end().with(0);
}
