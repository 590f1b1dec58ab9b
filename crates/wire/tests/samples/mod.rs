//! An event of every type, once with every field and once with as few as there can be.

#![allow(dead_code, clippy::unwrap_used)] // Each test uses its part, and fails where it must.

mod records;

use std::sync::Arc;

use tenure_core::event::{
    Archived, Bindings, Body, CancelRequested, Commit, DeliveryUpdated, Ended, Event, LeaseEnd,
    Linked, Moved, Nothing, RunDispatched, RunEnded, StepBlocked, StepCancelled, StepClaimed,
    StepCompleted, StepFailed, StepLeaseExpired, StepReopened, StepSnapshot, StepStarted,
    StepTakenOver, StepUpdated, Stopped, TaskCreated, TaskFact, TaskProgress, TaskUpdated,
    Unlinked,
};
use tenure_core::id::{CommandId, Digest, EdgeId};
use tenure_core::record::{Reason, Value};
use tenure_core::rules::Rules;
use tenure_core::status::{
    DeliveryState, EndReason, FactKind, Intent, Outcome, ReplyKind, StepStatus, TaskStatus,
    WaitKind,
};

pub(crate) use records::*;

fn ended() -> Box<Ended> {
    Box::new(Ended {
        reason: Some(reason()),
        result_summary: Some("done".into()),
        acceptance: Some(acceptance()),
        artifacts: vec![artifact()],
        evidence_refs: vec![reference("photo")],
        output: None,
        output_from: None,
        unread_input_refs: Vec::new(),
    })
}

fn moved(from: TaskStatus) -> Moved {
    Moved { from, reason: Some(reason()) }
}

fn claim() -> Box<StepClaimed> {
    Box::new(StepClaimed {
        attempt_id: attempt(),
        ordinal: 2,
        run_id: run(),
        worker_id: agent("worker-3"),
        worker_pool_id: pool(),
        allowed_step_ids: Some(vec![step("write"), step("read")]),
        dispatched_by: agent("alice"),
        fencing_token: 12,
        lease_expires_at: TIME + 30_000,
        input_refs: vec![reference("answer")],
        step_snapshot: StepSnapshot::of(&step_spec(), 11),
        retry_policy: Some(retry_policy()),
        worker_host: None,
        worker_build: None,
        on_behalf: false,
    })
}

/// Every event type with every field.
pub(crate) fn full() -> Vec<Body> {
    let updated = |from| StepReopened {
        from,
        reason: reason(),
        not_before: Some(TIME + 1000),
        input_refs: vec![reference("answer")],
        counters_reset: true,
    };
    let done = || Some(Outcome::Completed);
    vec![
        Body::TaskCreated(TaskCreated {
            task: Arc::new(task_spec()),
            creation: None,
            idempotency_key: Some("key \"1\"".into()),
            rules: Rules::First,
        }),
        Body::TaskSubmitted(moved(TaskStatus::Draft)),
        Body::TaskRunning(moved(TaskStatus::Pending)),
        Body::TaskUpdated(TaskUpdated {
            operations: operations().into(),
            updated_after_dispatch: vec![step("write")],
            demoted_step_ids: vec![step("read")],
        }),
        Body::TaskBlocked(Stopped { from: TaskStatus::Running, reason: reason() }),
        Body::TaskReopened(moved(TaskStatus::Blocked)),
        Body::TaskPaused(Stopped { from: TaskStatus::Pending, reason: reason() }),
        Body::TaskResumed(moved(TaskStatus::Paused)),
        Body::TaskCancelRequested(CancelRequested {
            intent: Intent::Fail,
            reason: reason(),
            deadline_at: TIME + 10_000,
            run_ids: vec![run()],
        }),
        Body::TaskProgress(Box::new(TaskProgress {
            progress: Some(progress()),
            artifacts: vec![artifact()],
            evidence_refs: vec![reference("photo")],
            input_refs: vec![reference("answer")],
        })),
        Body::TaskLinked(Box::new(Linked { edge: edge() })),
        Body::TaskUnlinked(Unlinked {
            edge_id: EdgeId::new("edge-1").unwrap(),
            reason: Some("no more".into()),
        }),
        Body::TaskCompleted(ended()),
        Body::TaskFailed(ended()),
        Body::TaskCancelled(ended()),
        Body::TaskArchived(Archived { reason: Some(reason()) }),
        Body::TaskDeliveryUpdated(DeliveryUpdated {
            delivery_state: DeliveryState::ParentMissing,
            target_ref: Some(reference("agent://alice")),
        }),
        Body::StepReady(Nothing {}),
        Body::StepClaimed(claim()),
        Body::StepStarted(StepStarted {
            attempt_id: attempt(),
            lease_expires_at: TIME + 30_000,
            report: facts(),
        }),
        Body::StepUpdated(StepUpdated {
            attempt_id: Some(attempt()),
            lease_expires_at: Some(TIME + 30_000),
            report: facts(),
        }),
        Body::StepBlocked(StepBlocked {
            attempt_id: Some(attempt()),
            wait_kind: WaitKind::Permission,
            reason: reason(),
            report: facts(),
        }),
        Body::StepCompleted(StepCompleted {
            attempt_id: Some(attempt()),
            outcome: done(),
            reason: Some(reason()),
            output: Some(Value::json(b"{\"pages\":9}".to_vec())),
            reply: Some(ReplyKind::Direct),
            adopted: false,
            report: facts(),
        }),
        Body::StepFailed(StepFailed {
            attempt_id: Some(attempt()),
            outcome: Some(Outcome::TimedOut),
            reason: reason(),
            attempt_count: Some(2),
            retry_after_ms: None,
            report: facts(),
        }),
        Body::StepCancelled(StepCancelled {
            attempt_id: Some(attempt()),
            outcome: Some(Outcome::Cancelled),
            reason: Some(reason()),
            report: facts(),
        }),
        Body::StepReopened(Box::new(updated(StepStatus::Failed))),
        Body::StepLeaseExpired(StepLeaseExpired {
            attempt_id: attempt(),
            run_id: run(),
            lease_expires_at: TIME,
            lost_count: 1,
            reason: LeaseEnd::HostRestarted,
            release_reason: None,
            not_before: None,
            lost_with: Vec::new(),
        }),
        Body::RunDispatched(Box::new(RunDispatched {
            run_id: run(),
            worker_pool_id: pool(),
            allowed_step_ids: Some(vec![step("write")]),
            dispatched_by: agent("alice"),
            instructions: Some("be brief".into()),
            bindings: Some(Bindings {
                thread_id: Some("thread".into()),
                environment_ref: Some("env://1".into()),
            }),
            expires_at: Some(TIME + 300_000),
        })),
        Body::RunEnded(RunEnded {
            run_id: run(),
            end_reason: EndReason::FinishedWithoutTerminalStepStatus,
            reason: Some(reason()),
            worker_id: Some(agent("worker-3")),
        }),
        Body::TaskFact(Box::new(TaskFact {
            kind: FactKind::A2aPushConfig,
            key: "config \"1\"".into(),
            payload: Value::json(b"{\"url\":\"https://alice/push\"}".to_vec()),
        })),
        Body::StepTakenOver(Box::new(StepTakenOver {
            from_task_id: task(),
            from_attempt_id: Some(attempt()),
            output: Some(Value::json(b"{\"pages\":9}".to_vec())),
            result_summary: Some("nine pages".into()),
            artifacts: vec![artifact()],
        })),
    ]
}

