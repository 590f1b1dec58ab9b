//! RETRY-15: a Task that is made again takes over what is completed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::Rules;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, StepReport};
use tenure_core::event::Body;
use tenure_core::id::AttemptId;
use tenure_core::record::Value;
use tenure_core::status::{Policy, StepStatus};
use tenure_core::task::StepOrigin;
use tenure_core::view::claim_result;
use tenure_core::{Code, Command, Limits, Task};

fn value(text: &str) -> Value {
    Value::json(text.as_bytes().to_vec())
}

fn completes(t: &mut Fixture, step: &str, report: StepReport) -> Held {
    let held = t.claim(step);
    let attempt_id = Some(held.attempt_id);
    let fencing_token = Some(held.token);
    let status = Some(StepStatus::Completed);
    let report = StepReport { attempt_id, fencing_token, status, ..report };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    held
}

fn again(t: &Fixture, name: &str) -> CreateTask {
    let input = t.task.durable().retry_input(
        name.parse().unwrap(),
        &gone_on(&reason("again", "")),
        Rules::NEWEST,
    );
    input.unwrap()
}

fn origin(task: &str, attempt_id: Option<AttemptId>) -> Option<StepOrigin> {
    Some(StepOrigin { task_id: task.parse().unwrap(), attempt_id })
}

/// RETRY-15: a Step that was changed while its Attempt was at work did not do what it says now, and runs again.
#[test]
fn a_step_that_was_changed_meanwhile_is_not_taken_over() {
    let mut t = Fixture::manual("a c b<-a d<-b");
    t.do_step("a");
    t.do_step("c");
    let held = t.claim("b");
    t.ok(patch(json!([{"op": "add_dependency", "step_id": "b", "depends_on_step_id": "c"}])));
    t.complete(&held);
    t.do_step("d");
    t.ok(Command::TaskFail(Close::default()));
    let taken: Vec<_> = again(&t, "t2").taken_over.into_iter().map(|(id, _)| id).collect();
    assert_eq!(taken, [id("a"), id("c")]);
}

/// RETRY-15: completed Steps come along with their results if their dependencies do; the others run. It
/// is all in the commit of the creation.
#[test]
fn completed_steps_are_taken_over() {
    // `late` stands before the Steps that it waits for, and `odd` was completed without its dependency.
    let mut t = Fixture::manual("late<-b a b<-a c odd<-c open<-late");
    let artifacts = json!([
        {"artifact_id": "page", "name": "page", "kind": "text", "state": "available", "uri": "s3://b/p"}
    ]);
    let artifacts = serde_json::from_value(artifacts).unwrap();
    let summary = Some("two".to_owned());
    let said = StepReport { output: Some(value("1")), ..StepReport::on(id("a")) };
    let a = completes(&mut t, "a", said);
    let said = StepReport { artifacts, result_summary: summary, ..StepReport::on(id("b")) };
    let b = completes(&mut t, "b", said);
    let page: Value = serde_json::from_value(json!({"ref": "page"})).unwrap();
    let late = StepReport {
        status: Some(StepStatus::Completed),
        output: Some(page),
        ..StepReport::on(id("late"))
    };
    t.ok(Command::TaskUpdateStep(late));
    t.ok(Command::TaskFail(Close::default()));

    let mut new = Fixture::create(again(&t, "t2"), Policy::Manual);
    assert_eq!(
        new.events(),
        [
            "task_created",
            "task_step_taken_over a",
            "task_step_taken_over b",
            "task_step_taken_over late",
            "task_step_ready c",
            "task_step_ready open",
            "task_running"
        ]
    );
    assert_eq!(new.actors()[..2], [ORCHESTRATOR, "system"]);
    let facts = |step: &str| new.step(step).state.facts().clone();
    assert_eq!(facts("a").output, Some(value("1")));
    assert_eq!(facts("a").taken_over_from, origin("t", Some(a.attempt_id)));
    assert_eq!(facts("b").result_summary.as_deref(), Some("two"));
    assert_eq!(facts("b").taken_over_from, origin("t", Some(b.attempt_id)));
    assert_eq!(facts("late").taken_over_from, origin("t", None));
    let output = serde_json::to_value(facts("late").output).unwrap();
    assert_eq!(output["ref"], "t/page", "it names the task in which the artifact is");
    let task = new.task.durable();
    let artifact = task.artifact(&"page".parse().unwrap()).unwrap();
    assert_eq!((artifact.step_id.as_ref(), artifact.attempt_id), (Some(&id("b")), None));
    assert_eq!(task.attempts_len(), 0);
    assert_eq!(facts("b").artifact_ids, ["page".parse().unwrap()]);

    let held = new.claim("open");
    let claim = claim_result(&new.task.durable(), held.attempt_id).unwrap();
    let refs: Vec<_> = claim.input_refs.iter().map(ToString::to_string).collect();
    assert_eq!(refs, ["t/page"]);
}

