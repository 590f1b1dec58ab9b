//! How many one-step Tasks a second the journal takes to the disk:
//! `cargo run --release --example journal_load -- [directory] [tasks] [in flight] [threads]`.
//!
//! Each Task is created (creation, readiness and claim in one append) and completed (one append
//! more), as the scheduler does it. The time of a bare fdatasync is taken in the same run, since
//! it is what the figures hang on.

#![allow(clippy::print_stdout, clippy::unwrap_used)] // A tool for the terminal.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use tenure_local::{JournalOptions, JsonlJournal};
use tenure_ports::Journal;
use tenure_testkit::conformance::History;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = args.first().map_or_else(|| std::env::temp_dir().join("tenure-load"), PathBuf::from);
    let number = |at: usize, default| args.get(at).map_or(default, |text| text.parse().unwrap());
    let (tasks, in_flight) = (number(1, 20_000), number(2, 256));
    let options = JournalOptions { sync_threads: number(3, 16), ..JournalOptions::default() };
    let dir = dir.join(std::process::id().to_string());
    std::fs::create_dir_all(&dir).unwrap();

    let probe = dir.join("probe");
    let sync_ms = std::thread::spawn(move || fdatasync_ms(&probe)).join().unwrap();
    println!("fdatasync alone: {sync_ms:.3} ms");
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let (journal, _) = JsonlJournal::open(&dir, options).unwrap();
    let journal = Arc::new(journal);
    runtime.block_on(one_step_tasks(&journal, tasks, in_flight));
    runtime.block_on(chains(&journal, in_flight, tasks));
    runtime.block_on(latency(&journal));
    let start = Instant::now();
    drop(journal);
    println!("close: {:.1} ms", ms(start.elapsed()));
    let start = Instant::now();
    let (journal, report) = JsonlJournal::open(&dir, options).unwrap();
    println!("open {} tasks: {:.1} ms", report.tasks, ms(start.elapsed()));
    drop(journal);
    std::fs::remove_file(dir.join("index.jsonl")).unwrap();
    let start = Instant::now();
    let (_journal, report) = JsonlJournal::open(&dir, options).unwrap();
    println!("rebuild the index of {} tasks: {:.1} ms", report.tasks, ms(start.elapsed()));
}

/// Time that all threads have been running, in microseconds.
fn cpu_us() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let us = |time: TimeVal| time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64;
    us(usage.user_time()) + us(usage.system_time())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn fdatasync_ms(probe: &Path) -> f64 {
    let mut file = File::create(probe).unwrap();
    let mut times: Vec<_> = (0..200)
        .map(|_| {
            file.write_all(&[b'x'; 1000]).unwrap();
            let start = Instant::now();
            file.sync_data().unwrap();
            ms(start.elapsed())
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Runs `work` for the numbers below `count`, so many at a time.
async fn in_flight<F: Future<Output = ()> + Send + 'static>(
    count: usize,
    at_once: usize,
    work: impl Fn(usize) -> F + Clone + Send + 'static,
) {
    let next = Arc::new(AtomicUsize::new(0));
    let lanes: Vec<_> = (0..at_once)
        .map(|_| {
            let (next, work) = (next.clone(), work.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    work(number).await;
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await.unwrap();
    }
}

async fn one_step_tasks(journal: &Arc<JsonlJournal>, tasks: usize, at_once: usize) {
    let (start, cpu) = (Instant::now(), cpu_us());
    let journal = journal.clone();
    in_flight(tasks, at_once, move |number| {
        let journal = journal.clone();
        async move {
            let mut life = History::of("load", &format!("task-{number}"));
            let commits = vec![life.create(), life.work(1)];
            journal.create(&life.key, &life.wal_name, commits).await.unwrap();
            let after = life.last_seq();
            let commits = vec![life.work(1), life.complete()];
            journal.append(&life.key, after, commits).await.unwrap();
        }
    })
    .await;
    let seconds = start.elapsed().as_secs_f64();
    let (rate, cpu) = (tasks as f64 / seconds, (cpu_us() - cpu) / tasks as f64);
    println!("one-step tasks: {rate:.0}/s of {cpu:.0} µs CPU, {at_once} in flight");
}

async fn chains(journal: &Arc<JsonlJournal>, at_once: usize, appends: usize) {
    let journal = journal.clone();
    let each = appends / at_once;
    let (start, cpu) = (Instant::now(), cpu_us());
    in_flight(at_once, at_once, move |number| {
        let journal = journal.clone();
        async move {
            let mut life = History::of("chains", &format!("task-{number}"));
            journal.create(&life.key, &life.wal_name, vec![life.clone().create()]).await.unwrap();
            life.create();
            for _ in 0..each {
                let after = life.last_seq();
                let commit = life.work(1);
                journal.append(&life.key, after, vec![commit]).await.unwrap();
            }
        }
    })
    .await;
    let total = (each * at_once) as f64;
    let (rate, cpu) = (total / start.elapsed().as_secs_f64(), (cpu_us() - cpu) / total);
    println!("appends to {at_once} tasks: {rate:.0}/s of {cpu:.0} µs CPU");
}

async fn latency(journal: &Arc<JsonlJournal>) {
    let mut life = History::of("latency", "task");
    journal.create(&life.key, &life.wal_name, vec![life.clone().create()]).await.unwrap();
    life.create();
    let mut times = Vec::new();
    for _ in 0..1000 {
        let after = life.last_seq();
        let commit = life.work(1);
        let start = Instant::now();
        journal.append(&life.key, after, vec![commit]).await.unwrap();
        times.push(ms(start.elapsed()));
    }
    times.sort_by(f64::total_cmp);
    println!("one append alone: p50 {:.3} ms, p99 {:.3} ms", times[500], times[990]);
}
