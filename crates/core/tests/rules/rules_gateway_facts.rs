//! FACT-01: what a gateway keeps with a Task.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, Complete, Dispatch, KeepFact, OnBehalf, StepReport, Why};
use tenure_core::operation::TaskQuery;
use tenure_core::patch::{Change, Operation, StepFields};
use tenure_core::record::{Blob, Value, ValueBody};
use tenure_core::status::{FactKind, Policy, Role, StepStatus, TaskStatus};
use tenure_core::task::Made;
use tenure_core::view::{FactsInput, FactsPage, Known, TaskView};
use tenure_core::{Code, Command, Limits};

fn fact(kind: FactKind, key: &str, payload: &str) -> KeepFact {
    let payload = Value::json(payload.as_bytes().to_vec());
    KeepFact::alone(kind, key.into(), payload)
}

fn push(key: &str, payload: &str) -> Command {
    Command::TaskFact(fact(FactKind::A2aPushConfig, key, payload))
}

fn envelope(key: &str, payload: &str) -> Command {
    Command::TaskFact(fact(FactKind::MacpEnvelope, key, payload))
}

/// A fact of which this follows.
fn followed(then: Vec<Command>) -> Command {
    Command::TaskFact(KeepFact { then, ..fact(FactKind::MacpEnvelope, "e", "1") })
}

fn page(t: &Fixture, input: &FactsInput) -> FactsPage {
    let known = Known::new(t.now, &|_| None);
    input.read(&t.task.durable(), &orchestrator(), &known, &Limits::default()).unwrap()
}

/// Facts as `key=payload`.
fn listed(t: &Fixture, input: &FactsInput) -> Vec<String> {
    let told = page(t, input).facts.into_iter().map(|fact| {
        let payload = fact.payload.data().map(<[u8]>::to_vec).unwrap();
        format!("{}={}", fact.key, String::from_utf8(payload).unwrap())
    });
    told.collect()
}

fn of(kind: FactKind) -> FactsInput {
    FactsInput { kind: Some(kind), ..FactsInput::default() }
}

/// FACT-01: facts change no status and are listed in their order, by kind and key; of a push configuration
/// the last counts, and null removes it; the log has them all.
#[test]
fn facts_are_kept_by_kind_and_key() {
    let mut t = Fixture::manual("a");
    let before = t.task.head().clone();
    let commands =
        [envelope("e", "1"), push("b", "1"), push("a", "1"), envelope("e", "2"), push("b", "2")];
    for command in commands {
        t.ok(command);
        assert_eq!(t.events(), ["task_fact"]);
    }
    assert_eq!(*t.task.head(), before, "no status changes");
    assert_eq!(listed(&t, &of(FactKind::A2aPushConfig)), ["a=1", "b=2"]);
    assert_eq!(listed(&t, &of(FactKind::MacpEnvelope)), ["e=1", "e=2"]);
    assert_eq!(listed(&t, &FactsInput::default()), ["e=1", "a=1", "e=2", "b=2"]);
    let of_key = FactsInput { key: Some("b".into()), ..FactsInput::default() };
    assert_eq!(listed(&t, &of_key), ["b=2"]);
    let of_both = FactsInput { key: Some("b".into()), ..of(FactKind::MacpEnvelope) };
    assert_eq!(listed(&t, &of_both), [""; 0]);
    let known = |t: &Fixture| TaskView::of(&t.task.durable(), &Known::new(t.now, &|_| None));
    assert_eq!(known(&t).facts_count, 4);
    assert_eq!(page(&t, &of_key).facts[0].wal_seq, t.task.version());
    t.ok(push("b", "null"));
    t.ok(envelope("e", "null"));
    t.restart();
    assert_eq!(listed(&t, &FactsInput::default()), ["e=1", "a=1", "e=2", "e=null"]);
    t.ok(push("b", "3"));
    assert_eq!(listed(&t, &of(FactKind::A2aPushConfig)), ["a=1", "b=3"]);
}

