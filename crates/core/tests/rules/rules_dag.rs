//! DAG: structure.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{EndRun, RunOutcome, StepReport, Why};
use tenure_core::patch::StepInput;
use tenure_core::record::Value;
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::{Code, Command, Limits, Rejection};

fn refused(notation: &str) -> Rejection {
    refused_with(create_input(notation), Limits::default())
}

fn refused_with(given: CreateTask, limits: Limits) -> Rejection {
    Fixture::try_create(given, Policy::Manual, limits).expect_err("the create is refused")
}

fn add(id: &str, on: &[&str]) -> Json {
    json!({"op": "add_step", "step":
        {"step_id": id, "title": "t", "summary": "s", "depends_on_step_ids": on}})
}

/// DAG-01: every Step is a node of the one DAG; edges know both ends.
#[test]
fn a_task_is_one_dag_of_its_steps() {
    let t = Fixture::manual("a b<-a c<-a d<-b,c");
    assert_eq!(t.step("a").dependents, [1, 2]);
    assert_eq!(t.step("d").spec.depends_on_step_ids, [id("b"), id("c")]);
    assert_eq!(t.statuses("a b c d"), "a:ready b:pending c:pending d:pending");
}

/// DAG-02, 2.8: `task_created` carries every field with its default filled in.
#[test]
fn the_creation_carries_every_field_with_its_default() {
    let t = Fixture::manual("a b<-a");
    let created = t.payload("task_created");
    let task = &created["task"];
    let expected = json!({
        "task_id": "t", "session_id": "s", "wal_name": "t", "title": "title",
        "summary": "summary", "dispatch": "manual", "completion": "manual",
        "default_worker_pool_id": POOL, "root_task_id": "t", "delivery_state": "not_applicable",
        "status": "pending",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&task[name], value, "{name}");
    }
    let step = json!({
        "step_id": "b", "title": "title of b", "summary": "summary of b",
        "depends_on_step_ids": ["a"], "required": true, "worker_pool_id": POOL,
        "handler": "default",
    });
    assert_eq!(task["steps"][1], step);
}

/// DAG-03, DAG-05, DAG-06: the first failing check refuses the whole create.
#[test]
fn a_create_is_refused_for_ids_then_dependencies_then_cycles() {
    let duplicate = refused("a a<-nobody b<-b");
    assert_eq!(duplicate.details["field"], "steps[1].step_id");
    let unknown = refused("a b<-nobody c<-c");
    assert_eq!(unknown.code, Code::ValidationError);
    assert_eq!(unknown.details["field"], "steps[1].depends_on_step_ids");
    assert_eq!(unknown.details["depends_on_step_id"], "nobody");
    assert_eq!(refused("a c<-c").code, Code::DependencyCycle);
}

/// DAG-04: two fields of a Step are required, two have defaults.
#[test]
fn a_step_needs_id_and_title() {
    let whole = json!({"step_id": "a", "title": "t", "summary": "s", "depends_on_step_ids": []});
    assert!(serde_json::from_value::<StepInput>(whole.clone()).is_ok());
    for name in ["step_id", "title"] {
        let mut part = whole.clone();
        part.as_object_mut().unwrap().remove(name);
        assert!(serde_json::from_value::<StepInput>(part).is_err(), "{name}");
    }
    let least = json!({"step_id": "a", "title": "t"});
    let read: StepInput = serde_json::from_value(least).unwrap();
    let empty = json!({"step_id": "a", "title": "t", "summary": "", "depends_on_step_ids": []});
    assert_eq!(read, serde_json::from_value(empty).unwrap());
}

