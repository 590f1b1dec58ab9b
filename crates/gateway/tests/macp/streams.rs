//! `StreamSession`, `WatchSignals`.

use std::time::Duration;

use tenure_macp::pb::stream_session_response::Response as Told;
use tenure_macp::pb::{Envelope, ProgressPayload, SignalPayload, WatchSignalsRequest};
use tokio::time::timeout;
use tonic::Code as GrpcCode;
use uuid::Uuid;

use crate::agent::{
    SOON, Stream, accept, code, commit, complete, request, start, status_code, update,
};
use crate::site::Site;

/// MACP-15: a late reader gets all that was accepted, in its order, and what follows; another one begins behind a
/// place. What was done to the session as a whole takes no place.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reader_gets_everything() {
    let site = Site::open().await;
    let gateways = [site.gateway().await, site.gateway().await];
    let (planner, ann) = (gateways[0].agent("planner").await, gateways[1].agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    planner.suspend(&session).await.unwrap();
    planner.resume(&session).await.unwrap();
    let mut early = ann.follows(&session, 0).await;
    assert_eq!(early.kinds(2).await, ["SessionStart", "TaskRequest"]);
    ann.says(&session, "TaskAccept", &accept()).await;
    assert_eq!(ann.refused(&session, "TaskAccept", &accept()).await, "INVALID_ENVELOPE");
    assert_eq!(early.kinds(1).await, ["TaskAccept"]);
    ann.says(&session, "TaskComplete", &complete(b"1")).await;
    planner.says(&session, "Commitment", &commit("task.completed", true)).await;
    assert_eq!(early.kinds(2).await, ["TaskComplete", "Commitment"]);
    let mut late = planner.follows(&session, 2).await;
    assert_eq!(late.kinds(3).await, ["TaskAccept", "TaskComplete", "Commitment"]);
    let mut beyond = planner.follows(&session, 99).await;
    for silent in [&mut early, &mut late, &mut beyond] {
        let told = timeout(Duration::from_millis(200), silent.told.message()).await;
        assert!(told.is_err(), "the stream stays open after the end: {told:?}");
    }
}

/// MACP-15: a stream reads no more of a log than it tells, however long the session is: one that begins behind a place,
/// and one that begins with a message of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_reads_what_it_tells() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    for _ in 0..40 {
        ann.says(&session, "TaskUpdate", &update(0.5)).await;
    }
    let before = site.commits_read();
    let mut all = planner.follows(&session, 0).await;
    assert_eq!(all.kinds(4).await, ["SessionStart", "TaskRequest", "TaskAccept", "TaskUpdate"]);
    all.kinds(39).await;
    let whole = site.commits_read() - before;
    assert!(whole >= 43, "{whole} commits");
    let before = site.commits_read();
    let mut late = planner.follows(&session, 42).await;
    assert_eq!(late.kinds(1).await, ["TaskUpdate"]);
    let mut own = ann.stream().await.unwrap();
    own.send(ann.envelope(&session, "TaskComplete", &complete(b"1")));
    assert_eq!(own.kinds(1).await, ["TaskComplete"], "what was before is not told");
    for stream in [&mut all, &mut late] {
        assert_eq!(stream.kinds(1).await, ["TaskComplete"]);
    }
    let read = site.commits_read() - before;
    assert!(read < whole / 2, "{read} commits, of {whole}");
}

/// Streams of sessions that are unknown end with the status for which clients wait; one who may not read learns so
/// inline.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_says_why_it_tells_nothing() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, stranger) = (gateway.agent("planner").await, gateway.agent("stranger").await);
    let session = planner.starts(start(&["ann"])).await;
    let unknown = Uuid::new_v4().to_string();
    let status = planner.follows(&unknown, 0).await.next().await.unwrap_err();
    assert_eq!(status_code(&status), (GrpcCode::NotFound, "SESSION_NOT_FOUND".into()));
    let mut stream = stranger.follows(&session, 0).await;
    assert_eq!(stream.error().await, "FORBIDDEN");
    stream.send(stranger.envelope(&session, "TaskAccept", &accept()));
    assert_eq!(stream.error().await, "FORBIDDEN", "the stream lives on");
    let mut two = planner.follows(&session, 0).await;
    two.kinds(1).await;
    two.subscribe(&unknown, 0);
    assert_eq!(two.next().await.unwrap_err().code(), GrpcCode::InvalidArgument);
    let mut both = planner.stream().await.unwrap();
    both.to.send(Default::default()).unwrap();
    assert_eq!(both.next().await.unwrap_err().code(), GrpcCode::InvalidArgument);
}