/// FACT-01: they are read page by page.
#[test]
fn facts_come_in_pages() {
    let mut t = Fixture::manual("a");
    (0..5).for_each(|at| drop(t.ok(envelope("e", &at.to_string()))));
    let first = page(&t, &FactsInput { limit: Some(2), ..FactsInput::default() });
    assert_eq!((first.facts.len(), first.next_offset, first.truncated), (2, Some(2), true));
    let last = page(&t, &FactsInput { limit: Some(2), offset: 4, ..FactsInput::default() });
    assert_eq!((last.facts.len(), last.next_offset, last.truncated), (1, None, false));
    let first = page(&t, &of(FactKind::MacpEnvelope)).facts[0].wal_seq;
    let after = |after| FactsInput { after: Some(after), ..of(FactKind::MacpEnvelope) };
    assert_eq!(listed(&t, &after(first)), ["e=1", "e=2", "e=3", "e=4"], "those behind the first");
    assert_eq!(listed(&t, &after(u64::MAX)), [""; 0]);
    let beyond = page(&t, &FactsInput { offset: usize::MAX, ..FactsInput::default() });
    assert_eq!((beyond.facts.len(), beyond.next_offset, beyond.truncated), (0, None, false));
    let none = FactsInput { limit: Some(0), ..FactsInput::default() };
    assert_eq!(none.check(&Limits::default()).unwrap_err().code, Code::ValidationError);
}

/// FACT-02: what follows from a fact is done in its commit, each command by the state that those before it have left,
/// and a replay gives the same.
#[test]
fn what_follows_from_a_fact_is_done_with_it() {
    let mut t = Fixture::manual("a");
    let fields = StepFields { required: Change::Set(true), ..StepFields::default() };
    let change = Operation::UpdateStep { fields, reason: None, step_id: "a".parse().unwrap() };
    t.ok(followed(vec![
        Command::TaskUpdate { operations: vec![change] },
        Command::PauseTask(Why::default()),
        Command::ResumeTask(Why::default()),
    ]));
    let events = ["task_fact", "task_updated", "task_paused", "task_resumed", "task_running"];
    assert_eq!(t.events(), events);
    let by = OnBehalf::of("ann.macp".parse().unwrap());
    let taken = Dispatch {
        allowed_step_ids: Some(vec!["a".parse().unwrap()]),
        on_behalf: Some(by),
        ..Dispatch::to(POOL.parse().unwrap())
    };
    let made = t.ok(followed(vec![Command::DispatchWorker(taken)])).reply.made;
    assert!(matches!(made, Made::Run(_) | Made::Attempt(_)), "{made:?}");
    let report =
        StepReport { status: Some(StepStatus::Completed), ..StepReport::on("a".parse().unwrap()) };
    t.ok(followed(vec![
        Command::TaskUpdateStep(report),
        Command::TaskComplete(Complete::default()),
    ]));
    assert_eq!(t.task.head().status, TaskStatus::Completed);
    assert_eq!(t.events(), ["task_fact", "task_step_completed a", "task_completed"]);
    let before = t.task.head().clone();
    t.restart();
    assert_eq!(*t.task.head(), before);
}

/// FACT-02: what may follow is read as it was written, and nothing else is: no fact is nested in another.
#[test]
fn what_follows_is_never_nested() {
    let why = Why::default;
    let change = Operation::UpdateTask(Box::default());
    let written = followed(vec![
        Command::TaskUpdate { operations: vec![change] },
        Command::TaskUpdateStep(StepReport::on("a".parse().unwrap())),
        Command::TaskComplete(Complete::default()),
        Command::TaskFail(Close::default()),
        Command::TaskCancel(Close::default()),
        Command::DispatchWorker(Dispatch::to(POOL.parse().unwrap())),
        Command::SubmitTask(why()),
        Command::PauseTask(why()),
        Command::ResumeTask(why()),
    ]);
    let json = serde_json::to_value(&written).unwrap();
    assert_eq!(serde_json::from_value::<Command>(json).unwrap(), written);
    for nested in [followed(vec![Command::PauseTask(why())]), Command::ArchiveTask(why())] {
        let json = serde_json::to_value(followed(vec![nested])).unwrap();
        let refused = serde_json::from_value::<Command>(json).unwrap_err().to_string();
        assert!(refused.contains("unknown variant"), "{refused}");
    }
}

/// FACT-02: a create may bring facts, which stand in its commit; nothing follows from them.
#[test]
fn a_create_may_bring_facts() {
    let with = |facts: Vec<KeepFact>| CreateTask { facts, ..create_input("a") };
    let first = fact(FactKind::MacpEnvelope, "e", "1");
    let mut t = Fixture::create(with(vec![first.clone()]), Policy::Manual);
    assert_eq!(listed(&t, &FactsInput::default()), ["e=1"]);
    t.restart();
    assert_eq!(listed(&t, &FactsInput::default()), ["e=1"]);
    let following = KeepFact { then: vec![Command::PauseTask(Why::default())], ..first.clone() };
    let large = fact(FactKind::MacpEnvelope, "e", &"1".repeat(4 * 1024 + 1));
    for wrong in [vec![following], vec![large], vec![first; 5]] {
        let made = Fixture::try_create(with(wrong), Policy::Manual, Limits::default());
        assert_eq!(made.unwrap_err().code, Code::ValidationError);
    }
}

