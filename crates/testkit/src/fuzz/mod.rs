//! Feeds decoders with mutated samples, and holds each input against four bounds.
//!
//! [`fuzz`] draws an input from a [`Corpus`] and gives it to a closure, until its time is over. The closure
//! decodes the input, and says whether it could: such inputs join the corpus, so that later ones go further. No input
//! may panic, take more than [`CPU_MAX`] of the processor, or more memory than [`memory_max`] allows; one that does
//! not come back within [`HANG`] ends the process. What breaks a bound is made shorter, and printed.
//!
//! `TENURE_FUZZ_SECONDS` says how long each target takes, and `TENURE_FUZZ_SEED` draws other inputs. Memory is counted
//! only if the test has [`Meter`] as its allocator.

#![allow(clippy::expect_used)] // This is test code that other crates share.

mod meter;
mod mutate;
mod schema;

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;

pub use self::meter::Meter;
pub use self::mutate::{Draw, InputForm};
pub use self::schema::instance;

/// The processor time that an input may take in a debug build.
pub const CPU_MAX: Duration = Duration::from_secs(2);
/// The time after which an input counts as one that does not come back, on a busy machine, too.
pub const HANG: Duration = Duration::from_secs(90);
/// The time that a target takes as one test of many.
const SECONDS: u64 = 2;
/// Inputs that were decoded and are mutated again.
const LEARNED_MAX: usize = 512;
/// Runs that it takes at most to make an input shorter.
const SHRINKS_MAX: u32 = 300;

/// The memory that an input of this length may take, in bytes.
pub const fn memory_max(length: usize) -> usize {
    (32 << 20) + 512 * length
}

/// What inputs are made of.
#[derive(Debug, Clone)]
pub struct Corpus {
    form: InputForm,
    samples: Vec<Vec<u8>>,
    tokens: Vec<&'static [u8]>,
}

impl Corpus {
    /// A corpus of these samples.
    pub fn new(form: InputForm, samples: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let samples: Vec<Vec<u8>> = samples.into_iter().collect();
        assert!(!samples.is_empty(), "a corpus has a sample");
        Self { form, samples, tokens: Vec::new() }
    }

    /// A corpus of all files below a folder whose names end so.
    pub fn of_files(form: InputForm, folder: impl AsRef<Path>, endings: &[&str]) -> Self {
        let mut found = BTreeSet::new();
        gather(folder.as_ref(), endings, &mut found);
        Self::new(form, found.into_iter().map(|path| std::fs::read(path).expect("it is readable")))
    }

    /// The same, with pieces that mean something to the decoder.
    #[must_use]
    pub fn with_tokens(mut self, tokens: &[&'static str]) -> Self {
        self.tokens.extend(tokens.iter().map(|token| token.as_bytes()));
        self
    }

    /// The same, with these samples, too.
    #[must_use]
    pub fn and(mut self, samples: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.samples.extend(samples);
        self
    }
}

fn gather(folder: &Path, endings: &[&str], found: &mut BTreeSet<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of the samples") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            gather(&path, endings, found);
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            found.insert(path);
        }
    }
}

/// What was tried.
#[derive(Debug, Clone, Copy, Default)]
pub struct FuzzReport {
    /// The inputs.
    pub inputs: u64,
    /// Those of them that were decoded.
    pub decoded: u64,
    /// The most processor time that one took.
    pub slowest: Duration,
    /// The most memory that one took, in bytes.
    pub memory: usize,
}

/// Gives mutated samples to `decode`, which answers whether it could read them, until the time is over.
///
/// # Panics
/// An input made `decode` panic, took too long, or took too much memory. The shortest such input is printed.
#[allow(clippy::print_stdout)] // How much was tried is what somebody who starts it by hand wants to know.
pub fn fuzz(target: &str, corpus: &Corpus, mut decode: impl FnMut(&[u8]) -> bool) -> FuzzReport {
    let seed = number("TENURE_FUZZ_SEED", 1);
    let time = Duration::from_secs(number("TENURE_FUZZ_SECONDS", SECONDS));
    let mut draw = Draw::new(seed);
    let watch = Watch::begin(target, seed);
    let mut report = FuzzReport::default();
    let mut learned: Vec<Vec<u8>> = Vec::new();
    for sample in &corpus.samples {
        try_input(target, seed, &watch, &mut decode, sample, &mut report);
    }
    let begun = Instant::now();
    while begun.elapsed() < time {
        let all = (&corpus.samples[..], &learned[..]);
        let input = mutate::input(&mut draw, corpus.form, all, &corpus.tokens);
        if try_input(target, seed, &watch, &mut decode, &input, &mut report) {
            match learned.len() < LEARNED_MAX {
                true => learned.push(input),
                false => learned[draw.below(LEARNED_MAX)] = input,
            }
        }
    }
    assert!(report.decoded > 0, "{target}: no input was decoded, so the samples are no samples");
    let FuzzReport { inputs, decoded, slowest, memory } = report;
    println!(
        "fuzz {target}: {inputs} inputs, {decoded} decoded, seed {seed}, slowest {slowest:?}, most memory {memory} bytes"
    );
    report
}

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no whole number")),
        Err(_) => otherwise,
    }
}

