//! PATCH: what an operation may do by the status of its Step or Task, exhaustively.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::ops::*;
use common::*;
use tenure_core::command::Close;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::{Code, Command};

/// PATCH-19: which Steps can be deleted, by status.
#[test]
fn what_can_be_deleted_depends_on_the_status() {
    use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};
    for &status in StepStatus::ALL {
        let mut t = Fixture::with_step(status);
        match status {
            Pending | Ready | Cancelled => {
                yes(&mut t, json!([delete("x")]));
                assert!(t.task.step(&id("x")).is_none(), "{status}");
            }
            Claimed | Running => drop(no(&mut t, json!([delete("x")]), Code::StepInProgress, 0)),
            Blocked | Failed => drop(no(&mut t, json!([delete("x")]), Code::InvalidTransition, 0)),
            Completed => drop(no(&mut t, json!([delete("x")]), Code::StepHistoryImmutable, 0)),
        }
    }
}

/// PATCH-21: `cancel_step` by status: STEP-13, STEP-17, STEP-18, STEP-19.
#[test]
fn what_can_be_cancelled_depends_on_the_status() {
    use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};
    for &status in StepStatus::ALL {
        let mut t = Fixture::with_step(status);
        let code = match status {
            Pending | Ready => {
                assert_eq!(
                    yes(&mut t, json!([cancel("x")])),
                    ["task_updated", "task_step_cancelled x"]
                );
                assert_eq!(t.status("x"), Cancelled);
                continue;
            }
            Claimed | Running => Code::StepInProgress,
            Completed => Code::StepHistoryImmutable,
            Blocked | Failed | Cancelled => Code::InvalidTransition,
        };
        no(&mut t, json!([cancel("x")]), code, 0);
    }
}

/// PATCH-21: `reopen_step` only from blocked or failed: STEP-09, STEP-12, STEP-13.
#[test]
fn only_blocked_and_failed_steps_are_reopened() {
    for &status in StepStatus::ALL {
        let mut t = Fixture::with_step(status);
        if matches!(status, StepStatus::Blocked | StepStatus::Failed) {
            let events = yes(&mut t, json!([reopen("x")]));
            assert_eq!(events, ["task_updated", "task_step_reopened x", "task_step_ready x"]);
        } else {
            let rejection = no(&mut t, json!([reopen("x")]), Code::InvalidTransition, 0);
            assert_eq!(rejection.details["from"], status.as_str());
            assert_eq!(rejection.details["to"], "pending");
        }
    }
}

/// PATCH-22, STEP-14, STEP-22, STEP-24: who may change what, by status and field, exhaustively.
#[test]
fn what_can_be_edited_depends_on_status_and_field() {
    use StepStatus::{Cancelled, Claimed, Completed, Running};
    let fields = [
        ("title", json!("x")),
        ("summary", json!("x")),
        ("depends_on_step_ids", json!(["other"])),
        ("worker_pool_id", json!("gpu")),
        ("required", json!(false)),
        ("assignee", json!("bee")),
        ("claim_only_by", json!("bee")),
        ("ext", json!({"x": 1})),
        ("retry_policy", json!({"max_lost": 1})),
        ("handler", json!("h")),
        ("input", json!({"data": "1"})),
    ];
    for &status in StepStatus::ALL {
        let t = Fixture::with_step(status);
        for (field, value) in &fields {
            let operations = json!([update("x", json!({*field: value}))]);
            let work = matches!(*field, "handler" | "input");
            let text = matches!(*field, "title" | "summary");
            let refused = match status {
                Completed if !text => Some(Code::StepHistoryImmutable),
                Cancelled if *field == "required" => None, // STEP-35
                Cancelled if !text => Some(Code::InvalidTransition),
                Claimed | Running if work => Some(Code::StepInProgress),
                _ => None,
            };
            let mut t = t.clone();
            match refused {
                Some(code) => drop(no(&mut t, operations, code, 0)),
                None => {
                    yes(&mut t, operations);
                    let keeps = (status != StepStatus::Ready) || *field != "depends_on_step_ids";
                    assert_eq!(t.status("x") == status, keeps, "{status} {field}");
                }
            }
        }
    }
}

/// PATCH-22: through edges as well, even where they would change nothing.
#[test]
fn edges_of_completed_and_cancelled_steps_are_fixed() {
    for (status, code) in [
        (StepStatus::Completed, Code::StepHistoryImmutable),
        (StepStatus::Cancelled, Code::InvalidTransition),
    ] {
        let mut t = Fixture::manual("p x<-p z");
        t.do_step("p");
        t.bring("x", status);
        no(&mut t, json!([depend("x", "z")]), code, 0);
        no(&mut t, json!([depend("x", "p")]), code, 0);
        no(&mut t, json!([undepend("x", "p")]), code, 0);
        no(&mut t, json!([undepend("x", "z")]), code, 0);
        yes(&mut t, json!([depend("z", "x")]));
    }
}

/// PATCH-23: an ended Task refuses updates; CANCEL-02: a closing one as well.
#[test]
fn ended_and_closing_tasks_refuse_updates() {
    let change = patch(json!([update("x", json!({"title": "x"}))]));
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        Fixture::with_task(status).refuse(change.clone(), Code::TaskTerminal);
    }
    let mut t = Fixture::manual("x");
    t.claim("x");
    t.ok(Command::TaskCancel(Close::default()));
    t.refuse(change, Code::TaskCancelling);
}

/// PATCH-14: `block_task` and `reopen_task` are judged on the scratch status (T05, T06).
#[test]
fn the_task_is_blocked_and_reopened_by_operations() {
    let block = json!({"op": "block_task", "reason": {"code": "hold", "message": "wait"}});
    let reopen = json!({"op": "reopen_task"});
    for &status in TaskStatus::ALL.iter().filter(|s| !s.is_terminal()) {
        let mut t = Fixture::with_task(status);
        if matches!(status, TaskStatus::Pending | TaskStatus::Running) {
            assert_eq!(yes(&mut t, json!([block])), ["task_updated", "task_blocked"]);
            assert_eq!(t.task.head().status_reason.as_ref().unwrap().code, "hold");
            no(&mut t, json!([reopen, reopen]), Code::InvalidTransition, 1);
            no(&mut t, json!([block]), Code::InvalidTransition, 0);
        } else {
            no(&mut t, json!([block]), Code::InvalidTransition, 0);
        }
        let mut t = Fixture::with_task(status);
        if status == TaskStatus::Blocked {
            let events = yes(&mut t, json!([reopen]));
            assert_eq!(events, ["task_updated", "task_reopened", "task_running"]);
        } else {
            no(&mut t, json!([reopen]), Code::InvalidTransition, 0);
        }
    }
    let mut t = Fixture::manual("a");
    let events = yes(&mut t, json!([block, reopen, block]));
    assert_eq!(events, ["task_updated", "task_blocked", "task_reopened", "task_blocked"]);
    assert_eq!(t.task_status(), TaskStatus::Blocked);
}
