//! `tenure man`: a page for each command.

use std::path::Path;

use clap::Command;

use super::answer::{Exit, Failure};

pub(super) fn run(dir: &Path, tenure: Command) -> Result<Exit, Failure> {
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(tenure, dir));
    written.map_err(Failure::cannot(format_args!("write to {}", dir.display())))?;
    Ok(Exit::Ok)
}
