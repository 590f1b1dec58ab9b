//! The public events of a Task: the events of its log under the 23 names that clients know (7.1, EVENT).
//!
//! The mapping is total, and done commit by commit. The statuses come in as [`Stage`]s, which a replay
//! makes when it applies the commit; so the cost of an event does not depend on the size of its Task.

use alloc::vec::Vec;
use core::fmt;

use serde::{Serialize, Serializer};

use super::normal::{Normal, Stage};
use crate::event::{Body, Commit, Event, LeaseEnd, ReportFacts};
use crate::id::{
    AgentId, ArtifactId, AttemptId, CommitId, Millis, PoolId, Ref, RunId, SessionId, StepId, TaskId,
};
use crate::patch::Operation;
use crate::read::View;
use crate::record::{Edge, Progress, Reason};
use crate::status::{
    DeliveryState, EdgeKind, End, EndReason, FactKind, Intent, Outcome, ReplyKind, StepStatus,
    TaskStatus, WaitKind, names,
};

mod names;

pub use self::names::Names;

names! {
    /// The names of public events.
    EventName {
        /// A Task was created.
        Created = "task.created",
        /// A Task was accepted.
        Accepted = "task.accepted",
        /// A Step waits for a worker.
        Queued = "task.queued",
        /// The first claim.
        Started = "task.started",
        /// Something changed.
        Updated = "task.updated",
        /// There was progress.
        Progress = "task.progress",
        /// A Step waits for somebody.
        Waiting = "task.waiting",
        /// Task or Step was blocked.
        Blocked = "task.blocked",
        /// The Task was paused.
        Paused = "task.paused",
        /// The Task goes on.
        Resumed = "task.resumed",
        /// A Step will be tried again.
        Retrying = "task.retrying",
        /// The Task is closing.
        CancelRequested = "task.cancel_requested",
        /// The Task ended on request.
        Cancelled = "task.cancelled",
        /// The Task ended by a time limit.
        TimedOut = "task.timed_out",
        /// The Task ended with a failure.
        Failed = "task.failed",
        /// A worker was lost, or the Task failed because of losses.
        Lost = "task.lost",
        /// The Task ended successfully.
        Completed = "task.completed",
        /// The ended Task was archived.
        Archived = "task.archived",
        /// Work on it was delegated: to a worker, a child Task, a sub agent or a thread.
        Delegated = "task.delegated",
        /// Edges, Steps or dependencies changed.
        DependencyUpdated = "task.dependency.updated",
        /// An Attempt began.
        AttemptStarted = "task.attempt.started",
        /// An Attempt ended: completed, blocked or given back.
        AttemptCompleted = "task.attempt.completed",
        /// An Attempt ended in another way.
        AttemptFailed = "task.attempt.failed",
    }
}

/// `<commit_id>.<index>.<n>`: lets consumers drop repeats (EVENT-04).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The commit.
    pub commit_id: CommitId,
    /// The index of the log's event in the commit.
    pub index: u32,
    /// The number of the public event, among those of the log's event.
    pub n: u8,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.commit_id, self.index, self.n)
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// A public event (2.6). It borrows from the commit, as it is made only to be sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublicEvent<'a> {
    /// The same event has the same id whenever it is made.
    pub event_id: EventId,
    /// What happened.
    pub event: EventName,
    /// The type of the log's event that it comes from (EVENT-09).
    pub native_event: &'static str,
    /// The session.
    pub session_id: &'a SessionId,
    /// The Task.
    pub task_id: &'a TaskId,
    /// The Step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<&'a StepId>,
    /// The Run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The Attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// The place of that event in the log.
    pub wal_seq: u64,
    /// Normalized status after the commit of that event (EVENT-10).
    pub status: Normal,
    /// Native status after that event.
    pub native_status: TaskStatus,
    /// Whether it ended the Task.
    pub terminal: bool,
    /// Who caused it.
    pub actor: &'a AgentId,
    /// When.
    pub created_at: Millis,
    /// Further facts of that event.
    pub data: Data<'a>,
}

