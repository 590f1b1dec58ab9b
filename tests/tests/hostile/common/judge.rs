//! The law that every attack is held against: what one principal does costs that principal, and others keep their
//! service, their leases and their latency.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::stage::{Stage, be_nice};
use super::victim::{ANSWER, Victim, Way};

/// An attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Whether every run of the tests has its short form.
    pub(crate) is_in_short: bool,
    /// How the victim comes meanwhile.
    pub(crate) way: Way,
    /// What the attacker has to be told at least once, a code of docs/errors.md or a status; none where nothing of
    /// it is answered.
    pub(crate) refused: Option<&'static str>,
    /// The most memory that the node, and the gateway, may have meanwhile, in MiB.
    pub(crate) memory_mib: u64,
    /// What the attacker does until it is told to stop.
    pub(crate) run: fn(&Stage, &Going) -> Result<Told>,
}

/// Whether the attack goes on.
pub(crate) struct Going(AtomicBool);

impl Going {
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an attacker was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// How much it has sent.
    pub(crate) sent: u64,
    /// How often it was told what.
    pub(crate) answers: BTreeMap<String, u64>,
    /// Whether it could not send as much as is refused, as on a machine that does much else.
    pub(crate) is_too_slow: bool,
}

impl Told {
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        *self.answers.entry(what.into()).or_default() += 1;
    }
}

/// How long everything takes, and what counts as the same latency.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    quiet: Duration,
    attack: Duration,
    /// So many times what it was in quiet, or `least` if that is more.
    factor: u32,
    least: Duration,
}

/// The most lines that an attack may cause in the logs of node and gateway.
const LINES_MAX: usize = 1_000;

/// Everything is as before so long after an attack.
const RECOVERY: Duration = Duration::from_secs(10);

impl Scale {
    /// For the machine of whoever runs the attacks for so long each, and nothing else meanwhile.
    pub(crate) fn long(attack: Duration) -> Self {
        Self { quiet: Duration::from_secs(8), attack, factor: 3, least: Duration::from_millis(250) }
    }

    /// For a machine that does other things too: with what the attacks do to a node without a defence, it takes
    /// seconds, or never ends. A hint that is lost, after which the victim looks itself, is no harm of an attack; of so
    /// few Tasks as are measured here, the slowest decides.
    pub(crate) fn short() -> Self {
        let seconds = Duration::from_secs;
        Self {
            quiet: seconds(3),
            attack: seconds(5),
            factor: 5,
            least: ANSWER + Duration::from_millis(500),
        }
    }
}

/// Carries an attack out on servers of its own.
pub(crate) fn judge(attack: &Attack, scale: Scale) -> Result<()> {
    let stage = Stage::start()?;
    let done = judge_on(&stage, attack, scale);
    if done.is_err() {
        println!("{}", stage.tails());
    }
    done.with_context(|| attack.name)
}

fn judge_on(stage: &Stage, attack: &Attack, scale: Scale) -> Result<()> {
    let mut victim = Victim::start(stage)?;
    victim.measure(attack.way, scale.quiet / 3)?; // The first ones find caches empty.
    let quiet = p95(&victim.measure(attack.way, scale.quiet)?)?;
    let bound = (quiet * scale.factor).max(scale.least);
    let (before, lines) = (stage.connections()?, stage.lines());

    let going = Going(AtomicBool::new(true));
    let (took, memory, told) = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            be_nice();
            (attack.run)(stage, &going)
        });
        let memory = scope.spawn(|| most_memory(stage, &going));
        let took = victim.measure(attack.way, scale.attack);
        going.0.store(false, Ordering::Relaxed);
        let (told, memory) = (attacker.join(), memory.join());
        let (Ok(told), Ok(memory)) = (told, memory) else { bail!("a thread has panicked") };
        Ok((took?, memory?, told?))
    })?;
    let meanwhile = p95(&took)?;
    let sent = told.sent;
    println!(
        "{}: p95 {quiet:?} in quiet, {meanwhile:?} of {} tasks meanwhile and {:?} at most, at most {memory} MiB, \
         {sent} sent; it was told {:?}",
        attack.name,
        took.len(),
        took.last().copied().unwrap_or_default(),
        told.answers
    );
    ensure!(sent > 0, "nothing was sent");
    ensure!(meanwhile <= bound, "others have to wait: {meanwhile:?}, and {quiet:?} in quiet");
    ensure!(memory <= attack.memory_mib, "{memory} MiB of memory, over {}", attack.memory_mib);
    if let Some(code) = attack.refused {
        let is_told = told.is_too_slow || told.answers.keys().any(|answer| answer.contains(code));
        ensure!(is_told, "the attacker is not told {code}: {:?}", told.answers);
    }
    check_connections(&before, &stage.connections()?)?;
    let lines = stage.lines() - lines;
    ensure!(lines <= LINES_MAX, "it has caused {lines} lines in logs");
    recovers(&mut victim, attack.way, bound)?;
    victim.check_leases()
}

/// What others had is there as before, soon after.
fn recovers(victim: &mut Victim, way: Way, bound: Duration) -> Result<()> {
    let begun = Instant::now();
    loop {
        let now = p95(&victim.measure(way, Duration::from_secs(1))?)?;
        if now <= bound {
            return Ok(());
        }
        ensure!(begun.elapsed() < RECOVERY, "{now:?} after {:?}", begun.elapsed());
    }
}

/// Nobody who was there has lost the connection.
pub(crate) fn check_connections(
    before: &BTreeSet<(String, u64)>,
    after: &BTreeSet<(String, u64)>,
) -> Result<()> {
    let lost: Vec<_> = before.difference(after).collect();
    ensure!(lost.is_empty(), "connections were cut: {lost:?}, and now there are {after:?}");
    Ok(())
}

/// The most memory that the node or the gateway has until the attack ends, in MiB.
fn most_memory(stage: &Stage, going: &Going) -> Result<u64> {
    let mut most = 0;
    while going.is_on() {
        for process in [&stage.node, &stage.gateway] {
            most = most.max(process.resident_kib()? >> 10);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(most)
}

fn p95(sorted: &[Duration]) -> Result<Duration> {
    let at = (sorted.len() * 95).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().context("nothing was measured")
}
