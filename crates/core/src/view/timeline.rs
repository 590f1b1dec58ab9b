//! `inspect_task`: the complete history of a Task, and the content that its workers were given
//! (VIEW-12, STEP-28).

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use smol_str::SmolStr;

use super::Known;
use super::summary::TaskSummary;
use super::task::TaskView;
use crate::command::Operator;
use crate::event::{Commit, SCHEMA_VERSION, StepSnapshot};
use crate::id::{
    AgentId, AttemptId, CommandId, CommitId, Digest, Millis, RunId, SessionId, StepId, TaskId,
};
use crate::operation::Query;
use crate::read::{StepRef, View};

/// An event of the log with its envelope (2.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineEntry {
    /// Its place in the log.
    pub wal_seq: u64,
    /// The session.
    pub session_id: SessionId,
    /// `<commit_id>.<index>`.
    pub event_id: String,
    /// What happened.
    pub event_type: SmolStr,
    /// Who caused it.
    pub actor_agent_id: AgentId,
    /// The Run under which they acted; null if there is none.
    pub actor_run_id: Option<RunId>,
    /// The Task.
    pub task_id: TaskId,
    /// The Step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// Its content.
    pub payload: Json,
    /// When.
    pub created_at: Millis,
    /// Version of the stored form.
    pub schema_version: u16,
    /// The command that caused it; null for timers and automatic claims.
    pub command_id: Option<CommandId>,
    /// Digest of that command, on the first event of its commit.
    pub command_digest: Option<Digest>,
    /// The commit.
    pub commit_id: CommitId,
    /// Its place in the commit.
    pub commit_index: u32,
    /// Number of events of the commit.
    pub commit_count: u32,
    /// Ownership epoch of the writer.
    pub epoch: u64,
    /// W3C traceparent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<SmolStr>,
}

/// The input of `inspect_task`: which events of a Task, by `wal_seq`, both ends included; by default all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InspectInput {
    /// The first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<u64>,
    /// The last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_seq: Option<u64>,
}

impl InspectInput {
    /// The input as a range.
    pub fn range(self) -> RangeInclusive<u64> {
        self.from_seq.unwrap_or(0)..=self.to_seq.unwrap_or(u64::MAX)
    }
}

impl Query for InspectInput {
    const NAME: &'static str = "inspect_task";
    const TOOL: Operator = Operator::InspectTask;
    type Output = Inspection;
    const IN_PARTS: bool = true;

    fn shorten(&self, history: &mut Inspection) -> bool {
        history.halve()
    }
}

/// The input of `replay_task`: the moment to show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayInput {
    /// The event whose commit is the last one to apply; by default the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_seq: Option<u64>,
}

impl Query for ReplayInput {
    const NAME: &'static str = "replay_task";
    const TOOL: Operator = Operator::InspectTask;
    type Output = TaskView;

    fn shorten(&self, task: &mut TaskView) -> bool {
        task.shorten_as_it_was()
    }
}

/// The answer of `inspect_task`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inspection {
    /// The Task after these events, with diagnostics.
    pub task: TaskSummary,
    /// For each Step in the events: its content now, and its content at the claim of each Attempt.
    pub steps: Vec<StepTexts>,
    /// The requested events, in order, as many as fit into an answer.
    pub timeline: Vec<TimelineEntry>,
    /// The first requested event that is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_seq: Option<u64>,
}

/// The content of a Step, now and at its claims (STEP-28).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepTexts {
    /// The Step.
    pub step_id: StepId,
    /// Its content now.
    pub current: StepSnapshot,
    /// Its content at the claims of its Attempts, oldest first.
    pub dispatched: Vec<Dispatched>,
}

/// The content of a Step at a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dispatched {
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Its number.
    pub ordinal: u32,
    /// Whether the Step was edited while the Attempt was open.
    pub updated_after_dispatch: bool,
    /// The content of the Step.
    pub step_snapshot: StepSnapshot,
}

