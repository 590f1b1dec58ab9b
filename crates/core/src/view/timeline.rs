//! `inspect_task`: the complete history of a Task, and what its workers were told (VIEW-12,
//! STEP-28).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::read::{StepRef, View};
use super::summary::TaskSummary;
use crate::event::{Body, Commit, SCHEMA_VERSION, StepSnapshot};
use crate::id::{
    AgentId, AttemptId, CommandId, CommitId, Digest, Millis, RunId, SessionId, StepId, TaskId,
};

/// A WAL event with its envelope (2.5). Borrows from the commit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry<'a> {
    /// Where it stands.
    pub wal_seq: u64,
    /// The session.
    pub session_id: &'a SessionId,
    /// `<commit_id>.<index>`.
    pub event_id: String,
    /// What happened.
    pub event_type: &'static str,
    /// Who caused it.
    pub actor_agent_id: &'a AgentId,
    /// Under which Run; null where there is none.
    pub actor_run_id: Option<RunId>,
    /// The Task.
    pub task_id: &'a TaskId,
    /// The Step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<&'a StepId>,
    /// What it says.
    pub payload: &'a Body,
    /// When.
    pub created_at: Millis,
    /// Version of the stored form.
    pub schema_version: u16,
    /// The causing command; null for timers and automatic claims.
    pub command_id: Option<&'a CommandId>,
    /// Digest of that command, on the first event of its commit.
    pub command_digest: Option<Digest>,
    /// The commit.
    pub commit_id: CommitId,
    /// Its place in the commit.
    pub commit_index: u32,
    /// Events of the commit.
    pub commit_count: u32,
    /// Ownership epoch of the writer.
    pub epoch: u64,
    /// W3C traceparent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'a SmolStr>,
}

/// The answer of `inspect_task`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection<'a> {
    /// The Task as it stands, with diagnostics.
    pub task: TaskSummary,
    /// What each Step says now, and what it said to each of its Attempts.
    pub steps: Vec<StepTexts>,
    /// The events asked for, in order.
    pub timeline: Vec<Entry<'a>>,
}

/// A Step's texts, now and at its dispatches (STEP-28).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepTexts {
    /// The Step.
    pub step_id: StepId,
    /// What it says now.
    pub current: StepSnapshot,
    /// What it said to its Attempts, oldest first.
    pub dispatched: Vec<Dispatched>,
}

/// What a Step said to an Attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dispatched {
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Its number.
    pub ordinal: u32,
    /// The Step was edited while it was open.
    pub updated_after_dispatch: bool,
    /// What the Step said.
    pub step_snapshot: StepSnapshot,
}

/// The events of commits as timeline entries, from one `wal_seq` to another, both included.
pub fn timeline<'a>(
    view: &View<'a>,
    commits: &'a [Commit],
    range: core::ops::RangeInclusive<u64>,
) -> Vec<Entry<'a>> {
    let spec = &view.head().spec;
    let entries = commits.iter().flat_map(|commit| {
        (0..).zip(&commit.events).map(move |(index, event)| Entry {
            wal_seq: commit.first_seq + u64::from(index),
            session_id: &spec.session_id,
            event_id: format!("{}.{index}", commit.commit_id),
            event_type: event.body.event_type(),
            actor_agent_id: &event.actor,
            actor_run_id: event.run,
            task_id: &spec.task_id,
            step_id: event.step_id.as_ref(),
            payload: &event.body,
            created_at: commit.created_at,
            schema_version: SCHEMA_VERSION,
            command_id: commit.command_id.as_ref(),
            command_digest: commit.command_digest.filter(|_| index == 0),
            commit_id: commit.commit_id,
            commit_index: index,
            commit_count: crate::table::next_pos(commit.events.len()),
            epoch: commit.epoch,
            trace: commit.trace.as_ref(),
        })
    });
    entries.filter(|e| range.contains(&e.wal_seq)).collect()
}

/// `inspect_task`: `view` is the state after `commits`.
pub fn inspect<'a>(
    view: &View<'a>,
    commits: &'a [Commit],
    range: core::ops::RangeInclusive<u64>,
    known: &Known<'_>,
) -> Inspection<'a> {
    Inspection {
        task: TaskSummary::of(view, known),
        steps: view.steps().map(|s| texts(view, s)).collect(),
        timeline: timeline(view, commits, range),
    }
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
