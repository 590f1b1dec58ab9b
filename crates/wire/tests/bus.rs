//! Messages of the bus: the bytes of version 1, and what becomes of bytes that are none.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod operators;

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use rmpv::Value as Msg;
use serde::de::DeserializeOwned;
use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};
use tenure_core::command::{Command, RunOutcome, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::features::Features;
use tenure_core::id::{AttemptId, Ref, RunId};
use tenure_core::sessions::WorkerSessions;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::public::EventName;
use tenure_core::view::{
    BoardInput, ClaimResult, ExplainInput, ExplainTaskInput, GetInput, InspectInput, ListInput,
    Look, Normal, QueryInput, ReplayInput, RunOffer, RuntimeEvent, RuntimeName, TemplateInput,
    ViewName,
};
use tenure_core::{Code, Rejection};
use tenure_wire::bus::event::{EventPage, Published, ReadEvents, Runtime, TaskEvent};
use tenure_wire::bus::node::Hungry;
use tenure_wire::bus::operate::ListLeases;
use tenure_wire::bus::request::{
    Ask, Committed, List, ReadLog, ReadUntil, Request, Views, Welcome,
};
use tenure_wire::bus::worker::{
    Capacity, Claim, Deliveries, Delivery, Heartbeat, Hello, Holding, LateInput, Looking, Pulse,
    Pulses, QuerySteps, Report, ReportResult, Reported, Reports, Word,
};
use tenure_wire::bus::{Answer, MESSAGE_MAX, V, decode, encode};
use uuid::Uuid;

fn run() -> RunId {
    RunId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001))
}

fn attempt() -> AttemptId {
    AttemptId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002))
}

fn claim() -> ClaimResult {
    let claim = serde_json::json!({
        "session_id": "s", "task_id": "t", "run_id": run(), "attempt_id": attempt(),
        "ordinal": 1, "fencing_token": 4, "lease_expires_at": 1_700_000_030_000_i64,
        "lease_ms": 30_000, "input_refs": [],
        "step": {"step_id": "a", "title": "A", "summary": "", "depends_on_step_ids": [],
                 "required": true, "worker_pool_id": "default", "handler": "noop",
                 "input": {"content_type": "application/json", "data": "{\"n\":1}"}},
    });
    serde_json::from_value(claim).unwrap()
}

fn offer() -> RunOffer {
    serde_json::from_value(serde_json::json!({
        "session_id": "s", "task_id": "t", "run_id": run(), "worker_pool_id": "default", "allowed_step_ids": ["a"],
    }))
    .unwrap()
}

fn room() -> Capacity {
    Capacity { v: V, link: "n1-1".into(), number: 3, free: 60, seen: 5, got: 7, lost: 0 }
}

/// Reads what was written long ago, and writes the same now.
fn golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(name: &str, message: &T) {
    golden_bytes(name, &encode(message).unwrap());
    let read: T = decode(&encode(message).unwrap()).unwrap();
    assert_eq!(read, *message, "{name}");
}

fn golden_bytes(name: &str, bytes: &[u8]) {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bus-v1");
    let file = dir.join(format!("{name}.msgpack"));
    if std::env::var_os("TENURE_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(dir).unwrap();
        fs::write(&file, bytes).unwrap();
    }
    let stored = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(stored, bytes, "{name}: the bytes of a message have changed");
}

