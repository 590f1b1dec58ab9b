//! What became of each Step, as people count it. The end of a Task gives its status to all Steps that
//! are unfinished then (TERM-14). Such a Step has not failed by itself: it was stopped, or it never ran.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use serde::Serialize;
use tenure_core::id::StepId;
use tenure_core::record::Reason;
use tenure_core::status::{OnFailure, Outcome, StepStatus, TaskStatus};
use tenure_core::table::Pos;
use tenure_core::task::Head;
use tenure_core::view::{StepRef, View};

/// What became of a Step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepEnd {
    Completed,
    /// It failed by itself.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// It was tried, and ended only because its Task did.
    Stopped,
    /// It was never tried, and its Task has ended.
    NotRun,
    /// It has not ended.
    Open,
}

impl StepEnd {
    pub(super) fn of(view: &View<'_>, step: StepRef<'_>) -> Self {
        match step.status() {
            StepStatus::Completed => Self::Completed,
            StepStatus::Failed | StepStatus::Cancelled if ended_with_task(step) => {
                if was_tried(view, step) { Self::Stopped } else { Self::NotRun }
            }
            StepStatus::Failed => Self::Failed,
            StepStatus::Cancelled => Self::Cancelled,
            StepStatus::Pending
            | StepStatus::Ready
            | StepStatus::Claimed
            | StepStatus::Running
            | StepStatus::Blocked => Self::Open,
        }
    }
}

/// Whether a Step was ever tried: to be given back is no try (LEASE-18).
pub(super) fn was_tried(view: &View<'_>, step: StepRef<'_>) -> bool {
    view.tries_of(step).next().is_some()
}

/// Whether a Step ended only because its Task did.
fn ended_with_task(step: StepRef<'_>) -> bool {
    let reason = step.facts().status_reason.as_ref();
    is_end_of_task(step.status(), reason)
}

/// Whether a Step that got this status for this reason got it because its Task ended: it failed or was
/// cancelled (TERM-14, TERM-15), or it completed without this optional Step (POL-06).
pub(super) fn is_end_of_task(status: StepStatus, reason: Option<&Reason>) -> bool {
    match (status, reason.map(|reason| reason.code.as_str())) {
        (StepStatus::Failed, Some("task_failed")) => true,
        (StepStatus::Cancelled, code) => {
            matches!(code, Some("task_cancelled" | "not_needed" | "unreachable_step"))
        }
        _ => false,
    }
}

/// Why a Task ended that did not complete, or why one of its Steps could not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum StopCause<'a> {
    /// A Step did not complete.
    Step {
        step_id: &'a StepId,
        /// What it did instead.
        #[serde(skip)]
        how: &'static str,
    },
    /// The deadline of the Task passed.
    Deadline,
    /// A command, or another rule of the Task, ended it.
    Command,
    /// The Task completed, and did not wait for this Step any longer.
    Completion,
}

impl<'a> StopCause<'a> {
    fn step(step: StepRef<'a>) -> Self {
        let code = step.facts().status_reason.as_ref().map_or("", |reason| reason.code.as_str());
        let how = match (step.status(), code) {
            (StepStatus::Cancelled, _) => "was cancelled",
            (_, "lost") => "was lost with its worker",
            (_, code) if code.ends_with("timeout") => "took too long",
            _ => "failed",
        };
        Self::Step { step_id: step.id(), how }
    }
}

impl fmt::Display for StopCause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { step_id, how } => write!(f, "{step_id} {how}"),
            Self::Deadline => f.write_str("the deadline passed"),
            Self::Command => f.write_str("the task was ended"),
            Self::Completion => f.write_str("the task completed without it"),
        }
    }
}

/// The causes of the end of a Task and of its Steps.
#[derive(Debug)]
pub(super) struct EndCauses<'a> {
    head: &'a Head,
    cause: Option<StopCause<'a>>,
    /// For each Step behind one that failed or was cancelled: the nearest of those.
    behind: BTreeMap<Pos, StopCause<'a>>,
    /// The Steps whose last Attempt was stopped, and had not ended before.
    cut_off: BTreeSet<Pos>,
}

