//! Normalized status (7.2): 20 portable statuses derived from native facts, and one that only Attempts
//! have. Never stored, never a guard.

use alloc::vec::Vec;

use super::{Known, LeaseFact};
use crate::event::{Body, Commit, Event};
use crate::read::View;
use crate::status::{
    AttemptStatus, End, FailedAs, Outcome, StepStatus, TaskStatus, WaitKind, names,
};
use crate::task::apply::Illegal;
use crate::task::derived::Tally;
use crate::task::{Attempt, Head, StepState, Task};

names! {
    /// A status that every protocol understands (VIEW-09).
    Normal {
        /// The log cannot be read.
        Unknown = "unknown",
        /// Archived after its end.
        Archived = "archived",
        /// Ended successfully.
        Completed = "completed",
        /// Ended on request.
        Cancelled = "cancelled",
        /// Ended by a time limit.
        TimedOut = "timed_out",
        /// Its worker cannot be shown to be alive, or was lost for good.
        Lost = "lost",
        /// Ended with a failure.
        Failed = "failed",
        /// The owner has not confirmed it lately.
        Stale = "stale",
        /// A cancel or fail is being carried out.
        Cancelling = "cancelling",
        /// A draft.
        Draft = "draft",
        /// Paused by its orchestrator.
        Paused = "paused",
        /// Waits for its orchestrator.
        Blocked = "blocked",
        /// A worker runs some Step.
        Running = "running",
        /// A worker has it and has not started.
        Preparing = "preparing",
        /// Waits for an answer.
        WaitingInput = "waiting_input",
        /// Waits for a permission or credential.
        WaitingPermission = "waiting_permission",
        /// Waits for a resource.
        WaitingResource = "waiting_resource",
        /// Waits for another try.
        Retrying = "retrying",
        /// Waits for a worker.
        Queued = "queued",
        /// Accepted, nothing is ready yet.
        Accepted = "accepted",
        /// An Attempt was given back (LEASE-18).
        Released = "released",
    }
}

impl Normal {
    /// The statuses of Tasks and Steps: all but the last, which only Attempts have.
    pub const OF_TASKS: &'static [Self] = Self::ALL.split_at(Self::Released as usize).0;
}

names! {
    /// A row of table 7.2; the first one that fits applies.
    Row {
        /// Log not readable.
        N01 = "N01",
        /// Archived.
        N02 = "N02",
        /// Completed.
        N03 = "N03",
        /// Cancelled.
        N04 = "N04",
        /// Failed by a time limit.
        N05 = "N05",
        /// Failed because workers were lost.
        N06 = "N06",
        /// Failed otherwise.
        N07 = "N07",
        /// Not confirmed by the owner.
        N08 = "N08",
        /// Closing.
        N09 = "N09",
        /// Draft.
        N10 = "N10",
        /// Paused.
        N11 = "N11",
        /// Blocked by its orchestrator.
        N12 = "N12",
        /// Some Step runs, lease valid.
        N13 = "N13",
        /// Some Step is claimed, lease valid.
        N14 = "N14",
        /// Steps are held, no lease can be shown valid.
        N15 = "N15",
        /// Only the completing command is missing.
        N16 = "N16",
        /// Some Step waits for input.
        N17 = "N17",
        /// Some Step waits for a permission.
        N18 = "N18",
        /// Some Step waits for a resource.
        N19 = "N19",
        /// Some Step waits for something else.
        N20 = "N20",
        /// Some Step is to be tried again.
        N21 = "N21",
        /// Some Step is ready.
        N22 = "N22",
        /// Nothing has happened yet.
        N23 = "N23",
        /// Nothing moves by itself.
        N24 = "N24",
    }
}

