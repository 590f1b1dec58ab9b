//! What a session is for Tenure: a Task with one Step.

use tenure_core::Code;
use tenure_core::status::{EndReason, Outcome, StepStatus, TaskStatus};
use tenure_macp::SessionState;

use crate::agent::{accept, code, commit, complete, fail, reject, request, start, update};
use crate::site::Site;

/// MACP-02, MACP-05, MACP-07 to MACP-10: the seed's session, message by message, as its Task shows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_a_task_with_one_step() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, analyst) = (gateway.agent("planner").await, gateway.agent("analyst").await);
    let client = site.client();
    let session = planner.starts(start(&["planner", "analyst"])).await;
    let task = session.parse().unwrap();
    let view = client.get(&task).await.unwrap();
    assert_eq!((view.task.native_status, view.steps.len()), (TaskStatus::Draft, 0));
    assert_eq!(view.task.title, "analyze Q4 sales data");

    planner.says(&session, "TaskRequest", &request("analyst")).await;
    let view = client.get(&task).await.unwrap();
    let step = &view.steps[0];
    assert_eq!((step.spec.step_id.as_str(), step.status.as_str()), ("t1", "ready"));
    assert_eq!(step.spec.title, "Q4 Sales Analysis");
    assert_eq!(step.spec.claim_only_by.as_ref().unwrap().as_str(), "analyst");
    assert_eq!(step.spec.input.as_ref().unwrap().data().unwrap(), br#"{"quarter": "Q4"}"#);

    analyst.says(&session, "TaskAccept", &accept()).await;
    let view = client.get(&task).await.unwrap();
    assert_eq!(view.steps[0].status, StepStatus::Claimed);
    assert_eq!(view.attempts[0].worker_id.as_str(), "analyst.macp");
    analyst.says(&session, "TaskUpdate", &update(0.3)).await;
    let view = client.get(&task).await.unwrap();
    assert_eq!(view.steps[0].status, StepStatus::Running);
    assert_eq!(
        view.steps[0].facts.as_ref().unwrap().progress.as_ref().unwrap().percent,
        Some(30.0)
    );

    let output = br#"{"revenue": "$2.3M"}"#;
    let ack = analyst.says(&session, "TaskComplete", &complete(output)).await;
    assert_eq!(ack.session_state(), SessionState::Open, "MACP-09");
    let view = client.get(&task).await.unwrap();
    assert_eq!(view.task.native_status, TaskStatus::Running);
    assert_eq!(
        view.steps[0].facts.as_ref().unwrap().output.as_ref().unwrap().data().unwrap(),
        output
    );
    assert_eq!(view.steps[0].facts.as_ref().unwrap().result_summary.as_deref(), Some("revenue up"));
    assert_eq!(view.attempts[0].outcome, Some(Outcome::Completed));
    assert_eq!(view.runs[0].end_reason, Some(EndReason::Completed));

    let ack = planner.says(&session, "Commitment", &commit("task.completed", true)).await;
    assert_eq!(ack.session_state(), SessionState::Resolved);
    let view = client.get(&task).await.unwrap();
    assert_eq!(view.task.native_status, TaskStatus::Completed);
    assert_eq!(view.task.result_summary.as_deref(), Some("it was delivered"));
}

/// MACP-08, MACP-10: a failure is final for the Step whatever it says of retries, and the Commitment decides the Task,
/// also against the report.
#[tokio::test(flavor = "multi_thread")]
async fn the_commitment_decides() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, analyst) = (gateway.agent("planner").await, gateway.agent("analyst").await);
    for (fails, action, positive, status) in [
        (true, "task.failed", false, TaskStatus::Failed),
        (true, "task.completed", true, TaskStatus::Completed),
        (false, "task.failed", false, TaskStatus::Failed),
    ] {
        let session = planner.starts(start(&["analyst"])).await;
        planner.says(&session, "TaskRequest", &request("")).await;
        analyst.says(&session, "TaskAccept", &accept()).await;
        match fails {
            true => analyst.says(&session, "TaskFail", &fail()).await,
            false => analyst.says(&session, "TaskComplete", &complete(b"1")).await,
        };
        let task = session.parse().unwrap();
        let view = site.client().get(&task).await.unwrap();
        let expected = if fails { StepStatus::Failed } else { StepStatus::Completed };
        assert_eq!((view.steps[0].status, view.attempts.len()), (expected, 1));
        planner.says(&session, "Commitment", &commit(action, positive)).await;
        let view = site.client().get(&task).await.unwrap();
        assert_eq!(view.task.native_status, status, "{action} after fails: {fails}");
    }
}

