//! ID: identifiers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::id::{HandlerName, PoolId, SessionId, StepId, TaskId, WalName};
use tenure_core::status::{Policy, StepStatus};
use tenure_core::{Code, Cx, Limits};

const BAD: [&str; 14] =
    ["", " ", "A", "a b", "a.b", "a/b", "..", ".", "ä", "a\n", "a:b", "a\\b", "a\0", "CON "];

/// ID-02, ID-05, ID-08, STORE-12, STORE-13: one form and length for every name that people choose,
/// without path meaning.
#[test]
fn names_are_lower_case_letters_digits_hyphen_and_underscore() {
    for good in ["a", "0", "-", "_", "a-b_c9", &"x".repeat(128)] {
        assert!(TaskId::new(good).is_ok(), "{good:?}");
        assert!(StepId::new(good).is_ok(), "{good:?}");
        assert!(PoolId::new(good).is_ok(), "{good:?}");
        assert!(HandlerName::new(good).is_ok(), "{good:?}");
        assert!(WalName::new(good).is_ok(), "{good:?}");
        assert!(SessionId::new(good).is_ok(), "{good:?}");
    }
    let long = "x".repeat(129);
    for bad in BAD.into_iter().chain([long.as_str()]) {
        assert!(TaskId::new(bad).is_err(), "{bad:?}");
        assert!(StepId::new(bad).is_err(), "{bad:?}");
        assert!(PoolId::new(bad).is_err(), "{bad:?}");
        assert!(HandlerName::new(bad).is_err(), "{bad:?}");
        assert!(WalName::new(bad).is_err(), "{bad:?}");
        assert!(SessionId::new(bad).is_err(), "{bad:?}");
    }
}

/// ID-02, ID-05: a bad id does not pass the stored form either, and says what would be right.
#[test]
fn a_bad_id_is_refused_where_it_enters() {
    assert!(serde_json::from_str::<StepId>("\"a/b\"").is_err());
    assert!(serde_json::from_str::<TaskId>("\"../x\"").is_err());
    let rejection: tenure_core::Rejection = StepId::new("A").unwrap_err().into();
    assert_eq!(rejection.code, Code::ValidationError);
    assert_eq!(rejection.details["field"], "step_id");
}

/// IDEM-03, U15: as `uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "tenure:" + session), key)` of Python.
#[test]
fn a_key_makes_the_same_id_everywhere() {
    let of = |session: &str, key: &str| TaskId::of_key(&session.parse().unwrap(), key).to_string();
    assert_eq!(of("main", "k"), "42493452-782b-57af-a041-9bb933be9549");
    assert_eq!(of("main", "Größe 1"), "05398888-197c-524e-bedb-3c405607b1d2");
    assert_eq!(of("s1", "nightly 7"), "e4be76e9-80a4-57fc-b7c9-3b93a700c1f1");
    assert!(TaskId::new(of("s1", "k")).is_ok());
    assert_ne!(of("s1", "k"), of("main", "k"), "each session has its own");
}

/// ID-01: the scheduler never makes a `task_id`.
#[test]
fn a_create_without_a_task_id_is_refused() {
    let given = CreateTask { task_id: None, ..create_input("a") };
    let rejection = Fixture::try_create(given, Policy::Manual, Limits::default()).unwrap_err();
    assert_eq!(rejection.code, Code::ValidationError);
    assert_eq!(rejection.details["field"], "task_id");
}

/// ID-03: a second create with the same id is a conflict, whatever became of the first Task.
#[test]
fn a_task_id_is_used_once_for_ever() {
    let mut t = Fixture::manual("a");
    let recreate = |t: &mut Fixture| {
        let (caller, limits) = (orchestrator(), Limits::default());
        let cx = Cx {
            caller: &caller,
            stamp: t.stamp(),
            command_id: None,
            digest: None,
            expected_version: None,
            expected_spec_version: None,
            trace: None,
            epoch: 0,
            limits: &limits,
        };
        let defaults = Defaults { policy: Policy::Manual, worker_pool_id: pool_id(POOL) };
        t.task.recreated(&cx, &create_input("a"), &defaults, None).unwrap_err().code
    };
    assert_eq!(recreate(&mut t), Code::TaskIdConflict);
    t.ok(cancel_task());
    assert_eq!(recreate(&mut t), Code::TaskIdConflict);
}

