//! `tenure schema`: the JSON Schema of task files, and the catalog of operations.

use clap::ValueEnum;
use tenure_wire::bus::catalog::catalog;

use super::answer::{Exit, Failure, output};

/// What is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Described {
    /// The JSON Schema of task files, for editors
    TaskFile,
    /// Every operation and message, with JSON Schemas of what it takes and answers, for clients in other languages
    Operations,
}

pub(super) fn run(of: Described) -> Result<Exit, Failure> {
    match of {
        Described::TaskFile => output::print_json(&tenure_taskfile::schema())?,
        Described::Operations => output::print_json(&catalog())?,
    }
    Ok(Exit::Ok)
}
