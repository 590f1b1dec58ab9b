//! EVOLVE-02: what a log may hold while not all nodes know the second edition of the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Value as Json, json};
use tenure_core::command::create::CreateTask;
use tenure_core::command::edition::check_log;
use tenure_core::command::{Close, Complete, Dispatch, RunTtl};
use tenure_core::event::{Body, Commit, StepTakenOver};
use tenure_core::id::DigestForm;
use tenure_core::record::Value;
use tenure_core::status::{Policy, StepStatus};
use tenure_core::{Code, Command, Limits, Rejection, Rules};

use crate::common::*;

/// For each type of event, the fields of its payload in the first edition: paths, without places in lists.
static FIRST: LazyLock<BTreeMap<&str, BTreeSet<&str>>> = LazyLock::new(|| {
    let lines = include_str!("edition_1.txt").lines();
    let read = |line: &'static str| {
        let (event_type, fields) =
            line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
        (event_type, fields.split(' ').collect())
    };
    lines.map(read).collect()
});

/// Fields whose content is the caller's own.
const FREE: [&str; 7] =
    ["bindings", "constraints", "custom", "details", "metadata", "scope", "task_profile"];

/// Panics if a commit has anything that a program of the first edition could not read.
pub(crate) fn assert_first_edition(commit: &Commit) {
    for event in &commit.events {
        let event_type = event.body.event_type();
        let known = FIRST.get(event_type);
        let known = known.unwrap_or_else(|| panic!("{event_type} is of the second edition"));
        let payload = serde_json::to_value(&event.body).unwrap();
        assert_known(&payload, "", known, event_type);
    }
    let form = commit.command_digest.map(|digest| digest.form);
    assert!(form.is_none_or(|form| form == DigestForm::First), "a digest of another form");
}

fn assert_known(value: &Json, at: &str, known: &BTreeSet<&str>, event_type: &str) {
    match value {
        Json::Object(fields) => {
            // What a value is in, and where: the samples have values as text alone.
            let is_in_value = |name: &str, value: &Json| {
                name == "ref" || name == "encoding" && *value == json!("base64")
            };
            for (name, value) in fields.iter().filter(|(name, value)| !is_in_value(name, value)) {
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                assert!(known.contains(path.as_str()), "{event_type} has {path}: {value}");
                if !FREE.contains(&name.as_str()) {
                    assert_known(value, &path, known, event_type);
                }
            }
        }
        Json::Array(items) => {
            items.iter().for_each(|item| assert_known(item, at, known, event_type));
        }
        Json::String(text) => assert!(text != "unlimited" && text != "outage", "{at}: {text}"),
        _ => {}
    }
}

fn fixture(given: CreateTask) -> Result<Fixture, Rejection> {
    Fixture::try_create(given, Policy::Manual, Limits::default().of_first_edition())
}

fn assert_refused(refused: Rejection, name: &str) {
    assert_eq!(refused.code, Code::Unavailable, "{name}: {refused}");
    assert_eq!(refused.details["feature"], "edition-2", "{name}");
    assert!(refused.message.contains(name), "{name}: {}", refused.message);
}

/// EVOLVE-02: until all nodes know the second edition, a plain create makes a Task of rules 1.
#[test]
fn a_plain_create_makes_a_task_of_rules_1() {
    let t = fixture(create_input("a b<-a")).unwrap();
    assert_eq!(t.task.head().rules, Rules::First);
    t.log.iter().for_each(assert_first_edition);
    assert_eq!(t.task.digest_form(None, false), DigestForm::First);
}

type Changes = fn(&mut CreateTask);

/// EVOLVE-02: until then a create that names something new is refused with the feature that it needs.
#[test]
fn a_create_that_names_something_new_is_refused() {
    let named: [(&str, Changes); 6] = [
        ("labels", |given| drop(given.labels.insert("team".into(), "blue".into()))),
        ("on_failure", |given| given.on_failure = serde_json::from_value(json!("finish")).ok()),
        ("claim_only_by", |given| given.claim_only_by = Some(agent_id("ann"))),
        ("ext", |given| given.ext = serde_json::from_value(json!({"x": 1})).ok()),
        ("inputs_from", |given| given.steps[1].inputs_from = Some(vec![id("a")])),
        ("step_id", |given| given.steps[1].step_id = id(&"x".repeat(65))),
    ];
    for (name, change) in named {
        let mut given = create_input("a b<-a");
        change(&mut given);
        let whole = Fixture::try_create(given.clone(), Policy::Manual, Limits::default());
        assert!(whole.is_ok(), "{name} is in order: {:?}", whole.err());
        assert_refused(fixture(given).unwrap_err(), name);
    }
}

/// EVOLVE-02: what a Task takes over from another is of the second edition, though it is no field of a create.
#[test]
fn what_is_taken_over_is_refused() {
    let taken = StepTakenOver {
        from_task_id: "before".parse().unwrap(),
        from_attempt_id: None,
        output: None,
        result_summary: None,
        artifacts: Vec::new(),
    };
    let given = CreateTask { taken_over: vec![(id("a"), taken)], ..create_input("a") };
    assert_refused(fixture(given).unwrap_err(), "keep_completed");
}

/// EVOLVE-02: the same for commands; they leave log, version and state as they were.
#[test]
fn a_command_that_names_something_new_is_refused() {
    let mut t = fixture(create_input("a b<-a")).unwrap();
    let (boss, version) = (orchestrator(), t.task.version());
    let commands = [
        (
            "ttl_ms",
            Command::DispatchWorker(Dispatch {
                ttl_ms: Some(RunTtl::UNLIMITED),
                ..Dispatch::to(pool_id(POOL))
            }),
        ),
        ("grace_ms", Command::TaskCancel(Close { grace_ms: Some(1), ..Close::default() })),
        (
            "output",
            Command::TaskComplete(Complete {
                output: Some(Value::json(*b"1")),
                ..Complete::default()
            }),
        ),
        ("ext", patch(json!([{"op": "update_task", "ext": {"x": 1}}]))),
    ];
    for (name, command) in commands {
        assert_refused(t.run(&boss, &command).unwrap_err(), name);
        assert_eq!((t.task.version(), t.log.len()), (version, 1), "{name}");
    }
}

/// EVOLVE-02: a log from elsewhere is not taken in where it could not be read.
#[test]
fn a_log_of_the_second_edition_is_not_taken_in_where_it_cannot_be_read() {
    let (first, second) = (fixture(create_input("a")).unwrap(), Fixture::manual("a"));
    let check = |t: &Fixture, may_hold: bool| check_log(&t.log, |_| may_hold);
    assert!(check(&first, false).is_ok() && check(&second, true).is_ok());
    assert_refused(check(&second, false).unwrap_err(), "rules");
    let mut later = Fixture::first("a");
    assert!(check(&later, false).is_ok());
    later.ok(patch(json!([{"op": "update_task", "ext": {"x": 1}}])));
    assert_refused(check(&later, false).unwrap_err(), "ext");
}

/// EVOLVE-02: a worker that knows the second edition works for a Task of rules 1 in the form of the first.
#[test]
fn what_a_worker_says_is_written_in_the_first_form() {
    let mut t = fixture(create_input("a b<-a")).unwrap();
    let held = t.claim("a");
    let mut report = held.says();
    report.status = Some(StepStatus::Failed);
    report.retry_after_ms = Some(1_000);
    t.run(&held.caller(), &Command::TaskUpdateStep(report)).unwrap();
    t.log.iter().for_each(assert_first_edition);
    assert!(t.log.last().unwrap().events.iter().any(|e| matches!(e.body, Body::StepFailed(_))));
}