/// Further facts of an event that clients need. It has no large values: clients read the Task for those.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Data<'a> {
    /// Title of a new Task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a Reason>,
    /// How an Attempt ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Number of an Attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u32>,
    /// The worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<&'a AgentId>,
    /// The pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_pool_id: Option<&'a PoolId>,
    /// What a Step waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<WaitKind>,
    /// When it will be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Millis>,
    /// The progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<&'a Progress>,
    /// The phase that begins with a start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<&'static str>,
    /// Status of the Step after the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_status: Option<StepStatus>,
    /// The result in prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<&'a str>,
    /// Kind of a fact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FactKind>,
    /// Key of a fact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
    /// The Step whose output is the result of the completed Task (TASK-22).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_from: Option<&'a StepId>,
    /// What kind of answer a completed Step gives (CTX-01).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<ReplyKind>,
    /// Artifacts named by the report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifact_ids: Vec<&'a ArtifactId>,
    /// A relation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<&'a Edge>,
    /// Id of a relation that was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_id: Option<&'a crate::id::EdgeId>,
    /// Whether closing cancels or fails the Task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// Whether the result has reached those who wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_state: Option<DeliveryState>,
    /// To whom the result is delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<&'a Ref>,
    /// How a Run ended; `released` where an Attempt was given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
}

/// The public events of a commit, in order.
///
/// `stages` are those that the replay of the commit returned. `view` is any later state of the same
/// Task: it names the Run of an Attempt that the scheduler ended, which never changes.
pub fn public_events<'a>(
    view: &View<'a>,
    commit: &'a Commit,
    stages: &[Stage],
) -> Vec<PublicEvent<'a>> {
    debug_assert_eq!(commit.events.len(), stages.len(), "one stage an event");
    let mut out = Vec::with_capacity(commit.events.len() + 2);
    for ((index, event), stage) in (0..).zip(&commit.events).zip(stages) {
        let names = names_of(event, stage);
        let (run_id, attempt_id) = subject(view, event);
        for (n, event_name) in names.numbered() {
            out.push(PublicEvent {
                event_id: EventId { commit_id: commit.commit_id, index, n },
                event: event_name,
                native_event: event.body.event_type(),
                session_id: &view.head().spec.session_id,
                task_id: view.task_id(),
                step_id: event.step_id.as_ref(),
                run_id,
                attempt_id,
                wal_seq: commit.first_seq + u64::from(index),
                status: stage.status,
                native_status: stage.native,
                terminal: ends_task(&event.body),
                actor: &event.actor,
                created_at: commit.created_at,
                data: data(event),
            });
        }
    }
    out
}

/// The names of the public events of an event of the log: table 7.1.
pub fn names_of(event: &Event, stage: &Stage) -> Names {
    use EventName as E;
    match &event.body {
        Body::TaskCreated(p) if p.task.status == TaskStatus::Draft => Names::one(E::Created),
        Body::TaskCreated(_) => Names::with(Some(E::Created), E::Accepted),
        Body::TaskSubmitted(_) => Names::one(E::Accepted),
        Body::TaskRunning(_) => Names::one(E::Updated),
        Body::TaskUpdated(p) if p.operations.iter().any(changes_graph) => {
            Names::with(Some(E::Updated), E::DependencyUpdated)
        }
        Body::TaskUpdated(_) | Body::TaskFact(_) => Names::one(E::Updated),
        Body::TaskBlocked(_) => Names::one(E::Blocked),
        Body::TaskReopened(_) | Body::TaskResumed(_) => Names::one(E::Resumed),
        Body::TaskPaused(_) => Names::one(E::Paused),
        Body::TaskCancelRequested(_) => Names::one(E::CancelRequested),
        Body::TaskProgress(_) | Body::TaskDeliveryUpdated(_) => Names::one(E::Progress),
        Body::TaskLinked(p) => {
            let delegates = matches!(
                p.edge.kind,
                EdgeKind::Child | EdgeKind::SpawnedSubagent | EdgeKind::AssignedThread
            );
            Names::of([Some(E::DependencyUpdated), delegates.then_some(E::Delegated), None])
        }
        Body::TaskUnlinked(_) => Names::one(E::DependencyUpdated),
        Body::TaskCompleted(_) => Names::one(E::Completed),
        Body::TaskFailed(_) => Names::one(match event.body.end() {
            Some(End::TimedOut) => E::TimedOut,
            Some(End::Lost) => E::Lost,
            _ => E::Failed,
        }),
        Body::TaskCancelled(_) => Names::one(E::Cancelled),
        Body::TaskArchived(_) => Names::one(E::Archived),
        Body::StepReady(_) => Names::one(E::Queued),
        Body::StepClaimed(_) => Names {
            all: [
                stage.first_claim.then_some(E::Started),
                stage.is_again.then_some(E::Retrying),
                Some(E::AttemptStarted),
            ],
            withheld: stage.was_released.then_some(E::Retrying),
        },
        Body::StepStarted(_) | Body::StepUpdated(_) | Body::StepTakenOver(_) => {
            Names::one(E::Progress)
        }
        Body::StepBlocked(p) => {
            let waits = match p.wait_kind {
                WaitKind::Other => E::Blocked,
                _ => E::Waiting,
            };
            Names::with(p.attempt_id.map(|_| E::AttemptCompleted), waits)
        }
        Body::StepCompleted(p) => {
            // The end of an Attempt whose late result was adopted has been told when it was lost.
            let attempt = p.attempt_id.filter(|_| !p.adopted);
            Names::with(attempt.map(|_| E::AttemptCompleted), E::Progress)
        }
        Body::StepFailed(p) => Names::one(p.attempt_id.map_or(E::Progress, |_| E::AttemptFailed)),
        Body::StepCancelled(p) => {
            Names::one(p.attempt_id.map_or(E::Progress, |_| E::AttemptFailed))
        }
        // STEP-36: a Step that is marked is not tried again.
        Body::StepReopened(p) if p.reason.code == "marked" => Names::one(E::Updated),
        Body::StepReopened(p) if p.from == StepStatus::Failed || p.reason.code == "auto_retry" => {
            Names::one(E::Retrying)
        }
        Body::StepReopened(_) => Names::one(E::Updated),
        Body::StepLeaseExpired(p) => match p.reason {
            LeaseEnd::LeaseExpired | LeaseEnd::Outage => {
                Names::with(Some(E::AttemptFailed), E::Lost)
            }
            LeaseEnd::HostRestarted => Names::one(E::AttemptFailed),
            LeaseEnd::Released => Names::one(E::AttemptCompleted),
        },
        Body::RunDispatched(_) => Names::one(E::Delegated),
        Body::RunEnded(_) => Names::one(E::Updated),
    }
}

