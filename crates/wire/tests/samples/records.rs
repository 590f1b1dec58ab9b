//! Ids and records with every field.

use std::sync::Arc;

use serde_json::json;
use tenure_core::event::ReportFacts;
use tenure_core::id::{
    AgentId, ArtifactId, AttemptId, CommitId, EdgeId, HandlerName, PoolId, Ref, RunId, SessionId,
    StepId, TaskId, WalName,
};
use tenure_core::patch::{Change, Operation, ReasonInput, StepFields, StepInput, TaskFields};
use tenure_core::record::{
    Acceptance, ArtifactInput, Backoff, Counter, Coverage, Edge, EdgeReason, Labels, Object,
    Progress, Reason, RemoteRef, RetryPolicy, StepSpec, TaskSpec, Value,
};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{
    AcceptanceState, ArtifactKind, ArtifactState, DeliveryState, EdgeKind, EdgeStatus, Policy,
    TaskStatus, Visibility,
};
use uuid::Uuid;

pub(crate) const TIME: i64 = 1_700_000_000_123;

pub(crate) fn session() -> SessionId {
    SessionId::new("session_1").unwrap()
}

pub(crate) fn task() -> TaskId {
    TaskId::new("report-2024").unwrap()
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::new(name).unwrap()
}

pub(crate) fn step(name: &str) -> StepId {
    StepId::new(name).unwrap()
}

pub(crate) fn run() -> RunId {
    RunId(Uuid::from_u128(0x0190_e2a4_7d3f_7c52_9f60_1d8b_5e1c_2a01))
}

pub(crate) fn attempt() -> AttemptId {
    AttemptId(Uuid::from_u128(0x0190_e2a4_7d3f_7c52_9f60_1d8b_5e1c_2a02))
}

pub(crate) fn commit_id(number: u64) -> CommitId {
    CommitId(Uuid::from_u128(0x0190_e2a4_7d3f_7c52_9f60_0000_0000_0000 + u128::from(number)))
}

pub(crate) fn pool() -> PoolId {
    PoolId::new("default").unwrap()
}

pub(crate) fn reference(text: &str) -> Ref {
    Ref::new(text).unwrap()
}

pub(crate) fn object() -> Object {
    let value = json!({
        "zebra": [1, -2, 2.5, true, null, "text"],
        "apple": {"_kept": "an open map may hold any name", "": 18_446_744_073_709_551_615_u64},
        "deadline_at": 1_700_000_100_000_i64,
        "\"quoted\"\n": "\u{1f980} \u{2028} \u{7f} \\ /",
    });
    value.as_object().unwrap().clone()
}

pub(crate) fn reason() -> Reason {
    Reason {
        code: "out_of_paper".into(),
        message: "tray \"2\" is empty\nrefill it".into(),
        retryable: Some(false),
        details: Some(object()),
    }
}

pub(crate) fn reason_input() -> ReasonInput {
    ReasonInput {
        code: Some("wrong_turn".into()),
        details: Some(object()),
        message: "see details".into(),
        retryable: Some(true),
    }
}

pub(crate) fn retry_policy() -> Arc<RetryPolicy> {
    Arc::new(RetryPolicy {
        max_attempts: Some(Limit::Of(5)),
        max_lost: None,
        backoff: Some(Backoff { initial_ms: 250, factor: 1.1, max_ms: 30_000, jitter: 0.3 }.into()),
        non_retryable: Some(vec!["rejected".into(), "bad_input".into()]),
        schedule_to_start_ms: Some(Limit::Of(60_000)),
        start_to_close_ms: Some(Limit::Of(600_000)),
        schedule_to_close_ms: None,
        blocked_ms: None,
        cancel_grace_ms: None,
        heartbeat_ms: Some(45_000),
        on_lease_doubt: None,
        accept_late: None,
    })
}

pub(crate) fn progress() -> Progress {
    Progress {
        percent: Some(33.300_000_000_000_004),
        phase: Some("working".into()),
        current_step: Some("page 3 of 9".into()),
        checklist: Some(json!([{"todo": "read", "done": true}, {"todo": "write"}])),
        summary: Some("a third is done".into()),
        counters: [
            ("files".into(), Counter { done: 3, total: Some(9) }),
            ("tests".into(), Counter { done: 12, total: None }),
        ]
        .into(),
        output_refs: vec![reference("s3://bucket/part-1")],
        output_offsets: [(reference("log"), 4096)].into(),
        delivery_state: Some(DeliveryState::Queued),
        validation_state: Some("checked".into()),
        acceptance_coverage: Some(Coverage { met: 1, total: 4 }),
        updated_at: Some(TIME),
    }
}

