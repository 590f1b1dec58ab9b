//! The rules of the house that no compiler keeps: which crate may know which, what sources may not
//! contain, how long they may get, and under which licences everything is that goes into them.
//!
//! A rule that is broken names the file, the line and what to do. Exceptions stand in tables with
//! their reasons; one that is no longer needed is a failure too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agents;
mod arrows;
mod circles;
mod licences;
mod manifest;
mod names;
mod rules;
mod sources;
mod vendored;
mod walk;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

/// The top of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// What cargo knows of the workspace.
fn metadata(args: &[&str]) -> Json {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["metadata", "--format-version", "1", "--locked"]).args(args);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text<'a>(value: &'a Json, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Files below some folders with one of these endings, as paths from the top, in order. Those of others
/// (crates/vendor) keep no rules of this house.
fn files(folders: &[&str], endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut work: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(path) = work.pop() {
        if path.is_dir() {
            work.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            found.push(path.strip_prefix(root()).unwrap().to_owned());
        }
    }
    found.retain(|path| !path.components().any(|part| part.as_os_str() == "target"));
    found.retain(|path| !path.starts_with("crates/vendor"));
    found.sort();
    found
}

/// Fails with everything that was found, a line each.
#[track_caller]
fn assert_none(found: &[String], what_to_do: &str) {
    assert!(found.is_empty(), "\n{}\n{what_to_do}\n", found.join("\n"));
}
