//! CTRL-04, CTRL-06 and CLAIM-14: the answers to writes and claims.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use std::sync::Arc;

use common::*;
use serde_json::Value as Json;
use tenure_core::command::{AppendProgress, Dispatch, RunAndWhy, StepReport};
use tenure_core::event::{Bindings, LeaseEnd};
use tenure_core::id::Ref;
use tenure_core::status::{Policy, StepStatus};
use tenure_core::view::{
    ClaimResult, QueryInput, TaskRead, TaskView, WriteSummary, claim_result, fit, get_task,
    query_steps, write_summary,
};
use tenure_core::{Caller, Code, Command, Outcome};
use views::*;

fn answer(t: &Fixture, caller: &Caller, outcome: &Outcome) -> Json {
    as_json(&write_summary(&t.task.durable(), caller, &outcome.reply, &known()))
}

fn size(answer: &impl serde::Serialize) -> usize {
    serde_json::to_vec(answer).unwrap().len()
}

fn claimed(t: &Fixture, held: &Held) -> ClaimResult {
    claim_result(&t.task.durable(), held.attempt_id).expect("the attempt exists")
}

/// CTRL-04: the summary of now, the changed Steps, the ids of the written events, the version.
#[test]
fn a_write_is_answered_with_what_it_changed() {
    let mut t = Fixture::manual("a b<-a c");
    let held = t.claim("a");
    let outcome = t.report(&held, StepStatus::Completed);
    let answer = answer(&t, &orchestrator(), &outcome);
    assert_eq!(answer["task"]["counts"]["completed"], 1);
    assert_eq!(answer["task"]["progress"]["counters"]["steps"], json!({"done": 1, "total": 3}));
    let changed: Vec<_> =
        answer["steps"].as_array().unwrap().iter().map(|s| &s["step_id"]).collect();
    assert_eq!(changed, ["a", "b"]);
    let commit = t.last();
    let ids: Vec<_> = (0..2).map(|at| format!("{}.{at}", commit.commit_id)).collect();
    assert_eq!(answer["event_ids"], json!(ids));
    assert_eq!(answer["version"], t.task.version());
}

/// CTRL-04: at most 50 changed Steps are named.
#[test]
fn at_most_fifty_steps_are_named() {
    let notation: Vec<String> = (0..80).map(|n| format!("s{n}")).collect();
    let mut t = Fixture::manual(&notation.join(" "));
    let outcome = t.ok(Command::TaskCancel(Default::default()));
    let answer = answer(&t, &orchestrator(), &outcome);
    assert_eq!(answer["steps"].as_array().unwrap().len(), 50);
    assert_eq!(answer["event_ids"].as_array().unwrap().len(), 81);
}

/// IDEM-01: a repeat is answered with the events and version of the first time and the summary of
/// now.
#[test]
fn a_repeat_is_answered_with_the_first_events() {
    let mut t = Fixture::manual("a");
    let envelope =
        Envelope { command_id: Some("c1".into()), digest: Some([1; 32]), ..Default::default() };
    let progress = Some(Default::default());
    let command = Command::AppendTaskProgress(AppendProgress { progress, ..Default::default() });
    let first = t.run_with(&orchestrator(), &command, &envelope).unwrap();
    let first = answer(&t, &orchestrator(), &first);
    t.do_step("a");
    let again = t.run_with(&orchestrator(), &command, &envelope).unwrap();
    let again = answer(&t, &orchestrator(), &again);
    assert_eq!((&again["event_ids"], &again["version"]), (&first["event_ids"], &first["version"]));
    assert_eq!(again["task"]["counts"]["completed"], 1);
}

/// 5.2: a dispatch answers its Run and the end of its life.
#[test]
fn a_dispatch_is_answered_with_its_run() {
    let mut t = Fixture::manual("a");
    let outcome = t.ok(Command::DispatchWorker(Dispatch::to(pool_id("main"))));
    let answer = answer(&t, &orchestrator(), &outcome);
    let view = t.task.durable();
    let (_, run) = view.runs().next().unwrap();
    assert_eq!(answer["run_id"], run.run_id.to_string());
    assert_eq!(answer["expires_at"], t.now + 300_000);
}

/// CANCEL-07, GET-04: a holder's answer says whether it is asked to stop, and shows no more of the
/// Task than a read would.
#[test]
fn a_holder_is_told_to_stop_and_nothing_else_of_the_task() {
    let mut t = Fixture::manual("a b@gpu<-a c");
    let held = t.claim("a");
    let other = t.claim("c");
    let outcome = t.report(&held, StepStatus::Running);
    let told = answer(&t, &held.caller(), &outcome);
    assert_eq!(told["cancel_requested"], false);
    assert!(told["task"].get("counts").is_none(), "{told}");
    t.ok(Command::CancelRun(RunAndWhy { reason: None, run_id: held.run_id }));
    let outcome = t.report(&held, StepStatus::Running);
    assert_eq!(answer(&t, &held.caller(), &outcome)["cancel_requested"], true);
    let outcome = t.report(&other, StepStatus::Running);
    assert_eq!(answer(&t, &other.caller(), &outcome)["cancel_requested"], false);
    t.ok(Command::TaskCancel(Default::default()));
    let outcome = t.report(&other, StepStatus::Running);
    assert_eq!(answer(&t, &other.caller(), &outcome)["cancel_requested"], true);
    assert!(answer(&t, &orchestrator(), &outcome).get("cancel_requested").is_none());
    let outcome = t.report(&held, StepStatus::Completed);
    let told = answer(&t, &held.caller(), &outcome).to_string();
    assert!(!told.contains("\"b\""), "b is out of scope: {told}");
}

