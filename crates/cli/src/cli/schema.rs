//! `tenure schema`: the JSON Schema of task files.

use super::answer::{Exit, Failure, output};

pub(super) fn run() -> Result<Exit, Failure> {
    output::print_json(&tenure::taskfile::schema())?;
    Ok(Exit::Ok)
}
