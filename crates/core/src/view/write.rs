//! The answer to a create or a command, made when its commit is durable (CTRL-04).
//!
//! Step 7 of the walk in docs/architecture.md.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Known;
use super::budget::Reference;
use super::run::RunEnd;
use super::scope::Scope;
use super::step::StepView;
use super::summary::TaskSummary;
use super::task::WorkerTask;
use crate::command::{Caller, Operator, Reply};
use crate::id::{AttemptId, Millis, RunId};
use crate::read::View;
use crate::status::Role;
use crate::task::{Made, Written};

/// The answer to a write, once the write is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WriteSummary {
    /// The Task in short, or where to read it.
    pub task: TaskHeader,
    /// Steps that the write changed and that the caller may see, at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepView>,
    /// The ids of its events; in a replay those of the first time.
    pub event_ids: Vec<String>,
    /// Version of the Task after them.
    pub version: u64,
    /// `wal_seq` of the event by which orchestrators had last changed the Task at that version (OCC-07);
    /// absent in a replay, and for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_version: Option<u64>,
    /// The Run it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// When that Run ends if nobody uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
    /// How that Run ended, if it has: for a caller that waited for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_end: Option<RunEnd>,
    /// The Attempt it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// Whether the caller is asked to stop (CANCEL-07); for holders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<bool>,
    /// How long the caller then has left to stop, in milliseconds (POL-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_ms: Option<u64>,
}

/// The Task in short, or where to read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TaskHeader {
    /// For orchestrators.
    Summary(Box<TaskSummary>),
    /// For workers.
    Worker(Box<WorkerTask>),
    /// For callers whose limit allows no more (CTRL-06).
    Reference(Reference),
}

/// The answer to a write.
///
/// The cost is that of the Steps that the write changed, and one line for each event. The scheduler
/// calls this when the append is durable.
pub fn write_summary(
    view: &View<'_>,
    caller: &Caller,
    reply: &Reply,
    known: &Known<'_>,
) -> WriteSummary {
    let scope = Scope::of(view, caller, Operator::TaskGet).ok();
    let sees = |s: &super::StepRef<'_>| scope.is_some_and(|scope| scope.sees(view, *s));
    let shown = match scope {
        Some(Scope::Whole) => StepView::of,
        _ => StepView::for_worker,
    };
    let changed = reply.changed.iter().filter_map(|&pos| view.step_at(pos)).filter(sees);
    let made_run = match reply.made {
        Made::Run(pos) => Some(pos),
        _ => None,
    };
    let run = made_run.map(|pos| view.run_at(pos));
    let is_runs = caller.role == Role::Worker && matches!(scope, Some(Scope::Run { .. }));
    WriteSummary {
        task: header(view, scope, known),
        steps: changed.map(|s| shown(view, s, known)).collect(),
        event_ids: reply.written.as_ref().map(some_event_ids).unwrap_or_default(),
        version: reply.version,
        spec_version: reply.spec_version.filter(|_| matches!(scope, Some(Scope::Whole))),
        run_id: run.map(|r| r.run_id),
        expires_at: run.and_then(|r| view.head().expires_at(r)),
        run_end: made_run.and_then(|pos| RunEnd::of(view, pos)),
        attempt_id: match reply.made {
            Made::Attempt(pos) => Some(view.attempt_at(pos).attempt_id),
            // CLAIM-16: the Run has claimed in the commit that made it.
            Made::Run(pos) => {
                let claimed = view.run_at(pos).attempt.map(|at| view.attempt_at(at));
                claimed.filter(|it| it.on_behalf).map(|it| it.attempt_id)
            }
            _ => None,
        },
        cancel_requested: is_runs.then(|| view.asks_to_stop(caller)),
        time_left_ms: view.time_of_caller_to_stop(caller, known.now).filter(|_| is_runs),
    }
}

impl WriteSummary {
    /// Removes its Steps, then replaces the Task by a reference, then removes all events but the
    /// first and the last. Returns whether there was something left to remove (CTRL-06).
    pub fn shorten(&mut self) -> bool {
        if !self.steps.is_empty() {
            self.steps = Vec::new();
        } else if let Some(reference) = self.task.reference() {
            self.task = TaskHeader::Reference(reference);
        } else if self.event_ids.len() > 2 {
            self.event_ids.drain(1..self.event_ids.len() - 1);
        } else {
            return false;
        }
        true
    }
}

impl TaskHeader {
    /// Where to read the Task; `None` if this is that reference already.
    fn reference(&self) -> Option<Reference> {
        match self {
            Self::Summary(task) => Some(Reference::at(&task.task_id, task.version)),
            Self::Worker(task) => Some(Reference::at(&task.task_id, task.version)),
            Self::Reference(_) => None,
        }
    }
}

fn header(view: &View<'_>, scope: Option<Scope<'_>>, known: &Known<'_>) -> TaskHeader {
    match scope {
        Some(Scope::Whole) => TaskHeader::Summary(TaskSummary::of(view, known).into()),
        Some(scope @ Scope::Run { .. }) => match WorkerTask::header(view, scope, known) {
            Some(task) => TaskHeader::Worker(task.into()),
            None => TaskHeader::Reference(Reference::to(view)),
        },
        None => TaskHeader::Reference(Reference::to(view)),
    }
}

/// How many events an answer names one by one.
pub const EVENT_IDS_MAX: u32 = 1_000;

/// Ids of the events of a commit; if there are very many, only of the first and the last (CTRL-06).
fn some_event_ids(written: &Written) -> Vec<String> {
    if written.count <= EVENT_IDS_MAX {
        return event_ids(written);
    }
    [0, written.count - 1].iter().map(|at| format!("{}.{at}", written.commit_id)).collect()
}

/// Ids of the events of a commit: `<commit_id>.<index>` (2.5).
pub fn event_ids(written: &Written) -> Vec<String> {
    (0..written.count).map(|at| format!("{}.{at}", written.commit_id)).collect()
}
