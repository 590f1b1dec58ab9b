//! `kill -9` of the runner at random moments, and `--resume` after each.
//!
//! Each case is a Task of more than 200 Steps that is killed again and again until it gets through.
//! After each kill the log is whole but for a torn end; after the last run it says that every Step
//! completed exactly once. The seed is printed; `TENURE_SEED` brings a case back.

#![allow(clippy::print_stdout, clippy::cast_possible_truncation)] // The seed is what makes a failure repeatable.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tenure_tests::binary::{Running, tenure};
use tenure_tests::dag::{Mix, draw};
use tenure_tests::random::Random;
use tenure_tests::wal;

/// Longest that any one run may take, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

struct Case {
    dir: tempfile::TempDir,
    file: PathBuf,
    random: Random,
    kills: u32,
    /// The log up to its last whole commit, as the last kill left it: nothing of it may change.
    recorded: Vec<u8>,
}

impl Case {
    fn new(seed: u64, steps: usize, mix: Mix) -> Result<Self> {
        println!("seed {seed}: {steps} steps, {mix:?}");
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("case.json");
        let mut random = Random::new(seed);
        std::fs::write(&file, draw(&mut random, "case", steps, mix).to_string())?;
        Ok(Self { dir, file, random, kills: 0, recorded: Vec::new() })
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.data().join("tasks/default/case.wal.jsonl")
    }

    fn trace(&self) -> PathBuf {
        self.dir.path().join("trace")
    }

    fn command(&self, resume: bool) -> Result<Command> {
        let mut command = Command::new(tenure()?);
        command.arg("run").arg(&self.file).arg("--data").arg(self.data()).args(["-o", "quiet"]);
        command.args(resume.then_some("--resume")).env("TRACE", self.trace());
        command.current_dir(self.dir.path());
        Ok(command)
    }

    /// Starts the runner and kills it once the log has grown by a drawn number of bytes and a drawn
    /// moment has passed. Answers whether it got through before that.
    fn run_and_kill(&mut self, grow_max: u64) -> Result<bool> {
        let before = size(&self.log());
        let grow = self.random.below(grow_max);
        let moment = Duration::from_micros(self.random.below(3_000));
        let mut running = Running::start(&mut self.command(!self.recorded.is_empty())?)?;
        let deadline = Instant::now() + PATIENCE;
        while size(&self.log()) < before + grow {
            if running.has_ended()? {
                return self.was_completed(running);
            }
            ensure!(Instant::now() < deadline, "the log does not grow");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(moment); // Not to wait for something: to strike at any place.
        running.kill()?;
        drop(running);
        self.kills += 1;
        self.check_recorded(true)?;
        Ok(false)
    }

    /// The log is sound, and holds all that it held.
    fn check_recorded(&mut self, may_be_torn: bool) -> Result<wal::Summary> {
        let bytes = match std::fs::read(self.log()) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.recorded.is_empty() => {
                return Ok(wal::Summary::default()); // Killed before the first write.
            }
            bytes => bytes?,
        };
        let summary = wal::check_bytes(&bytes, may_be_torn)?;
        ensure!(summary.epoch == 0, "a log file has one owner");
        ensure!(bytes.starts_with(&self.recorded), "what was recorded has changed");
        self.recorded = bytes[..summary.whole_bytes].to_vec();
        Ok(summary)
    }

    fn was_completed(&self, running: Running) -> Result<bool> {
        let ended = running.end(PATIENCE)?;
        ensure!(ended.status.success(), "{ended:?}");
        Ok(true)
    }

    /// Lets it run to its end and checks everything.
    fn finish(&mut self, steps: usize) -> Result<()> {
        let resume = !self.recorded.is_empty();
        let ended = Running::start(&mut self.command(resume)?)?.end(PATIENCE)?;
        ensure!(ended.status.success(), "{ended:?}");
        let summary = self.check_recorded(false)?;
        ensure!(summary.ended.as_deref() == Some("task_completed"), "{:?}", summary.ended);
        ensure!(summary.completed.len() == steps, "{} completed", summary.completed.len());
        self.check_trace(&summary)
    }

    /// No command ran more often than the log has Attempts of it, nor twice under one number.
    fn check_trace(&self, summary: &wal::Summary) -> Result<()> {
        let mut runs: BTreeMap<String, u64> = BTreeMap::new();
        let text = std::fs::read_to_string(self.trace()).unwrap_or_default();
        for line in text.lines() {
            *runs.entry(line.to_owned()).or_default() += 1;
        }
        for (name, count) in runs {
            let (step, attempt) = name.split_once('.').context("a line of the trace")?;
            let attempts = summary.attempts.get(step).copied().unwrap_or_default();
            ensure!(count == 1, "{name} ran {count} times");
            ensure!(attempt.parse::<u64>()? <= attempts, "{name} ran without a claim");
        }
        Ok(())
    }
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Kills Tasks of this kind so often in all, and lets each through in the end.
fn survives(steps: usize, mix: Mix, kills: u32) -> Result<()> {
    let mut seed = first_seed()?;
    let mut left = kills;
    while left > 0 {
        let killed = survive_one(seed, steps, mix, left).with_context(|| format!("seed {seed}"))?;
        left = left.saturating_sub(killed);
        seed += 1;
    }
    Ok(())
}

/// Kills one Task at most so often. Answers how often that was.
fn survive_one(seed: u64, steps: usize, mix: Mix, kills: u32) -> Result<u32> {
    let mut case = Case::new(seed, steps, mix)?;
    // Some 1.5 KiB a Step: this spreads ten kills over the whole Task.
    let grow_max = 300 * steps as u64;
    while case.kills < kills && !case.run_and_kill(grow_max)? {}
    case.finish(steps)?;
    println!("seed {seed}: {} kills survived", case.kills);
    Ok(case.kills)
}

fn first_seed() -> Result<u64> {
    match std::env::var("TENURE_SEED") {
        Ok(seed) => Ok(seed.parse()?),
        Err(_) => Ok(std::time::UNIX_EPOCH.elapsed()?.as_nanos() as u64 % 1_000_000_000),
    }
}

#[test]
fn steps_that_do_nothing_complete_once_each() -> Result<()> {
    survives(300, Mix { sleep: 0, exec: 0 }, 60)
}

#[test]
fn steps_that_wait_complete_once_each() -> Result<()> {
    survives(240, Mix { sleep: 50, exec: 0 }, 60)
}

#[test]
fn commands_run_once_for_each_claim() -> Result<()> {
    survives(200, Mix { sleep: 20, exec: 20 }, 40)
}
