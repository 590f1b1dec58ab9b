//! Starts a scheduler in this process on a data directory.

use std::path::Path;

use tenure_embedded::Embedded;
use tenure_ports::observer::Sample;
use tenure_telemetry::Telemetry;

use super::args::files_of;
use super::usage::DirectoryUsage;
use crate::answer::{Failure, output};

/// Opens the data directory to run its Tasks, and reports what an earlier crash left there.
pub(crate) async fn open_here(
    data: &Path,
    telemetry: Option<&Telemetry>,
) -> Result<Embedded, Failure> {
    let mut config = Embedded::config()?;
    config.observer = telemetry.map(Telemetry::observer);
    let tenure = Embedded::open_with(data, config).await?;
    files_of(data)?; // Before a Task goes on whose commands would write there.
    if let Some(telemetry) = telemetry {
        let (scheduler, usage) = (tenure.scheduler().clone(), DirectoryUsage::of(data));
        telemetry.sample_from(move || Sample { log: usage.now(), ..scheduler.sample() });
    }
    warn_of_crash(&tenure);
    Ok(tenure)
}

fn warn_of_crash(tenure: &Embedded) {
    let report = tenure.report();
    for repair in &report.repairs {
        let (file, bytes) = (repair.file.display(), repair.bytes);
        output::warn(format_args!(
            "{file}: cut off {bytes} bytes of a write that a crash broke off; nobody was told of it"
        ));
    }
    for damage in &report.damaged {
        output::warn(format_args!("task {} cannot be used: {}", damage.task, damage.error));
    }
}
