//! STEP-37: whose results a claim hands on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::StepReport;
use tenure_core::command::create::CreateTask;
use tenure_core::event::StepTakenOver;
use tenure_core::record::Value;
use tenure_core::rules::Rules;
use tenure_core::status::{Policy, StepStatus};
use tenure_core::view::{ClaimResult, claim_result};
use tenure_core::{Code, Command, Limits, Rejection};

/// A manual Task; Steps whose names begin with `join` have the handler `noop`, and these Steps name whose
/// results they get.
fn input(notation: &str, inputs: &[(&str, &[&str])]) -> CreateTask {
    let mut given = create_input(notation);
    for step in &mut given.steps {
        if step.step_id.as_str().starts_with("join") {
            step.handler = Some("noop".parse().unwrap());
        }
        let named = inputs.iter().find(|(name, _)| *name == step.step_id.as_str());
        step.inputs_from = named.map(|(_, from)| from.iter().map(|name| id(name)).collect());
    }
    given
}

fn manual(notation: &str, inputs: &[(&str, &[&str])]) -> Fixture {
    Fixture::create(input(notation, inputs), Policy::Manual)
}

fn created(notation: &str, inputs: &[(&str, &[&str])], rules: Rules) -> Result<Fixture, Rejection> {
    let limits = Limits { rules, ..Limits::default() };
    Fixture::try_create(input(notation, inputs), Policy::Manual, limits)
}

