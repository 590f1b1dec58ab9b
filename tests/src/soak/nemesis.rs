//! Whoever breaks the cluster, as a seed says.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::cluster::process::Process;
use crate::cluster::{Cluster, until};
use crate::random::Random;

/// Faults at a time.
const AT_ONCE: usize = 3;

/// How far a clock is set off, at most: beyond five seconds a node lets its partitions go.
const OFF_MS: u64 = 8_000;

/// The longest time from one fault to the next.
const APART_MS: u64 = 4_000;

/// A process that ends with this code soon after its start did not find its servers.
const UNAVAILABLE: i32 = 6;

/// So soon.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// A process that runs so long has found its servers.
const SETTLED: Duration = Duration::from_secs(4);

/// How long a process that could not begin is waited for before it is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// Something that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Nats,
    Redis,
    Scheduler(usize),
    Worker(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Killed,
    Held,
    /// Its clock is so far ahead.
    Off(i64),
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    target: Target,
    how: How,
    until: Instant,
}

/// Breaks one thing after the other, and mends it.
#[derive(Debug)]
pub struct Nemesis {
    random: Random,
    longest: Duration,
    begun: Instant,
    faults: Vec<Fault>,
    /// Since when each runs.
    started: BTreeMap<Target, Instant>,
    /// How often something was done to whom.
    done: BTreeMap<String, u64>,
    exits: Vec<String>,
}

impl fmt::Display for Nemesis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.done.iter().map(|(what, count)| format!("{what} {count}"));
        write!(f, "{}", done.collect::<Vec<_>>().join(", "))?;
        if self.exits.is_empty() { Ok(()) } else { write!(f, "; ended: {}", self.exits.join(", ")) }
    }
}

impl Nemesis {
    /// Of a seed; nothing is broken for longer than this.
    #[must_use]
    pub fn new(seed: u64, longest: Duration) -> Self {
        Self {
            random: Random::new(seed),
            longest,
            begun: Instant::now(),
            faults: Vec::new(),
            started: BTreeMap::new(),
            done: BTreeMap::new(),
            exits: Vec::new(),
        }
    }

    /// Processes that ended by themselves.
    #[must_use]
    pub fn exits(&self) -> usize {
        self.exits.len()
    }