impl<'a> EndCauses<'a> {
    pub(super) fn of(view: &View<'a>) -> Self {
        let behind = behind(view);
        let is_cut_off = |step: &StepRef<'_>| {
            let last = view.attempts_of(*step).next().and_then(|last| last.outcome);
            StepEnd::of(view, *step) == StepEnd::Stopped
                && matches!(last, Some(Outcome::Cancelled | Outcome::Abandoned | Outcome::TimedOut))
        };
        let cut_off = view.steps().filter(is_cut_off).map(|step| step.pos).collect();
        Self { head: view.head(), cause: cause(view, &behind), behind, cut_off }
    }

    /// Why the Task ended; none if it completed or has not ended.
    pub(super) fn cause(&self) -> Option<StopCause<'a>> {
        self.cause.filter(|_| self.head.status != TaskStatus::Completed)
    }

    /// Whether the Task ended because of this Step.
    pub(super) fn is_culprit(&self, step: StepRef<'_>) -> bool {
        matches!(self.cause, Some(StopCause::Step { step_id, .. }) if step_id == step.id())
    }

    /// Why a Step was stopped or never ran.
    pub(super) fn stopped_by(&self, view: &View<'_>, step: StepRef<'_>) -> Option<StopCause<'a>> {
        match StepEnd::of(view, step) {
            StepEnd::NotRun => self.behind.get(&step.pos).copied().or(self.cause),
            StepEnd::Stopped => self.cause.map(|cause| self.of_stop(step, cause)),
            StepEnd::Completed | StepEnd::Failed | StepEnd::Cancelled | StepEnd::Open => None,
        }
    }

    /// A failed Step stops what runs only if the Task says so (POL-05). Under the other policies, the
    /// deadline did it, although the Task then names the failed Step as its reason (POL-08).
    fn of_stop(&self, step: StepRef<'_>, cause: StopCause<'a>) -> StopCause<'a> {
        let stops = self.head.on_failure() == OnFailure::Stop;
        let may_be_late =
            self.head.spec.deadline_at().is_some() && self.cut_off.contains(&step.pos);
        match cause {
            StopCause::Step { .. } if !stops && may_be_late => StopCause::Deadline,
            cause => cause,
        }
    }
}

/// The cause of the Task's end, by its reason. If the reason names a Step that never ran, the cause is the
/// Step that it waited for.
fn cause<'a>(view: &View<'a>, behind: &BTreeMap<Pos, StopCause<'a>>) -> Option<StopCause<'a>> {
    let head = view.head();
    match head.status {
        TaskStatus::Failed | TaskStatus::Cancelled => {}
        TaskStatus::Completed => return Some(StopCause::Completion),
        _ => return None,
    }
    let reason = head.status_reason.as_deref();
    let named = reason.and_then(|reason| reason.details.as_ref()?.get("step_id")?.as_str());
    let named = named.and_then(|id| view.step(&StepId::new(id).ok()?));
    Some(match named {
        Some(step) => behind.get(&step.pos).copied().unwrap_or_else(|| StopCause::step(step)),
        None if reason.is_some_and(|reason| reason.code == "timed_out") => StopCause::Deadline,
        None => StopCause::Command,
    })
}

/// Goes from each Step that failed or was cancelled by itself to all that wait for it, nearest ones first.
fn behind<'a>(view: &View<'a>) -> BTreeMap<Pos, StopCause<'a>> {
    let mut found = BTreeMap::new();
    let failed = |step: &StepRef<'_>| {
        matches!(StepEnd::of(view, *step), StepEnd::Failed | StepEnd::Cancelled)
    };
    let mut next: VecDeque<_> =
        view.steps().filter(failed).map(|step| (step, StopCause::step(step))).collect();
    while let Some((step, cause)) = next.pop_front() {
        for dependent in
            view.dependents(step).filter(|step| StepEnd::of(view, *step) == StepEnd::NotRun)
        {
            if let Entry::Vacant(entry) = found.entry(dependent.pos) {
                entry.insert(cause);
                next.push_back((dependent, cause));
            }
        }
    }
    found
}

/// How many Steps ended in which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct StepEndCounts {
    completed: u32,
    failed: u32,
    cancelled: u32,
    stopped: u32,
    not_run: u32,
    open: u32,
}

impl StepEndCounts {
    pub(super) fn of<'a>(view: &View<'_>, steps: impl Iterator<Item = StepRef<'a>>) -> Self {
        let mut counts = Self::default();
        for step in steps {
            let count = match StepEnd::of(view, step) {
                StepEnd::Completed => &mut counts.completed,
                StepEnd::Failed => &mut counts.failed,
                StepEnd::Cancelled => &mut counts.cancelled,
                StepEnd::Stopped => &mut counts.stopped,
                StepEnd::NotRun => &mut counts.not_run,
                StepEnd::Open => &mut counts.open,
            };
            *count += 1;
        }
        counts
    }
}

/// `1 failed, 2 stopped, 3 not run`: the Steps that have ended and did not complete.
impl fmt::Display for StepEndCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
            (self.stopped, "stopped"),
            (self.not_run, "not run"),
        ];
        let some = all.into_iter().filter(|(count, _)| *count > 0);
        let some: Vec<String> = some.map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(&some.join(", "))
    }
}
