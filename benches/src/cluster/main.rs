//! The load generator of a cluster: NATS, Redis, scheduler nodes, workers and this process, each a
//! process of its own on this machine, everything through real sockets and synced before it is
//! acknowledged.
//!
//! `cargo build --profile dist -p tenure`, then
//! `cargo run --profile dist -p tenure-benches --bin tenure-bench-cluster` runs everything five times and
//! prints medians, with the processor time that each kind of process took per Step.
#![allow(clippy::print_stdout)]

mod crowd;
#[path = "../dags.rs"]
#[allow(dead_code)] // The embedded scheduler is measured with more of them.
mod dags;
mod processes;
mod steering;
mod workload;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use serde_json::json;

use self::processes::{Cluster, ClusterSize};
use self::workload::{Load, Measured, Workload};

/// As in the binary that is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures a cluster on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// Which workloads; all by default.
    #[arg(value_enum)]
    workloads: Vec<Workload>,
    /// Repetitions, each on servers of its own; the median is reported.
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Scheduler nodes.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Worker processes.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Handlers that run at a time in each worker.
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
    /// Partitions of the cluster.
    #[arg(long, default_value_t = 8)]
    partitions: u32,
    /// Tasks that have ended before anything is measured.
    #[arg(long, default_value_t = 0)]
    ended: usize,
    /// Where the data directories are made; the disk under it is what is measured.
    #[arg(long, default_value = "target")]
    on: PathBuf,
    /// One JSON object a workload instead of text.
    #[arg(long)]
    json: bool,
}

/// What a repetition gave.
#[derive(Debug, Default, Clone)]
struct Figure {
    measured: Measured,
    /// Microseconds of processor per Step, by kind of process.
    cpu: BTreeMap<String, f64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.on)?;
    let room = tempfile::tempdir_in(&args.on)?;
    let all = if args.workloads.is_empty() { Workload::ALL } else { &args.workloads };
    let mut figures: BTreeMap<usize, Vec<Figure>> = BTreeMap::new();
    let Args { nodes, workers, concurrency, partitions, .. } = args;
    let size = ClusterSize { nodes, workers, concurrency, partitions };
    for _ in 0..args.reps {
        let cluster = Cluster::start(size, room.path())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let load = Load::connect(&cluster.nats_url(), workload::SUBMITS).await?;
            load.warm_up().await?;
            load.fill(args.ended).await?;
            for (at, workload) in all.iter().enumerate() {
                let before = cluster.processes.cpu()?;
                let measured = load.run(*workload, &cluster).await?;
                let after = cluster.processes.cpu()?;
                let per_step = |(kind, ms): (String, f64)| {
                    let spent = ms - before.get(&kind).copied().unwrap_or_default();
                    (kind, spent.max(0.0) * 1e3 / workload.steps()) // It may be another process.
                };
                let cpu = after.into_iter().map(per_step).collect();
                figures.entry(at).or_default().push(Figure { measured, cpu });
            }
            load.leave().await
        })?;
    }
    for (at, workload) in all.iter().enumerate() {
        report(&args, *workload, figures.remove(&at).unwrap_or_default());
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
    (at(0), at(values.len() / 2), at(values.len().saturating_sub(1)))
}

fn report(args: &Args, workload: Workload, figures: Vec<Figure>) {
    let (min, mid, max) = median(figures.iter().map(|figure| figure.measured.value).collect());
    let p99: Vec<f64> = figures.iter().filter_map(|figure| figure.measured.p99).collect();
    let p99 = (!p99.is_empty()).then(|| median(p99).1);
    let kinds: Vec<String> =
        figures.first().map(|f| f.cpu.keys().cloned().collect()).unwrap_or_default();
    let cpu: BTreeMap<String, f64> = kinds
        .into_iter()
        .map(|kind| {
            let all = figures.iter().filter_map(|figure| figure.cpu.get(&kind).copied());
            let (_, mid, _) = median(all.collect());
            (kind, mid)
        })
        .collect();
    let total: f64 = cpu.values().sum();
    let (unit, must, goal) = workload.target();
    if args.json {
        let name = workload.name();
        println!(
            "{}",
            json!({"workload": name, "unit": unit, "min": min, "median": mid, "max": max,
                   "p99": p99, "must": must, "goal": goal, "cpu_us_per_step": cpu, "cpu_us": total})
        );
        return;
    }
    let parts: Vec<String> = cpu.iter().map(|(kind, us)| format!("{kind} {us:.1}")).collect();
    println!(
        "{:<8} {min:>10.2} {mid:>10.2} {max:>10.2} {unit:<9} must {must:<9} goal {goal:<7} \
         cpu {total:>6.1} us/step ({}){}",
        workload.name(),
        parts.join(", "),
        p99.map_or_else(String::new, |p99| format!(" p99 {p99:.2}"))
    );
}