/// DAG-05: any cycle, a self dependency too, is refused with the ids along it.
#[test]
fn a_cycle_is_refused_with_its_ids() {
    assert_eq!(refused("a<-a").details["step_ids"], json!(["a"]));
    let rejection = refused("x a<-c,x b<-a c<-b y<-c");
    assert_eq!(rejection.code, Code::DependencyCycle);
    let mut ids: Vec<&str> = rejection.details["step_ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i.as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["a", "b", "c"], "and nothing that only leads there");
}

/// DAG-05: the same in a patch, through any operation that makes edges, wherever the cycle closes.
#[test]
fn a_patch_that_closes_a_cycle_is_refused_with_its_ids() {
    let mut t = Fixture::manual("a b<-a c<-b d<-c z");
    let edge =
        |s: &str, on: &str| json!({"op": "add_dependency", "step_id": s, "depends_on_step_id": on});
    let all = |t: &mut Fixture, operations: Json, op_index: usize, expected: &[&str]| {
        let rejection = t.refuse(patch(operations), Code::DependencyCycle);
        assert_eq!(rejection.details["op_index"], op_index);
        let ids = rejection.details["step_ids"].as_array().unwrap();
        let mut ids: Vec<&str> = ids.iter().map(|i| i.as_str().unwrap()).collect();
        // Each depends on the next, the last on the first.
        assert!(ids.len() == expected.len(), "{ids:?}");
        ids.sort_unstable();
        assert_eq!(ids, expected);
    };
    all(&mut t, json!([edge("a", "a")]), 0, &["a"]);
    all(&mut t, json!([edge("z", "d"), edge("a", "d")]), 1, &["a", "b", "c", "d"]);
    all(&mut t, json!([edge("a", "z"), edge("z", "c")]), 1, &["a", "b", "c", "z"]);
    all(&mut t, json!([add("n", &["d"]), edge("a", "n")]), 1, &["a", "b", "c", "d", "n"]);
    all(&mut t, json!([add("n", &["m"]), add("m", &["n"])]), 1, &["m", "n"]);
    all(&mut t, json!([add("n", &["n"])]), 0, &["n"]);
    let update =
        json!({"op": "update_step", "step_id": "b", "fields": {"depends_on_step_ids": ["c"]}});
    all(&mut t, json!([update]), 0, &["b", "c"]);
}

/// DAG-05: in a long chain as well: no recursion, and no cycle where there is none.
#[test]
fn cycles_are_found_in_long_chains() {
    const LENGTH: usize = 20_000;
    let chain: Vec<String> = (0..LENGTH)
        .map(|i| if i == 0 { "s0".to_owned() } else { format!("s{i}<-s{}", i - 1) })
        .collect();
    let mut t = Fixture::manual(&chain.join(" "));
    let edge = |s: usize, on: usize| {
        patch(json!([{"op": "add_dependency", "step_id": format!("s{s}"),
            "depends_on_step_id": format!("s{on}")}]))
    };
    let rejection = t.refuse(edge(0, LENGTH - 1), Code::DependencyCycle);
    assert_eq!(rejection.details["step_ids"].as_array().unwrap().len(), LENGTH);
    t.ok(edge(LENGTH - 1, 0));
}

/// DAG-06: a dependency on an unknown or a deleted Step is refused.
#[test]
fn a_dependency_on_an_unknown_step_is_refused() {
    let mut t = Fixture::manual("a b");
    t.ok(patch(json!([{"op": "delete_step", "step_id": "b"}])));
    for on in ["nobody", "b"] {
        let edge = json!({"op": "add_dependency", "step_id": "a", "depends_on_step_id": on});
        t.refuse(patch(json!([edge])), Code::ValidationError);
        t.refuse(patch(json!([add("c", &[on])])), Code::ValidationError);
        let fields = json!({"depends_on_step_ids": [on]});
        let update = json!({"op": "update_step", "step_id": "a", "fields": fields});
        let rejection = t.refuse(patch(json!([update])), Code::ValidationError);
        assert_eq!(rejection.details["depends_on_step_id"], on);
    }
}

/// DAG-07, READY-03: only a completed dependency satisfies.
#[test]
fn only_completed_dependencies_satisfy() {
    for &status in StepStatus::ALL {
        let mut t = Fixture::with_step(status);
        t.ok(patch(json!([add("y", &["x"])])));
        let expected = match status {
            StepStatus::Completed => StepStatus::Ready,
            _ => StepStatus::Pending,
        };
        assert_eq!(t.status("y"), expected, "behind a step that is {status}");
    }
}

/// DAG-08: `required` is true unless given, and never changes what satisfies.
#[test]
fn a_required_step_waits_for_an_optional_one() {
    let mut t = Fixture::manual("a? b<-a");
    assert!(!t.step("a").spec.required);
    assert!(t.step("b").spec.required);
    t.write("a", StepStatus::Failed);
    assert_eq!(t.status("b"), StepStatus::Pending);
    t.write("a", StepStatus::Pending);
    t.write("a", StepStatus::Completed);
    assert_eq!(t.status("b"), StepStatus::Ready);
}

/// DAG-09: the Task's default pool is stored with the Step when it is made.
#[test]
fn the_default_pool_is_stored_with_the_step() {
    let given =
        CreateTask { default_worker_pool_id: Some(pool_id("own")), ..create_input("a b@gpu") };
    let mut t = Fixture::create(given, Policy::Manual);
    assert_eq!(t.step("a").spec.worker_pool_id.as_str(), "own");
    assert_eq!(t.step("b").spec.worker_pool_id.as_str(), "gpu");
    t.ok(patch(json!([add("c", &[])])));
    assert_eq!(t.step("c").spec.worker_pool_id.as_str(), "own");
    assert_eq!(Fixture::manual("a").step("a").spec.worker_pool_id.as_str(), POOL);
}

/// DAG-10: a Step has no priority, order or position that could be written.
#[test]
fn steps_have_no_order_of_their_own() {
    for field in ["priority", "order", "position", "after", "before", "index"] {
        let mut step =
            json!({"step_id": "a", "title": "", "summary": "", "depends_on_step_ids": []});
        step[field] = json!(1);
        assert!(serde_json::from_value::<StepInput>(step).is_err(), "{field}");
    }
}

/// DAG-11: texts decide nothing: a patch of texts alone writes `task_updated` and nothing else.
#[test]
fn texts_change_no_status_order_or_eligibility() {
    let mut t = Fixture::manual("a b c<-a d<-b");
    t.write("b", StepStatus::Failed);
    let before = t.task.derive_again();
    t.ok(patch(json!([
        {"op": "update_task", "title": "urgent!", "summary": "completed", "objective": "cancel all"},
        {"op": "update_step", "step_id": "c", "fields": {"title": "ready", "summary": "run first"}},
        {"op": "update_step", "step_id": "b", "fields": {"summary": "done"}},
    ])));
    assert_eq!(t.events(), ["task_updated"]);
    assert_eq!(t.task.derive_again(), before);
}

/// DAG-12, PATCH-02, STEP-32: a report changes no content, whoever sends it.
#[test]
fn reports_change_no_content() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    for field in StepReport::CONTENT {
        let content_fields = vec![field.into()];
        let by_worker = StepReport { content_fields: content_fields.clone(), ..held.says() };
        let command = Command::TaskUpdateStep(by_worker);
        t.refuse_as(&held.caller(), command, Code::PermissionDenied);
        let by_orchestrator = StepReport { content_fields, ..StepReport::on(id("a")) };
        t.refuse(Command::TaskUpdateStep(by_orchestrator), Code::ValidationError);
    }
}

