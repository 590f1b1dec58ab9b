//! What the disk does by itself, measured in the same run.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

/// Median time of one fdatasync after an append of 4 KiB, in milliseconds.
pub(crate) fn fdatasync_ms(on: &Path) -> Result<f64> {
    let mut file = tempfile::tempfile_in(on)?;
    let page = [b'x'; 4096];
    let mut times = Vec::new();
    for _ in 0..101 {
        file.write_all(&page)?;
        let started = Instant::now();
        file.sync_data()?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
