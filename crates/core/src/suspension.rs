//! Workers that are given nothing for a while, as they fail what others complete (DISP-19).
//!
//! What is wrong with such a worker is most likely its machine: a disk that is full, a program that is
//! missing. It fails fast, so it has capacity more often than the others have, and would be given most Steps.

use alloc::collections::BTreeMap;

use crate::eligibility::has_handler;
use crate::id::{AgentId, HandlerName, Millis};
use crate::status::Outcome;
use crate::task::Attempt;

/// So many Attempts with one handler a worker must have failed since it last completed any.
pub const FAILED_MIN: u32 = 10;
/// So many with that handler another must have completed in a row meanwhile.
pub const COMPLETED_MIN: usize = 3;
/// How long a worker is suspended for the first time, in milliseconds. Each time that it fails the Step it is
/// tried with, it is suspended for twice as long.
pub const PAUSE_MS: u64 = 30_000;
/// The longest that it is suspended for, in milliseconds.
pub const PAUSE_MAX_MS: u64 = 600_000;

/// With so many handlers failures are noted at a time; those with others are not counted.
const HANDLERS_MAX: usize = 64;

/// What an Attempt says of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Went {
    /// It completed its Step.
    Well,
    /// It failed it, took too long, or gave it back as unfit for it.
    Badly,
}

impl Went {
    /// What an ended Attempt says. None: nothing, such as one that was cancelled or lost.
    pub fn of(attempt: &Attempt) -> Option<Self> {
        match attempt.outcome? {
            Outcome::Completed => Some(Self::Well),
            Outcome::Failed | Outcome::TimedOut => Some(Self::Badly),
            Outcome::Abandoned if attempt.was_unfit() => Some(Self::Badly),
            Outcome::Abandoned | Outcome::Blocked | Outcome::Cancelled | Outcome::Lost => None,
        }
    }
}

/// A worker that is given nothing, or one Step only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// The handler with which it fails.
    pub handler: HandlerName,
    /// When it is given one Step, to see how that goes.
    pub until: Millis,
    /// For how long it was suspended this time, in milliseconds.
    pub pause_ms: u64,
}

/// What is to be done about a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerVerdict {
    /// It is given nothing until then.
    Suspend(Suspension),
    /// It is given Steps as the others are.
    Trust,
}

/// What a worker failed.
#[derive(Debug, Clone, Copy)]
struct Failed {
    count: u32,
    /// Which of all Attempts the first of them was.
    first: u64,
}

/// Which of all Attempts the last were that a worker completed in a row, the oldest first; 0: there are not so many.
type Completed = [u64; COMPLETED_MIN];

/// How Attempts with a handler went, from the first on that a worker failed.
#[derive(Debug, Default)]
struct Case {
    /// What each worker failed since it last completed a Step, with whatever handler. One at least.
    failed: BTreeMap<AgentId, Failed>,
    /// What each has completed in a row.
    completed: BTreeMap<AgentId, Completed>,
}

/// How Attempts of the workers of a pool went, as far as it matters: nothing is kept while none fails.
#[derive(Debug, Default)]
pub struct AttemptRecords {
    /// Attempts that were noted.
    noted: u64,
    cases: BTreeMap<HandlerName, Case>,
    suspended: BTreeMap<AgentId, Suspension>,
}

impl AttemptRecords {
    /// Notes how an Attempt went. `is_there` says whether another worker is there and is given Steps.
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
            return None; // It had it in hand when it was suspended.
        }
        let has_failed_enough = self.has_failed_enough(worker, handler, is_there);
        let pause_ms = match last {
            // It was tried, or had this one in hand all the time.
            Some(last) => (2 * last.pause_ms).min(PAUSE_MAX_MS),
            None if has_failed_enough => PAUSE_MS,
            None => return None,
        };
        let until = now.saturating_add_unsigned(pause_ms);
        let suspension = Suspension { handler: handler.clone(), until, pause_ms };
        self.suspended.insert(worker.clone(), suspension.clone());
        Some(WorkerVerdict::Suspend(suspension))
    }

    /// Notes another failure. Answers whether that makes enough of them while another worker completed some.
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

    /// Forgets what a worker failed. Answers whether it was suspended.
    pub fn trust(&mut self, worker: &AgentId) -> bool {
        self.cases.retain(|_, case| {
            case.failed.remove(worker);
            !case.failed.is_empty()
        });
        self.suspended.remove(worker).is_some()
    }

    /// A link of a worker has ended: unless the worker is suspended it begins anew.
    pub fn note_left(&mut self, worker: &AgentId) {
        if !self.suspended.contains_key(worker) {
            self.forget(worker);
        }
    }

    /// Forgets all of a worker.
    pub fn forget(&mut self, worker: &AgentId) {
        for case in self.cases.values_mut() {
            case.completed.remove(worker);
        }
        self.trust(worker);
    }

    /// How much is kept.
    pub fn len(&self) -> usize {
        let of = |case: &Case| case.failed.len() + case.completed.len();
        self.suspended.len() + self.cases.values().map(of).sum::<usize>()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty() && self.suspended.is_empty()
    }

    /// Why a worker is suspended, if it is. Also while it is tried with one Step.
    pub fn suspension(&self, worker: &AgentId) -> Option<&Suspension> {
        self.suspended.get(worker)
    }
}

/// Whether others can run all that a worker can: only then may it be suspended. A worker that has said nothing
/// of its handlers can run everything.
pub fn can_replace<'a>(
    handlers: Option<&[HandlerName]>,
    others: impl Iterator<Item = Option<&'a [HandlerName]>> + Clone,
) -> bool {
    match handlers {
        None => others.clone().any(|other| other.is_none()),
        Some(all) => all.iter().all(|one| others.clone().any(|other| has_handler(other, one))),
    }
}