fn with_output(t: &mut Fixture, step: &str, output: &str) {
    let held = t.claim(step);
    let report = StepReport {
        status: Some(StepStatus::Completed),
        output: Some(Value::json(output.as_bytes().to_vec())),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
}

fn claimed(t: &Fixture, held: &Held) -> ClaimResult {
    claim_result(&t.task.durable(), held.attempt_id).unwrap()
}

/// What a claim hands on, as `step=output` in its order.
fn handed(t: &Fixture, held: &Held) -> Vec<String> {
    let results = claimed(t, held).dependencies;
    let told = results.iter().map(|result| {
        let output = result.output.as_ref().and_then(Value::data).unwrap_or(b"null");
        format!("{}={}", result.step_id, str::from_utf8(output).unwrap())
    });
    told.collect()
}

fn done(t: &mut Fixture, steps: &[&str]) {
    for step in steps {
        if step.starts_with("join") {
            t.do_step(step);
        } else {
            with_output(t, step, &format!("\"{step}\""));
        }
    }
}

/// STEP-37: a Step behind a join gets what was joined, not `{"join": null}`; in a Task of rules 1 it gets
/// nothing, as it always did.
#[test]
fn a_claim_looks_through_a_join() {
    let dag = "x1 x2 x3 join<-x3,x1,x2 report<-join";
    let mut t = manual(dag, &[]);
    done(&mut t, &["x1", "x2", "x3", "join"]);
    let held = t.claim("report");
    assert_eq!(handed(&t, &held), ["x3=\"x3\"", "x1=\"x1\"", "x2=\"x2\""]);

    let mut old = created(dag, &[], Rules::First).unwrap();
    done(&mut old, &["x1", "x2", "x3", "join"]);
    let held = old.claim("report");
    assert_eq!(handed(&old, &held), [""; 0]);
}

/// STEP-37: it looks through joins of joins, in the Step's order, hands on each Step once, and stops at a
/// join that has results of its own.
#[test]
fn joins_of_joins_hand_on_each_step_once() {
    let dag = "a b c join1<-b,a join2<-join1,c join3<-join2,join1 z<-join3,a last<-join4 join4<-c";
    let mut t = manual(dag, &[]);
    done(&mut t, &["a", "b", "c", "join1", "join2", "join3"]);
    with_output(&mut t, "join4", "4");
    let held = t.claim("z");
    assert_eq!(handed(&t, &held), ["b=\"b\"", "a=\"a\"", "c=\"c\""]);
    let held = t.claim("last");
    assert_eq!(handed(&t, &held), ["join4=4"]);
}

/// STEP-37, 2.4: references come through a join, too, and stay as the claim fixed them.
#[test]
fn references_come_through_a_join() {
    let mut t = manual("a join<-a z<-join", &[]);
    let held = t.claim("a");
    let report = StepReport {
        status: Some(StepStatus::Completed),
        artifacts: serde_json::from_value(json!([
            {"artifact_id": "page", "name": "page", "kind": "text", "state": "available"}
        ]))
        .unwrap(),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    t.do_step("join");
    let held = t.claim("z");
    let refs: Vec<_> = claimed(&t, &held).input_refs.iter().map(ToString::to_string).collect();
    assert_eq!(refs, ["page"]);
}

/// STEP-37: a join between more than a thousand Steps and others is a barrier. Who wants what it joins says
/// so.
#[test]
fn a_wide_join_is_a_barrier() {
    for (width, expected) in [(1_000, 1_000), (1_001, 0)] {
        let names: Vec<String> = (0..width).map(|at| format!("x{at}")).collect();
        let dag =
            format!("{} own join<-{} last<-own,join all<-join", names.join(" "), names.join(","));
        let taken = StepTakenOver {
            from_task_id: "before".parse().unwrap(),
            from_attempt_id: None,
            output: Some(Value::json(*b"1")),
            result_summary: None,
            artifacts: Vec::new(),
        };
        let done = names.iter().map(String::as_str).chain(["own"]);
        let taken_over = done.map(|step| (id(step), taken.clone())).collect();
        let given = CreateTask { taken_over, ..input(&dag, &[("all", &["join"])]) };
        let mut t = Fixture::create(given, Policy::Manual);
        t.write("join", StepStatus::Completed);
        let held = t.claim("last");
        assert_eq!(claimed(&t, &held).dependencies.len(), expected + 1, "with its own");
        let held = t.claim("all");
        assert_eq!(claimed(&t, &held).dependencies.len(), width);
    }
}

/// STEP-37: behind Steps that only join others there may be nothing, and then nobody looks there.
#[test]
fn joins_of_nothing_hand_on_nothing() {
    let mut t = manual("join1 join2<-join1 a join3<-join2,a z<-join2 y<-join3", &[]);
    done(&mut t, &["join1", "join2", "a", "join3"]);
    let joins_nothing = |step: &str| t.step(step).state.joins_nothing;
    assert!(joins_nothing("join1") && joins_nothing("join2"));
    assert!(!joins_nothing("join3") && !joins_nothing("a"));
    let held = t.claim("z");
    assert_eq!(handed(&t, &held), [""; 0]);
    let held = t.claim("y");
    assert_eq!(handed(&t, &held), ["a=\"a\""]);
}

/// STEP-37: a Step gets the results of the ancestors that it names, in its order and each of them, and of
/// no others.
#[test]
fn a_step_names_whose_results_it_gets() {
    let inputs: &[(&str, &[&str])] = &[("c", &["a", "x", "a"]), ("d", &[])];
    let mut t = manual("a x b<-a,x c<-b d<-b", inputs);
    assert_eq!(t.step("c").spec.inputs_from, Some(vec![id("a"), id("x")]), "each once");
    done(&mut t, &["a"]);
    t.do_step("x");
    done(&mut t, &["b"]);
    let held = t.claim("c");
    assert_eq!(handed(&t, &held), ["a=\"a\"", "x=null"]);
    let held = t.claim("d");
    assert_eq!(handed(&t, &held), [""; 0]);
}

/// STEP-37: a Step names only Steps for which it waits.
#[test]
fn only_ancestors_can_be_named() {
    for (inputs, missing) in [(["b"], "b"), (["c"], "c"), (["nobody"], "nobody")] {
        let no = created("a b c<-a", &[("c", &inputs)], Rules::Second).unwrap_err();
        assert_eq!(no.code, Code::ValidationError);
        assert_eq!(no.details["from_step_id"], missing, "{no}");
        assert_eq!(
            (&no.details["step_id"], no.details["field"].as_str()),
            (&Json::from("c"), Some("steps[2].inputs_from"))
        );
    }
    created("c<-b b<-a a", &[("c", &["a"])], Rules::Second).unwrap();
}

/// STEP-37, EVOLVE-01: a Task of rules 1 has no such field.
#[test]
fn a_task_of_rules_1_names_no_inputs() {
    let no = created("a b<-a", &[("b", &["a"])], Rules::First).unwrap_err();
    assert_eq!(
        (no.code, &no.details["field"]),
        (Code::ValidationError, &"steps[1].inputs_from".into())
    );
    let mut t = created("a b<-a", &[], Rules::First).unwrap();
    for operation in [
        json!({"op": "update_step", "step_id": "b", "fields": {"inputs_from": ["a"]}}),
        json!({"op": "add_step", "step": {"step_id": "c", "title": "", "inputs_from": []}}),
    ] {
        let no = t.refuse(patch(json!([operation])), Code::ValidationError);
        assert_eq!(
            (&no.details["field"], &no.details["op_index"]),
            (&"inputs_from".into(), &0.into())
        );
    }
}

/// STEP-37, PATCH-15: it is checked on the final DAG of a patch, and the refusal names the operation.
#[test]
fn a_patch_keeps_named_steps_above() {
    let remove = |step: &str, on: &str| json!({"op": "remove_dependency", "step_id": step, "depends_on_step_id": on});
    let name = |step: &str, from: Json| json!({"op": "update_step", "step_id": step, "fields": {"inputs_from": from}});
    let mut t = manual("a b<-a c<-b d<-c e", &[("d", &["a"])]);

    let no = t.refuse(patch(json!([name("e", json!(["a"]))])), Code::ValidationError);
    assert_eq!((&no.details["from_step_id"], &no.details["op_index"]), (&"a".into(), &0.into()));
    let no = t.refuse(
        patch(json!([{"op": "update_task", "title": "new"}, remove("b", "a")])),
        Code::ValidationError,
    );
    assert_eq!((&no.details["step_id"], &no.details["op_index"]), (&"d".into(), &1.into()));
    let no = t.refuse(patch(json!([name("d", json!(["nobody"]))])), Code::ValidationError);
    assert_eq!(no.details["from_step_id"], "nobody");

    t.ok(patch(json!([
        remove("b", "a"),
        {"op": "add_dependency", "step_id": "c", "depends_on_step_id": "a"},
        {"op": "add_step", "step": {"step_id": "f", "title": "", "depends_on_step_ids": ["d"],
            "inputs_from": ["a", "b"]}},
        name("b", json!([])),
    ])));
    let no =
        t.refuse(patch(json!([name("d", Json::Null), remove("c", "a")])), Code::ValidationError);
    assert_eq!((&no.details["step_id"], &no.details["op_index"]), (&"f".into(), &1.into()));
    t.ok(patch(json!([name("d", Json::Null), name("f", Json::Null), remove("c", "a")])));
    assert_eq!(t.step("d").spec.inputs_from, None);
}

/// STEP-37, PATCH-20: a Step that another names cannot be deleted alone.
#[test]
fn a_named_step_is_not_deleted() {
    let mut t = manual("a b<-a c<-b d<-c", &[("d", &["a"])]);
    let delete = json!([
        {"op": "update_step", "step_id": "b", "fields": {"depends_on_step_ids": []}},
        {"op": "delete_step", "step_id": "a"},
    ]);
    let no = t.refuse(patch(delete.clone()), Code::StepHasDependents);
    assert_eq!(no.details["step_id"], "a");
    assert_eq!((&no.details["step_ids"], &no.details["op_index"]), (&json!(["d"]), &1.into()));
    let mut with = delete.as_array().unwrap().clone();
    with.push(json!({"op": "update_step", "step_id": "d", "fields": {"inputs_from": ["b"]}}));
    t.ok(patch(Json::Array(with)));
}

/// STEP-37, STEP-24: a claim keeps what it was given, although a patch names other Steps meanwhile.
#[test]
fn a_claim_keeps_whose_results_it_was_given() {
    let mut t = manual("a b c<-a,b", &[("c", &["a"])]);
    done(&mut t, &["a", "b"]);
    let held = t.claim("c");
    let name = json!([{"op": "update_step", "step_id": "c", "fields": {"inputs_from": ["b"]}}]);
    t.ok(patch(name));
    assert_eq!(handed(&t, &held), ["a=\"a\""]);
    assert_eq!(claimed(&t, &held).step.inputs_from, Some(vec![id("a")]));
    t.ok_as(&held.caller(), held.releases());
    let held = t.claim("c");
    assert_eq!(handed(&t, &held), ["b=\"b\""]);
}

/// STEP-37: the search for ancestors ends, with a way out that always works.
#[test]
fn too_far_up_is_refused() {
    let chain = |named: &str| {
        let mut notation = String::from("s0");
        (1..1_600).for_each(|at| notation.push_str(&format!(" s{at}<-s{}", at - 1)));
        let mut given = create_input(&notation);
        for step in given.steps.iter_mut().skip(1) {
            step.inputs_from = Some(vec![id(named)]);
            if named == "direct" {
                step.inputs_from = Some(step.depends_on_step_ids.clone());
            }
        }
        Fixture::try_create(given, Policy::Manual, Limits::default())
    };
    let no = chain("s0").unwrap_err();
    assert_eq!((no.code, &no.details["limit"]), (Code::ValidationError, &1_000_000.into()));
    chain("direct").unwrap();
}