impl Row {
    /// The status of the row.
    pub const fn status(self) -> Normal {
        match self {
            Self::N01 => Normal::Unknown,
            Self::N02 => Normal::Archived,
            Self::N03 => Normal::Completed,
            Self::N04 => Normal::Cancelled,
            Self::N05 => Normal::TimedOut,
            Self::N06 | Self::N15 => Normal::Lost,
            Self::N07 => Normal::Failed,
            Self::N08 => Normal::Stale,
            Self::N09 => Normal::Cancelling,
            Self::N10 => Normal::Draft,
            Self::N11 => Normal::Paused,
            Self::N12 | Self::N16 | Self::N20 | Self::N24 => Normal::Blocked,
            Self::N13 => Normal::Running,
            Self::N14 => Normal::Preparing,
            Self::N17 => Normal::WaitingInput,
            Self::N18 => Normal::WaitingPermission,
            Self::N19 => Normal::WaitingResource,
            Self::N21 => Normal::Retrying,
            Self::N22 => Normal::Queued,
            Self::N23 => Normal::Accepted,
        }
    }
}

/// The facts that the table uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Whether the log can be read.
    pub readable: bool,
    /// Whether it is archived.
    pub archived: bool,
    /// Native status.
    pub native: TaskStatus,
    /// The kind of a failure.
    pub failed_as: FailedAs,
    /// Whether the owner has confirmed the view within the staleness limit.
    pub confirmed: bool,
    /// Whether `cancel_requested` is present.
    pub closing: bool,
    /// Whether some Step is running under a valid lease.
    pub running: bool,
    /// Whether some Step is claimed under a valid lease.
    pub claimed: bool,
    /// Whether some Step is claimed or running, whatever its lease.
    pub held: bool,
    /// Whether it is completeable, and only a command would complete it (N16).
    pub awaits_completion: bool,
    /// Whether some Step waits for input.
    pub waits_input: bool,
    /// Whether some Step waits for a permission.
    pub waits_permission: bool,
    /// Whether some Step waits for a resource.
    pub waits_resource: bool,
    /// Whether some Step waits for a dependency or anything else.
    pub waits_other: bool,
    /// Whether some Step waits for another try.
    pub retrying: bool,
    /// Whether some Step is ready.
    pub ready: bool,
    /// Whether the Task is native pending with all Steps pending, and has no Attempt yet.
    pub untouched: bool,
}

impl Facts {
    /// The facts of a Task whose log cannot be read: nothing else is known of it.
    pub const UNREADABLE: Self = Self {
        readable: false,
        archived: false,
        native: TaskStatus::Pending,
        failed_as: FailedAs::Failed,
        confirmed: false,
        closing: false,
        running: false,
        claimed: false,
        held: false,
        awaits_completion: false,
        waits_input: false,
        waits_permission: false,
        waits_resource: false,
        waits_other: false,
        retrying: false,
        ready: false,
        untouched: false,
    };

    /// The facts of an ended Task that is known only from an index.
    pub const fn ended(end: End, archived: bool) -> Self {
        let failed_as = match end.failed_as() {
            Some(failed_as) => failed_as,
            None => FailedAs::Failed,
        };
        let native = end.status();
        Self { readable: true, archived, native, failed_as, confirmed: true, ..Self::UNREADABLE }
    }

    /// The facts of a view. The cost is that of the held Steps up to the one that decides: a
    /// running one with a valid lease or, if none is running, a claimed one.
    pub fn of(view: &View<'_>, known: &Known<'_>) -> Self {
        let (mut running, mut claimed) = (false, false);
        let some_run = view.tally().of(StepStatus::Running) > 0;
        for attempt in view.open_attempts() {
            if known.lease(attempt).is_some_and(|lease| lease.valid) {
                match attempt.status {
                    AttemptStatus::Running => running = true,
                    _ => claimed = true,
                }
            }
            if running || (claimed && !some_run) {
                break;
            }
        }
        let unused = view.attempts_len() == 0;
        let confirmed = known.confirmed;
        Self { running, claimed, confirmed, ..Self::counted(view.head(), view.tally(), unused) }
    }

    /// The facts of the state after an event, at constant cost. An open Attempt counts as alive,
    /// because the loss of a lease is an event of its own.
    pub(crate) fn after_event(task: &Task) -> Self {
        Self::counted(&task.head, &task.derived.tally, task.attempts.is_empty())
    }

    /// The facts by the log alone: every open Attempt counts as alive.
    pub fn of_log(view: &View<'_>) -> Self {
        Self::counted(view.head(), view.tally(), view.attempts_len() == 0)
    }

