//! `tenure completions`

use clap::Command;
use clap_complete::Shell;

use super::answer::{Exit, Failure, output};

pub(super) fn run(shell: Shell, mut tenure: Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tenure, "tenure", &mut script);
    output::print(String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