pub(crate) fn artifact() -> ArtifactInput {
    ArtifactInput {
        artifact_id: ArtifactId::new("report.v1").unwrap(),
        name: "report".into(),
        description: Some("the first draft".into()),
        media_type: Some("text/markdown".into()),
        kind: ArtifactKind::Report,
        uri: Some("file:///tmp/report.md".into()),
        data: Some("# Draft\n".into()),
        size_bytes: Some(8),
        digest: Some("sha256:00".into()),
        state: ArtifactState::Available,
    }
}

pub(crate) fn remote() -> RemoteRef {
    RemoteRef {
        native_protocol: "a2a".into(),
        remote_task_id: "peer-7".into(),
        remote_context_id: Some("context-1".into()),
        remote_agent_ref: Some("agent://peer".into()),
        agent_card_ref: Some("https://peer/card".into()),
        delivery_mechanism: Some("polling".into()),
        remote_status: Some("running".into()),
        native_status: Some("working".into()),
        remote_artifact_refs: vec![reference("https://peer/artifact")],
        reconciled: true,
    }
}

pub(crate) fn acceptance() -> Vec<Acceptance> {
    let text = Some("all pages are there".into());
    let id = "pages".into();
    vec![Acceptance { id, text, reference: Some(reference("spec/7")), state: AcceptanceState::Met }]
}

pub(crate) fn facts() -> Option<Box<ReportFacts>> {
    let facts = ReportFacts {
        progress: Some(progress()),
        result_summary: Some("nine pages".into()),
        artifact_ids: vec![ArtifactId::new("report.v1").unwrap()],
        artifacts: vec![artifact()],
        output_refs: vec![reference("report.v1")],
        checkpoint_refs: vec![reference("s3://bucket/checkpoint")],
        remote: Some(remote()),
        input_seen: None,
    };
    facts.boxed()
}

pub(crate) fn edge() -> Edge {
    Edge {
        edge_id: EdgeId::new("edge-1").unwrap(),
        kind: EdgeKind::RetryOf,
        from: reference("report-2024"),
        to: reference("report-2023"),
        status: EdgeStatus::Active,
        reason: Some(EdgeReason::Text("again".into())),
        created_at: TIME,
        updated_at: TIME,
    }
}

pub(crate) fn step_spec() -> StepSpec {
    StepSpec {
        step_id: step("write"),
        title: "Write".into(),
        summary: "Writes the report".into(),
        depends_on_step_ids: vec![step("read"), step("count")],
        required: true,
        worker_pool_id: pool(),
        handler: HandlerName::new("writer").unwrap(),
        input: Some(Value::json(b"{\"pages\":9}".to_vec())),
        inputs_from: None,
        retry_policy: Some(retry_policy()),
        assignee: Some(agent("worker-3")),
        claim_only_by: None,
        ext: None,
    }
}

pub(crate) fn least_step() -> StepSpec {
    StepSpec {
        input: None,
        retry_policy: None,
        assignee: None,
        depends_on_step_ids: vec![],
        ..step_spec()
    }
}

pub(crate) fn task_spec() -> TaskSpec {
    TaskSpec {
        visibility: Visibility::Foreground,
        thread_id: Some("thread".into()),
        turn_id: Some("turn".into()),
        parent_task_id: Some(TaskId::new("parent").unwrap()),
        parent_close: Default::default(),
        output_from: None,
        objective: Some("a report".into()),
        requested_by: Some(agent("alice")),
        owner: Some(agent("bob")),
        assignee: Some(agent("worker-3")),
        retry_policy: Some(retry_policy()),
        task_kind: Some("writing".into()),
        task_family: Some("reports".into()),
        priority: -3,
        scope: Some(object()),
        constraints: Some(object()),
        task_profile: Some(object()),
        acceptance: acceptance(),
        retry_of: Some(TaskId::new("report-2023").unwrap()),
        job_id: Some("job".into()),
        metadata: Some(object()),
        native_protocol: Some("macp".into()),
        relationships: vec![edge()],
        steps: [Arc::new(step_spec()), Arc::new(least_step())].into(),
        ..least_task()
    }
}

