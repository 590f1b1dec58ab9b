//! Checks logs with the independent checker: `cargo run -p tenure-tests --example check -- FILE...`.
//!
//! Each Step completed once, never before what it depends on, attempts numbered without a gap, every
//! checksum right. Exits 1 at the first log that is not sound.
#![allow(clippy::print_stdout)]

use anyhow::{Context, Result, ensure};
use tenure_tests::wal;

fn main() -> Result<()> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    ensure!(!files.is_empty(), "name the logs to check");
    for file in files {
        let summary = wal::check(file.as_ref(), false).with_context(|| file.clone())?;
        let (completed, ended) = (summary.completed.len(), summary.ended);
        println!(
            "{file}: sound, {completed} steps completed, {}",
            ended.as_deref().unwrap_or("live")
        );
    }
    Ok(())
}