/// RETRY-15: a Task that is written anew takes over what it has unchanged, of an ended Task only.
#[test]
fn a_task_that_is_written_anew_takes_over_what_is_unchanged() {
    let mut t = Fixture::manual("a b<-a c<-b d<-a e f");
    for step in ["a", "b", "c", "e", "f"] {
        t.do_step(step);
    }
    let live = t.task.durable().take_over_into(&mut CreateTask::default()).unwrap_err();
    assert_eq!(live.code, Code::InvalidTransition);
    t.ok(Command::TaskFail(Close::default()));
    let mut new = CreateTask { taken_over: Vec::new(), ..again(&t, "t2") };
    new.steps[1].input = Some(value("1")); // With it `c` runs again, which depends on it.
    new.steps[3].title = "it did not complete".into();
    new.steps[4].title = "words are no definition".into();
    new.steps[5].depends_on_step_ids = vec![id("a")];
    t.task.durable().take_over_into(&mut new).unwrap();
    let taken: Vec<_> = new.taken_over.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!((taken, new.retry_of), (vec![id("a"), id("e")], Some("t".parse().unwrap())));
}

/// RETRY-15: without the word, all Steps run again.
#[test]
fn without_the_word_nothing_is_taken_over() {
    let mut t = Fixture::manual("a b<-a");
    t.do_step("a");
    t.ok(Command::TaskFail(Close::default()));
    let input = t.task.durable().retry_input(
        "t2".parse().unwrap(),
        &made_again(&reason("again", "")),
        Rules::NEWEST,
    );
    let new = Fixture::create(input.unwrap(), Policy::Manual);
    assert_eq!(new.events(), ["task_created", "task_step_ready a", "task_running"]);
    let live = Fixture::manual("a");
    let no = live.task.durable().retry_input(
        "t2".parse().unwrap(),
        &gone_on(&reason("again", "")),
        Rules::NEWEST,
    );
    assert_eq!(no.unwrap_err().code, Code::InvalidTransition);
}

/// RETRY-15, STEP-21: what was taken over is history; and a Task that is made again from it names where
/// the Step ran at first.
#[test]
fn what_was_taken_over_is_history() {
    let mut t = Fixture::manual("a b<-a");
    let a =
        completes(&mut t, "a", StepReport { output: Some(value("1")), ..StepReport::on(id("a")) });
    t.ok(Command::TaskFail(Close::default()));
    let mut new = Fixture::create(again(&t, "t2"), Policy::Manual);
    let deletes = json!([{"op": "delete_step", "step_id": "a"}]);
    new.refuse(patch(deletes), Code::StepHistoryImmutable);
    new.refuse(write_command("a", StepStatus::Failed), Code::StepHistoryImmutable);
    let reopen = json!([{"op": "reopen_step", "step_id": "a"}]);
    new.refuse(patch(reopen), Code::InvalidTransition);

    new.ok(Command::TaskFail(Close::default()));
    let third = Fixture::create(again(&new, "t3"), Policy::Manual);
    let facts = third.step("a").state.facts();
    assert_eq!(facts.output, Some(value("1")));
    assert_eq!(facts.taken_over_from, origin("t", Some(a.attempt_id)));
    assert_eq!(third.task.head().spec.retry_of, Some("t2".parse().unwrap()));
}

/// RETRY-15: if all is completed, an automatic Task completes at once, with its output.
#[test]
fn a_task_with_nothing_left_completes_at_once() {
    let mut t = Fixture::manual("a b<-a");
    completes(&mut t, "a", StepReport { output: Some(value("1")), ..StepReport::on(id("a")) });
    completes(&mut t, "b", StepReport { output: Some(value("2")), ..StepReport::on(id("b")) });
    t.ok(Command::TaskCancel(Close::default()));
    let given = CreateTask { completion: Some(Policy::Auto), ..again(&t, "t2") };
    let new = Fixture::create(given, Policy::Auto);
    assert_eq!(new.events().last().unwrap(), "task_completed");
    assert_eq!(new.task.durable().output(), Some(&value("2")));
}

/// RETRY-15: a log in which a Step is taken over before its dependencies is no history.
#[test]
fn a_step_is_taken_over_behind_its_dependencies() {
    let mut t = Fixture::manual("a b<-a");
    t.do_step("a");
    t.do_step("b");
    t.ok(Command::TaskCancel(Close::default()));
    let new = Fixture::create(again(&t, "t2"), Policy::Manual);
    let mut first = new.log[0].clone();
    let is_taken = |body: &Body| matches!(body, Body::StepTakenOver(_));
    assert!(is_taken(&first.events[1].body) && is_taken(&first.events[2].body));
    first.events.swap(1, 2);
    let wrong = Task::restore(&first).unwrap_err();
    assert!(wrong.to_string().contains("before its dependencies"), "{wrong}");
}

/// RETRY-15: what a Step needs comes along: its handler's input, its inputs and the Task's output.
#[test]
fn the_definition_comes_along() {
    let mut given = create_input("a b<-a c<-b");
    given.steps[2].inputs_from = Some(vec![id("a")]);
    given.output_from = Some(id("b"));
    let mut t = Fixture::try_create(given, Policy::Manual, Limits::default()).unwrap();
    t.ok(Command::TaskFail(Close::default()));
    let new = again(&t, "t2");
    assert_eq!(new.steps[2].inputs_from, Some(vec![id("a")]));
    assert_eq!(new.output_from, Some(id("b")));
    let told: Json = serde_json::to_value(&new).unwrap();
    assert!(told.get("taken_over").is_none(), "no input field carries it");
}