/// The events in commits of a Task as timeline entries, from one `wal_seq` to another, both included.
pub fn timeline(
    session: &SessionId,
    task: &TaskId,
    commits: &[Commit],
    range: RangeInclusive<u64>,
) -> Vec<TimelineEntry> {
    let entries = commits.iter().flat_map(|commit| {
        (0..).zip(&commit.events).map(move |(index, event)| TimelineEntry {
            wal_seq: commit.first_seq + u64::from(index),
            session_id: session.clone(),
            event_id: format!("{}.{index}", commit.commit_id),
            event_type: SmolStr::new_static(event.body.event_type()),
            actor_agent_id: event.actor.clone(),
            actor_run_id: event.run,
            task_id: task.clone(),
            step_id: event.step_id.clone(),
            // Every event of a log can be serialized.
            payload: serde_json::to_value(&event.body).unwrap_or_default(),
            created_at: commit.created_at,
            schema_version: SCHEMA_VERSION,
            command_id: commit.command_id.clone(),
            command_digest: commit.command_digest.filter(|_| index == 0),
            commit_id: commit.commit_id,
            commit_index: index,
            commit_count: crate::table::next_pos(commit.events.len()),
            epoch: commit.epoch,
            trace: commit.trace.clone(),
        })
    });
    entries.filter(|e| range.contains(&e.wal_seq)).collect()
}

/// `inspect_task`: `view` is the state after the events of the timeline, `last` is the last
/// requested event.
pub fn inspect(
    view: &View<'_>,
    timeline: Vec<TimelineEntry>,
    last: u64,
    known: &Known<'_>,
) -> Inspection {
    let about = about(&timeline);
    let steps = view.steps().filter(|s| about.contains(s.id()));
    let last = last.min(view.version());
    Inspection {
        task: TaskSummary::of(view, known),
        steps: steps.map(|s| texts(view, s)).collect(),
        next_seq: timeline.last().map(|e| e.wal_seq + 1).filter(|&next| next <= last),
        timeline,
    }
}

impl Inspection {
    /// Removes the events after the first `kept`, and Steps that the other events do not name.
    pub fn cut(&mut self, kept: usize) {
        if let Some(first) = self.timeline.get(kept) {
            self.next_seq = Some(first.wal_seq);
        }
        self.timeline.truncate(kept);
        let about = about(&self.timeline);
        self.steps.retain(|step| about.contains(&step.step_id));
    }

    /// Removes the second half. Returns whether there was more than one event (CTRL-06).
    pub fn halve(&mut self) -> bool {
        let kept = self.timeline.len() / 2;
        if kept > 0 {
            self.cut(kept);
        }
        kept > 0
    }

    /// Adds the next part, which is newer.
    pub fn append(&mut self, next: Self) {
        let newer: BTreeSet<StepId> = next.steps.iter().map(|s| s.step_id.clone()).collect();
        self.steps.retain(|step| !newer.contains(&step.step_id));
        self.steps.extend(next.steps);
        self.timeline.extend(next.timeline);
        (self.task, self.next_seq) = (next.task, next.next_seq);
    }
}

fn about(timeline: &[TimelineEntry]) -> BTreeSet<StepId> {
    timeline.iter().filter_map(|entry| entry.step_id.clone()).collect()
}

fn texts(view: &View<'_>, step: StepRef<'_>) -> StepTexts {
    let mut dispatched: Vec<Dispatched> = view
        .attempts_of(step)
        .map(|a| Dispatched {
            attempt_id: a.attempt_id,
            ordinal: a.ordinal,
            updated_after_dispatch: a.updated_after_dispatch,
            step_snapshot: StepSnapshot::clone(&a.step_snapshot),
        })
        .collect();
    dispatched.reverse();
    let current = StepSnapshot::of(step.spec, view.version());
    StepTexts { step_id: step.id().clone(), current, dispatched }
}