/// Whether an operation of a patch changes an edge, the Step set or a dependency.
fn changes_graph(operation: &Operation) -> bool {
    match operation {
        Operation::AddStep { .. }
        | Operation::DeleteStep { .. }
        | Operation::AddDependency { .. }
        | Operation::RemoveDependency { .. } => true,
        Operation::UpdateStep { fields, .. } => !fields.depends_on_step_ids.is_keep(),
        Operation::UpdateTask(_)
        | Operation::CancelStep { .. }
        | Operation::ReopenStep { .. }
        | Operation::BlockTask { .. }
        | Operation::ReopenTask { .. } => false,
    }
}

/// EVENT-05: exactly one event of a Task is terminal, because each of these types occurs once and
/// maps to one name only.
const fn ends_task(body: &Body) -> bool {
    matches!(body, Body::TaskCompleted(_) | Body::TaskFailed(_) | Body::TaskCancelled(_))
}

/// The Run and Attempt that an event is about (EVENT-03).
fn subject(view: &View<'_>, event: &Event) -> (Option<RunId>, Option<AttemptId>) {
    let attempt = match &event.body {
        Body::StepClaimed(p) => return (Some(p.run_id), Some(p.attempt_id)),
        Body::StepLeaseExpired(p) => return (Some(p.run_id), Some(p.attempt_id)),
        Body::RunDispatched(p) => return (Some(p.run_id), None),
        Body::RunEnded(p) => return (Some(p.run_id), None),
        Body::StepStarted(p) => Some(p.attempt_id),
        Body::StepUpdated(p) => p.attempt_id,
        Body::StepBlocked(p) => p.attempt_id,
        Body::StepCompleted(p) => p.attempt_id,
        Body::StepFailed(p) => p.attempt_id,
        Body::StepCancelled(p) => p.attempt_id,
        _ => None,
    };
    let run = attempt.and_then(|id| view.attempt(id)).map(|a| a.run_id);
    (run.or(event.run), attempt)
}

