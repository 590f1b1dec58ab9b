//! PATCH: `agent.task_update`, rule by rule. Fields are in `rules_patch_fields.rs`,
//! statuses in `rules_patch_status.rs`, what random patches do in `patch_properties.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::ops::*;
use common::*;
use serde_json::Value as Json;
use tenure_core::Code;
use tenure_core::event::Body;
use tenure_core::status::{Role, StepStatus};

/// PATCH-01: orchestrator only.
#[test]
fn only_orchestrators_and_the_scheduler_patch() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let change = patch(json!([update("a", json!({"title": "x"}))]));
    for outsider in [
        held.caller(),
        caller("w", Role::Worker),
        caller("o", Role::Observer),
        caller("s", Role::SubAgent),
    ] {
        t.refuse_as(&outsider, change.clone(), Code::ToolNotAvailable);
    }
    t.ok_as(&system(), change);
}

/// PATCH-03: a non-empty list of operations.
#[test]
fn an_empty_patch_is_refused() {
    let mut t = Fixture::manual("a");
    t.refuse(patch(json!([])), Code::ValidationError);
}

/// PATCH-03: the number of operations has a limit.
#[test]
fn a_patch_holds_as_many_operations_as_the_limit_says() {
    let mut t = Fixture::manual("a");
    t.limits.operations_max = 3;
    let one = update("a", json!({"title": "x"}));
    yes(&mut t, json!([one, one, one]));
    t.refuse(patch(json!([one, one, one, one])), Code::ValidationError);
}

/// PATCH-10: a deleted Step is gone, its Attempts stay.
#[test]
fn a_deleted_step_is_gone_and_its_attempts_stay() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.ok_as(&held.caller(), held.releases());
    assert_eq!(t.status("a"), StepStatus::Ready);
    assert_eq!(yes(&mut t, json!([delete("a")])), ["task_updated"]);
    assert!(t.task.step(&id("a")).is_none());
    assert_eq!(t.attempt_of(&held).step_id, id("a"));
    t.refuse(write_command("a", StepStatus::Cancelled), Code::StepNotFound);
}

/// PATCH-11: an edge is added once; one that exists is a no-op, one that does not cannot be removed.
#[test]
fn edges_are_added_once_and_removed_once() {
    let mut t = Fixture::manual("a b c<-a");
    yes(&mut t, json!([depend("c", "b"), depend("c", "b"), depend("c", "a")]));
    assert_eq!(t.step("c").spec.depends_on_step_ids, [id("a"), id("b")]);
    no(&mut t, json!([undepend("c", "a"), undepend("c", "a")]), Code::ValidationError, 1);
    no(&mut t, json!([undepend("a", "b")]), Code::ValidationError, 0);
    no(&mut t, json!([undepend("c", "nobody")]), Code::ValidationError, 0);
    yes(&mut t, json!([undepend("c", "a")]));
    assert_eq!(t.step("c").spec.depends_on_step_ids, [id("b")]);
    yes(
        &mut t,
        json!([undepend("c", "b"), depend("c", "b"), depend("c", "a"), undepend("c", "a")]),
    );
    assert_eq!(t.step("c").spec.depends_on_step_ids, [id("b")]);
    let whole = update("c", json!({"depends_on_step_ids": ["a"]}));
    yes(&mut t, json!([undepend("c", "b"), whole, depend("c", "b")]));
    assert_eq!(t.step("c").spec.depends_on_step_ids, [id("a"), id("b")]);
    yes(&mut t, json!([undepend("c", "b"), whole]));
    assert_eq!(t.step("c").spec.depends_on_step_ids, [id("a")]);
}

/// PATCH-13, POL-06: what several new edges mean downstream adds up, and goes again with them.
#[test]
fn what_a_patch_means_downstream_is_counted_once() {
    let mut t = Fixture::manual("z a b<-a c<-b d<-b,c");
    t.write("z", StepStatus::Cancelled);
    let dead = |t: &Fixture| {
        let count = |step: &&str| t.step(step).state.dead;
        ["a", "b", "c", "d", "n"]
            .iter()
            .filter(|s| t.task.step(&id(s)).is_some())
            .map(count)
            .collect()
    };
    let on =
        json!([depend("d", "z"), depend("c", "a"), depend("a", "z"), add("n", &["d", "a", "z"]),]);
    yes(&mut t, on);
    let counts: Vec<u32> = dead(&t);
    assert_eq!(counts, [1, 1, 2, 3, 3]);
    yes(&mut t, json!([undepend("a", "z"), depend("c", "z"), undepend("d", "z")]));
    let counts: Vec<u32> = dead(&t);
    assert_eq!(counts, [0, 0, 1, 1, 2]);
}

