//! What publishers attach to Tasks and Steps: labels, `ext`, and the working directory.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tenure_core::Rules;
use tenure_core::command::create::CreateTask;
use tenure_core::record::{Labels, Object};
use tenure_core::status::{Policy, StepStatus};
use tenure_core::view::list::ListInput;
use tenure_core::view::query::QueryInput;
use tenure_core::view::summary::TaskSummary;
use tenure_core::view::{get_task, query_steps, write_summary};
use tenure_core::{Caller, Code, Limits};

use crate::common::ops::update;
use crate::common::*;
use crate::views::{as_json, known};

// ---- LABEL-01

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

/// LABEL-01: labels are kept, shown and inherited, and a list has the Tasks that match all pairs given.
#[test]
fn a_list_matches_all_labels_given() {
    let given = CreateTask {
        labels: labels(&[("team", "blue"), ("env", "prod"), ("empty", "")]),
        ..create_input("a")
    };
    let mut t = Fixture::create(given.clone(), Policy::Manual);
    let summary = TaskSummary::of(&t.task.durable(), &known());
    assert_eq!(summary.labels, given.labels);
    let asked = |pairs| ListInput { labels: labels(pairs), ..ListInput::default() };
    let fits = |pairs| asked(pairs).admits(summary.listed());
    assert!(fits(&[]) && fits(&[("team", "blue")]) && fits(&[("env", "prod"), ("team", "blue")]));
    assert!(fits(&[("empty", "")]));
    assert!(!fits(&[("team", "red")]) && !fits(&[("team", "blue"), ("env", "test")]));
    assert!(!fits(&[("other", "")]) && !fits(&[("team", "")]) && !fits(&[("blue", "team")]));
    t.ok(cancel_task());
    let again = t
        .task
        .durable()
        .retry_input("t2".parse().unwrap(), &made_again(&reason("x", "")), Rules::NEWEST)
        .unwrap();
    assert_eq!(again.labels, given.labels);
}

/// LABEL-01: at most 16 labels, keys of 63 and values of 128 characters; else the answer names the limit.
#[test]
fn labels_are_few_and_short() {
    let many = |n: usize| (0..n).map(|n| (format!("k{n}").into(), "v".into())).collect::<Labels>();
    let one = |key: usize, value: usize| labels(&[(&"ä".repeat(key), &"ö".repeat(value))]);
    let refused = |given: &Labels| {
        let create = CreateTask { labels: given.clone(), ..create_input("a") };
        let create = Fixture::try_create(create, Policy::Manual, Limits::default()).map(drop);
        let list = ListInput { labels: given.clone(), ..ListInput::default() };
        let list = list.limit(&Limits::default()).map(drop);
        assert_eq!(create, list, "one form for both");
        create.err().map(|no| (no.code, no.details["field"].clone(), no.details["limit"].clone()))
    };
    for fine in [many(16), one(63, 128), one(1, 0)] {
        assert_eq!(refused(&fine), None);
    }
    let no = |limit: u64| Some((Code::ValidationError, json!("labels"), json!(limit)));
    assert_eq!(refused(&many(17)), no(16));
    assert_eq!((refused(&one(64, 1)), refused(&one(0, 1))), (no(63), no(63)));
    assert_eq!(refused(&one(63, 129)), no(128));
    assert_eq!(refused(&labels(&[("a=b", "c")])), no(63));
}

// ---- EVOLVE-03, STORE-17

fn ext(value: serde_json::Value) -> Option<Object> {
    Some(value.as_object().unwrap().clone())
}