/// DAG-13: the final output of a run overwrites nothing.
#[test]
fn the_result_of_a_run_overwrites_nothing() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let report = StepReport {
        status: Some(StepStatus::Completed),
        result_summary: Some("the truth".into()),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    let end = EndRun {
        outcome: RunOutcome::Finished,
        result: Some("something else".into()),
        run_id: held.run_id,
    };
    t.ok_as(&held.caller(), Command::EndRun(end));
    let facts = t.step("a").state.facts();
    assert_eq!(facts.result_summary.as_deref(), Some("the truth"));
    assert_eq!(t.status("a"), StepStatus::Completed);
}

/// DAG-14: a dependency named twice is stored once, where it stood first.
#[test]
fn a_dependency_named_twice_is_stored_once() {
    let mut t = Fixture::manual("a b c<-b,a,b,a");
    assert_eq!(t.step("c").spec.depends_on_step_ids, [id("b"), id("a")]);
    let fields = json!({"depends_on_step_ids": ["a", "b", "a"]});
    t.ok(patch(json!([
        {"op": "update_step", "step_id": "c", "fields": fields},
        add("d", &["b", "b"]),
    ])));
    assert_eq!(t.step("c").spec.depends_on_step_ids, [id("a"), id("b")]);
    assert_eq!(t.step("d").spec.depends_on_step_ids, [id("b")]);
    t.write("b", StepStatus::Completed);
    assert_eq!(t.status("d"), StepStatus::Ready);
}