/// CTRL-01
#[test]
fn the_bytes_of_every_message_stay_as_they_are() {
    golden(
        "hello",
        &Hello {
            v: V,
            handlers: Some(vec!["noop".parse().unwrap()]),
            sessions: WorkerSessions::ALL,
            worker_host: None,
            worker_build: None,
            features: Features::default(),
        },
    );
    let (worker_host, worker_build) = (Some("rack-7".into()), Some("tenure 0.1.0".into()));
    golden(
        "hello-origin",
        &Hello {
            v: V,
            handlers: None,
            sessions: WorkerSessions::ALL,
            worker_host,
            worker_build,
            features: Features::default(),
        },
    );
    let (handlers, worker_host, worker_build) = Default::default();
    let (sessions, features) = (WorkerSessions::read("main,ci-*").unwrap(), Features::default());
    golden(
        "hello-sessions",
        &Hello { v: V, handlers, sessions, worker_host, worker_build, features },
    );
    golden("room", &room());
    golden("room-lost", &Capacity { lost: 2, ..room() });
    let (handlers, worker_host, worker_build) = Default::default();
    let features = Features::read("edition-2,input");
    golden(
        "hello-features",
        &Hello {
            v: V,
            handlers,
            sessions: WorkerSessions::ALL,
            worker_host,
            worker_build,
            features,
        },
    );
    let input_refs = vec![Ref::new("urn:late").unwrap()];
    let input = Some(Box::new(LateInput { attempt_id: attempt(), after: 2, input_refs }));
    golden("delivery-input", &Delivery { input, ..Delivery::default() });
    let grant = Delivery { grant: Some(claim().into()), ..Delivery::default() };
    let run_offer = Delivery { run: Some(offer().into()), ..Delivery::default() };
    let stop = Delivery { cancel_requested: Some(attempt()), ..Delivery::default() };
    let lost = Delivery { lost: Some(attempt()), ..Delivery::default() };
    let deliveries = vec![grant, run_offer, stop, lost];
    let (node, link) = ("n1".into(), "n1-1".into());
    golden("deliveries", &Deliveries { v: V, node, link, first: 8, deliveries });
    golden("claim-lost", &ClaimResult { was_lost: true, ..claim() });
    let report = |word| Report {
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        run_id: run(),
        word,
    };
    let done = StepReport {
        attempt_id: Some(attempt()),
        fencing_token: Some(4),
        status: Some(StepStatus::Completed),
        ..StepReport::on("a".parse().unwrap())
    };
    let (reason, retry_after_ms) = (ReleaseReason::Unfit, None);
    let (attempt_id, fencing_token) = (attempt(), 4);
    let words = [
        Word::TaskUpdateStep(done.clone()),
        Word::EndRun { outcome: RunOutcome::Finished, result: None },
        Word::DeclineRun { reason: None },
        Word::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms },
    ];
    let reports = words.map(report).to_vec();
    golden("reports", &Reports { v: V, room: Some(room()), reports });
    let result = Some("all of it".to_owned());
    let words = [
        Word::TaskUpdateStep(StepReport { run_result: result.clone(), ..done }),
        Word::EndRun { outcome: RunOutcome::Finished, result },
    ];
    let reports = words.map(report).to_vec();
    golden("reports-run-result", &Reports { v: V, room: None, reports });
    let refused = Rejection::new(Code::StaleAttempt, "it is over").with("step_id", "a");
    let good =
        ReportResult { version: Some(9), cancel_requested: true, time_left_ms: None, error: None };
    let bad = ReportResult {
        version: None,
        cancel_requested: false,
        time_left_ms: None,
        error: Some(refused.clone()),
    };
    golden("reported", &Answer::from(Ok(Reported { results: vec![good, bad] })));
    let holding = Holding {
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        run_id: run(),
        attempt_id: attempt(),
        fencing_token: 4,
        input_seen: None,
    };
    golden("heartbeat", &Heartbeat { v: V, holdings: vec![holding.clone()] });
    let seen = Holding { input_seen: Some(3), ..holding };
    golden("heartbeat-input-seen", &Heartbeat { v: V, holdings: vec![seen] });
    let (attempt_id, cancel_requested) = (attempt(), false);
    let time_left_ms = None;
    let renewed =
        Pulse { attempt_id, lease_ms: Some(30_000), cancel_requested, time_left_ms, error: None };
    let over = Pulse { lease_ms: None, error: Some(refused.clone()), ..renewed.clone() };
    golden("pulses", &Answer::from(Ok(Pulses { pulses: vec![renewed, over] })));
    let (session_id, task_id) = ("s".parse().unwrap(), "t".parse().unwrap());
    golden("query", &QuerySteps { v: V, session_id, task_id, run_id: run(), offset: 5 });
    let (session_id, task_id) = ("s".parse().unwrap(), "t".parse().unwrap());
    let look = Look::TaskBoardSummary(BoardInput { token_budget: Some(300) });
    golden("look", &Looking { v: V, session_id, task_id, run_id: run(), look });
    let asked = Claim {
        v: V,
        command_id: "c-1".parse().unwrap(),
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        run_id: run(),
        step_id: "a".parse().unwrap(),
    };
    golden("claim", &asked);
    let pool = "default".parse().unwrap();
    golden("hungry", &Hungry { v: V, node: "n1".into(), pool, wants: 12 });
    golden("refused", &Answer::<Welcome>::from(Err(refused)));
    for (name, request) in operators::messages() {
        golden_bytes(name, &request);
    }
    golden("committed", &Committed { v: V, version: 9, ended: None });
    golden("events", &Answer::from(Ok(event_page())));
    golden("published", &Published { v: V, after: 8, page: event_page() });
    golden("runtime", &Runtime { v: V, event: runtime_event() });
}