/// EVOLVE-03: Task and Step keep `ext` as it was given, nulls too; orchestrators see it, workers do not.
#[test]
fn ext_is_kept_for_orchestrators() {
    let mut given = create_input("a b<-a");
    given.ext = ext(json!({"of": "task", "null": null}));
    given.steps[0].ext = ext(json!({"of": "step", "deep": {"null": null}}));
    let mut t = Fixture::create(given.clone(), Policy::Manual);
    t.ok(patch(json!([update("b", json!({"ext": {"of": "patch"}}))])));
    let held = t.claim("a");
    let ant = held.caller();
    let answer = t.run(&ant, &held.reports(StepStatus::Running)).unwrap();
    let (view, known, limits) = (t.task.durable(), known(), Limits::default());
    let of = |who: &Caller| {
        let page = query_steps(&view, who, &QueryInput::default(), &known, &limits).unwrap();
        let said = write_summary(&view, who, &answer.reply, &known);
        [as_json(&get_task(&view, who, &known).unwrap()), as_json(&page), as_json(&said)]
    };
    let [read, page, said] = of(&orchestrator());
    assert_eq!(read["ext"], as_json(&given.ext));
    for steps in [&read["steps"], &page["steps"]] {
        assert_eq!(steps[0]["ext"], as_json(&given.steps[0].ext));
        assert_eq!(steps[1]["ext"], json!({"of": "patch"}));
    }
    assert_eq!(said["steps"][0]["ext"], as_json(&given.steps[0].ext));
    for read in of(&ant) {
        assert!(
            !read["steps"].as_array().unwrap().is_empty() && !read.to_string().contains("ext"),
            "{read}"
        );
    }
    let claimed = t.log.iter().flat_map(|commit| &commit.events);
    let claimed = claimed.filter(|event| event.body.event_type() == "task_step_claimed");
    assert!(
        claimed.map(|event| as_json(&event.body)).all(|it| !it.to_string().contains("\"ext\""))
    );
    t.complete(&held);
    t.refuse(patch(json!([update("a", json!({"ext": {}}))])), Code::StepHistoryImmutable);
    t.ok(cancel_task());
    let again = t
        .task
        .durable()
        .retry_input("t2".parse().unwrap(), &made_again(&reason("x", "")), Rules::NEWEST)
        .unwrap();
    assert_eq!((&again.ext, &again.steps[0].ext), (&given.ext, &given.steps[0].ext));
}

/// EVOLVE-03: `ext` has at most 4 KiB wherever it is given.
#[test]
fn ext_is_short() {
    let of = |bytes: usize| ext(json!({"k": "x".repeat(bytes - r#"{"k":""}"#.len())}));
    let (most, more) = (of(4096), of(4097));
    let mut t =
        Fixture::create(CreateTask { ext: most.clone(), ..create_input("a") }, Policy::Manual);
    let step = |ext: &Option<Object>| {
        let mut step = step_input("b");
        step.ext.clone_from(ext);
        json!({"op": "add_step", "step": step})
    };
    let ways = |ext: &Option<Object>| {
        let task = json!({"op": "update_task", "ext": ext});
        [task, update("a", json!({"ext": ext})), step(ext)]
    };
    for way in ways(&more) {
        let no = t.refuse(patch(json!([way])), Code::ValidationError);
        assert_eq!((&no.details["field"], &no.details["limit"]), (&json!("ext"), &json!(4096)));
    }
    for way in ways(&most) {
        t.ok(patch(json!([way])));
    }
    let mut given = create_input("a");
    given.steps[0].ext = more;
    let no = Fixture::try_create(given, Policy::Manual, Limits::default()).unwrap_err();
    assert_eq!(no.details["field"], "steps[0].ext");
}

/// STORE-17: a Task that was made from a file keeps its working directory, in `task_created`; it is shown, and
/// a Task that is made again has it.
#[test]
fn a_task_keeps_its_working_directory() {
    let given = CreateTask { cwd: Some("/home/me/project".into()), ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Manual);
    assert_eq!(t.payload("task_created")["task"]["cwd"], "/home/me/project");
    assert_eq!(t.replayed().head().spec.cwd.as_deref(), Some("/home/me/project"));
    let read = as_json(&get_task(&t.task.durable(), &orchestrator(), &known()).unwrap());
    assert_eq!(read["cwd"], "/home/me/project");
    t.ok(cancel_task());
    let again = t
        .task
        .durable()
        .retry_input("t2".parse().unwrap(), &made_again(&reason("x", "")), Rules::NEWEST)
        .unwrap();
    assert_eq!(again.cwd.as_deref(), Some("/home/me/project"));
    let t = Fixture::manual("a");
    assert!(t.payload("task_created")["task"].get("cwd").is_none());
}
