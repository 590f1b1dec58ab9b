//! What would change why a Step is not running: it is shown only if it would be accepted now.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::explain::headline;
use crate::views;
use common::*;
use proptest::prelude::*;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{RunAndWhy, Why};
use tenure_core::creation::Creation;
use tenure_core::id::StepId;
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::view::explain::{ForWhom, Remedy};
use tenure_core::view::{Explanation, Known, explain};
use tenure_core::{Command, Task};
use views::*;

fn ask(t: &Fixture, step: &str) -> Explanation {
    let known = Known::new(t.now, &alive);
    explain(&t.task.durable(), &id(step), ForWhom::default(), &known).expect("the step exists")
}

/// What would change any of the reasons, as `operation step_id`, with `!` where it ends the Task.
fn remedies(of: &Explanation) -> Vec<String> {
    let all = of.reasons.iter().flat_map(|reason| &reason.remedies);
    let line = |r: &Remedy| {
        let on = r.step_id.as_ref().map(|s| format!(" {s}")).unwrap_or_default();
        let off = r.depends_on_step_id.as_ref().map(|s| format!(" off {s}")).unwrap_or_default();
        format!("{}{on}{off}{}", r.operation, if r.ends_task { "!" } else { "" })
    };
    all.map(line).collect()
}

/// VIEW-16, TERM-26: a Task that is resumed while a required Step has failed fails at once; a Task whose Run
/// is cancelled does not.
#[test]
fn what_would_end_the_task_says_so() {
    let mut t = Fixture::auto("a b");
    let held = t.claim("a");
    t.ok(Command::PauseTask(Why::default()));
    t.fail(&held, "rejected");
    t.bring("b", StepStatus::Blocked);
    let marks = "agent.task_update_step b";
    assert_eq!(remedies(&ask(&t, "b")), ["resume_task!", "reopen_step b", marks]);
    let mut resumed = t.clone();
    resumed.ok(Command::ResumeTask(Why::default()));
    assert_eq!(resumed.task_status(), TaskStatus::Failed);
    t.ok(t.patch(json!([{"op": "reopen_step", "step_id": "a"}])));
    assert_eq!(remedies(&ask(&t, "b")), ["resume_task", "reopen_step b", marks]);

    let mut t = Fixture::auto("a");
    let held = t.claim("a");
    assert_eq!(remedies(&ask(&t, "a")), ["cancel_run"]);
    t.stop(&held);
    assert_eq!(t.task_status(), TaskStatus::Running);
    assert_eq!(remedies(&ask(&t, "a")), ["reopen_step a", "agent.task_update_step a!"]);
}

/// VIEW-16, IDEM-09: giving up an unfinished creation ends its Task.
#[test]
fn giving_up_a_creation_ends_its_task() {
    let creation = Creation { digest: Creation::digest_of([]), draft: false, steps: 4 };
    let given = CreateTask { creation: Some(creation), draft: Some(true), ..create_input("a") };
    let t = Fixture::create(given, Policy::Auto);
    assert_eq!(remedies(&ask(&t, "a")), ["task_create", "agent.task_cancel!"]);
}

/// VIEW-16, POL-06: a blocked required Step that can never be ready fails the Task when it is reopened.
#[test]
fn a_step_that_would_be_dead_says_so() {
    let mut t = Fixture::auto("a x?");
    t.bring("a", StepStatus::Blocked);
    t.ok(t.patch(json!([{"op": "add_dependency", "step_id": "a", "depends_on_step_id": "x"}])));
    assert_eq!(remedies(&ask(&t, "a")), ["reopen_step a"]);
    t.bring("x", StepStatus::Cancelled);
    assert_eq!(remedies(&ask(&t, "a")), ["reopen_step a!", "remove_dependency a off x"]);
    t.ok(t.patch(json!([{"op": "reopen_step", "step_id": "a"}])));
    assert_eq!(t.task_status(), TaskStatus::Failed);
}