/// DAG-15: outside draft a Task has a Step; a draft may be empty until it is submitted.
#[test]
fn a_task_outside_draft_has_a_step() {
    assert_eq!(refused("").code, Code::ValidationError);
    let delete = json!({"op": "delete_step", "step_id": "a"});
    let mut t = Fixture::manual("a");
    let rejection = t.refuse(patch(json!([delete])), Code::ValidationError);
    assert_eq!(rejection.details["op_index"], 0);
    t.ok(patch(json!([delete, add("b", &[])])));

    let mut t = Fixture::draft("");
    t.refuse(Command::SubmitTask(Why::default()), Code::ValidationError);
    t.ok(patch(json!([add("a", &[])])));
    t.ok(patch(json!([delete])));
    t.refuse(Command::SubmitTask(Why::default()), Code::ValidationError);
    t.ok(patch(json!([add("b", &[])])));
    t.ok(Command::SubmitTask(Why::default()));
    assert_eq!(t.task_status(), TaskStatus::Running);
}

/// P30: as many Steps as the limit says, deleted ones included, and not one more.
#[test]
fn a_task_holds_as_many_steps_as_the_limit_says() {
    let limits = Limits { steps_max: 4, ..Limits::default() };
    let rejection = refused_with(create_input("a b c d e"), limits.clone());
    assert_eq!(rejection.details["limit"], 4);
    let created = Fixture::try_create(create_input("a b c d"), Policy::Manual, limits.clone());
    assert!(created.is_ok());
    let mut t = Fixture::try_create(create_input("a b"), Policy::Manual, limits).unwrap();
    let rejection = t.refuse(
        patch(json!([add("c", &[]), {"op": "update_task", "title": "x"}, add("d", &[]), add("e", &[])])),
        Code::ValidationError,
    );
    assert_eq!(rejection.details["limit"], 4);
    assert_eq!(rejection.details["given"], 5);
    assert_eq!(rejection.details["op_index"], 3);
    t.ok(patch(json!([add("c", &[]), {"op": "delete_step", "step_id": "a"}, add("d", &[])])));
    let rejection = t.refuse(patch(json!([add("e", &[])])), Code::ValidationError);
    assert_eq!(rejection.details["op_index"], 0);
    t.ok(patch(json!([{"op": "delete_step", "step_id": "c"}])));
    t.refuse(patch(json!([add("e", &[])])), Code::ValidationError);
    t.ok(patch(
        json!([{"op": "update_step", "step_id": "d", "fields": {"title": "still edited"}}]),
    ));
}

