//! What one caller takes of the service (mechanisms 15).

use std::time::Duration;

use prost::Message as _;
use tenure_core::status::Role;
use tenure_macp::TASK_MODE;
use tenure_macp::pb::SessionStartPayload;
use tenure_wire::bus::subject::Token;
use tokio::time::timeout;
use uuid::Uuid;

use super::super::double::Fixture;
use super::super::streams::SessionStream;
use super::*;
use crate::ErasedBackend;
use crate::identity::{Allowed, Identity};

/// Whatever waits for a turn does so for longer than this.
const WAITS: Duration = Duration::from_millis(300);

const SOON: Duration = Duration::from_secs(30);

async fn service() -> MacpService<ErasedBackend> {
    let Fixture { gateway, settings, .. } = Fixture::open().await;
    MacpService::new(gateway, settings)
}

fn asked<T>(name: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Identity {
        principal: Token::new(name).unwrap(),
        role: Role::Orchestrator,
        sessions: Allowed::All,
        pools: Allowed::All,
    });
    request
}

/// Bob starts a session with Eve.
async fn start(service: &MacpService<ErasedBackend>) -> String {
    let start = SessionStartPayload {
        participants: vec!["eve".to_owned()],
        mode_version: "1.0.0".to_owned(),
        configuration_version: "1".to_owned(),
        ttl_ms: 60_000,
        ..SessionStartPayload::default()
    };
    let envelope = Envelope {
        macp_version: "1.0".to_owned(),
        mode: TASK_MODE.to_owned(),
        message_type: "SessionStart".to_owned(),
        message_id: Uuid::new_v4().to_string(),
        session_id: Uuid::new_v4().to_string(),
        sender: String::new(),
        timestamp_unix_ms: now_ms(),
        payload: start.encode_to_vec(),
    };
    let id = envelope.session_id.clone();
    let answer =
        service.send(asked("bob", SendRequest { envelope: Some(envelope) })).await.unwrap();
    let ack = answer.into_inner().ack.unwrap();
    assert!(ack.ok, "{ack:?}");
    id
}

fn code<T>(answer: Result<T, Status>) -> String {
    let status = answer.err().expect("a refusal");
    status.metadata().get("macp-error-code").unwrap().to_str().unwrap().to_owned()
}

fn get(id: &str) -> GetSessionRequest {
    GetSessionRequest { session_id: id.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_read_take_of_the_share_of_their_caller() {
    let service = service().await;
    let id = start(&service).await;
    let shares = &service.0.gateway.macp.shares;
    let held: Vec<_> = std::iter::from_fn(|| shares.call("eve").ok()).collect();
    let (session_id, reason) = (id.clone(), String::new());
    let cancel = CancelSessionRequest { session_id, reason };
    assert_eq!(code(service.get_session(asked("eve", get(&id))).await), "RATE_LIMITED");
    assert_eq!(code(service.cancel_session(asked("eve", cancel)).await), "RATE_LIMITED");
    let list = service.list_sessions(asked("eve", ListSessionsRequest::default())).await;
    assert_eq!(code(list), "RATE_LIMITED");
    service.get_session(asked("bob", get(&id))).await.unwrap();
    drop(held);
    service.get_session(asked("eve", get(&id))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_watchers_wait_for_the_turn_of_their_caller() {
    let service = service().await;
    let shares = &service.0.gateway.macp.shares;
    let turns = async || [shares.turn("eve").await.unwrap(), shares.turn("eve").await.unwrap()];
    let list = async |who, time| {
        let asked = asked(who, ListSessionsRequest::default());
        timeout(time, service.list_sessions(asked)).await.is_ok_and(|answer| answer.is_ok())
    };
    let held = turns().await;
    assert!(!list("eve", WAITS).await && list("bob", SOON).await);
    let watch = service.watch_sessions(asked("eve", WatchSessionsRequest {}));
    assert!(timeout(WAITS, watch).await.is_err());
    drop(held);
    let watch = service.watch_sessions(asked("eve", WatchSessionsRequest {}));
    let mut watched = timeout(SOON, watch).await.unwrap().unwrap().into_inner();
    let held = turns().await;
    start(&service).await;
    assert!(timeout(WAITS, watched.next()).await.is_err());
    drop(held);
    timeout(SOON, watched.next()).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_takes_of_two_shares_until_it_has_read_what_was_there() {
    let service = service().await;
    let id = start(&service).await;
    let shares = &service.0.gateway.macp.shares;
    let places = || {
        let calls: Vec<_> = std::iter::from_fn(|| shares.call("eve").ok()).collect();
        let follows: Vec<_> = std::iter::from_fn(|| shares.follow("eve").ok()).collect();
        (calls.len(), follows.len())
    };
    let caller = service.0.caller(asked("eve", ()).extensions()).unwrap();
    let permit = service.0.gateway.live.open_as("eve").unwrap();
    let mut stream = SessionStream::new(Arc::clone(&service.0), caller, permit);
    let subscribe =
        StreamSessionRequest { subscribe_session_id: id, ..StreamSessionRequest::default() };
    let held: Vec<_> = std::iter::from_fn(|| shares.follow("eve").ok()).collect();
    assert_eq!(code(stream.take(subscribe.clone()).await), "RATE_LIMITED");
    drop(held);
    let (calls, follows) = places();
    stream.take(subscribe).await.unwrap();
    assert_eq!(places(), (calls - 1, follows - 1));
    timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap();
    assert!(timeout(WAITS, stream.next()).await.is_err(), "there is nothing new");
    assert_eq!(places(), (calls, follows - 1));
    drop(stream);
    assert_eq!(places(), (calls, follows));
}
