//! A Task in short: a line of a list, the answer to a write (CTRL-04, LIST, TASK-18 to TASK-20).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use smol_str::SmolStr;

use super::Known;
use super::normal::{Facts, Normal, Row};
use crate::completion::{hindrances, remedies_json, ways_on};
use crate::id::{AgentId, Millis, RunId, SessionId, StepId, TaskId, WalName};
use crate::read::{StepRef, View};
use crate::record::{Counter, Labels, Object, Progress, Reason};
use crate::rules::Rules;
use crate::status::{DeliveryState, Intent, Policy, StepStatus, TaskStatus, Visibility, WaitKind};
use crate::task::Unfinished;

/// How many ids a reason names, so that a summary stays short.
const IDS_MAX: usize = 20;

/// A Task in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSummary {
    /// Unique in its session.
    pub task_id: TaskId,
    /// Its session.
    pub session_id: SessionId,
    /// Name of its log.
    pub wal_name: WalName,
    /// Where its log is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_path: Option<String>,
    /// For people.
    pub title: SmolStr,
    /// Normalized status (VIEW-08).
    pub status: Normal,
    /// Native status.
    pub native_status: TaskStatus,
    /// Why it has this status, if there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reason: Option<Reason>,
    /// The request to close it, while it is closing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<CancelRequested>,
    /// Whether it is archived.
    pub archived: bool,
    /// Who sees it in listings.
    pub visibility: Visibility,
    /// Who gives out its Steps.
    pub dispatch: Policy,
    /// Who ends it.
    pub completion: Policy,
    /// Hint between Tasks.
    pub priority: i32,
    /// The creator.
    pub created_by_agent_id: AgentId,
    /// Attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    /// Attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    /// The Task that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<TaskId>,
    /// The Task itself if it has no parent.
    pub root_task_id: TaskId,
    /// Classification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_kind: Option<SmolStr>,
    /// Steps by native status.
    pub counts: StepCounts,
    /// Its progress; the scheduler counts `counters.steps`.
    pub progress: Progress,
    /// What the orchestrator should know.
    pub diagnostics: Diagnostics,
    /// The Run whose open Attempt is newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_run_id: Option<RunId>,
    /// The result in prose, once it is completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// Whether its result has reached those who wait for it.
    pub delivery_state: DeliveryState,
    /// When it was made.
    pub created_at: Millis,
    /// Time of its last event.
    pub updated_at: Millis,
    /// Time of its first claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Millis>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Millis>,
    /// Names and values by which listings find it (LABEL-01).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// `wal_seq` of its last event.
    pub version: u64,
    /// `wal_seq` of the event by which orchestrators last changed what it is to do (OCC-07).
    #[serde(default, skip_serializing_if = "super::is_unknown")]
    pub spec_version: u64,
}

/// The recorded intent to close a Task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CancelRequested {
    /// Whether closing cancels or fails the Task.
    pub intent: Intent,
    /// Why.
    pub reason: Reason,
    /// Who asked.
    pub by: AgentId,
    /// When.
    pub at: Millis,
    /// Until when Runs may take to stop.
    pub deadline_at: Millis,
}

/// Steps by native status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)] // The fields are the statuses.
pub struct StepCounts {
    pub pending: u32,
    pub ready: u32,
    pub claimed: u32,
    pub running: u32,
    pub blocked: u32,
    pub completed: u32,
    pub failed: u32,
    pub cancelled: u32,
}

/// Facts that follow from the state and are not stored (TASK-20). Only live Tasks have them, and
/// drafts do not: a draft waits for `submit_task` alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostics {
    /// Whether nothing moves by itself (TASK-18).
    pub stalled: bool,
    /// Whether only the completing command is missing (TASK-19).
    pub completeable: bool,
    /// Whether the deadline has passed (POL-08).
    pub overdue: bool,
}

impl StepCounts {
    /// The counts of a view.
    pub fn of(view: &View<'_>) -> Self {
        let of = |status| view.tally().of(status);
        Self {
            pending: of(StepStatus::Pending),
            ready: of(StepStatus::Ready),
            claimed: of(StepStatus::Claimed),
            running: of(StepStatus::Running),
            blocked: of(StepStatus::Blocked),
            completed: of(StepStatus::Completed),
            failed: of(StepStatus::Failed),
            cancelled: of(StepStatus::Cancelled),
        }
    }
}

