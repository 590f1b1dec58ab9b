//! Suspension of workers that fail Steps that others complete: their pool gives them nothing for a
//! while (DISP-19).
//!
//! The cause is most likely the worker's machine: a disk that is full, a program that is missing.
//! Such a worker fails fast, so it has capacity more often than the others, and would get most Steps.

use alloc::collections::BTreeMap;

use crate::eligibility::has_handler;
use crate::id::{AgentId, HandlerName, Millis};
use crate::status::Outcome;
use crate::task::Attempt;

/// How many Attempts with one handler a worker must have failed since it last completed any.
pub const FAILED_MIN: u32 = 10;
/// How many Attempts with that handler another worker must have completed in a row meanwhile.
pub const COMPLETED_MIN: usize = 3;
/// How long a worker is suspended the first time, in milliseconds. Each time that it fails its
/// trial Step, the next suspension lasts twice as long.
pub const PAUSE_MS: u64 = 30_000;
/// The longest suspension, in milliseconds.
pub const PAUSE_MAX_MS: u64 = 600_000;

/// How many handlers failures are noted for at a time; failures with others do not count.
const HANDLERS_MAX: usize = 64;

/// What an ended Attempt shows of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Went {
    /// The worker completed its Step.
    Well,
    /// The worker failed it, took too long, or gave it back as unfit for it.
    Badly,
}

impl Went {
    /// What an ended Attempt shows; `None`: nothing, for example if it was cancelled or lost.
    pub fn of(attempt: &Attempt) -> Option<Self> {
        match attempt.outcome? {
            Outcome::Completed => Some(Self::Well),
            Outcome::Failed | Outcome::TimedOut => Some(Self::Badly),
            Outcome::Abandoned if attempt.was_unfit() => Some(Self::Badly),
            Outcome::Abandoned | Outcome::Blocked | Outcome::Cancelled | Outcome::Lost => None,
        }
    }
}

/// The suspension of a worker, which gets no Step, or one Step as a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// The handler with which it fails Steps.
    pub handler: HandlerName,
    /// When it gets one Step as a trial.
    pub until: Millis,
    /// How long this suspension lasts, in milliseconds.
    pub pause_ms: u64,
}

/// What the pool does about a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerVerdict {
    /// It gives the worker nothing until then.
    Suspend(Suspension),
    /// It gives the worker Steps again.
    Trust,
}

/// The failures of a worker.
#[derive(Debug, Clone, Copy)]
struct Failed {
    count: u32,
    /// The number of the first of them, among all noted Attempts.
    first: u64,
}

/// The numbers, among all noted Attempts, of the last ones that a worker completed in a row, oldest
/// first; 0 if there are fewer.
type Completed = [u64; COMPLETED_MIN];

/// How Attempts with a handler went, from a worker's first failure on.
#[derive(Debug, Default)]
struct Case {
    /// The failures of each worker since it last completed a Step, with any handler. At least one worker.
    failed: BTreeMap<AgentId, Failed>,
    /// The Attempts that each worker has completed in a row.
    completed: BTreeMap<AgentId, Completed>,
}

/// How Attempts of the workers of a pool went, as far as suspension needs it: nothing is stored
/// while none fails.
#[derive(Debug, Default)]
pub struct AttemptRecords {
    /// Number of Attempts that were noted.
    noted: u64,
    cases: BTreeMap<HandlerName, Case>,
    suspended: BTreeMap<AgentId, Suspension>,
}

impl AttemptRecords {
    /// Notes how an Attempt went. `is_there` says whether another worker is in the pool and is given Steps.
    pub fn note(
        &mut self,
        worker: &AgentId,
        handler: &HandlerName,
        went: Went,
        now: Millis,
        is_there: impl Fn(&AgentId) -> bool,
    ) -> Option<WorkerVerdict> {
        self.noted += 1;
        match went {
            Went::Well => self.note_completed(worker, handler),
            Went::Badly => self.note_failed(worker, handler, now, is_there),
        }
    }