/// PATCH-11: the Step that waits exists at its turn, the one waited for in the final DAG.
#[test]
fn an_edge_needs_its_step_at_its_turn_and_its_dependency_in_the_end() {
    let mut t = Fixture::manual("a b");
    no(&mut t, json!([depend("z", "a")]), Code::StepNotFound, 0);
    no(&mut t, json!([depend("z", "a"), add("z", &[])]), Code::StepNotFound, 0);
    no(&mut t, json!([depend("a", "z")]), Code::ValidationError, 0);
    no(&mut t, json!([depend("b", "a"), delete("a")]), Code::ValidationError, 0);
    no(&mut t, json!([delete("a"), depend("a", "b")]), Code::StepNotFound, 1);
    yes(&mut t, json!([depend("a", "z"), add("z", &[])]));
    assert_eq!(t.statuses("a b z"), "a:pending b:ready z:ready");
}

/// PATCH-12: cancel and reopen carry a reason; a reopening carries input refs.
#[test]
fn cancel_and_reopen_carry_reason_and_input() {
    let mut t = Fixture::manual("a b");
    t.write("b", StepStatus::Failed);
    let why = json!({"code": "own", "message": "because"});
    yes(
        &mut t,
        json!([
            {"op": "cancel_step", "step_id": "a", "reason": why},
            {"op": "reopen_step", "step_id": "b", "reason": why, "input_refs": ["mem:doc", "mem:doc2"]},
        ]),
    );
    assert_eq!(t.payload("task_step_cancelled")["reason"]["code"], "own");
    let reopened = t.payload("task_step_reopened");
    assert_eq!(reopened["reason"]["message"], "because");
    assert_eq!(reopened["from"], "failed");
    assert_eq!(reopened["counters_reset"], true);
    assert_eq!(t.step("b").state.facts().input_refs.len(), 2);
    t.write("b", StepStatus::Failed);
    yes(&mut t, json!([{"op": "reopen_step", "step_id": "b", "reason": {"message": "again"}}]));
    assert_eq!(t.payload("task_step_reopened")["reason"]["code"], "reopened");
}

/// PATCH-13, PATCH-14: any mix, in the given order, judged on the scratch copy.
#[test]
fn operations_are_judged_at_their_turn() {
    let mut t = Fixture::manual("a b c");
    t.write("a", StepStatus::Failed);
    no(&mut t, json!([cancel("a"), reopen("a")]), Code::InvalidTransition, 0);
    no(&mut t, json!([delete("a")]), Code::InvalidTransition, 0);
    no(&mut t, json!([delete("b"), update("b", json!({"title": "x"}))]), Code::StepNotFound, 1);
    no(&mut t, json!([delete("b"), delete("b")]), Code::StepNotFound, 1);
    no(&mut t, json!([update("z", json!({"title": "x"})), add("z", &[])]), Code::StepNotFound, 0);
    no(&mut t, json!([cancel("b"), cancel("b")]), Code::InvalidTransition, 1);
    no(
        &mut t,
        json!([cancel("b"), update("b", json!({"required": true}))]),
        Code::InvalidTransition,
        1,
    );
    let events = yes(
        &mut t,
        json!([
            reopen("a"),
            cancel("a"),
            update("b", json!({"required": false})),
            cancel("b"),
            add("z", &["c"]),
            update("z", json!({"title": "zz"})),
            depend("c", "a"),
            undepend("c", "a"),
        ]),
    );
    assert_eq!(
        events,
        ["task_updated", "task_step_reopened a", "task_step_cancelled a", "task_step_cancelled b",]
    );
    assert_eq!(t.statuses("a b c z"), "a:cancelled b:cancelled c:ready z:pending");
}