fn runtime_event() -> RuntimeEvent {
    RuntimeEvent {
        event: RuntimeName::RunResult,
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        run_id: run(),
        step_id: Some("a".parse().unwrap()),
        attempt_id: Some(attempt()),
        worker_id: Some("alice".parse().unwrap()),
        created_at: 1_700_000_000_000,
        result: Some("all of it".into()),
    }
}

fn event_page() -> EventPage {
    let event = TaskEvent {
        event_id: "c.0.0".into(),
        event: EventName::AttemptStarted,
        native_event: "task_step_claimed".into(),
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        step_id: Some("a".parse().unwrap()),
        run_id: Some(run()),
        attempt_id: Some(attempt()),
        wal_seq: 9,
        status: Normal::Running,
        native_status: TaskStatus::Running,
        terminal: false,
        actor: "alice".parse().unwrap(),
        created_at: 1_700_000_000_000,
        data: serde_json::json!({"ordinal": 1, "worker_pool_id": "default"}),
    };
    EventPage { events: vec![event], through: 9, version: 9, status: TaskStatus::Running }
}

fn requests() -> Vec<(&'static str, Request)> {
    let create = serde_json::from_value(serde_json::json!({
        "task_id": "t", "title": "T", "summary": "",
        "steps": [{"step_id": "a", "title": "A", "summary": "", "depends_on_step_ids": []}],
    }));
    let cancel = serde_json::from_value::<Command>(serde_json::json!({
        "operation": "task_cancel",
        "input": {"reason": {"message": "no longer wanted"}, "wait": false},
    }));
    let again = serde_json::from_value(serde_json::json!({
        "retry_of": "old", "reason": {"message": "once more"},
    }));
    let views = Views { views: vec![ViewName::BlockedTasks], ..Views::default() };
    let ended = ListInput { include_terminal: true, limit: Some(20), ..ListInput::default() };
    let explain = ExplainInput { run_id: Some(run()), ..ExplainInput::about("a".parse().unwrap()) };
    let part = InspectInput { from_seq: Some(7), to_seq: Some(9) };
    let on = |ask| Request::new(Some("t".parse().unwrap()), Some("c-1".parse().unwrap()), ask);
    let leases = |after, oldest| on(Ask::Leases(ListLeases { after, oldest }));
    vec![
        ("request-create", on(Ask::Create(Box::new(create.unwrap())))),
        ("request-cancel", on(Ask::Command(Box::new(cancel.unwrap())))),
        ("request-retry-ended", on(Ask::RetryEnded(Box::new(again.unwrap())))),
        ("request-get", on(Ask::Get(GetInput {}))),
        ("request-query", on(Ask::Steps(QueryInput { offset: 3, ..QueryInput::default() }))),
        ("request-board", on(Ask::Board(BoardInput { token_budget: Some(500) }))),
        ("request-task-list", on(Ask::Tasks(ended))),
        ("request-explain", on(Ask::Explain(explain))),
        ("request-explain-task", on(Ask::ExplainTask(ExplainTaskInput::default()))),
        ("request-inspect", on(Ask::Inspect(part))),
        ("request-replay", on(Ask::Replay(ReplayInput { to_seq: Some(7) }))),
        ("request-template", on(Ask::Template(TemplateInput {}))),
        ("request-views", on(Ask::Views(views))),
        ("request-read-log", on(Ask::ReadLog(ReadLog::from(7)))),
        ("request-read-log-held", on(Ask::ReadLog(ReadLog::from(7).waiting(ReadUntil::Settled)))),
        ("request-read-events", on(Ask::ReadEvents(ReadEvents { after: 7 }))),
        ("request-list-leases", leases(Some(attempt()), None)),
        ("request-oldest-leases", leases(None, Some(50))),
        ("request-list", on(Ask::List(List { include_terminal: true, ..List::default() }))),
    ]
}

