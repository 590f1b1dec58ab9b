//! TASK-22: the result of a whole Task.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Complete, StepReport};
use tenure_core::event::{Body, Ended};
use tenure_core::record::Value;
use tenure_core::rules::Rules;
use tenure_core::status::{Policy, StepStatus};
use tenure_core::view::{GetInput, Known, TaskView};
use tenure_core::{Code, Command, Limits};

fn value(text: &str) -> Value {
    Value::json(text.as_bytes().to_vec())
}

fn write(t: &mut Fixture, step: &str, output: Option<&str>) {
    let status = Some(StepStatus::Completed);
    let report = StepReport { status, output: output.map(value), ..StepReport::on(id(step)) };
    t.ok(Command::TaskUpdateStep(report));
}

/// The end of the Task in its log.
fn ended(t: &Fixture) -> Ended {
    let events = t.log.iter().flat_map(|commit| &commit.events);
    let mut end = events.filter_map(|event| match &event.body {
        Body::TaskCompleted(end) => Some(end),
        _ => None,
    });
    Ended::clone(end.next_back().expect("it has completed"))
}

fn shown(t: &Fixture) -> TaskView {
    TaskView::of(&t.task.durable(), &Known::new(t.now, &|_| None))
}

/// TASK-22: a Task that completes by itself has the output of the only Step on which nothing depends. The
/// value is not written again.
#[test]
fn the_last_step_makes_the_output() {
    let mut t = Fixture::auto("a b<-a");
    write(&mut t, "a", Some("1"));
    write(&mut t, "b", Some("2"));
    assert!(t.task.is_terminal());
    let Ended { output, output_from, .. } = ended(&t);
    assert_eq!((output, output_from), (None, Some(id("b"))));
    assert_eq!(t.task.durable().output(), Some(&value("2")));
    let told = shown(&t);
    assert_eq!((told.output, told.output_from), (Some(value("2")), Some(id("b"))));
    t.restart();
    assert_eq!(t.task.durable().output(), Some(&value("2")));
}

/// TASK-22: with two such Steps, or one without an output, there is none.
#[test]
fn without_one_last_step_there_is_none() {
    for (dag, output) in [("a b", Some("1")), ("a b<-a", None)] {
        let mut t = Fixture::auto(dag);
        write(&mut t, "a", Some("1"));
        write(&mut t, "b", output);
        assert!(t.task.is_terminal());
        assert_eq!(ended(&t).output_from, None, "{dag}");
        assert_eq!(t.task.durable().output(), None);
        assert_eq!(shown(&t).output, None);
    }
}

/// TASK-22: the creator names the Step; if that is cancelled with the end, there is none.
#[test]
fn the_creator_names_the_step() {
    for (dag, expected) in [("a b<-a", Some("1")), ("a? b", None)] {
        let given = CreateTask { output_from: Some(id("a")), ..create_input(dag) };
        let given = CreateTask { dispatch: Some(Policy::Manual), ..given };
        let mut t = Fixture::create(given, Policy::Auto);
        if expected.is_some() {
            write(&mut t, "a", expected);
        }
        write(&mut t, "b", Some("2"));
        assert_eq!(ended(&t).output_from, expected.map(|_| id("a")));
        assert_eq!(t.task.durable().output(), expected.map(value).as_ref());
    }
    let given = CreateTask { output_from: Some(id("x")), ..create_input("a") };
    let no = Fixture::try_create(given.clone(), Policy::Auto, Limits::default()).unwrap_err();
    assert_eq!((no.code, &no.details["field"]), (Code::ValidationError, &"output_from".into()));
    let mut draft = Fixture::create(CreateTask { draft: Some(true), ..given }, Policy::Auto);
    draft.ok(Command::SubmitTask(Default::default()));
    write(&mut draft, "a", Some("1"));
    assert!(draft.task.is_terminal());
    assert_eq!(draft.task.durable().output(), None, "the draft never got the step");
}

/// TASK-22: the command that completes the Task may give the output, within the limit of a value; if it
/// does not, there is none.
#[test]
fn the_command_may_give_it() {
    let mut t = Fixture::manual("a");
    write(&mut t, "a", Some("1"));
    let with = |output| Command::TaskComplete(Complete { output, ..Complete::default() });
    let long = Some(value(&"9".repeat(64 * 1024 + 1)));
    t.refuse(with(long), Code::ValidationError);
    let unknown: Value = serde_json::from_value(json!({"ref": "nobody"})).unwrap();
    t.refuse(with(Some(unknown)), Code::ValidationError);
    t.ok(with(Some(value("all"))));
    let Ended { output, output_from, .. } = ended(&t);
    assert_eq!((output, output_from), (Some(value("all")), None));
    assert_eq!(t.task.durable().output(), Some(&value("all")));
    let mut without = Fixture::manual("a");
    write(&mut without, "a", Some("1"));
    without.ok(with(None));
    assert_eq!(without.task.durable().output(), None);
}

/// TASK-22, EVOLVE-01: a Task of rules 1 has no output.
#[test]
fn a_task_of_rules_1_has_none() {
    let limits = || Limits { rules: Rules::First, ..Limits::default() };
    let mut t = Fixture::try_create(create_input("a"), Policy::Auto, limits()).unwrap();
    write(&mut t, "a", Some("1"));
    assert_eq!((ended(&t).output_from, t.task.durable().output()), (None, None));
    let given = CreateTask { output_from: Some(id("a")), ..create_input("a") };
    let no = Fixture::try_create(given, Policy::Auto, limits()).unwrap_err();
    assert_eq!((no.code, &no.details["field"]), (Code::ValidationError, &"output_from".into()));
    let mut t = Fixture::try_create(create_input("a"), Policy::Manual, limits()).unwrap();
    write(&mut t, "a", None);
    let given = Complete { output: Some(value("1")), ..Complete::default() };
    t.refuse(Command::TaskComplete(given), Code::ValidationError);
}

/// TASK-22: readers of a Task whose completion is not durable yet see no output.
#[test]
fn an_output_shows_when_it_is_durable() {
    let mut t = Fixture::manual("a");
    write(&mut t, "a", None);
    let output = Some(value("1"));
    t.ahead(&orchestrator(), &Command::TaskComplete(Complete { output, ..Complete::default() }));
    assert_eq!(t.task.durable().output(), None);
    t.task.settle();
    assert_eq!(t.task.durable().output(), Some(&value("1")));
}