/// PATCH-14, PATCH-19: a Step that a patch adds may be changed, cancelled and deleted in it.
#[test]
fn a_step_may_come_and_go_in_one_patch() {
    let mut t = Fixture::manual("a");
    yes(&mut t, json!([add("b", &["a"]), delete("b")]));
    assert!(t.task.step(&id("b")).is_none());
    no(&mut t, json!([add("b", &[])]), Code::ValidationError, 0);
    let events =
        yes(&mut t, json!([add("c", &[]), cancel("c"), delete("c"), add("d", &[]), cancel("d")]));
    assert_eq!(events, ["task_updated", "task_step_cancelled d"]);
}

/// PATCH-15, DAG-05, DAG-06: cycles, ids and dependents are judged on the final DAG only.
#[test]
fn topology_is_judged_on_the_final_dag() {
    let mut t = Fixture::manual("a b<-a c<-b");
    yes(&mut t, json!([depend("a", "c"), undepend("b", "a")]));
    assert_eq!(t.statuses("a b c"), "a:pending b:ready c:pending");
    yes(&mut t, json!([delete("c"), undepend("a", "c")]));
    assert_eq!(t.statuses("a b"), "a:ready b:ready");
    yes(&mut t, json!([add("z", &["y"]), add("y", &["x"]), add("x", &[])]));
    assert_eq!(t.statuses("x y z"), "x:ready y:pending z:pending");
}

/// PATCH-15: existence and status of every operation come before any judgement of the final DAG.
#[test]
fn illegal_operations_come_before_wrong_topology() {
    let mut t = Fixture::manual("a b<-a");
    let cycle = depend("a", "b");
    no(&mut t, json!([cycle, delete("nobody")]), Code::StepNotFound, 1);
    no(&mut t, json!([add("a", &[]), reopen("b")]), Code::InvalidTransition, 1);
    no(&mut t, json!([add("a", &[]), add("b", &[])]), Code::ValidationError, 0);
    no(&mut t, json!([cycle, add("a", &[])]), Code::ValidationError, 1);
    no(&mut t, json!([cycle, add("c", &["nobody"])]), Code::ValidationError, 1);
    no(&mut t, json!([delete("a"), add("c", &["d"]), add("d", &["c"])]), Code::DependencyCycle, 2);
    no(&mut t, json!([delete("a"), delete("nobody")]), Code::StepNotFound, 1);
}

/// PATCH-16: all or nothing; the error names the failing operation (the fixture compares the rest).
#[test]
fn one_wrong_operation_anywhere_refuses_the_whole_patch() {
    let right = [
        update("a", json!({"title": "x"})),
        add("z", &["a"]),
        depend("c", "b"),
        cancel("b"),
        json!({"op": "update_task", "title": "y"}),
        json!({"op": "block_task"}),
        delete("d"),
    ];
    let mut t = Fixture::manual("a b c d");
    for at in 0..=right.len() {
        let mut operations = right.to_vec();
        operations.insert(at, delete("nobody"));
        no(&mut t, Json::Array(operations), Code::StepNotFound, at);
    }
    yes(&mut t, Json::Array(right.to_vec()));
}

/// PATCH-17, READY-06: exactly one `task_updated` with the list as given; content edits write no
/// event of their own.
#[test]
fn one_task_updated_carries_the_operations_as_given() {
    let mut t = Fixture::manual("a b<-a");
    let operations = json!([
        update("a", json!({"title": "x", "input": null})),
        add("c", &["a", "a"]),
        undepend("b", "a"),
        {"op": "update_task", "priority": null, "reason": {"message": "m"}},
    ]);
    let events = yes(&mut t, operations.clone());
    assert_eq!(events, ["task_updated", "task_step_ready b"]);
    assert_eq!(t.payload("task_updated")["operations"], operations);
    assert_eq!(t.payload("task_updated")["updated_after_dispatch"], json!([]));
    assert_eq!(t.payload("task_updated")["demoted_step_ids"], json!([]));
}