/// FACT-02: if one of the commands is refused, nothing is written, the fact included. What may follow is what an
/// orchestrator does to a Task, and waits for nothing.
#[test]
fn a_fact_and_what_follows_are_one() {
    let mut t = Fixture::manual("a");
    let before = t.task.head().clone();
    let paused = || Command::PauseTask(Why::default());
    t.refuse(followed(vec![paused(), paused()]), Code::InvalidTransition);
    assert_eq!(*t.task.head(), before);
    assert_eq!(listed(&t, &FactsInput::default()), [""; 0]);
    let cancelled = Command::TaskCancel(Close { wait: Some(false), ..Close::default() });
    t.refuse(followed(vec![cancelled, paused()]), Code::TaskTerminal);
    for wrong in [
        vec![envelope("b", "1")],
        vec![Command::ArchiveTask(Why::default())],
        vec![Command::TaskCancel(Close { wait: Some(true), ..Close::default() })],
        vec![Command::TaskUpdate { operations: Vec::new() }],
        vec![Command::ResumeTask(Why::default()); 5],
        vec![Command::DispatchWorker(Dispatch::to("macp".parse().unwrap())); 2],
    ] {
        t.refuse(followed(wrong), Code::ValidationError);
    }
    let blob = Blob::of(b"what is not there");
    let input = Value::of("text/plain", ValueBody::Blob(blob));
    let report = StepReport { output: Some(input), ..StepReport::on("a".parse().unwrap()) };
    assert_eq!(
        followed(vec![Command::TaskUpdateStep(report)]).blobs(),
        [blob],
        "it is looked up before"
    );
}

/// FACT-01: a payload has at most 4 KiB, or is elsewhere, and a key is short.
#[test]
fn facts_are_small() {
    let mut t = Fixture::manual("a");
    t.ok(push("a", &"1".repeat(4 * 1024)));
    let no = t.refuse(push("a", &"1".repeat(4 * 1024 + 1)), Code::ValidationError);
    assert_eq!((&no.details["field"], &no.details["limit"]), (&"payload".into(), &4096.into()));
    t.ok(push(&"k".repeat(128), "1"));
    for key in [String::new(), "k".repeat(129)] {
        let no = t.refuse(push(&key, "1"), Code::ValidationError);
        assert_eq!(no.details["field"], "key");
    }
    let elsewhere = |to: &str| {
        let payload = serde_json::from_value(json!({"ref": to})).unwrap();
        Command::TaskFact(KeepFact { payload, ..fact(FactKind::A2aPushConfig, "r", "") })
    };
    t.ok(elsewhere("s3://bucket/envelope"));
    t.refuse(elsewhere("nobody"), Code::ValidationError);
}

/// FACT-01, TERM-21: an ended Task takes facts of the kinds that allow it alone, and a closing one takes none.
/// Workers and observers write none.
#[test]
fn facts_are_for_orchestrators_and_mostly_for_live_tasks() {
    for status in TaskStatus::ALL {
        let mut t = Fixture::with_task(*status);
        match status.is_terminal() {
            true => drop(t.refuse(envelope("a", "1"), Code::TaskTerminal)),
            false => drop(t.ok(envelope("a", "1"))),
        }
        let before = t.task.head().clone();
        t.ok(push("a", "1"));
        t.restart();
        assert_eq!(*t.task.head(), before, "{status}");
        assert_eq!(listed(&t, &of(FactKind::A2aPushConfig)), ["a=1"], "{status}");
    }
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.refuse_as(&held.caller(), push("a", "1"), Code::ToolNotAvailable);
    t.refuse_as(&caller("eye", Role::Observer), push("a", "1"), Code::ToolNotAvailable);
    t.ok(Command::TaskCancel(Close::default()));
    t.refuse(push("a", "1"), Code::TaskCancelling);
}

/// FACT-01: readers see a fact when it is durable, and the one before it until then.
#[test]
fn facts_show_when_they_are_durable() {
    let mut t = Fixture::manual("a");
    t.ok(push("a", "1"));
    t.ahead(&orchestrator(), &push("a", "2"));
    t.ahead(&orchestrator(), &push("b", "1"));
    t.ahead(&orchestrator(), &push("a", "3"));
    assert_eq!(listed(&t, &FactsInput::default()), ["a=1"]);
    assert_eq!(t.task.durable().facts_len(), 1);
    let mut back = t.task.clone();
    back.abort();
    assert_eq!(back, t.replayed());
    t.task.settle();
    assert_eq!(listed(&t, &FactsInput::default()), ["b=1", "a=3"]);
}