/// ID-04, ID-05: step ids come from the orchestrator and are unique in their Task.
#[test]
fn step_ids_are_unique_in_their_task() {
    let given = create_input("a b a");
    let rejection = Fixture::try_create(given, Policy::Manual, Limits::default()).unwrap_err();
    assert_eq!(rejection.code, Code::ValidationError);
    assert_eq!(rejection.details["field"], "steps[2].step_id");
    let mut t = Fixture::manual("a");
    let step = |id: &str| {
        json!({"op": "add_step", "step":
            {"step_id": id, "title": "", "summary": "", "depends_on_step_ids": []}})
    };
    let rejection = t.refuse(patch(json!([step("b"), step("a")])), Code::ValidationError);
    assert_eq!(rejection.details["op_index"], 1);
    let rejection = t.refuse(patch(json!([step("b"), step("b")])), Code::ValidationError);
    assert_eq!(rejection.details["op_index"], 1);
    t.ok(patch(json!([step("b")])));
}

/// ID-06: the id of a deleted Step is never used again, in the same patch or later.
#[test]
fn a_deleted_step_id_is_never_used_again() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.ok_as(&held.caller(), held.releases());
    let add = json!({"op": "add_step", "step":
        {"step_id": "a", "title": "", "summary": "", "depends_on_step_ids": []}});
    let delete = json!({"op": "delete_step", "step_id": "a"});
    let rejection = t.refuse(patch(json!([delete, add])), Code::ValidationError);
    assert_eq!(rejection.details["op_index"], 1);
    t.ok(patch(json!([delete])));
    t.refuse(patch(json!([add])), Code::ValidationError);
    t.restart();
    t.refuse(patch(json!([add])), Code::ValidationError);
    assert_eq!(t.attempt_of(&held).step_id, id("a"), "its history is only its own");
}

/// ID-07: Runs and Attempts get ids of their own, also for the same Step and worker.
#[test]
fn runs_and_attempts_never_share_an_id() {
    let mut t = Fixture::manual("a");
    let first = t.claim("a");
    t.report(&first, StepStatus::Failed);
    t.write("a", StepStatus::Pending);
    let second = t.claim("a");
    assert_ne!(first.run_id, second.run_id);
    assert_ne!(first.attempt_id, second.attempt_id);
    assert_eq!(t.attempt_of(&first).ordinal, 1);
    assert_eq!(t.attempt_of(&second).ordinal, 2);
    let ids: std::collections::BTreeSet<_> = t.log.iter().map(|c| c.commit_id).collect();
    assert_eq!(ids.len(), t.log.len());
}

/// STORE-11, U15: the name of the log is what either alias says, else the Task's id; never two names.
#[test]
fn a_log_has_one_name() {
    let named = |wal_name: Option<&str>, wal_filename: Option<&str>| {
        let name = |given: Option<&str>| given.map(|name| name.parse().unwrap());
        let (wal_name, wal_filename) = (name(wal_name), name(wal_filename));
        let given = CreateTask { wal_name, wal_filename, ..create_input("a") };
        Fixture::try_create(given, Policy::Manual, Limits::default())
    };
    for (a, b, name) in [
        (None, None, "t"),
        (Some("x"), None, "x"),
        (None, Some("x"), "x"),
        (Some("x"), Some("x"), "x"),
    ] {
        let t = named(a, b).unwrap();
        assert_eq!(t.payload("task_created")["task"]["wal_name"], name, "{a:?} {b:?}");
    }
    let refused = named(Some("x"), Some("y")).unwrap_err();
    assert_eq!(refused.code, Code::ValidationError);
    assert_eq!(refused.details["field"], "wal_name");
}