/// Who sends nothing more is told what is there, and then the stream ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_caller_has_said_all() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let planner = gateway.agent("planner").await;
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    let Stream { to, mut told } = planner.follows(&session, 0).await;
    drop(to);
    let mut kinds = Vec::new();
    while let Some(next) = timeout(SOON, told.message()).await.expect("it ends soon").unwrap() {
        let Some(Told::Envelope(envelope)) = next.response else { panic!("{next:?}") };
        kinds.push(envelope.message_type);
    }
    assert_eq!(kinds, ["SessionStart", "TaskRequest"]);
}

/// A message on a stream comes back when it is accepted; a refusal comes inline; to a session that is over it ends the
/// stream.
#[tokio::test(flavor = "multi_thread")]
async fn messages_may_come_on_a_stream() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = Uuid::new_v4().to_string();
    let mut stream = planner.stream().await.unwrap();
    stream.send(planner.envelope(&session, "SessionStart", &start(&["ann"])));
    assert_eq!(stream.kinds(1).await, ["SessionStart"]);
    stream.send(planner.envelope(&session, "TaskRequest", &request("ann")));
    let Told::Envelope(told) = stream.next().await.unwrap() else { panic!("it is accepted") };
    assert_eq!((told.message_type.as_str(), told.sender.as_str()), ("TaskRequest", "planner"));
    stream.send(planner.envelope(&session, "TaskRequest", &request("ann")));
    assert_eq!(stream.error().await, "INVALID_ENVELOPE");

    let mut work = ann.stream().await.unwrap();
    work.send(ann.envelope(&session, "TaskAccept", &accept()));
    assert_eq!(work.kinds(1).await, ["TaskAccept"], "what was before is not told");
    work.send(ann.envelope(&session, "TaskUpdate", &update(0.5)));
    work.send(ann.envelope(&session, "TaskComplete", &complete(b"1")));
    assert_eq!(work.kinds(2).await, ["TaskUpdate", "TaskComplete"]);
    assert_eq!(stream.kinds(3).await, ["TaskAccept", "TaskUpdate", "TaskComplete"]);
    planner.cancel(&session).await.unwrap();
    work.send(ann.envelope(&session, "TaskUpdate", &update(0.5)));
    let status = work.next().await.unwrap_err();
    assert_eq!(status_code(&status), (GrpcCode::InvalidArgument, "SESSION_NOT_OPEN".into()));
}

/// Signals and progress are shown to those who watch now, progress of a session to its members alone, and are in no
/// history.
#[tokio::test(flavor = "multi_thread")]
async fn signals_are_for_those_who_watch() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let stranger = gateway.agent("stranger").await;
    let session = planner.starts(start(&["ann"])).await;
    let watch = async |who: &crate::agent::Agent| {
        let asked = who.request(WatchSignalsRequest {});
        who.wire.0.clone().watch_signals(asked).await.unwrap().into_inner()
    };
    let (mut member, mut outside) = (watch(&planner).await, watch(&stranger).await);
    let progress = ann.envelope(&session, "Progress", &ProgressPayload::default());
    let ack = ann.send(progress.clone()).await;
    assert!(ack.ok);
    let signal = SignalPayload { signal_type: "hello".into(), ..Default::default() };
    let signal = ann.envelope("", "Signal", &signal);
    assert_eq!(code(&ann.send(signal.clone()).await), "INVALID_ENVELOPE", "it has a mode");
    let signal = Envelope { mode: String::new(), ..signal };
    assert!(ann.send(signal).await.ok);
    for (stream, kinds) in
        [(&mut member, &["Progress", "Signal"][..]), (&mut outside, &["Signal"][..])]
    {
        for kind in kinds {
            let told = timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap();
            let envelope = told.envelope.unwrap();
            assert_eq!((envelope.message_type.as_str(), envelope.sender.as_str()), (*kind, "ann"));
            assert!(!told.sender_authenticated);
        }
    }
    let facts = site.client().facts(&session.parse().unwrap(), Default::default()).await.unwrap();
    assert_eq!(facts.facts.len(), 1);
    let forbidden = stranger.envelope(&session, "Progress", &ProgressPayload::default());
    assert_eq!(code(&stranger.send(forbidden).await), "FORBIDDEN");
}