/// CTRL-06: over budget an answer gives up its Steps, then the Task for a reference that
/// `agent.task_get` resolves, then the middle of its event ids.
#[test]
fn an_answer_fits_the_budget_of_its_caller() {
    let notation: Vec<String> = (0..60).map(|n| format!("s{n}")).collect();
    let mut t = Fixture::manual(&notation.join(" "));
    let outcome = t.ok(Command::TaskCancel(Default::default()));
    let view = t.task.durable();
    let full = write_summary(&view, &orchestrator(), &outcome.reply, &known());
    let within = |max| fit(max, full.clone(), size, WriteSummary::shorten);
    assert_eq!(within(size(&full)), full);
    let no_steps = within(size(&full) - 1);
    assert!(no_steps.steps.is_empty() && as_json(&no_steps)["task"]["counts"].is_object());
    let referring = as_json(&within(size(&no_steps) - 1));
    assert_eq!(
        referring["task"],
        json!({"operation": "agent.task_get", "task_id": "t", "version": t.task.version()})
    );
    assert_eq!(referring["event_ids"].as_array().unwrap().len(), 61);
    let bare = as_json(&within(1));
    assert_eq!(bare["event_ids"].as_array().unwrap().len(), 2);
    assert_eq!(bare["version"], t.task.version());
}

/// CTRL-06: so does a read: a Task gives up its lists for a reference, a page its rear half.
#[test]
fn what_is_read_fits_the_budget_of_its_caller() {
    let t = Fixture::manual("a b c d");
    let view = t.task.durable();
    let TaskRead::Whole(full) = get_task(&view, &orchestrator(), &known()).unwrap() else {
        panic!("an orchestrator reads all of it")
    };
    let within = |max| fit(max, TaskView::clone(&full), size, TaskView::shorten);
    assert_eq!(within(size(&full)), *full);
    let short = within(size(&full) - 1);
    assert_eq!((short.steps.len(), &short.task), (0, &full.task));
    assert_eq!(
        as_json(&short)["left_out"],
        json!({"operation": "agent.task_get", "task_id": "t", "version": t.task.version()})
    );
    assert_eq!(within(1), short, "there is no shorter one");
    let was = fit(1, TaskView::as_it_was(&view), size, TaskView::shorten_as_it_was);
    assert_eq!(
        (was.steps.len(), &as_json(&was)["left_out"]),
        (0, &json!({"operation": "replay_task", "task_id": "t", "version": t.task.version()}))
    );

    let input = QueryInput { offset: 1, ..QueryInput::default() };
    let page = query_steps(&view, &orchestrator(), &input, &known(), &t.limits).unwrap();
    let within = |max| fit(max, page.clone(), size, |page| page.halve(1));
    assert_eq!((page.steps.len(), within(size(&page))), (3, page.clone()));
    for max in [size(&page) - 1, 1] {
        let half = within(max);
        assert_eq!((half.steps.len(), half.next_offset, half.truncated), (1, Some(2), true));
        assert_eq!(half.steps[0], page.steps[0], "one there always is");
    }
    let input = QueryInput { offset: usize::MAX, ..QueryInput::default() };
    let beyond = query_steps(&view, &orchestrator(), &input, &known(), &t.limits).unwrap();
    assert_eq!(
        (beyond.steps.len(), beyond.next_offset),
        (0, None),
        "there is nothing so far behind"
    );
}

