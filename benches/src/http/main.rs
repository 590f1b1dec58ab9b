//! The load generator of the HTTP API: what a program reaches over HTTP beside what one in Rust reaches
//! without it, in the same run.
//!
//! `cargo build --profile dist -p tenure`, then
//! `cargo run --profile dist -p tenure-benches --bin tenure-bench-http` measures `tenure dev` on a directory;
//! with `--cluster` it measures `tenure gateway` before a cluster. With `--url` it measures any agent that
//! speaks A2A, says again what it is told, and tells the time. All parts are on this machine. It runs everything
//! five times and prints medians.
//!
//! With the cargo feature `grpc`, of this and of `tenure`, the modes `macp`, `macp-lone` and `macp-long` measure
//! sessions of MACP:
//! `cargo run --profile dist -p tenure-benches --features grpc --bin tenure-bench-http -- --cluster macp macp-lone`.
#![allow(clippy::print_stdout)]
#![allow(dead_code)] // The modules that are shared with the other generators have more.

mod agent;
#[path = "../cluster/crowd.rs"]
mod crowd;
#[path = "../dags.rs"]
mod dags;
mod echo;
#[path = "../workload.rs"]
mod embedded;
mod house;
mod line;
#[cfg(feature = "grpc")]
mod macp;
mod mcp;
#[path = "../cluster/processes.rs"]
mod processes;
#[path = "../cluster/steering.rs"]
mod steering;
mod visitor;
#[path = "../cluster/workload.rs"]
mod workload;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use serde_json::json;

use self::agent::{AgentPlace, SpokenVersion};
use self::house::House;
use self::visitor::{Figure, Visit};

/// As in the binary that is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the HTTP API on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// What to measure; all by default.
    #[arg(value_enum)]
    visits: Vec<Visit>,
    /// Repetitions, each on processes of its own; the median is reported.
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// A gateway before a cluster, and not a scheduler in the process of the gateway.
    #[arg(long)]
    cluster: bool,
    /// An agent that runs already, and not one of ours: http://127.0.0.1:PORT/PATH.
    #[arg(long, conflicts_with = "cluster")]
    url: Option<String>,
    /// The version of A2A that this agent speaks.
    #[arg(long, value_enum, default_value = "1.0", requires = "url")]
    a2a: SpokenVersion,
    /// Steps that run at a time.
    #[arg(long, default_value_t = 64)]
    workers: usize,
    /// Where the data directories are made; the disk under it is what is measured.
    #[arg(long, default_value = "target")]
    on: PathBuf,
    /// One JSON object a figure instead of text.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.on)?;
    let room = tempfile::tempdir_in(&args.on)?;
    let all = match &args.visits[..] {
        [] if args.url.is_some() => Visit::OF_AGENT,
        [] if args.cluster => Visit::ALL,
        [] => Visit::OF_DIRECTORY,
        some => some,
    };
    let mut figures: BTreeMap<usize, Vec<Figure>> = BTreeMap::new();
    for _ in 0..args.reps {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let measured = tokio::task::LocalSet::new().block_on(&runtime, measure(&args, all, &room));
        for (at, measured) in measured?.into_iter().enumerate() {
            figures.entry(at).or_default().extend(measured);
        }
    }
    for (_, measured) in figures {
        report(&args, measured);
    }
    Ok(())
}

/// The figures of one repetition, for each visit.
async fn measure(args: &Args, all: &[Visit], room: &tempfile::TempDir) -> Result<Vec<Vec<Figure>>> {
    let mut measured = Vec::new();
    if let Some(url) = &args.url {
        let agent = AgentPlace::of_url(url, args.a2a)?;
        for visit in all {
            measured.push(visit.measure_agent(&agent).await?);
        }
        return Ok(measured);
    }
    let speaks_macp = all.iter().any(|visit| visit.is_of_macp());
    let house = House::open(args.cluster, args.workers, room.path(), speaks_macp).await?;
    for visit in all {
        measured.push(visit.measure(&house).await?);
    }
    house.close().await?;
    Ok(measured)
}

/// A visit may give several figures.
fn report(args: &Args, measured: Vec<Figure>) {
    let mut by_name: BTreeMap<&str, Vec<Figure>> = BTreeMap::new();
    for figure in measured {
        by_name.entry(figure.name).or_default().push(figure);
    }
    for (name, figures) in by_name {
        let mut values: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
        values.sort_by(f64::total_cmp);
        let (min, mid, max) = (values[0], values[values.len() / 2], values[values.len() - 1]);
        let Figure { unit, wanted, .. } = figures[0];
        if args.json {
            println!(
                "{}",
                json!({"figure": name, "cluster": args.cluster, "unit": unit, "min": min,
                       "median": mid, "max": max, "wanted": wanted})
            );
        } else {
            println!("{name:<24} {min:>10.2} {mid:>10.2} {max:>10.2} {unit:<28} {wanted}");
        }
    }
}