    fn counted(head: &Head, tally: &Tally, no_attempt: bool) -> Self {
        let waits = |kind| tally.waiting_for(kind) > 0;
        let of = |status| tally.of(status);
        let all_pending = of(StepStatus::Pending) == tally.steps();
        Self {
            readable: true,
            archived: head.archived_at.is_some(),
            native: head.status,
            failed_as: FailedAs::of(head.status_reason.as_ref().map(|r| r.code.as_str())),
            confirmed: true,
            closing: head.cancel_requested.is_some(),
            running: of(StepStatus::Running) > 0,
            claimed: of(StepStatus::Claimed) > 0,
            held: tally.held() > 0,
            awaits_completion: awaits_completion(head, tally),
            waits_input: waits(WaitKind::Input),
            waits_permission: waits(WaitKind::Permission),
            waits_resource: waits(WaitKind::Resource),
            waits_other: waits(WaitKind::Dependency) || waits(WaitKind::Other),
            retrying: tally.retrying > 0,
            ready: of(StepStatus::Ready) > 0,
            untouched: head.status == TaskStatus::Pending && all_pending && no_attempt,
        }
    }

    /// The row of the table: the first one that fits.
    pub const fn row(&self) -> Row {
        use TaskStatus as T;
        match self {
            Self { readable: false, .. } => Row::N01,
            Self { archived: true, .. } => Row::N02,
            Self { native: T::Completed, .. } => Row::N03,
            Self { native: T::Cancelled, .. } => Row::N04,
            Self { native: T::Failed, failed_as: FailedAs::TimedOut, .. } => Row::N05,
            Self { native: T::Failed, failed_as: FailedAs::Lost, .. } => Row::N06,
            Self { native: T::Failed, .. } => Row::N07,
            Self { confirmed: false, .. } => Row::N08,
            Self { closing: true, .. } => Row::N09,
            Self { native: T::Draft, .. } => Row::N10,
            Self { native: T::Paused, .. } => Row::N11,
            Self { native: T::Blocked, .. } => Row::N12,
            Self { running: true, .. } => Row::N13,
            Self { claimed: true, .. } => Row::N14,
            Self { held: true, .. } => Row::N15,
            Self { awaits_completion: true, .. } => Row::N16,
            Self { waits_input: true, .. } => Row::N17,
            Self { waits_permission: true, .. } => Row::N18,
            Self { waits_resource: true, .. } => Row::N19,
            Self { waits_other: true, .. } => Row::N20,
            Self { retrying: true, .. } => Row::N21,
            Self { ready: true, .. } => Row::N22,
            Self { untouched: true, .. } => Row::N23,
            Self { native: T::Pending | T::Running, .. } => Row::N24,
        }
    }

    /// The normalized status.
    pub const fn status(&self) -> Normal {
        self.row().status()
    }
}

/// N16: completeable, and not an automatic Task that waits for optional Steps (POL-06, TASK-21).
fn awaits_completion(head: &Head, tally: &Tally) -> bool {
    tally.is_completeable() && !head.waits_for_optional(tally)
}

/// What the public events of one event of the log say of the Task (7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// Normalized status after the commit (EVENT-10).
    pub status: Normal,
    /// Native status after the event.
    pub native: TaskStatus,
    /// Whether the event was the first claim of the Task (EVENT-06).
    pub first_claim: bool,
    /// Whether the event claimed a Step that had been claimed before.
    pub is_again: bool,
    /// Whether the last Attempt was no try then, as its worker had given it back (LEASE-18).
    pub was_released: bool,
}

impl Stage {
    /// The stage after `event`, which has just been applied.
    pub(crate) fn after(task: &Task, event: &Event) -> Self {
        let claimed = match &event.body {
            Body::StepClaimed(p) => task.attempts.by_key(&p.attempt_id),
            _ => None,
        };
        let before = claimed.and_then(|attempt| attempt.previous);
        Self {
            status: Facts::after_event(task).status(),
            native: task.head.status,
            first_claim: claimed.is_some() && task.attempts.len() == 1,
            is_again: before.is_some(),
            was_released: before.is_some_and(|at| task.attempts[at].was_released()),
        }
    }
}