    fn note_completed(&mut self, worker: &AgentId, handler: &HandlerName) -> Option<WorkerVerdict> {
        let was_suspended = self.trust(worker);
        if let Some(case) = self.cases.get_mut(handler) {
            let last = case.completed.entry(worker.clone()).or_default();
            last.rotate_left(1);
            last[COMPLETED_MIN - 1] = self.noted;
        }
        was_suspended.then_some(WorkerVerdict::Trust)
    }

    fn note_failed(
        &mut self,
        worker: &AgentId,
        handler: &HandlerName,
        now: Millis,
        is_there: impl Fn(&AgentId) -> bool,
    ) -> Option<WorkerVerdict> {
        let last = self.suspended.get(worker).cloned();
        if last.as_ref().is_some_and(|last| now < last.until) {
            return None; // The worker had this Step in hand when it was suspended.
        }
        let has_failed_enough = self.has_failed_enough(worker, handler, is_there);
        let pause_ms = match last {
            // This was the trial, or the worker had the Step in hand all the time.
            Some(last) => (2 * last.pause_ms).min(PAUSE_MAX_MS),
            None if has_failed_enough => PAUSE_MS,
            None => return None,
        };
        let until = now.saturating_add_unsigned(pause_ms);
        let suspension = Suspension { handler: handler.clone(), until, pause_ms };
        self.suspended.insert(worker.clone(), suspension.clone());
        Some(WorkerVerdict::Suspend(suspension))
    }

    /// Notes another failure. Returns whether there are enough while another worker completed Steps.
    fn has_failed_enough(
        &mut self,
        worker: &AgentId,
        handler: &HandlerName,
        is_there: impl Fn(&AgentId) -> bool,
    ) -> bool {
        if self.cases.len() >= HANDLERS_MAX && !self.cases.contains_key(handler) {
            return false;
        }
        let case = self.cases.entry(handler.clone()).or_default();
        case.completed.remove(worker);
        let none = Failed { count: 0, first: self.noted };
        let failed = case.failed.entry(worker.clone()).or_insert(none);
        failed.count = failed.count.saturating_add(1);
        let shows =
            |(other, last): (&AgentId, &Completed)| last[0] > failed.first && is_there(other);
        failed.count >= FAILED_MIN && case.completed.iter().any(shows)
    }

    /// Forgets the failures of a worker. Returns whether it was suspended.
    pub fn trust(&mut self, worker: &AgentId) -> bool {
        self.cases.retain(|_, case| {
            case.failed.remove(worker);
            !case.failed.is_empty()
        });
        self.suspended.remove(worker).is_some()
    }

    /// A worker's link has ended. Unless the worker is suspended, its records are dropped.
    pub fn note_left(&mut self, worker: &AgentId) {
        if !self.suspended.contains_key(worker) {
            self.forget(worker);
        }
    }

    /// Forgets everything about a worker.
    pub fn forget(&mut self, worker: &AgentId) {
        for case in self.cases.values_mut() {
            case.completed.remove(worker);
        }
        self.trust(worker);
    }

    /// Number of stored records.
    pub fn len(&self) -> usize {
        let of = |case: &Case| case.failed.len() + case.completed.len();
        self.suspended.len() + self.cases.values().map(of).sum::<usize>()
    }

    /// Whether no record is stored.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty() && self.suspended.is_empty()
    }

    /// The suspension of a worker, if it is suspended; also during its trial.
    pub fn suspension(&self, worker: &AgentId) -> Option<&Suspension> {
        self.suspended.get(worker)
    }
}

/// Whether other workers can run all that a worker can: only then may it be suspended. A worker
/// that has named no handlers can run everything.
pub fn can_replace<'a>(
    handlers: Option<&[HandlerName]>,
    others: impl Iterator<Item = Option<&'a [HandlerName]>> + Clone,
) -> bool {
    match handlers {
        None => others.clone().any(|other| other.is_none()),
        Some(all) => all.iter().all(|one| others.clone().any(|other| has_handler(other, one))),
    }
}