fn data(event: &Event) -> Data<'_> {
    match &event.body {
        Body::TaskCreated(p) => Data { title: Some(&p.task.title), ..Data::default() },
        Body::TaskSubmitted(p)
        | Body::TaskRunning(p)
        | Body::TaskReopened(p)
        | Body::TaskResumed(p) => Data { reason: p.reason.as_ref(), ..Data::default() },
        Body::TaskBlocked(p) | Body::TaskPaused(p) => {
            Data { reason: Some(&p.reason), ..Data::default() }
        }
        Body::TaskCancelRequested(p) => {
            Data { intent: Some(p.intent), reason: Some(&p.reason), ..Data::default() }
        }
        Body::TaskProgress(p) => Data {
            progress: p.progress.as_ref(),
            artifact_ids: p.artifacts.iter().map(|a| &a.artifact_id).collect(),
            ..Data::default()
        },
        Body::TaskLinked(p) => Data { edge: Some(&p.edge), ..Data::default() },
        Body::TaskUnlinked(p) => Data { edge_id: Some(&p.edge_id), ..Data::default() },
        Body::TaskCompleted(p) | Body::TaskFailed(p) | Body::TaskCancelled(p) => Data {
            reason: p.reason.as_ref(),
            result_summary: p.result_summary.as_deref(),
            output_from: p.output_from.as_ref(),
            artifact_ids: p.artifacts.iter().map(|a| &a.artifact_id).collect(),
            ..Data::default()
        },
        Body::TaskFact(p) => Data { kind: Some(p.kind), key: Some(&p.key), ..Data::default() },
        Body::TaskArchived(p) => Data { reason: p.reason.as_ref(), ..Data::default() },
        Body::TaskDeliveryUpdated(p) => Data {
            delivery_state: Some(p.delivery_state),
            target_ref: p.target_ref.as_ref(),
            ..Data::default()
        },
        Body::RunDispatched(p) => {
            Data { worker_pool_id: Some(&p.worker_pool_id), ..Data::default() }
        }
        Body::RunEnded(p) => Data {
            end_reason: Some(p.end_reason),
            reason: p.reason.as_ref(),
            worker_id: p.worker_id.as_ref(),
            ..Data::default()
        },
        Body::TaskUpdated(_) => Data::default(),
        _ => step_data(event),
    }
}

fn step_data(event: &Event) -> Data<'_> {
    let at = |step_status| Data { step_status: Some(step_status), ..Data::default() };
    match &event.body {
        Body::StepReady(_) => at(StepStatus::Ready),
        Body::StepClaimed(p) => Data {
            ordinal: Some(p.ordinal),
            worker_id: Some(&p.worker_id),
            worker_pool_id: Some(&p.worker_pool_id),
            ..at(StepStatus::Claimed)
        },
        Body::StepStarted(p) => Data {
            phase: Some("working"),
            ..reported(p.report.as_deref(), at(StepStatus::Running))
        },
        Body::StepUpdated(p) => reported(p.report.as_deref(), Data::default()),
        Body::StepBlocked(p) => Data {
            wait_kind: Some(p.wait_kind),
            reason: Some(&p.reason),
            outcome: p.attempt_id.map(|_| Outcome::Blocked),
            ..reported(p.report.as_deref(), at(StepStatus::Blocked))
        },
        Body::StepCompleted(p) => Data {
            outcome: p.outcome,
            reason: p.reason.as_ref(),
            reply: p.reply,
            ..reported(p.report.as_deref(), at(StepStatus::Completed))
        },
        Body::StepFailed(p) => Data {
            outcome: p.outcome,
            reason: Some(&p.reason),
            ..reported(p.report.as_deref(), at(StepStatus::Failed))
        },
        Body::StepCancelled(p) => Data {
            outcome: p.outcome,
            reason: p.reason.as_ref(),
            ..reported(p.report.as_deref(), at(StepStatus::Cancelled))
        },
        Body::StepTakenOver(p) => Data {
            result_summary: p.result_summary.as_deref(),
            artifact_ids: p.artifacts.iter().map(|a| &a.artifact_id).collect(),
            ..at(StepStatus::Completed)
        },
        Body::StepReopened(p) => {
            Data { reason: Some(&p.reason), not_before: p.not_before, ..at(StepStatus::Pending) }
        }
        Body::StepLeaseExpired(p) => {
            let outcome = Some(p.reason.outcome());
            let end_reason = (p.reason == LeaseEnd::Released).then_some(EndReason::Released);
            Data { outcome, end_reason, not_before: p.not_before, ..at(StepStatus::Pending) }
        }
        _ => Data::default(),
    }
}

fn reported<'a>(report: Option<&'a ReportFacts>, data: Data<'a>) -> Data<'a> {
    let Some(report) = report else { return data };
    let ids = report.artifacts.iter().map(|a| &a.artifact_id).chain(&report.artifact_ids);
    Data {
        progress: report.progress.as_ref(),
        result_summary: report.result_summary.as_deref(),
        artifact_ids: ids.collect(),
        ..data
    }
}