/// MACP-06: who declines is told by a Run that it ended, and the Step stays ready for others; the last refusal lets the
/// requester commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_decline_is_a_run_that_was_declined() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, bob) = (gateway.agent("planner").await, gateway.agent("bob").await);
    let session = planner.starts(start(&["bob", "ann"])).await;
    planner.says(&session, "TaskRequest", &request("bob")).await;
    bob.says(&session, "TaskReject", &reject("no time")).await;
    let view = site.client().get(&session.parse().unwrap()).await.unwrap();
    let run = &view.runs[0];
    assert_eq!(run.end_reason, Some(EndReason::Declined));
    assert_eq!(run.worker_id.as_ref().unwrap().as_str(), "bob.macp");
    assert_eq!(view.steps[0].status, StepStatus::Ready);
    assert_eq!(bob.refused(&session, "TaskAccept", &accept()).await, "INVALID_ENVELOPE");
    planner.says(&session, "Commitment", &commit("task.declined", false)).await;
    let view = site.client().get(&session.parse().unwrap()).await.unwrap();
    assert_eq!(view.task.native_status, TaskStatus::Failed);
}

/// MACP-05: at most one is the assignee; with a policy for it, one gives the task back, and another takes it.
#[tokio::test(flavor = "multi_thread")]
async fn an_assignee_gives_the_task_back_where_the_policy_lets_it() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let bob = gateway.agent("bob").await;
    let start = start(&["ann", "bob"]);
    let policy = |name: &str| tenure_macp::pb::SessionStartPayload {
        policy_version: name.into(),
        ..start.clone()
    };
    let session = planner.starts(policy("reassign")).await;
    planner.says(&session, "TaskRequest", &request("")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    assert_eq!(bob.refused(&session, "TaskAccept", &accept()).await, "INVALID_ENVELOPE");
    ann.says(&session, "TaskReject", &reject("too hard")).await;
    bob.says(&session, "TaskAccept", &accept()).await;
    let view = site.client().get(&session.parse().unwrap()).await.unwrap();
    let who: Vec<_> = view.attempts.iter().map(|it| it.worker_id.as_str().to_owned()).collect();
    assert_eq!(
        (who.as_slice(), view.steps[0].status),
        (&["ann.macp".into(), "bob.macp".into()][..], StepStatus::Claimed)
    );
    assert_eq!(ann.refused(&session, "TaskUpdate", &update(0.1)).await, "FORBIDDEN");
    bob.says(&session, "TaskComplete", &complete(b"1")).await;

    let session = planner.starts(policy("policy.default")).await;
    planner.says(&session, "TaskRequest", &request("")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    let ack = ann.send(ann.envelope(&session, "TaskReject", &reject("too hard"))).await;
    let error = ack.error.unwrap();
    assert_eq!(error.code, "POLICY_DENIED");
    let details: serde_json::Value = serde_json::from_slice(&error.details).unwrap();
    assert_eq!(details["denials"][0]["code"], "reassignment_not_allowed");
}

/// CLAIM-16: a quiet assignee keeps its Step for as long as the session lives, however short other leases are.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_assignee_keeps_its_step() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    let task = session.parse().unwrap();
    let before = site.client().get(&task).await.unwrap();
    let holder = before.steps[0].holder.as_ref().unwrap();
    let lasts_ms = holder.lease_expires_at - before.attempts[0].started_at;
    assert!(lasts_ms > 300_000 - 5_000, "{lasts_ms}");
    ann.says(&session, "TaskComplete", &complete(b"1")).await;
}

/// MACP-11: a request that asks for an end in the past is shown with it, and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_of_a_request_ends_nothing() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    let view = site.client().get(&session.parse().unwrap()).await.unwrap();
    let ext = view.steps[0].spec.ext.clone().unwrap();
    assert_eq!(ext["deadline_unix_ms"], 1_735_689_600_000_i64);
    ann.says(&session, "TaskAccept", &accept()).await;
    ann.says(&session, "TaskComplete", &complete(b"1")).await;
    assert_eq!(planner.state(&session).await, SessionState::Open);
}

/// MACP-12: a session that tries another one again says so in its intent, and its Task has the relation.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_another_task_that_names_the_first() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let planner = gateway.agent("planner").await;
    let first = planner.starts(start(&["ann"])).await;
    let intent = format!("retry: {first}");
    let again = tenure_macp::pb::SessionStartPayload { intent, ..start(&["ann"]) };
    let second = planner.starts(again).await;
    let view = site.client().get(&second.parse().unwrap()).await.unwrap();
    let edge = serde_json::to_value(&view.relationships).unwrap();
    assert_eq!(
        (edge[0]["kind"].as_str(), edge[0]["to"].as_str()),
        (Some("retry_of"), Some(&*first))
    );
}

/// MACP-17: whoever ends the Task beside the session cancels that: it takes no message any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_somebody_ends_ends_its_session() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("")).await;
    let task = session.parse().unwrap();
    site.client().cancel(&task, "by hand").await.unwrap();
    assert_eq!(ann.refused(&session, "TaskAccept", &accept()).await, "SESSION_NOT_OPEN");
    assert_eq!(planner.state(&session).await, SessionState::Cancelled);
    let other = site.gateway().await; // It finds out by itself.
    let second = other.agent("planner").await;
    assert_eq!(code(&second.suspend(&session).await.unwrap()), "SESSION_NOT_OPEN");
    let ack = second.cancel(&session).await.unwrap();
    assert_eq!((ack.ok, ack.session_state()), (true, SessionState::Cancelled));
    let ended = site.client().cancel(&task, "again").await.unwrap_err();
    assert_eq!(ended.code, Code::TaskTerminal);
}