/// Every event type with as few fields as it may have.
pub(crate) fn least() -> Vec<Body> {
    let mut bodies = full();
    for body in &mut bodies {
        strip(body);
    }
    bodies
}

fn strip(body: &mut Body) {
    match body {
        Body::TaskCreated(p) => {
            *p = TaskCreated {
                task: Arc::new(least_task()),
                creation: None,
                idempotency_key: None,
                rules: Rules::First,
            };
        }
        Body::TaskSubmitted(p)
        | Body::TaskRunning(p)
        | Body::TaskReopened(p)
        | Body::TaskResumed(p) => p.reason = None,
        Body::TaskUpdated(p) => {
            *p = TaskUpdated {
                operations: [].into(),
                updated_after_dispatch: vec![],
                demoted_step_ids: vec![],
            };
        }
        Body::TaskBlocked(p) | Body::TaskPaused(p) => p.reason = Reason::code("paused"),
        Body::TaskCancelRequested(p) => {
            p.reason = Reason::code("task_cancelled");
            p.run_ids.clear();
        }
        Body::TaskProgress(p) => **p = TaskProgress::default(),
        Body::TaskLinked(p) => p.edge.reason = None,
        Body::TaskUnlinked(p) => p.reason = None,
        Body::TaskCompleted(p) | Body::TaskFailed(p) | Body::TaskCancelled(p) => {
            **p = Ended::default();
        }
        Body::TaskArchived(p) => p.reason = None,
        Body::TaskDeliveryUpdated(p) => p.target_ref = None,
        Body::StepClaimed(p) => {
            p.allowed_step_ids = None;
            p.input_refs.clear();
            p.retry_policy = None;
        }
        Body::StepStarted(p) => p.report = None,
        Body::StepUpdated(p) => {
            *p = StepUpdated { attempt_id: None, lease_expires_at: None, report: None };
        }
        Body::StepBlocked(p) => (p.attempt_id, p.report) = (None, None),
        Body::StepCompleted(p) => {
            *p = StepCompleted {
                attempt_id: None,
                outcome: None,
                reason: None,
                output: None,
                reply: None,
                adopted: false,
                report: None,
            };
        }
        Body::StepFailed(p) => {
            (p.attempt_id, p.outcome, p.attempt_count, p.report) = (None, None, None, None);
        }
        Body::StepCancelled(p) => {
            (p.attempt_id, p.outcome, p.reason, p.report) = (None, None, None, None);
        }
        Body::StepReopened(p) => (p.not_before, p.input_refs) = (None, vec![]),
        Body::RunDispatched(p) => {
            (p.allowed_step_ids, p.instructions, p.bindings) = (None, None, None);
        }
        Body::RunEnded(p) => (p.reason, p.worker_id) = (None, None),
        Body::StepTakenOver(p) => {
            **p = StepTakenOver {
                from_task_id: p.from_task_id.clone(),
                from_attempt_id: None,
                output: None,
                result_summary: None,
                artifacts: Vec::new(),
            };
        }
        Body::StepReady(_) | Body::StepLeaseExpired(_) | Body::TaskFact(_) => {}
    }
}

pub(crate) fn event(body: Body) -> Event {
    let is_step = body.event_type().starts_with("task_step_");
    let step_id = is_step.then(|| step("write"));
    Event { actor: agent("worker \"3\""), run: Some(run()), step_id, body }
}

/// A commit with every optional part of the envelope, or with none.
pub(crate) fn commit(first_seq: u64, events: Vec<Event>, is_full: bool) -> Commit {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    Commit {
        commit_id: commit_id(first_seq),
        first_seq,
        created_at: TIME,
        command_id: is_full.then(|| CommandId::new("command\t\"1\"").unwrap()),
        command_digest: is_full.then_some(Digest::first([0xa5; 32])),
        epoch: if is_full { 9_007_199_254_740_991 } else { 0 },
        trace: is_full.then(|| trace.into()),
        events,
    }
}