/// Tries an input; one that breaks a bound is made shorter first, and then ends the test.
fn try_input(
    target: &str,
    seed: u64,
    watch: &Watch,
    decode: &mut impl FnMut(&[u8]) -> bool,
    input: &[u8],
    report: &mut FuzzReport,
) -> bool {
    let tried = attempt(watch, decode, input);
    report.inputs += 1;
    report.slowest = report.slowest.max(tried.cpu);
    report.memory = report.memory.max(tried.memory);
    let Some(broken) = tried.broken(input) else {
        let decoded = tried.outcome.is_ok_and(|decoded| decoded);
        report.decoded += u64::from(decoded);
        return decoded;
    };
    let mut shortest = input.to_vec();
    let mut piece = shortest.len() / 2;
    let mut left = SHRINKS_MAX;
    while piece > 0 && left > 0 {
        let mut at = 0;
        while at < shortest.len() && left > 0 {
            left -= 1;
            let end = (at + piece).min(shortest.len());
            let shorter = [&shortest[..at], &shortest[end..]].concat();
            match attempt(watch, decode, &shorter).broken(&shorter) {
                Some(_) => shortest = shorter,
                None => at += piece,
            }
        }
        piece /= 2;
    }
    let (number, shown) = (report.inputs, shortest.escape_ascii());
    panic!(
        "{target}: {broken}; input {number} of seed {seed}, made shorter to {}: {shown}",
        shortest.len()
    );
}

/// What an input did.
struct Tried {
    outcome: Result<bool, Box<dyn Any + Send>>,
    cpu: Duration,
    memory: usize,
}

impl Tried {
    fn broken(&self, input: &[u8]) -> Option<String> {
        if let Err(panic) = &self.outcome {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            return Some(format!("it panics: {}", text.unwrap_or("without a text")));
        }
        if self.cpu > CPU_MAX {
            return Some(format!("it takes {:?} of the processor", self.cpu));
        }
        (self.memory > memory_max(input.len())).then(|| format!("it takes {} bytes", self.memory))
    }
}

fn attempt(watch: &Watch, decode: &mut impl FnMut(&[u8]) -> bool, input: &[u8]) -> Tried {
    watch.note(Some(input));
    meter::begin();
    let begun = cpu();
    let outcome = catch_unwind(AssertUnwindSafe(|| decode(input)));
    let cpu = cpu().saturating_sub(begun);
    let memory = meter::peak();
    watch.note(None);
    Tried { outcome, cpu, memory }
}

/// The processor time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Ends the process if an input does not come back.
struct Watch(Arc<Mutex<Watched>>);

/// What is tried at the moment.
#[derive(Default)]
struct Watched {
    input: Vec<u8>,
    since: Option<Instant>,
    is_over: bool,
}

impl Watch {
    #[allow(clippy::print_stderr)] // Nobody else can say it any more.
    fn begin(target: &str, seed: u64) -> Self {
        let watched = Arc::new(Mutex::new(Watched::default()));
        let (target, theirs) = (target.to_owned(), Arc::clone(&watched));
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_secs(1));
                let watched = theirs.lock();
                if watched.is_over {
                    return;
                }
                if watched.since.is_some_and(|since| since.elapsed() > HANG) {
                    let shown = watched.input.escape_ascii();
                    eprintln!("{target}: seed {seed}: this input does not come back: {shown}");
                    std::process::abort();
                }
            }
        });
        Self(watched)
    }

    fn note(&self, input: Option<&[u8]>) {
        let mut watched = self.0.lock();
        watched.since = input.map(|_| Instant::now());
        if let Some(input) = input {
            watched.input.clear();
            watched.input.extend_from_slice(input);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
    }
}

#[cfg(test)]
mod tests;
