//! A checker of Task logs that shares nothing with what wrote them.
//!
//! It says everything that is wrong with a log, in words that name the line. What it asks for: every
//! line is whole and carries its checksum, events are numbered without a gap, commits are whole, no
//! Step is claimed before those it depends on have completed, nor outside scope and pool of the Run,
//! Attempts are numbered without a gap and end once, nothing is said of one that is over, tokens
//! rise, a Step completes at most once, and nothing follows the end.

mod crc;
mod history;
mod line;
mod runs;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

pub use self::history::Summary;

use self::history::History;
use self::line::Line;

/// Reads a log and checks all of it. A last line that a crash broke off is allowed only if
/// `may_be_torn`.
///
/// # Errors
/// What is wrong, one line each.
pub fn check(path: &Path, may_be_torn: bool) -> Result<Summary> {
    let bytes = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
    check_bytes(&bytes, may_be_torn).with_context(|| format!("{}", path.display()))
}

/// As [`check`], on what a file holds.
///
/// # Errors
/// What is wrong, one line each.
pub fn check_bytes(bytes: &[u8], may_be_torn: bool) -> Result<Summary> {
    let mut history = History::default();
    let mut end = 0;
    for (number, text) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
        let Some(text) = text.strip_suffix(b"\n") else {
            ensure!(may_be_torn, "the last line is broken off");
            break;
        };
        end += text.len() + 1;
        match Line::read(text) {
            Ok(line) => history.see(&line, end),
            Err(error) => history.fault(number, &format!("{error:#}")),
        }
    }
    history.finish(may_be_torn)
}
