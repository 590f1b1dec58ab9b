//! MACP-19: pools of Tenure as participants.

use prost::Message;
use tenure_core::event::{Body, Event, StepClaimed};
use tenure_core::record::{Blob, Progress, Reason, Value, ValueBody};
use tenure_macp::pb::SessionStartPayload;
use tenure_macp::task_pb::{TaskCompletePayload, TaskFailPayload, TaskUpdatePayload};
use tenure_macp::{
    MacpCode, MacpOpening, MacpPool, MacpPoolWork, MacpSession, MacpSteer, bind_sender, is_pool,
    is_reserved, open,
};

use crate::common::*;

const POOL: &str = "pool://sales";

fn pools() -> Vec<MacpPool> {
    ["sales", "sales/report"].map(|it| MacpPool::parse(it).unwrap()).to_vec()
}

fn start_of(participants: &[&str]) -> tenure_macp::pb::Envelope {
    let participants = participants.iter().map(|it| (*it).to_owned()).collect();
    start_with(&SessionStartPayload { participants, ..start_payload() })
}

/// A session whose task is requested of the pool.
fn asked() -> Played {
    let start = start_of(&[PLANNER, POOL, ANN]);
    let opening = open(&start, None, &policies().with_pools(pools()), START).unwrap();
    let MacpOpening::Accept(record) = opening else { panic!("{opening:?}") };
    let session = MacpSession::begin(&record).unwrap();
    Played { session, records: vec![*record], now_ms: START }.with(&request(POOL))
}

/// The session with what a worker has done at a place of the log.
fn told(played: Played, at: u64, work: &MacpPoolWork) -> Played {
    let said = played.session.said_by_pool(at, work, played.now_ms).unwrap();
    assert_eq!(said.sender, POOL);
    played.with(&said)
}

fn progress() -> MacpPoolWork {
    let (percent, phase) = (Some(25.0), Some("loading".into()));
    MacpPoolWork::Progress(Progress { percent, phase, ..Progress::default() })
}

fn completed(output: Value) -> MacpPoolWork {
    MacpPoolWork::Completed { output: Some(output), summary: "done".into() }
}

fn payload<M: Message + Default>(played: &Played) -> M {
    let envelope = played.records.last().unwrap().envelope().unwrap().unwrap();
    M::decode(envelope.payload.as_slice()).unwrap()
}

/// MACP-19: only pools that a gateway names take part, each under its exact name, and nobody comes under one.
#[test]
fn pools_are_named_and_nobody_has_their_names() {
    let offered = policies().with_pools(pools());
    for (participant, may) in [
        (POOL, true),
        ("pool://sales/report", true),
        ("pool://sales/other", false),
        ("pool://other", false),
        ("pool://sales/", false),
        ("tenure://steps", false),
        ("poolside", true),
    ] {
        let opened = open(&start_of(&[participant]), None, &offered, START);
        assert_eq!(opened.is_ok(), may, "{participant}");
        assert!(opened.is_ok() || opened.unwrap_err().code == MacpCode::InvalidEnvelope);
    }
    assert!(
        open(&start_of(&[POOL]), None, &policies(), START).is_err(),
        "there is none by default"
    );
    for name in [POOL, "tenure://steps"] {
        assert!(is_reserved(name));
        let refusal = bind_sender(&mut accept(name), name).unwrap_err();
        assert_eq!(refusal.code, MacpCode::Unauthenticated);
    }
    assert!(is_pool(POOL) && !is_pool("tenure://steps") && !is_reserved(ANN));
    let pool = MacpPool::of_participant("pool://sales/report").unwrap();
    assert_eq!(
        (pool.pool.as_str(), pool.handler.as_ref().map(|it| it.as_str())),
        ("sales", Some("report"))
    );
    assert!(MacpPool::parse("a b").is_err() && MacpPool::of_participant(ANN).is_none());
}

