//! The fleet, and what happens to it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use crate::binary::tenure;
use crate::cluster::process::Process;
use crate::cluster::python::{example, python};
use crate::cluster::{Cluster, POOL};
use crate::random::Random;

/// Programs of the fleet whose behaviour is unruly: what is unruly about each is its name.
const UNRULY: &str = include_str!("unruly.py");

/// Workers as they should be, which things happen to. To the first happens nothing.
const RULY: [&str; 5] = ["steady", "frozen", "leaving", "killed", "homeless"];

/// How each worker of [`UNRULY`] misbehaves.
const KINDS: [&str; 4] = ["blocks", "lies", "refuses", "fails"];

/// The longest time from one fault to the next.
const APART_MS: u64 = 3_000;

/// The longest that a fault lasts: longer than a lease.
const LASTS_MS: u64 = 8_000;

/// How long a worker that has ended is gone.
const GONE: Duration = Duration::from_millis(300);

/// What happened to a worker, and from when to when, in milliseconds of the clock of the logs.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Its name.
    pub worker: String,
    /// When it began.
    pub from_ms: i64,
    /// When it was over.
    pub until_ms: i64,
}

/// The workers at work.
#[derive(Debug)]
pub struct Workers {
    random: Random,
    all: BTreeMap<String, Process>,
    /// Where the worker leaves its files that is without a directory now and then.
    home: PathBuf,
    /// What is broken just now, and until when.
    broken: BTreeMap<String, Instant>,
    /// Who has ended, and when.
    gone: BTreeMap<String, Instant>,
    next: Instant,
    faults: Vec<Fault>,
    done: BTreeMap<String, u64>,
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.done.iter().map(|(what, count)| format!("{what} {count}"));
        f.write_str(&done.collect::<Vec<_>>().join(", "))
    }
}

impl Workers {
    /// Starts all of them.
    ///
    /// # Errors
    /// One does not start.
    pub fn start(cluster: &Cluster, seed: u64) -> Result<Self> {
        let mut all = BTreeMap::new();
        let url = cluster.url();
        for name in RULY {
            let mut command = Command::new(tenure()?);
            command.args(["worker", "--name", name, "--pool", POOL, "--nats", &url]);
            command.args(["--files", &format!("files-{name}")]).env("TRACE", cluster.trace());
            command.env("TENURE_LOG", "info");
            all.insert(name.to_owned(), Process::start(name, cluster.dir(), command)?);
        }
        let program = example()?.join("worker.py");
        let told = ["--nats", &url, "--user", "honest", "--pool", POOL].map(OsStr::new);
        let honest = python(cluster, "honest", &[&[program.as_os_str()], &told[..]].concat())?;
        all.insert("honest".to_owned(), honest);
        for kind in KINDS {
            let told = ["-c", UNRULY, kind, &url, kind, POOL].map(OsStr::new);
            all.insert(kind.to_owned(), python(cluster, kind, &told)?);
        }
        Ok(Self {
            random: Random::new(seed),
            all,
            home: cluster.dir().join("files-homeless"),
            broken: BTreeMap::new(),
            gone: BTreeMap::new(),
            next: Instant::now(),
            faults: Vec::new(),
            done: BTreeMap::new(),
        })
    }

    /// Breaks one of them if it is time, and mends what has been broken for long enough.
    ///
    /// # Errors
    /// One cannot be started again.
    pub fn disturb(&mut self) -> Result<()> {
        self.mend(Instant::now())?;
        self.start_again()?;
        if Instant::now() >= self.next {
            let name = RULY[1 + usize::try_from(self.random.below(RULY.len() as u64 - 1))?];
            let lasts = 500 + self.random.below(LASTS_MS - 500);
            let apart = 300 + self.random.below(APART_MS);
            self.next = Instant::now() + Duration::from_millis(apart);
            if !self.broken.contains_key(name) && !self.gone.contains_key(name) {
                self.break_it(name, Duration::from_millis(lasts))?;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }

    /// Mends everything.
    ///
    /// # Errors
    /// One cannot be started again.
    pub fn heal(&mut self) -> Result<()> {
        self.mend(Instant::now() + Duration::from_millis(LASTS_MS))
    }

    /// Starts again who has ended: a Step may have killed it.
    ///
    /// # Errors
    /// One does not start.
    pub fn start_again(&mut self) -> Result<()> {
        let now = Instant::now();
        for (name, process) in &mut self.all {
            if process.ended()?.is_none() {
                continue;
            }
            let since = *self.gone.entry(name.clone()).or_insert(now);
            if now.duration_since(since) >= GONE && !self.broken.contains_key(name) {
                self.gone.remove(name);
                *self.done.entry(format!("started {name} again")).or_default() += 1;
                process.restart().with_context(|| name.clone())?;
            }
        }
        Ok(())
    }

    /// What happened.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn break_it(&mut self, name: &str, lasts: Duration) -> Result<()> {
        let process = self.all.get_mut(name).context("no such worker")?;
        if process.ended()?.is_some() {
            return Ok(()); // A Step has killed it.
        }
        match name {
            "frozen" => process.pause()?,
            "leaving" => process.signal(Signal::SIGTERM)?,
            "killed" => process.kill()?,
            _ => without_directory(&self.home)?,
        }
        let from_ms = now_ms()?;
        let until_ms = from_ms + i64::try_from(lasts.as_millis())?;
        self.faults.push(Fault { worker: name.to_owned(), from_ms, until_ms });
        self.broken.insert(name.to_owned(), Instant::now() + lasts);
        *self.done.entry(format!("{name} broken")).or_default() += 1;
        Ok(())
    }

    fn mend(&mut self, now: Instant) -> Result<()> {
        let due = self.broken.iter().filter(|(_, until)| **until <= now);
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.broken.remove(&name);
            match name.as_str() {
                "frozen" => {
                    let process = self.all.get_mut("frozen").context("no such worker")?;
                    if process.ended()?.is_none() {
                        process.resume()?;
                    }
                }
                "homeless" => std::fs::remove_file(&self.home)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Puts a file where a directory was, which is put aside: Steps write to it just then.
fn without_directory(home: &Path) -> Result<()> {
    loop {
        if home.is_dir() {
            std::fs::rename(home, home.with_extension(now_ms()?.to_string()))?;
        }
        match std::fs::write(home, "") {
            Err(again) if again.kind() == std::io::ErrorKind::IsADirectory => {} // Of the next Step.
            done => return Ok(done?),
        }
    }
}

/// The clock of the logs.
fn now_ms() -> Result<i64> {
    Ok(i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?)
}