/// VIEW-16: nothing is advised that would be refused: deleting a Step with dependents or the last one,
/// editing one that is settled, dispatching or reopening in a Task that stands still or is closed.
#[test]
fn nothing_is_advised_that_would_be_refused() {
    let mut t = Fixture::manual("a b<-a c");
    for step in ["a", "c"] {
        t.bring(step, StepStatus::Cancelled);
    }
    assert_eq!(remedies(&ask(&t, "a")), ["update_step a", "add_step"]);
    assert_eq!(remedies(&ask(&t, "c")), ["update_step c", "add_step", "delete_step c"]);
    for (mut t, ways) in [
        (Fixture::manual("a"), ["update_step a", "add_step"]),
        (Fixture::first("a"), ["add_step", "agent.task_fail!"]),
    ] {
        t.bring("a", StepStatus::Cancelled);
        assert_eq!(remedies(&ask(&t, "a")), ways);
    }

    let mut t = Fixture::manual("a b");
    t.ok(Command::PauseTask(Why::default()));
    assert_eq!(remedies(&ask(&t, "a")), ["resume_task"], "and no dispatch");

    let mut t = Fixture::manual("a b c<-b e");
    t.bring("b", StepStatus::Failed);
    assert_eq!(remedies(&ask(&t, "a")), ["dispatch_worker"]);
    assert_eq!(remedies(&ask(&t, "b")), ["reopen_step b", "agent.task_update_step b"]);
    assert_eq!(remedies(&ask(&t, "c")), ["reopen_step b", "remove_dependency c off b"]);
    t.claim("e");
    t.ok(cancel_task());
    for step in ["a", "b", "c"] {
        assert_eq!(headline(&ask(&t, step)), "task_cancelling");
        assert!(remedies(&ask(&t, step)).is_empty(), "{step}");
    }
}

/// The command that an orchestrator would give for a remedy of an explanation of a Step.
fn command_of(task: &Task, remedy: &Remedy, of: &StepId) -> Option<Command> {
    let (step, why) = (&remedy.step_id, Why::default());
    Some(match remedy.operation.as_str() {
        "submit_task" => Command::SubmitTask(why),
        "resume_task" => Command::ResumeTask(why),
        "reopen_task" => Command::ReopenTask(why),
        "cancel_run" => Command::CancelRun(RunAndWhy { reason: None, run_id: remedy.run_id? }),
        "dispatch_worker" => {
            let pool = &task.step(of)?.spec.worker_pool_id;
            serde_json::from_value(json!({
                "operation": "dispatch_worker", "input": {"worker_pool_id": pool},
            }))
            .unwrap()
        }
        "add_step" => patch(json!([{"op": "add_step", "step": {"step_id": "more", "title": "x"}}])),
        "agent.task_update_step" => write_command(step.as_ref()?.as_str(), StepStatus::Completed),
        "agent.task_fail" => fail_task(),
        "update_step" => {
            let is_cancelled = task.step(of)?.state.status == StepStatus::Cancelled;
            let fields = match is_cancelled {
                true => json!({"required": false}),
                false => json!({"handler": "other"}),
            };
            patch(json!([{"op": "update_step", "step_id": step, "fields": fields}]))
        }
        "remove_dependency" => patch(json!([{
            "op": "remove_dependency", "step_id": step, "depends_on_step_id": remedy.depends_on_step_id,
        }])),
        "reopen_step" | "delete_step" => {
            patch(json!([{"op": remedy.operation.as_str(), "step_id": step}]))
        }
        "retry_task" => return None,
        other => panic!("{other} is no remedy"),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// VIEW-16, TERM-26: every remedy of every Step of any Task is accepted, and ends the Task exactly if it
    /// says so.
    #[test]
    fn every_remedy_is_accepted(dag in dags(), auto in any::<bool>(), moves in moves(60)) {
        let t = after(dag, auto, &moves);
        for step in t.task.durable().steps() {
            let why = ask(&t, step.id().as_str());
            for remedy in why.reasons.iter().flat_map(|reason| &reason.remedies) {
                let Some(command) = command_of(&t.task, remedy, step.id()) else { continue };
                let mut trial = t.task.clone();
                let done = decide(&mut trial, &orchestrator(), &command, t.now + 1, u128::MAX);
                prop_assert!(done.is_ok(), "{remedy:?} of {why:?}: {done:?}");
                let ends = trial.is_terminal() || (trial.is_closing() && !t.task.is_closing());
                prop_assert_eq!(remedy.ends_task, ends, "{:?} of {:?}", remedy, why);
            }
        }
    }
}
