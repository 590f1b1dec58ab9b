//! Sessions that are suspended, cancelled, or over.

use std::time::Duration;

use tenure_core::status::TaskStatus;
use tenure_macp::SessionState;
use tenure_macp::pb::SessionStartPayload;
use tokio::time::sleep;
use tonic::Code as GrpcCode;
use uuid::Uuid;

use crate::agent::{accept, code, complete, request, start, status_code, update};
use crate::site::Site;

/// A session that is suspended takes no messages, and its Task is paused; its time stands still.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_session_stands_still() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    let until = planner.metadata(&session).await.expires_at_unix_ms;
    let forbidden = (GrpcCode::PermissionDenied, "FORBIDDEN".to_owned());
    assert_eq!(status_code(&ann.suspend(&session).await.unwrap_err()), forbidden);
    assert_eq!(code(&planner.resume(&session).await.unwrap()), "SESSION_NOT_OPEN");
    let ack = planner.suspend(&session).await.unwrap();
    assert_eq!((ack.ok, ack.session_state()), (true, SessionState::Suspended));
    let task = session.parse().unwrap();
    let status = async || site.client().get(&task).await.unwrap().task.native_status;
    assert_eq!(status().await, TaskStatus::Paused);
    assert_eq!(ann.refused(&session, "TaskUpdate", &update(0.5)).await, "SESSION_NOT_OPEN");
    assert_eq!(code(&planner.suspend(&session).await.unwrap()), "SESSION_NOT_OPEN");
    sleep(Duration::from_millis(50)).await; // Time that must not count.
    let ack = planner.resume(&session).await.unwrap();
    assert_eq!((ack.ok, ack.session_state()), (true, SessionState::Open));
    assert_eq!(status().await, TaskStatus::Running);
    assert!(planner.metadata(&session).await.expires_at_unix_ms >= until + 50);
    ann.says(&session, "TaskComplete", &complete(b"1")).await;
}

/// CancelSession ends the Task at once, though somebody has its Step; once more it answers the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_session_cancels_its_task() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    for _ in 0..2 {
        let ack = planner.cancel(&session).await.unwrap();
        assert_eq!((ack.ok, ack.session_state()), (true, SessionState::Cancelled));
        assert!(ack.message_id.is_empty());
    }
    site.is_cancelled(&session).await;
    assert_eq!(ann.refused(&session, "TaskUpdate", &update(0.5)).await, "SESSION_NOT_OPEN");
    let unknown = planner.cancel(&Uuid::new_v4().to_string()).await.unwrap_err();
    assert_eq!(status_code(&unknown), (GrpcCode::NotFound, "SESSION_NOT_FOUND".into()));
}

/// P19: when the time of a session is over, the gateway cancels its Task, though nobody asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_time_is_over_ends_by_itself() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let short = SessionStartPayload { ttl_ms: 400, ..start(&["ann"]) };
    let session = planner.starts(short.clone()).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    site.is_cancelled(&session).await;
    assert_eq!(planner.state(&session).await, SessionState::Expired);
    assert_eq!(ann.refused(&session, "TaskUpdate", &update(0.5)).await, "SESSION_NOT_OPEN");

    // The clock of the client counts: this one is over before it begins.
    let session = Uuid::new_v4().to_string();
    let mut begins = planner.envelope(&session, "SessionStart", &short);
    begins.timestamp_unix_ms = 1_000;
    assert!(planner.send(begins).await.ok);
    assert_eq!(planner.state(&session).await, SessionState::Expired);
    assert_eq!(planner.refused(&session, "TaskRequest", &request("")).await, "SESSION_NOT_OPEN");
}

/// MACP-18, L-07: a session that asks for a lease ends when its assignee is silent for longer, though nobody asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_assignee_is_silent_ends_by_itself() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let configuration_version = "tenure.lease.1s".into();
    let leased = SessionStartPayload { configuration_version, ..start(&["ann"]) };
    let session = planner.starts(leased).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    ann.says(&session, "TaskUpdate", &update(0.5)).await;
    site.is_cancelled(&session).await;
    assert_eq!(planner.state(&session).await, SessionState::Expired);
    let view = site.client().get(&session.parse().unwrap()).await.unwrap();
    let why = format!("{view:?}");
    assert!(why.contains("session_expired") && why.contains("lease of 1 s"), "{why}");
}

/// A gateway ends the sessions that another one has left when it begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_gateway_ends_what_is_over() {
    let site = Site::open().await;
    let first = site.gateway().await;
    let planner = first.agent("planner").await;
    let short = SessionStartPayload { ttl_ms: 300, ..start(&["ann"]) };
    let session = planner.starts(short).await;
    drop(first);
    let _second = site.gateway().await;
    site.is_cancelled(&session).await;
}
