//! `Send`: what is accepted, what is refused, and how.

use prost::Message as _;
use tenure_macp::SessionState;
use tenure_macp::pb::Envelope;
use tenure_macp::task_pb::TaskUpdatePayload;
use tonic::Code as GrpcCode;
use uuid::Uuid;

use crate::agent::{accept, code, commit, complete, reject, request, start, status_code, update};
use crate::site::{Site, settings};

/// MACP-03, MACP-04, MACP-07, MACP-10: who may say what, by the codes of the seed.
#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_errors() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, analyst) = (gateway.agent("planner").await, gateway.agent("analyst").await);
    let (other, stranger) = (gateway.agent("other").await, gateway.agent("stranger").await);
    let session = planner.starts(start(&["planner", "analyst", "other"])).await;
    assert_eq!(analyst.refused(&session, "TaskRequest", &request("")).await, "FORBIDDEN");
    planner.says(&session, "TaskRequest", &request("analyst")).await;
    assert_eq!(planner.refused(&session, "TaskRequest", &request("")).await, "INVALID_ENVELOPE");
    assert_eq!(other.refused(&session, "TaskAccept", &accept()).await, "FORBIDDEN");
    assert_eq!(stranger.refused(&session, "TaskAccept", &accept()).await, "FORBIDDEN");
    analyst.says(&session, "TaskAccept", &accept()).await;
    assert_eq!(other.refused(&session, "TaskUpdate", &update(0.5)).await, "FORBIDDEN");
    let early = commit("task.completed", true);
    assert_eq!(planner.refused(&session, "Commitment", &early).await, "INVALID_ENVELOPE");
    analyst.says(&session, "TaskComplete", &complete(b"1")).await;
    assert_eq!(analyst.refused(&session, "Commitment", &early).await, "FORBIDDEN");
    planner.says(&session, "Commitment", &early).await;
    assert_eq!(stranger.refused(&session, "TaskReject", &reject("")).await, "SESSION_NOT_OPEN");
}

/// An accepted message that comes again is answered as a repetition, and does nothing, also after the end; a stranger
/// learns nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_again_changes_nothing() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = Uuid::new_v4().to_string();
    let begins = planner.envelope(&session, "SessionStart", &start(&["ann"]));
    for is_again in [false, true] {
        let ack = planner.send(begins.clone()).await;
        assert_eq!((ack.ok, ack.duplicate), (true, is_again));
    }
    let anew = planner.envelope(&session, "SessionStart", &start(&["ann"]));
    assert_eq!(code(&planner.send(anew).await), "SESSION_ALREADY_EXISTS");
    let asks = planner.envelope(&session, "TaskRequest", &request("ann"));
    for is_again in [false, true] {
        let ack = planner.send(asks.clone()).await;
        assert_eq!((ack.ok, ack.duplicate), (true, is_again));
        assert_eq!(ack.session_state(), SessionState::Open);
    }
    let stranger = gateway.agent("stranger").await;
    assert_eq!(code(&stranger.send(asks.clone()).await), "FORBIDDEN");
    ann.says(&session, "TaskAccept", &accept()).await;
    ann.says(&session, "TaskComplete", &complete(b"1")).await;
    planner.says(&session, "Commitment", &commit("task.completed", true)).await;
    let ack = planner.send(asks).await;
    assert_eq!((ack.duplicate, ack.session_state()), (true, SessionState::Resolved));
    let facts = site.client().facts(&session.parse().unwrap(), Default::default()).await.unwrap();
    assert_eq!(facts.facts.len(), 5, "each message once");
}

