//! The load generator: what the embedded scheduler reaches through the real journal, with fsync,
//! beside the time one fdatasync takes in the same run.
//!
//! `cargo run --profile dist -p tenure-benches` runs everything five times and prints medians.
#![allow(clippy::print_stdout)]

mod dags;
mod disk;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;
use serde_json::json;

use workload::Workload;

/// As in the binary that is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the embedded scheduler.
#[derive(Debug, Parser)]
struct Args {
    /// Which workloads; all by default.
    #[arg(value_enum)]
    workloads: Vec<Workload>,
    /// Repetitions; the median is reported.
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Handlers that run at a time.
    #[arg(long, default_value_t = 64)]
    workers: usize,
    /// Runtime threads. One leaves the other core of a small machine to the journal, and is what
    /// `tenure run` has.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Where the data directories are made; the disk under it is what is measured.
    #[arg(long, default_value = "target")]
    on: PathBuf,
    /// One JSON object a workload instead of text.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let args = Args::parse();
    std::fs::create_dir_all(&args.on)?;
    // Removed at the very end: file systems make files slowly for minutes after many were deleted.
    let room = tempfile::tempdir_in(&args.on)?;
    let all = if args.workloads.is_empty() { Workload::ALL } else { &args.workloads };
    for &workload in all {
        let mut figures = Vec::new();
        let mut syncs = Vec::new();
        for _ in 0..args.reps {
            syncs.push(disk::fdatasync_ms(&args.on)?);
            figures.push(repeat(&args, workload, room.path())?);
        }
        report(&args, workload, &mut figures, &mut syncs);
    }
    Ok(())
}

/// One repetition, on a runtime and a data directory of its own.
fn repeat(args: &Args, workload: Workload, room: &Path) -> Result<f64> {
    let dir = tempfile::Builder::new().disable_cleanup(true).tempdir_in(room)?;
    let runtime = match args.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        n => tokio::runtime::Builder::new_multi_thread().worker_threads(n).enable_all().build()?,
    };
    runtime.block_on(workload.run(dir.path(), args.workers))
}

fn report(args: &Args, workload: Workload, figures: &mut [f64], syncs: &mut [f64]) {
    let (min, median, max) = spread(figures);
    let (_, sync, _) = spread(syncs);
    let (unit, must, goal) = workload.target();
    if args.json {
        let line = json!({
            "workload": workload.name(), "unit": unit, "min": min, "median": median, "max": max,
            "must": must, "goal": goal, "fdatasync_ms": sync, "workers": args.workers,
        });
        println!("{line}");
    } else {
        println!(
            "{:<12} {median:>12.2} {unit:<16} (min {min:.2}, max {max:.2}; must {must}, goal {goal}; \
             fdatasync {sync:.3} ms)",
            workload.name()
        );
    }
}

fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}
