//! Clients that do one thing after the other until they are told to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use tokio::task::JoinHandle;

use super::client::{runtime, wait};

/// One of them.
#[derive(Debug)]
pub struct Caller {
    /// Which of them it is, from 0.
    pub at: u64,
    ends: Arc<AtomicBool>,
    numbers: Arc<AtomicU64>,
}

impl Caller {
    /// A number that none of them had before, unless it is to end.
    pub fn next(&self) -> Option<u64> {
        let goes_on = !self.ends.load(Ordering::Acquire);
        goes_on.then(|| self.numbers.fetch_add(1, Ordering::Relaxed))
    }
}

/// All of them, at work.
#[derive(Debug)]
pub struct Callers {
    ends: Arc<AtomicBool>,
    all: Vec<JoinHandle<Result<()>>>,
}

impl Callers {
    /// Begins so many.
    pub fn start<F>(count: u64, mut work: impl FnMut(Caller) -> F) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let (ends, numbers) = (Arc::default(), Arc::default());
        let caller = |at| Caller { at, ends: Arc::clone(&ends), numbers: Arc::clone(&numbers) };
        let all = (0..count).map(|at| runtime().spawn(work(caller(at)))).collect();
        Self { ends, all }
    }

    /// Whether all of them go on.
    pub fn is_well(&self) -> bool {
        !self.all.iter().any(JoinHandle::is_finished)
    }

    /// Ends: every command that was begun is answered for good.
    ///
    /// # Errors
    /// One was not, or was refused.
    pub fn finish(self) -> Result<()> {
        self.ends.store(true, Ordering::Release);
        let ended = |caller: JoinHandle<Result<()>>| wait(caller).context("a caller")?;
        let all: Vec<Result<()>> = self.all.into_iter().map(ended).collect(); // Waits for each.
        all.into_iter().collect()
    }
}