/// CTRL-01
#[test]
fn requests_are_read_as_they_were_written() {
    for (name, request) in requests() {
        let bytes = request.write().unwrap();
        golden_bytes(name, &bytes);
        assert_eq!(Request::read(&bytes).unwrap(), request, "{name}");
    }
}

fn map(fields: &[(&str, Msg)]) -> Vec<u8> {
    let fields = fields.iter().map(|(key, value)| (Msg::from(*key), value.clone())).collect();
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &Msg::Map(fields)).unwrap();
    bytes
}

/// A newer sender may say more than an older reader knows, and in any order.
#[test]
fn unknown_fields_are_passed_over() {
    let more = Msg::Map(vec![(Msg::from("deep"), Msg::Binary(vec![1, 2]))]);
    let fields = [("new", more.clone()), ("v", Msg::from(1)), ("handlers", Msg::Nil)];
    assert_eq!(
        decode::<Hello>(&map(&fields)).unwrap(),
        Hello {
            v: V,
            handlers: None,
            sessions: WorkerSessions::ALL,
            worker_host: None,
            worker_build: None,
            features: Features::default()
        }
    );
    let delivery = Msg::Map(vec![(Msg::from("something_new"), more)]);
    let fields = [
        ("v", Msg::from(1)),
        ("node", Msg::from("n")),
        ("link", Msg::from("l")),
        ("first", Msg::from(1)),
        ("deliveries", Msg::Array(vec![delivery])),
    ];
    let read: Deliveries = decode(&map(&fields)).unwrap();
    assert_eq!(read.deliveries, [Delivery::default()]);
    let fields = [
        ("input", Msg::Map(vec![(Msg::from("after"), Msg::from(2))])),
        ("task_id", Msg::from("t")),
        ("operation", Msg::from("read_log")),
        ("later", Msg::from("x")),
        ("v", Msg::from(1)),
    ];
    assert_eq!(Request::read(&map(&fields)).unwrap().ask, ReadLog::from(2).into());
}

/// A client in another language may write the input of a command before its name.
#[test]
fn the_order_of_fields_says_nothing() {
    let release = Msg::Map(vec![
        (Msg::from("input"), Msg::Map(vec![(Msg::from("outcome"), Msg::from("finished"))])),
        (Msg::from("operation"), Msg::from("end_run")),
    ]);
    let report = Msg::Map(vec![
        (Msg::from("word"), release),
        (Msg::from("run_id"), Msg::Binary(run().0.as_bytes().to_vec())),
        (Msg::from("task_id"), Msg::from("t")),
        (Msg::from("session_id"), Msg::from("s")),
    ]);
    let fields = [("reports", Msg::Array(vec![report])), ("v", Msg::from(1))];
    let reports: Reports = decode(&map(&fields)).unwrap();
    let said = Word::EndRun { outcome: RunOutcome::Finished, result: None };
    assert_eq!(reports.reports[0].word, said);
    assert_eq!(reports.reports[0].run_id, run(), "16 bytes or text");
    let fields = [
        ("input", Msg::Map(vec![(Msg::from("wait"), Msg::from(false))])),
        ("operation", Msg::from("task_cancel")),
        ("task_id", Msg::from("t")),
        ("v", Msg::from(1)),
    ];
    assert!(matches!(Request::read(&map(&fields)).unwrap().ask, Ask::Command(_)));
}

