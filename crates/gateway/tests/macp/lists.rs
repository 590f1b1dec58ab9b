//! `ListSessions`, `WatchSessions`, `GetSession`.

use tenure_macp::SessionState;
use tenure_macp::pb::session_lifecycle_event::EventType;
use tenure_macp::pb::{
    ListSessionsRequest, ListSessionsResponse, SessionMetadata, WatchSessionsRequest,
};
use tokio::time::timeout;
use tonic::{Code as GrpcCode, Status};

use crate::agent::{Agent, SOON, accept, commit, complete, request, start, status_code, update};
use crate::site::Site;

async fn list(who: &Agent, size: i32, token: &str) -> Result<ListSessionsResponse, Status> {
    let asked = ListSessionsRequest { page_size: size, page_token: token.into() };
    Ok(who.wire.0.clone().list_sessions(who.request(asked)).await?.into_inner())
}

fn ids(of: &[SessionMetadata]) -> Vec<String> {
    of.iter().map(|it| it.session_id.clone()).collect()
}

/// Lists are in the order of the ids, page by page, and have what the caller may read: ended sessions too, and those
/// whose Task has another id.
#[tokio::test(flavor = "multi_thread")]
async fn lists_have_what_one_may_read() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(planner.starts(start(&["ann"])).await);
    }
    let mixed = "AbCdEfGhIjKlMnOpQrStUvWx".to_owned();
    planner.says(&mixed, "SessionStart", &start(&["ann"])).await;
    planner.says(&mixed, "TaskRequest", &request("ann")).await;
    all.push(mixed);
    planner.starts(start(&["bob"])).await;
    planner.cancel(&all[0]).await.unwrap();
    all.sort();
    let first = list(&ann, 3, "").await.unwrap();
    assert_eq!(ids(&first.sessions), all[..3]);
    let rest = list(&ann, 3, &first.next_page_token).await.unwrap();
    assert_eq!((ids(&rest.sessions), rest.next_page_token.as_str()), (all[3..].to_vec(), ""));
    assert_eq!(list(&planner, 0, "").await.unwrap().sessions.len(), 5);
    assert!(list(&gateway.agent("stranger").await, 0, "").await.unwrap().sessions.is_empty());
    for (size, token) in [(-1, ""), (1, "nonsense")] {
        let status = list(&ann, size, token).await.unwrap_err();
        let expected = (GrpcCode::InvalidArgument, "INVALID_REQUEST".to_owned());
        assert_eq!(status_code(&status), expected);
    }
}

/// MACP-13, MACP-14: what a session shows follows from its messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_shows_what_was_bound_and_said() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let begun = tenure_macp::pb::SessionStartPayload {
        context_id: "ctx".into(),
        extensions: [("x".to_owned(), vec![1])].into(),
        ..start(&["ann"])
    };
    let session = planner.starts(begun).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    ann.says(&session, "TaskUpdate", &update(0.1)).await;
    let shown = ann.metadata(&session).await;
    assert_eq!(
        (shown.context_id.as_str(), shown.extension_keys.as_slice()),
        ("ctx", &["x".to_owned()][..])
    );
    assert_eq!(
        (shown.policy_version.as_str(), shown.initiator.as_str()),
        ("policy.default", "planner")
    );
    let count = |who: &str| {
        let of = shown.participant_activity.iter().find(|it| it.participant_id == who);
        of.map_or(0, |it| it.message_count)
    };
    assert_eq!((count("planner"), count("ann")), (1, 2), "without the start");
}

/// Who watches is told of each session that is there, and of each that begins and changes, at any gateway.
#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_told_of_sessions() {
    let site = Site::open().await;
    let gateways = [site.gateway().await, site.gateway().await];
    let (planner, ann) = (gateways[0].agent("planner").await, gateways[1].agent("ann").await);
    let over = planner.starts(start(&["ann"])).await;
    planner.cancel(&over).await.unwrap();
    let there = planner.starts(start(&["ann"])).await;
    let asked = ann.request(WatchSessionsRequest {});
    let mut watched = ann.wire.0.clone().watch_sessions(asked).await.unwrap().into_inner();
    let mut next = async || {
        let told = timeout(SOON, watched.message()).await.expect("something happens").unwrap();
        let event = told.unwrap().event.unwrap();
        let session = event.session.clone().unwrap();
        (event.event_type(), session.session_id.clone(), session.state())
    };
    let open = SessionState::Open;
    assert_eq!(next().await, (EventType::Created, there.clone(), open));
    planner.starts(start(&["bob"])).await;
    let new = planner.starts(start(&["ann"])).await;
    assert_eq!(next().await, (EventType::Created, new.clone(), open));
    planner.suspend(&new).await.unwrap();
    assert_eq!(next().await, (EventType::Suspended, new.clone(), SessionState::Suspended));
    planner.resume(&new).await.unwrap();
    assert_eq!(next().await, (EventType::Resumed, new.clone(), open));
    planner.cancel(&new).await.unwrap();
    assert_eq!(next().await, (EventType::Cancelled, new, SessionState::Cancelled));
    planner.says(&there, "TaskRequest", &request("ann")).await;
    ann.says(&there, "TaskAccept", &accept()).await;
    ann.says(&there, "TaskComplete", &complete(b"1")).await;
    planner.says(&there, "Commitment", &commit("task.completed", true)).await;
    assert_eq!(next().await, (EventType::Resolved, there, SessionState::Resolved));
}