/// MACP-19: what a worker does is told once each, in the words of the mode; a second worker that goes on for one that
/// was lost is the same assignee.
#[test]
fn the_work_of_a_pool_is_told_once() {
    let asked = asked();
    assert_eq!(asked.session.requested_pool(), MacpPool::parse("sales").ok());
    assert_eq!(asked.session.said_by_pool(3, &progress(), START), None, "nobody has claimed it");
    assert_eq!(asked.code(&accept(ANN)), MacpCode::Forbidden);
    let played = told(asked, 7, &MacpPoolWork::Claimed);
    assert_eq!(played.session.assignee(), Some(POOL));
    assert_eq!(played.session.said_by_pool(9, &MacpPoolWork::Claimed, START), None);

    let played = told(played, 10, &progress());
    let update: TaskUpdatePayload = payload(&played);
    assert_eq!((update.status.as_str(), update.progress), ("loading", 0.25));
    assert_eq!(played.session.said_by_pool(10, &progress(), START), None, "it was told");

    let played = told(played, 12, &completed(Value::json(*b"[1]")));
    let done: TaskCompletePayload = payload(&played);
    assert_eq!((&done.output[..], done.summary.as_str()), (&b"[1]"[..], "done"));
    assert_eq!(played.session.said_by_pool(13, &progress(), START), None, "it is over");
    let played = played.with(&commit(PLANNER, "task.completed", true));
    assert_eq!(played.replayed(), played.session);
}

/// MACP-19: a failure says its code; a result that is elsewhere says where; progress that is no number is none.
#[test]
fn all_that_a_worker_may_report_can_be_told() {
    let accepted = told(asked(), 7, &MacpPoolWork::Claimed);
    let why = Reason {
        code: "no_data".into(),
        message: "there is none".into(),
        retryable: Some(false),
        details: None,
    };
    let failed: TaskFailPayload = payload(&told(accepted.clone(), 8, &MacpPoolWork::Failed(why)));
    assert_eq!((failed.error_code.as_str(), failed.retryable), ("no_data", false));

    let blob = Value::of("text/plain", ValueBody::Blob(Blob::of(b"large")));
    let done: TaskCompletePayload = payload(&told(accepted.clone(), 8, &completed(blob)));
    assert!(done.output.starts_with(br#"{"ref":"blob:"#), "{:?}", done.output);

    let odd = Progress { percent: Some(f64::NAN), ..Progress::default() };
    let played = told(accepted, 8, &MacpPoolWork::Progress(odd));
    let update: TaskUpdatePayload = payload(&played);
    assert_eq!((update.status.as_str(), update.progress), ("running", 0.0));
}

/// MACP-19, L-07: the worker of a pool has a lease of its own, so that of the session does not count for it.
#[test]
fn a_pool_has_no_lease_of_the_session() {
    let configuration_version = "tenure.lease.5s".into();
    let participants = vec![POOL.into()];
    let payload = SessionStartPayload { configuration_version, participants, ..start_payload() };
    let offered = policies().with_pools(pools());
    let opening = open(&start_with(&payload), None, &offered, START).unwrap();
    let MacpOpening::Accept(record) = opening else { panic!("{opening:?}") };
    let session = MacpSession::begin(&record).unwrap();
    let asked = Played { session, records: vec![*record], now_ms: START }.with(&request(POOL));
    let mut played = told(asked, 7, &MacpPoolWork::Claimed).after(TTL);
    assert_eq!(
        (played.session.lease_until_ms(), played.session.expire(played.now_ms)),
        (None, None)
    );
    played.steer(MacpSteer::Cancel).unwrap();
    assert_eq!(played.session.said_by_pool(9, &progress(), START), None);
}

/// MACP-19: a claim that a gateway makes for a participant is no work of a pool.
#[test]
fn claims_for_participants_are_no_work_of_a_pool() {
    let claim = |on_behalf: bool| {
        let claim: StepClaimed = serde_json::from_value(serde_json::json!({
            "attempt_id": "0190a6b5-0000-7000-8000-000000000001", "ordinal": 1,
            "run_id": "0190a6b5-0000-7000-8000-000000000002", "worker_id": "ant.1",
            "worker_pool_id": "sales", "dispatched_by": "system", "fencing_token": 7,
            "lease_expires_at": 1, "on_behalf": on_behalf,
            "step_snapshot": {"title": "a", "summary": "", "depends_on_step_ids": [], "version": 1},
        }))
        .unwrap();
        let body = Body::StepClaimed(Box::new(claim));
        Event { actor: "ant".parse().unwrap(), run: None, step_id: None, body }
    };
    assert_eq!(MacpPoolWork::of(&claim(false)), Some(MacpPoolWork::Claimed));
    assert_eq!(MacpPoolWork::of(&claim(true)), None);
}