/// PATCH-18: own events after `task_updated`, in the order of operations, then the follow-ups.
#[test]
fn own_events_follow_task_updated_in_the_order_of_operations() {
    let mut t = Fixture::manual("a b c d<-c");
    t.write("a", StepStatus::Failed);
    t.write("b", StepStatus::Blocked);
    let events = yes(
        &mut t,
        json!([
            cancel("d"), {"op": "block_task"}, reopen("b"), update("c", json!({"title": "x"})),
            {"op": "reopen_task"}, reopen("a"), add("e", &[]),
        ]),
    );
    assert_eq!(
        events,
        [
            "task_updated",
            "task_step_cancelled d",
            "task_blocked",
            "task_step_reopened b",
            "task_reopened",
            "task_step_reopened a",
            "task_step_ready a",
            "task_step_ready b",
            "task_step_ready e",
            "task_running",
        ]
    );
}

/// PATCH-18: none for a Step that a later operation deletes.
#[test]
fn a_step_that_is_deleted_later_has_no_events_of_its_own() {
    let mut t = Fixture::manual("a b c");
    t.write("a", StepStatus::Failed);
    let events = yes(&mut t, json!([reopen("a"), cancel("b"), delete("a"), delete("b")]));
    assert_eq!(events, ["task_updated"]);
    assert!(t.task.step(&id("a")).is_none() && t.task.step(&id("b")).is_none());
}

/// PATCH-20: a Step that others depend on in the end cannot be deleted; nothing cascades.
#[test]
fn a_step_with_dependents_cannot_be_deleted() {
    let mut t = Fixture::manual("a b<-a c<-a d<-c");
    let rejection = no(&mut t, json!([cancel("d"), delete("a")]), Code::StepHasDependents, 1);
    assert_eq!(rejection.details["step_ids"], json!(["b", "c"]));
    let rejection =
        no(&mut t, json!([delete("a"), undepend("b", "a")]), Code::StepHasDependents, 0);
    assert_eq!(rejection.details["step_ids"], json!(["c"]));
    no(&mut t, json!([delete("c"), delete("a"), delete("b")]), Code::StepHasDependents, 0);
    let edited = update("b", json!({"title": "x"}));
    no(&mut t, json!([edited, delete("a")]), Code::StepHasDependents, 1);
    let same = update("b", json!({"depends_on_step_ids": ["d", "a"]}));
    no(&mut t, json!([same, delete("a")]), Code::StepHasDependents, 1);
    yes(
        &mut t,
        json!([delete("a"), undepend("b", "a"), update("c", json!({"depends_on_step_ids": []}))]),
    );
    assert_eq!(t.statuses("b c d"), "b:ready c:ready d:pending");
    yes(&mut t, json!([delete("c"), delete("d")]));
}

/// PATCH-20: dependents count even when they are cancelled: their edges are kept.
#[test]
fn a_cancelled_dependent_still_holds_its_edge() {
    let mut t = Fixture::manual("a b<-a");
    t.write("b", StepStatus::Cancelled);
    no(&mut t, json!([delete("a")]), Code::StepHasDependents, 0);
    yes(&mut t, json!([delete("a"), delete("b"), add("c", &[])]));
}

/// PATCH-17, CTRL-04: the answer names what the patch touched, at most 50 Steps.
#[test]
fn the_answer_names_the_steps_that_changed() {
    let mut t = Fixture::manual("a b c<-a");
    let outcome =
        t.ok(patch(json!([update("b", json!({"title": "x"})), undepend("c", "a"), delete("a")])));
    let changed: Vec<_> = outcome
        .reply
        .changed
        .iter()
        .map(|&pos| t.task.step_at(pos).spec.step_id.to_string())
        .collect();
    assert_eq!(changed, ["b", "c"]);
    let many: Vec<Json> = (0..60).map(|i| add(&format!("n{i}"), &[])).collect();
    assert_eq!(t.ok(patch(Json::Array(many))).reply.changed.len(), 50);
}

/// PATCH-17: `task_updated` is the orchestrator's, its own events too, follow-ups the scheduler's.
#[test]
fn events_of_a_patch_name_who_caused_them() {
    let mut t = Fixture::manual("a b<-a");
    t.write("a", StepStatus::Failed);
    yes(&mut t, json!([reopen("a")]));
    let actors: Vec<String> = t.last().events.iter().map(|e| e.actor.to_string()).collect();
    assert_eq!(actors, [ORCHESTRATOR, ORCHESTRATOR, "system"]);
    assert!(matches!(t.body("task_updated"), Body::TaskUpdated(_)));
}