impl Task {
    /// Applies a commit that is in the log, and returns the stages for its public events (RECOVER-08).
    pub fn replay_traced(&mut self, commit: &Commit) -> Result<Vec<Stage>, Illegal> {
        let before = Facts::after_event(self).status();
        let mut stages = Vec::with_capacity(commit.events.len());
        self.replay_with(commit, |task, event| stages.push(Stage::after(task, event)))?;
        settle(&mut stages, before, commit);
        Ok(stages)
    }

    /// The state after the first commit of a log, with the stages for its public events.
    pub fn restore_traced(first: &Commit) -> Result<(Self, Vec<Stage>), Illegal> {
        let mut task = Self::before_first(first)?;
        let stages = task.replay_traced(first)?;
        Ok((task, stages))
    }
}

/// EVENT-10: a commit takes effect as a whole, so its events have the status after it. Those before the event
/// that ends the Task have the status before the commit: no event says that the Task has ended before that one.
fn settle(stages: &mut [Stage], before: Normal, commit: &Commit) {
    let Some(after) = stages.last().map(|stage| stage.status) else { return };
    let end = commit.events.iter().position(|event| event.body.end().is_some()).unwrap_or(0);
    let (earlier, rest) = stages.split_at_mut(end);
    // Before its first event there is no Task, and so no status.
    let before = earlier.first().filter(|_| commit.first_seq == 1).map_or(before, |it| it.status);
    earlier.iter_mut().for_each(|stage| stage.status = before);
    rest.iter_mut().for_each(|stage| stage.status = after);
}

/// Normalized status of a Step (7.2, Step level).
pub fn of_step(state: &StepState) -> Normal {
    match state.status {
        StepStatus::Pending if state.not_before.is_some() => Normal::Retrying,
        StepStatus::Pending | StepStatus::Ready => Normal::Queued,
        StepStatus::Claimed => Normal::Preparing,
        StepStatus::Running => Normal::Running,
        StepStatus::Blocked => waiting(state.wait_kind.unwrap_or(WaitKind::Other)),
        StepStatus::Completed => Normal::Completed,
        StepStatus::Cancelled => Normal::Cancelled,
        StepStatus::Failed => match state.facts().status_reason.as_ref().map(|r| r.code.as_str()) {
            Some(
                "worker_timeout"
                | "schedule_to_start_timeout"
                | "schedule_to_close_timeout"
                | "wait_timeout",
            ) => Normal::TimedOut,
            Some("lost") => Normal::Lost,
            _ => Normal::Failed,
        },
    }
}

/// Normalized status of an Attempt (7.2, Attempt level).
pub fn of_attempt(attempt: &Attempt) -> Normal {
    let Some(outcome) = attempt.outcome else {
        return match attempt.status {
            AttemptStatus::Running => Normal::Running,
            _ => Normal::Preparing,
        };
    };
    match outcome {
        Outcome::Completed => Normal::Completed,
        Outcome::Abandoned if attempt.was_released() => Normal::Released,
        Outcome::Failed | Outcome::Abandoned => Normal::Failed,
        Outcome::Cancelled => Normal::Cancelled,
        Outcome::Lost => Normal::Lost,
        Outcome::TimedOut => Normal::TimedOut,
        Outcome::Blocked => waiting(attempt.waited_for.unwrap_or(WaitKind::Other)),
    }
}

/// The status of a Step or Task that waits for this.
pub const fn waiting(kind: WaitKind) -> Normal {
    match kind {
        WaitKind::Input => Normal::WaitingInput,
        WaitKind::Permission => Normal::WaitingPermission,
        WaitKind::Resource => Normal::WaitingResource,
        WaitKind::Dependency | WaitKind::Other => Normal::Blocked,
    }
}

impl Known<'_> {
    /// What the lease store says of an open Attempt.
    pub fn lease(&self, attempt: &Attempt) -> Option<LeaseFact> {
        (self.leases)(attempt.attempt_id)
    }
}