impl Diagnostics {
    /// The diagnostics of a view at a time.
    pub fn of(view: &View<'_>, now: Millis) -> Self {
        let (head, tally) = (view.head(), view.tally());
        if head.status.is_terminal() || head.status == TaskStatus::Draft {
            return Self::default();
        }
        // A Step that waits for its next try moves by itself, once its time has come.
        let moving = tally.of(StepStatus::Ready) + tally.held() + tally.backing_off;
        let stuck = [StepStatus::Failed, StepStatus::Blocked, StepStatus::Pending];
        Self {
            stalled: moving == 0 && stuck.iter().any(|&s| tally.of(s) > 0),
            completeable: tally.is_completeable(),
            overdue: head.deadline_at(now).is_some_and(|at| at <= now),
        }
    }
}

impl TaskSummary {
    /// The summary of a view. The cost is that of the held Steps.
    pub fn of(view: &View<'_>, known: &Known<'_>) -> Self {
        let head = view.head();
        let spec = &head.spec;
        let row = Facts::of(view, known).row();
        Self {
            task_id: spec.task_id.clone(),
            session_id: spec.session_id.clone(),
            wal_name: spec.wal_name.clone(),
            wal_path: known.wal_path.map(ToString::to_string),
            title: spec.title.clone(),
            status: row.status(),
            native_status: head.status,
            status_reason: status_reason(view, known, row),
            cancel_requested: cancel_requested(view),
            archived: head.archived_at.is_some(),
            visibility: spec.visibility,
            dispatch: spec.dispatch,
            completion: spec.completion,
            priority: spec.priority,
            created_by_agent_id: head.created_by_agent_id.clone(),
            owner: spec.owner.clone(),
            assignee: spec.assignee.clone(),
            parent_task_id: spec.parent_task_id.clone(),
            root_task_id: spec.root_task_id.clone(),
            task_kind: spec.task_kind.clone(),
            counts: StepCounts::of(view),
            progress: progress(view),
            diagnostics: Diagnostics::of(view, known.now),
            current_run_id: current_run_id(view),
            result_summary: head.result_summary.as_deref().map(String::from),
            delivery_state: head.delivery_state,
            created_at: head.created_at,
            updated_at: view.updated_at(),
            started_at: head.started_at,
            ended_at: head.ended_at,
            labels: spec.labels.clone(),
            version: view.version(),
            spec_version: view.spec_version(),
        }
    }
}

fn cancel_requested(view: &View<'_>) -> Option<CancelRequested> {
    let request = view.head().cancel_requested.as_ref()?;
    Some(CancelRequested {
        intent: request.intent,
        reason: request.reason.clone(),
        by: request.by.clone(),
        at: request.at,
        deadline_at: request.deadline_at,
    })
}

/// The orchestrator's progress, with the scheduler's `counters.steps` (2.1).
pub fn progress(view: &View<'_>) -> Progress {
    let tally = view.tally();
    let done = u64::from(tally.of(StepStatus::Completed));
    let total = u64::from(tally.steps() - tally.of(StepStatus::Cancelled));
    let mut progress = Progress::clone(&view.head().progress);
    let steps = Counter { done, total: Some(total) };
    progress.counters.insert(SmolStr::new_static("steps"), steps);
    progress
}

/// The Run whose open Attempt is newest (2.1).
pub fn current_run_id(view: &View<'_>) -> Option<RunId> {
    view.open_attempts().max_by_key(|a| a.fencing_token).map(|a| a.run_id)
}

/// The reason for the Task's row of 7.2.
fn status_reason(view: &View<'_>, known: &Known<'_>, row: Row) -> Option<Reason> {
    if let Some(unfinished) = unfinished(view) {
        return Some(unfinished);
    }
    let head = view.head();
    let blocked_by = |kinds: &[WaitKind]| {
        view.blocked().find(|s| s.state.wait_kind.is_some_and(|k| kinds.contains(&k)))
    };
    match row {
        Row::N08 => Some(stale(view)),
        Row::N09 => head.cancel_requested.as_ref().map(|c| {
            let mut reason = c.reason.clone();
            reason
                .details
                .get_or_insert_default()
                .insert("intent".into(), c.intent.as_str().into());
            reason
        }),
        Row::N15 => Some(unconfirmed(view, known)),
        Row::N16 => hindered(view).or_else(|| Some(awaiting_completion())),
        Row::N17 => blocked_by(&[WaitKind::Input]).map(step_reason),
        Row::N18 => blocked_by(&[WaitKind::Permission]).map(step_reason),
        Row::N19 => blocked_by(&[WaitKind::Resource]).map(step_reason),
        Row::N20 => blocked_by(&[WaitKind::Dependency, WaitKind::Other]).map(step_reason),
        Row::N24 => Some(stalled(view)),
        _ => head.status_reason.as_deref().cloned().or_else(|| waits_for_optional(view)),
    }
}