/// The shape of an envelope is looked at before anything else, and one that is missing is refused by a status.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_envelope_is_refused() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let planner = gateway.agent("planner").await;
    let request = planner.request(tenure_macp::pb::SendRequest { envelope: None });
    let status = planner.wire.0.clone().send(request).await.unwrap_err();
    let expected = (GrpcCode::InvalidArgument, "INVALID_ENVELOPE".to_owned());
    assert_eq!(status_code(&status), expected);
    let good = planner.envelope(&Uuid::new_v4().to_string(), "SessionStart", &start(&["ann"]));
    for (envelope, expected) in [
        (Envelope { macp_version: "2.0".into(), ..good.clone() }, "UNSUPPORTED_PROTOCOL_VERSION"),
        (Envelope { message_id: String::new(), ..good.clone() }, "INVALID_ENVELOPE"),
        (Envelope { mode: "macp.mode.chat.v1".into(), ..good.clone() }, "MODE_NOT_SUPPORTED"),
        (Envelope { session_id: "s1".into(), ..good.clone() }, "INVALID_SESSION_ID"),
        (Envelope { sender: "somebody".into(), ..good.clone() }, "UNAUTHENTICATED"),
        (Envelope { payload: Vec::new(), ..good.clone() }, "INVALID_ENVELOPE"),
    ] {
        assert_eq!(code(&planner.send(envelope).await), expected);
    }
    let unknown = Uuid::new_v4().to_string();
    assert_eq!(planner.refused(&unknown, "TaskAccept", &accept()).await, "SESSION_NOT_FOUND");
    let nan = TaskUpdatePayload { progress: f64::NAN, ..update(0.0) };
    let session = planner.starts(start(&["planner", "ann"])).await;
    assert_eq!(planner.refused(&session, "TaskUpdate", &nan).await, "INVALID_ENVELOPE");
}

/// A payload of nearly a MiB goes through, as a blob; one of more is refused, and one beyond the transport breaks off.
#[tokio::test(flavor = "multi_thread")]
async fn payloads_are_bounded() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    let large = |bytes: usize| tenure_macp::task_pb::TaskRequestPayload {
        input: vec![b'x'; bytes],
        ..request("ann")
    };
    let over = large(1 << 20);
    assert_eq!(planner.refused(&session, "TaskRequest", &over).await, "PAYLOAD_TOO_LARGE");
    let beyond = planner.envelope(&session, "TaskRequest", &large(1_200_000));
    let status = planner.try_send(beyond).await.unwrap_err();
    assert_eq!(status.code(), GrpcCode::OutOfRange);
    planner.says(&session, "TaskRequest", &large((1 << 20) - 1_024)).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    let told = ann.follows(&session, 1).await.kinds(1).await;
    assert_eq!(told, ["TaskRequest"]);
    let second = site.gateway().await; // It reads all of it anew.
    assert_eq!(second.agent("ann").await.metadata(&session).await.participant_activity.len(), 2);
    let limited = site
        .served(tenure_gateway::macp::MacpSettings { payload_bytes_max: 100, ..settings() }, None)
        .await;
    let planner = limited.agent("planner").await;
    assert!(large(50).encoded_len() > 100);
    assert_eq!(planner.refused(&session, "TaskRequest", &large(50)).await, "PAYLOAD_TOO_LARGE");
}

/// Of racing Commitments one resolves the session, and all others come too late.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_racing_commitments_counts() {
    let site = Site::open().await;
    let gateways = [site.gateway().await, site.gateway().await];
    let (planner, ann) = (gateways[0].agent("planner").await, gateways[1].agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    ann.says(&session, "TaskComplete", &complete(b"1")).await;
    let mut racing = Vec::new();
    for at in 0..8 {
        let planner = gateways[at % 2].agent("planner").await;
        let envelope = planner.envelope(&session, "Commitment", &commit("task.completed", true));
        racing.push(tokio::spawn(async move { planner.send(envelope).await }));
    }
    let (mut resolved, mut late) = (0, 0);
    for one in racing {
        let ack = one.await.unwrap();
        match ack.ok {
            true => resolved += 1,
            false => {
                assert_eq!(code(&ack), "SESSION_NOT_OPEN");
                late += 1;
            }
        }
    }
    assert_eq!((resolved, late), (1, 7));
}