/// CTRL-09
#[test]
fn what_is_not_understood_is_refused_with_a_reason() {
    let field = |refused: &Rejection| refused.details["field"].clone();
    let other = Request::read(&map(&[("v", Msg::from(2)), ("operation", Msg::from("task_get"))]));
    let other = other.unwrap_err();
    assert!(other.message.contains("version 2"), "{other}");
    assert_eq!(other.code, Code::ValidationError);
    let unknown = [("v", Msg::from(1)), ("operation", Msg::from("task_explode"))];
    let unknown = Request::read(&map(&unknown)).unwrap_err();
    assert_eq!((unknown.code, field(&unknown)), (Code::ValidationError, "operation".into()));
    let misspelt = [
        ("v", Msg::from(1)),
        ("operation", Msg::from("task_cancel")),
        ("input", Msg::Map(vec![(Msg::from("raeson"), Msg::Nil)])),
    ];
    let misspelt = Request::read(&map(&misspelt)).unwrap_err();
    assert!(misspelt.message.contains("raeson"), "{misspelt}");
    for internal in ["grant_step", "expire_leases", "due"] {
        let fields = [("v", Msg::from(1)), ("operation", Msg::from(internal))];
        assert!(Request::read(&map(&fields)).is_err(), "{internal} is the scheduler's own");
    }
    // A value, the beginning of a text, of an array and of a map, and what begins nothing.
    for more in [0xc0, 0xd9, 0x91, 0x81, 0xc1] {
        let mut bytes = encode(&Hello {
            v: V,
            handlers: None,
            sessions: WorkerSessions::ALL,
            worker_host: None,
            worker_build: None,
            features: Features::default(),
        })
        .unwrap();
        bytes.push(more);
        let refused = decode::<Hello>(&bytes).unwrap_err();
        assert!(refused.why.contains("something follows"), "{more:x}: {refused}");
    }
}

/// Nesting costs stack, and length costs memory: both are bounded, at the bound and over it.
#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| {
        let mut bytes = vec![0x82, 0xa1, b'v', 0x01, 0xa1, b'x'];
        bytes.extend(std::iter::repeat_n(0x91, depth));
        bytes.push(0xc0);
        bytes
    };
    assert!(decode::<Hello>(&nested(60)).is_ok());
    for depth in [64, 100, 100_000] {
        assert!(decode::<Hello>(&nested(depth)).is_err(), "{depth}");
    }
    let bomb = [0x81, 0xa1, b'x', 0xdd, 0xff, 0xff, 0xff, 0xff];
    assert!(decode::<Hello>(&bomb).is_err());
    let long = |bytes: usize| serde_json::Value::from("x".repeat(bytes));
    let head = encode(&long(MESSAGE_MAX - 5)).unwrap();
    assert_eq!(head.len(), MESSAGE_MAX);
    assert!(decode::<serde_json::Value>(&head).is_ok());
    assert!(encode(&long(MESSAGE_MAX - 4)).is_err());
    assert!(decode::<serde_json::Value>(&[0; MESSAGE_MAX + 1]).is_err());
    let endless = Endless(Cell::new(0));
    assert!(encode(&endless).is_err());
    assert!(endless.0.get() <= MESSAGE_MAX, "what becomes too long is not written to its end");
}

/// A long list, which counts how much of it was asked for.
struct Endless(Cell<usize>);

impl Serialize for Endless {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let count = 100 * MESSAGE_MAX;
        let mut list = to.serialize_seq(Some(count))?;
        for _ in 0..count {
            self.0.set(self.0.get() + 1);
            list.serialize_element(&0)?;
        }
        list.end()
    }
}

proptest! {
    /// No bytes at all bring a reader down.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::read(&bytes);
        let _ = decode::<Reports>(&bytes);
        let _ = decode::<Deliveries>(&bytes);
    }

    /// Nor does any damage to a message.
    #[test]
    fn a_damaged_request_is_read_or_refused(at in 0_usize..1000, flip in 1_u8..=255) {
        for (_, request) in requests() {
            let mut bytes = request.write().unwrap();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            let _ = Request::read(&bytes);
        }
    }
}