/// P30: texts, inline values and reasons in create and patch, at the limit and over.
#[test]
fn content_is_refused_over_its_limit() {
    let limits = Limits {
        text_bytes_max: 10,
        value_bytes_max: 8,
        progress_bytes_max: 6,
        ..Limits::default()
    };
    let with = |title: &str, bytes: usize| {
        let mut given = CreateTask { summary: "s".into(), ..create_input("a") };
        given.steps[0].title = title.into();
        given.steps[0].summary = "s".into();
        given.steps[0].input = Some(Value::json(vec![b'1'; bytes]));
        given
    };
    assert!(Fixture::try_create(with("0123456789", 8), Policy::Manual, limits.clone()).is_ok());
    let rejection = refused_with(with("01234567890", 8), limits.clone());
    assert_eq!(rejection.details["field"], "steps[0].title");
    let rejection = refused_with(with("x", 9), limits.clone());
    assert_eq!(rejection.details["field"], "steps[0].input");

    let mut t = Fixture::try_create(with("x", 1), Policy::Manual, limits).unwrap();
    let update = |fields: Json| json!({"op": "update_step", "step_id": "a", "fields": fields});
    let cancel = |message: &str| json!({"op": "cancel_step", "step_id": "a", "reason": {"message": message}});
    let step = |title: &str| {
        json!({"op": "add_step", "step":
            {"step_id": "b", "title": title, "summary": "s", "depends_on_step_ids": []}})
    };
    for (at_limit, over, field) in [
        (update(json!({"title": "0123456789"})), update(json!({"title": "01234567890"})), "title"),
        (
            update(json!({"summary": "0123456789"})),
            update(json!({"summary": "01234567890"})),
            "summary",
        ),
        (
            update(json!({"input": {"data": "12345678"}})),
            update(json!({"input": {"data": "123456789"}})),
            "input",
        ),
        (
            json!({"op": "update_task", "title": "0123456789"}),
            json!({"op": "update_task", "title": "01234567890"}),
            "title",
        ),
        (
            json!({"op": "update_task", "objective": "0123456789"}),
            json!({"op": "update_task", "objective": "01234567890"}),
            "objective",
        ),
        (step("0123456789"), step("01234567890"), "title"),
        (cancel("012345"), cancel("0123456"), "reason.message"),
    ] {
        let fine = update(json!({"required": true}));
        let rejection = t.refuse(patch(json!([fine, over])), Code::ValidationError);
        assert_eq!(rejection.details["field"], field);
        assert_eq!(rejection.details["op_index"], 1);
        t.ok(patch(json!([at_limit])));
    }
}

/// P30: a claim names all dependencies of its Step, and is one message: so many a Step may have, at the limit and
/// over, from creation or by any patch.
#[test]
fn a_step_has_as_many_dependencies_as_a_claim_can_name() {
    // Texts of 22 bytes, and two names, of one byte and of two.
    let limits = Limits { told_bytes_max: 29, ..Limits::default() };
    let refused = refused_with(create_input("a bb c z<-a,bb,c"), limits.clone());
    assert_eq!(refused.details["field"], "steps[3].depends_on_step_ids");
    assert_eq!((&refused.details["limit"], &refused.details["given"]), (&json!(29), &json!(32)));
    assert!(refused.message.contains("3 names, and 32 bytes"), "{refused}");
    let given = create_input("a bb c z<-a,bb");
    let mut t = Fixture::try_create(given, Policy::Manual, limits).unwrap();
    let fine = json!({"op": "update_step", "step_id": "a", "fields": {"title": "t"}});
    let edge = |on: &str| json!({"op": "add_dependency", "step_id": "z", "depends_on_step_id": on});
    let rest = json!({"op": "remove_dependency", "step_id": "z", "depends_on_step_id": "a"});
    let fields = json!({"depends_on_step_ids": ["a", "bb", "c"]});
    let update = json!({"op": "update_step", "step_id": "z", "fields": fields});
    let mut added = add("y", &["a", "bb", "c"]);
    added["step"]["title"] = json!("x".repeat(20));
    for over in [added, update, edge("c")] {
        let refused = t.refuse(patch(json!([fine, over])), Code::ValidationError);
        assert_eq!(refused.details["field"], "depends_on_step_ids", "{over}");
        assert_eq!(
            (&refused.details["op_index"], &refused.details["limit"]),
            (&json!(1), &json!(29))
        );
    }
    t.ok(patch(json!([edge("c"), rest])));
    t.ok(patch(json!([add("y", &["a", "bb"])])));
}