    /// Breaks things for so long, or until something else is wrong.
    ///
    /// # Errors
    /// A process cannot be started again.
    pub fn rage(
        &mut self,
        cluster: &mut Cluster,
        lasts: Duration,
        is_well: impl Fn() -> bool,
    ) -> Result<()> {
        let ends = Instant::now() + lasts;
        let mut next = Instant::now();
        while Instant::now() < ends && is_well() {
            self.look(cluster)?;
            if Instant::now() >= next && self.faults.len() < AT_ONCE {
                self.break_one(cluster)?;
                next = Instant::now() + Duration::from_millis(self.random.below(APART_MS));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Mends everything, and waits until all processes run.
    ///
    /// # Errors
    /// One does not.
    pub fn heal(&mut self, cluster: &mut Cluster) -> Result<()> {
        let now = Instant::now();
        // Servers first: the others need them.
        self.faults.sort_by_key(|fault| fault.target);
        self.faults.iter_mut().for_each(|fault| fault.until = now);
        until("every process runs", BEGINS_WITHIN, || {
            self.look(cluster)?;
            let has_begun = self.started.values().all(|since| since.elapsed() > SETTLED);
            Ok(self.faults.is_empty() && has_begun)
        })?;
        Ok(())
    }

    /// Mends what is to be mended, and sees who has ended.
    fn look(&mut self, cluster: &mut Cluster) -> Result<()> {
        let now = Instant::now();
        let (due, left): (Vec<Fault>, Vec<Fault>) =
            self.faults.drain(..).partition(|fault| fault.until <= now);
        self.faults = left;
        for Fault { target, how, .. } in due {
            self.mend(cluster, target, how).with_context(|| format!("{target:?}"))?;
        }
        for target in all(cluster).filter(|target| !self.is_broken(*target)).collect::<Vec<_>>() {
            let Some(status) = process(cluster, target)?.ended()? else { continue };
            let since = self.started.get(&target).map(Instant::elapsed);
            let could_not_begin = status.code() == Some(UNAVAILABLE)
                && since.is_some_and(|since| since < BEGINS_WITHIN);
            self.note(if could_not_begin { "could not begin" } else { "ended" }, target);
            if !could_not_begin {
                self.exits.push(format!("{target:?} after {:?}: {status}", self.begun.elapsed()));
            }
            self.faults.push(Fault { target, how: How::Killed, until: now + AGAIN });
        }
        Ok(())
    }

    fn is_broken(&self, target: Target) -> bool {
        self.faults.iter().any(|fault| fault.target == target)
    }

    /// Draws a fault, which depends on the seed alone. One of what is broken just now is left out.
    fn break_one(&mut self, cluster: &mut Cluster) -> Result<()> {
        let targets: Vec<Target> = all(cluster).collect();
        let place = usize::try_from(self.random.below(targets.len() as u64))?;
        let target = targets[place];
        let how = self.draw_how(cluster, target);
        let longest = u64::try_from(self.longest.as_millis())?;
        // What is killed is often started again at once.
        let shortest = if how == How::Killed { 0 } else { longest.min(1_000) };
        let lasts = shortest + self.random.below(longest - shortest + 1);
        if self.is_broken(target) {
            return Ok(());
        }
        let until = Instant::now() + Duration::from_millis(lasts);
        let what = match how {
            How::Killed => "kill",
            How::Held => "hold",
            How::Off(_) => "set the clock of",
        };
        self.note(what, target);
        self.say(&format!("{what} {target:?} for {lasts} ms: {how:?}"));
        match how {
            How::Killed => process(cluster, target)?.kill()?,
            How::Held => process(cluster, target)?.pause()?,
            How::Off(ahead_ms) => set_clock(cluster, target, ahead_ms)?,
        }
        self.faults.push(Fault { target, how, until });
        Ok(())
    }

    fn draw_how(&mut self, cluster: &Cluster, target: Target) -> How {
        let (draw, off) = (self.random.below(100), self.random.below(2 * OFF_MS));
        let can_be_off = cluster.plan.faketime.is_some() && matches!(target, Target::Scheduler(_));
        match draw {
            0..30 if can_be_off => How::Off(off.cast_signed() - OFF_MS.cast_signed()),
            0..50 => How::Held,
            _ => How::Killed,
        }
    }

    fn mend(&mut self, cluster: &mut Cluster, target: Target, how: How) -> Result<()> {
        self.say(&format!("mend {target:?}"));
        match how {
            How::Held => return process(cluster, target)?.resume(),
            How::Off(_) => return set_clock(cluster, target, 0),
            How::Killed => {}
        }
        self.started.insert(target, Instant::now());
        match target {
            Target::Nats => cluster.nats.restart(),
            Target::Redis => cluster.redis.restart(),
            Target::Scheduler(_) | Target::Worker(_) => process(cluster, target)?.restart(),
        }
    }

    fn note(&mut self, what: &str, target: Target) {
        let whom = match target {
            Target::Nats => "nats",
            Target::Redis => "redis",
            Target::Scheduler(_) => "scheduler",
            Target::Worker(_) => "worker",
        };
        *self.done.entry(format!("{what} {whom}")).or_default() += 1;
    }

    #[allow(clippy::print_stdout)] // For whoever runs it.
    fn say(&self, what: &str) {
        println!("{:8.2} s: {what}", self.begun.elapsed().as_secs_f64());
    }
}

/// Everybody who can be broken.
fn all(cluster: &Cluster) -> impl Iterator<Item = Target> + use<> {
    let schedulers = (0..cluster.schedulers.len()).map(Target::Scheduler);
    let workers = (0..cluster.workers.len()).map(Target::Worker);
    [Target::Nats, Target::Redis].into_iter().chain(schedulers).chain(workers)
}

fn set_clock(cluster: &Cluster, target: Target, ahead_ms: i64) -> Result<()> {
    let Target::Scheduler(at) = target else { return Ok(()) };
    cluster.set_clock(cluster.schedulers[at].name(), ahead_ms)
}

fn process(cluster: &mut Cluster, target: Target) -> Result<&mut Process> {
    let process = match target {
        Target::Nats => Some(&mut cluster.nats.process),
        Target::Redis => Some(&mut cluster.redis.process),
        Target::Scheduler(at) => cluster.schedulers.get_mut(at),
        Target::Worker(at) => cluster.workers.get_mut(at),
    };
    match process {
        Some(process) => Ok(process),
        None => bail!("there is no {target:?}"),
    }
}