/// CLAIM-14: everything the work needs comes with the claim.
#[test]
fn a_claim_brings_everything_the_work_needs() {
    let mut given = create_input("a b<-a");
    given.steps[1].handler = Some("cook".parse().unwrap());
    given.steps[1].input = Some(serde_json::from_value(json!({"data": "{\"n\":1}"})).unwrap());
    let mut t = Fixture::create(given, Policy::Manual);
    let input_refs = vec![Ref::new("mem:late").unwrap()];
    t.ok(Command::AppendTaskProgress(AppendProgress { input_refs, ..Default::default() }));
    let a = t.claim("a");
    let done = StepReport {
        status: Some(StepStatus::Completed),
        output: Some(serde_json::from_value(json!({"data": "41"})).unwrap()),
        result_summary: Some("nearly".into()),
        artifacts: vec![artifact("made", "report")],
        ..a.says()
    };
    t.ok_as(&a.caller(), Command::TaskUpdateStep(done));
    let run = t.ok(Command::DispatchWorker(Dispatch {
        allowed_step_ids: None,
        bindings: Some(Bindings { thread_id: Some("th".into()), environment_ref: None }),
        instructions: Some("be quick".into()),
        on_behalf: None,
        ttl_ms: None,
        wait: None,
        worker_pool_id: pool_id("main"),
    }));
    let tenure_core::task::Made::Run(run) = run.reply.made else { panic!("a run was made") };
    let run_id = t.task.run_at(run).run_id;
    let b = t.claim_under("ant", run_id, "b");
    let got = as_json(&claimed(&t, &b));
    for (field, expected) in [
        ("task_id", json!("t")),
        ("session_id", json!("s")),
        ("run_id", json!(run_id.to_string())),
        ("attempt_id", json!(b.attempt_id.to_string())),
        ("fencing_token", json!(b.token)),
        ("ordinal", json!(1)),
        ("lease_expires_at", json!(t.attempt_of(&b).lease_expires_at)),
        ("lease_ms", json!(30_000)),
        ("instructions", json!("be quick")),
        ("bindings", json!({"thread_id": "th"})),
        ("input_refs", json!(["made", "mem:late"])),
    ] {
        assert_eq!(got[field], expected, "{field}");
    }
    assert_eq!(
        (&got["step"]["handler"], &got["step"]["input"]["data"]),
        (&json!("cook"), &json!("{\"n\":1}"))
    );
    assert_eq!(
        got["dependencies"],
        json!([{"step_id": "a", "output": {"content_type": "application/json", "data": "41"},
            "result_summary": "nearly", "artifact_ids": ["made"]}])
    );
    let again: ClaimResult = serde_json::from_value(got).unwrap();
    assert_eq!(again, claimed(&t, &b));
}

/// CLAIM-14: of a join a claim says what was handed on, and nothing of those that handed on nothing: that they
/// are completed is known.
#[test]
fn a_claim_leaves_out_dependencies_that_handed_on_nothing() {
    let mut t = Fixture::manual("a b c z<-a,b,c");
    for step in ["a", "b", "c"] {
        let summary = (step == "b").then(|| "here".to_owned());
        let word = StepReport {
            status: Some(StepStatus::Completed),
            result_summary: summary,
            ..StepReport::on(id(step))
        };
        t.ok(Command::TaskUpdateStep(word));
    }
    let z = t.claim("z");
    let claim = claimed(&t, &z);
    let of: Vec<&str> = claim.dependencies.iter().map(|one| one.step_id.as_str()).collect();
    assert_eq!((of, claim.step.depends_on_step_ids.len()), (vec!["b"], 3));
}

/// CLAIM-14: what the Step and its dependencies carry is shared, not copied: a claim costs no more
/// for large values.
#[test]
fn a_claim_shares_what_it_brings() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let got = claimed(&t, &held);
    assert!(Arc::ptr_eq(&got.step, &t.step("a").spec));
    assert!(Arc::ptr_eq(&got.input_refs, &t.attempt_of(&held).input_refs));
}

/// ATT-09: a later Attempt gets the checkpoints of all earlier ones, the newest first.
#[test]
fn later_attempts_get_earlier_checkpoints() {
    let mut t = Fixture::manual("a");
    for refs in [vec!["mem:1"], vec!["mem:2", "mem:1"]] {
        let held = t.claim("a");
        let checkpoint_refs = refs.into_iter().map(|r| Ref::new(r).unwrap()).collect();
        let report = StepReport { checkpoint_refs, ..held.says() };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
        assert!(claimed(&t, &held).checkpoint_refs.len() < 2, "its own are not given back to it");
        let attempt_ids = vec![held.attempt_id];
        t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason: LeaseEnd::LeaseExpired });
    }
    let held = t.claim("a");
    let got: Vec<_> = claimed(&t, &held).checkpoint_refs.iter().map(Ref::to_string).collect();
    assert_eq!(got, ["mem:2", "mem:1"]);
}

/// STEP-24, CLAIM-15: asked again later, a claim brings what it brought, though the Step was edited
/// and its lease renewed.
#[test]
fn a_claim_asked_for_again_brings_the_same() {
    let mut t = Fixture::manual("a b<-a c");
    t.do_step("a");
    let held = t.claim("b");
    let first = claimed(&t, &held);
    t.ok(t.patch(json!([
        {"op": "update_step", "step_id": "b", "fields": {"title": "new", "summary": "new"}},
        {"op": "remove_dependency", "step_id": "b", "depends_on_step_id": "a"},
        {"op": "add_dependency", "step_id": "b", "depends_on_step_id": "c"},
    ])));
    t.wait_ms(1_000);
    t.start(&held);
    let again = claimed(&t, &held);
    assert!(again.lease_expires_at > first.lease_expires_at);
    assert_eq!(ClaimResult { lease_expires_at: first.lease_expires_at, ..again }, first);
}

/// CTRL-09: an error has a stable code, words for people, whether to try again, and details.
#[test]
fn an_error_is_structured() {
    let mut t = Fixture::manual("a");
    let no = as_json(&t.refuse(write_command("nobody", StepStatus::Completed), Code::StepNotFound));
    assert_eq!((&no["code"], &no["retryable"]), (&json!("step_not_found"), &json!(false)));
    assert_eq!(no["details"]["step_id"], "nobody");
    assert!(no["message"].as_str().unwrap().contains("nobody"));
}