pub(crate) fn least_task() -> TaskSpec {
    TaskSpec {
        task_id: task(),
        session_id: session(),
        wal_name: WalName::new("report-log").unwrap(),
        title: "Report".into(),
        summary: "Writes a report".into(),
        dispatch: Policy::Auto,
        completion: Policy::Manual,
        default_worker_pool_id: pool(),
        root_task_id: task(),
        delivery_state: DeliveryState::NotApplicable,
        visibility: Visibility::Internal,
        thread_id: None,
        turn_id: None,
        parent_task_id: None,
        parent_close: Default::default(),
        output_from: None,
        objective: None,
        requested_by: None,
        owner: None,
        assignee: None,
        claim_only_by: None,
        labels: Labels::new(),
        ext: None,
        cwd: None,
        retry_policy: None,
        on_failure: None,
        optional_wait_ms: None,
        task_kind: None,
        task_family: None,
        priority: 0,
        scope: None,
        constraints: None,
        task_profile: None,
        acceptance: vec![],
        retry_of: None,
        job_id: None,
        metadata: None,
        native_protocol: None,
        status: TaskStatus::Pending,
        relationships: vec![],
        steps: [].into(),
    }
}

pub(crate) fn step_input() -> StepInput {
    StepInput {
        assignee: Some(agent("worker-3")),
        claim_only_by: None,
        depends_on_step_ids: vec![step("read")],
        ext: None,
        handler: Some(HandlerName::new("writer").unwrap()),
        input: Some(Value::inline("application/octet-stream", vec![0, 159, 146, 150])),
        inputs_from: None,
        required: Some(false),
        retry_policy: Some(retry_policy()),
        step_id: step("write"),
        summary: "Writes".into(),
        title: "Write".into(),
        worker_pool_id: Some(pool()),
    }
}

/// Every operation of a patch, with every field.
pub(crate) fn operations() -> Vec<Operation> {
    let reason = || Some(reason_input());
    let fields = TaskFields {
        acceptance: Change::Set(acceptance()),
        assignee: Change::Set(agent("worker-3")),
        claim_only_by: Change::Keep,
        ext: Change::Keep,
        completion: Change::Set(Policy::Auto),
        constraints: Change::Set(object()),
        dispatch: Change::Set(Policy::Manual),
        metadata: Change::Set(object()),
        objective: Change::Clear,
        on_failure: Change::Keep,
        optional_wait_ms: Change::Keep,
        owner: Change::Set(agent("carol")),
        priority: Change::Set(7),
        reason: reason(),
        requested_by: Change::Clear,
        retry_policy: Change::Set(retry_policy()),
        summary: Change::Set("new".into()),
        task_profile: Change::Clear,
        title: Change::Set("New".into()),
        visibility: Change::Set(Visibility::Hidden),
    };
    let step_fields = StepFields {
        assignee: Change::Clear,
        claim_only_by: Change::Keep,
        ext: Change::Keep,
        depends_on_step_ids: Change::Set(vec![step("count")]),
        handler: Change::Set(HandlerName::default_handler()),
        input: Change::Set(Value::json(b"[]".to_vec())),
        inputs_from: Change::Keep,
        required: Change::Set(true),
        retry_policy: Change::Set(retry_policy()),
        summary: Change::Set("new".into()),
        title: Change::Set("New".into()),
        worker_pool_id: Change::Set(pool()),
    };
    let write = || step("write");
    vec![
        Operation::UpdateTask(Box::new(fields)),
        Operation::AddStep { reason: reason(), step: step_input() },
        Operation::UpdateStep { fields: step_fields, reason: reason(), step_id: write() },
        Operation::DeleteStep { reason: reason(), step_id: write() },
        Operation::AddDependency {
            depends_on_step_id: step("read"),
            reason: reason(),
            step_id: write(),
        },
        Operation::RemoveDependency {
            depends_on_step_id: step("read"),
            reason: reason(),
            step_id: write(),
        },
        Operation::CancelStep { reason: reason(), step_id: write() },
        Operation::ReopenStep {
            input_refs: vec![reference("answer")],
            reason: reason(),
            step_id: write(),
        },
        Operation::BlockTask { reason: reason() },
        Operation::ReopenTask { reason: reason() },
    ]
}