/// POL-06: the reason of a Task whose required Steps are completed, while it waits for optional ones.
fn waits_for_optional(view: &View<'_>) -> Option<Reason> {
    let (head, tally) = (view.head(), view.tally());
    let waits = head.rules >= Rules::Second && head.is_open() && head.waits_for_optional(tally);
    let message = "all required steps are completed; the task waits for optional steps";
    waits.then(|| {
        about("waits_for_optional", message, |details| {
            let until = head.optional_wait_ends(tally);
            until.map(|at| details.insert("until".into(), at.into()));
        })
    })
}

fn awaiting_completion() -> Reason {
    about("awaiting_completion", "all required steps are completed", |details| {
        details.insert("action".into(), "agent.task_complete".into());
    })
}

/// VIEW-15: the first reason why the completing command would be refused, and what settles it.
pub(super) fn hindered(view: &View<'_>) -> Option<Reason> {
    let by = hindrances(view).into_iter().next()?;
    Some(Reason { details: Some(by.details()), ..Reason::new(by.code.as_str(), &by.text) })
}

/// IDEM-09: the reason of a Task whose creation in parts is unfinished.
pub(super) fn unfinished(view: &View<'_>) -> Option<Reason> {
    let Unfinished { creation, here } = view.unfinished()?;
    let message = format!(
        "the creation of the task is unfinished: {here} of {} steps have come; the same create again goes on \
         with it, and if none comes it is cancelled after a day",
        creation.steps
    );
    Some(about("unfinished_creation", &message, |details| {
        details.insert("digest".into(), creation.digest.to_string().into());
        details.insert("steps".into(), creation.steps.into());
        details.insert("steps_here".into(), here.into());
    }))
}

/// The reason of a Step, with its id.
fn step_reason(step: StepRef<'_>) -> Reason {
    let mut reason = step.facts().status_reason.clone().unwrap_or_else(|| Reason::code("blocked"));
    reason.details.get_or_insert_default().insert("step_id".into(), step.id().as_str().into());
    reason
}

fn stale(view: &View<'_>) -> Reason {
    let last = Facts { confirmed: true, ..Facts::of_log(view) }.status();
    about("stale", "the owner has not confirmed this lately", |details| {
        details.insert("last_known_status".into(), last.as_str().into());
    })
}

fn unconfirmed(view: &View<'_>, known: &Known<'_>) -> Reason {
    let silent = view
        .held()
        .filter(|&s| view.current(s).and_then(|a| known.lease(a)).is_none_or(|lease| !lease.valid));
    let ids = ids(silent);
    about("lease_unconfirmed", "no lease of a held step can be shown to be in force", |details| {
        details.insert("step_ids".into(), ids);
    })
}

/// N24: the ids of the Steps that failed, or that are required and cancelled, and what leads on (TERM-26).
fn stalled(view: &View<'_>) -> Reason {
    let (failed, cancelled) = (ids(view.failed()), ids(view.cancelled_required()));
    about("stalled", "no step can move by itself", |details| {
        details.insert("failed_step_ids".into(), failed);
        details.insert("cancelled_step_ids".into(), cancelled);
        details.insert("remedies".into(), remedies_json(&ways_on(view)));
    })
}

fn ids<'a>(steps: impl Iterator<Item = StepRef<'a>>) -> Json {
    let ids = steps.take(IDS_MAX).map(|s| Json::from(StepId::as_str(s.id())));
    Json::Array(ids.collect::<Vec<_>>())
}

fn about(code: &str, message: &str, fill: impl FnOnce(&mut Object)) -> Reason {
    let mut details = Object::new();
    fill(&mut details);
    Reason { details: Some(details), ..Reason::new(code, message) }
}
