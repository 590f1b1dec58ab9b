//! `tenure man`: a page for each command.

use std::path::Path;

use clap::Command;

use super::answer::{Exit, Failure};

pub(super) fn run(dir: &Path, tenure: Command) -> Result<Exit, Failure> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(tenure, dir)?;
    Ok(Exit::Ok)
}
