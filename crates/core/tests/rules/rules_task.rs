//! TASK: status of a Task, and the table of section 3.1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, StepReport, Why};
use tenure_core::event::{Body, Ended, Moved, Stopped};
use tenure_core::record::{Progress, Reason};
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::{Code, Command, Rejection};

fn reopen_task() -> Command {
    Command::ReopenTask(Why::default())
}

fn pause() -> Command {
    Command::PauseTask(Why::default())
}

fn resume() -> Command {
    Command::ResumeTask(Why::default())
}

fn fail_with(code: &str) -> Command {
    Command::TaskFail(Close { grace_ms: None, reason: Some(reason(code, "m")), wait: None })
}

/// 3.1, TASK-01: the table, every status against every command: what it leads to, or the code.
#[test]
fn every_status_meets_every_command() {
    let patch_of = |op: &str| patch(json!([{"op": op}]));
    let commands = [
        ("submit", Command::SubmitTask(Why::default())),
        ("block", block_task()),
        ("block_op", patch_of("block_task")),
        ("reopen", reopen_task()),
        ("reopen_op", patch_of("reopen_task")),
        ("pause", pause()),
        ("resume", resume()),
        ("complete", complete_task()),
        ("fail", fail_task()),
        ("cancel", cancel_task()),
        ("archive", Command::ArchiveTask(Why::default())),
    ];
    let mut table = String::new();
    for (name, command) in &commands {
        table += &format!("{name:<10}");
        for &status in TaskStatus::ALL {
            let mut t = Fixture::with_task(status);
            let cell = match t.run(&orchestrator(), command) {
                Ok(_) if t.task_status() == status => "same".to_owned(),
                Ok(_) => t.task_status().to_string(),
                Err(rejection) => short(&rejection).to_owned(),
            };
            table += &format!(" {cell:<9}");
        }
        table = table.trim_end().to_owned() + "\n";
    }
    // Columns: draft, pending, running, blocked, paused, completed, failed, cancelled.
    // invalid: invalid_transition. open: required_steps_incomplete. ended: task_terminal.
    let expected = "\
submit     running   invalid   invalid   invalid   invalid   ended     ended     ended\n\
block      invalid   blocked   blocked   invalid   invalid   ended     ended     ended\n\
block_op   invalid   blocked   blocked   invalid   invalid   ended     ended     ended\n\
reopen     invalid   invalid   invalid   running   invalid   ended     ended     ended\n\
reopen_op  invalid   invalid   invalid   running   invalid   ended     ended     ended\n\
pause      invalid   paused    paused    invalid   invalid   ended     ended     ended\n\
resume     invalid   invalid   invalid   invalid   running   ended     ended     ended\n\
complete   invalid   open      open      open      open      ended     ended     ended\n\
fail       invalid   failed    failed    failed    failed    ended     ended     ended\n\
cancel     cancelled cancelled cancelled cancelled cancelled ended     ended     ended\n\
archive    invalid   invalid   invalid   invalid   invalid   same      same      same\n";
    assert_eq!(table, expected, "\n{table}");
}

fn short(rejection: &Rejection) -> &'static str {
    match rejection.code {
        Code::InvalidTransition => "invalid",
        Code::RequiredStepsIncomplete => "open",
        Code::TaskTerminal => "ended",
        other => other.as_str(),
    }
}

/// T09: a Task with its required Steps completed completes from every live status but draft.
#[test]
fn a_finished_task_completes_from_every_live_status_but_draft() {
    for status in
        [TaskStatus::Pending, TaskStatus::Running, TaskStatus::Blocked, TaskStatus::Paused]
    {
        let mut t = Fixture::manual("a b?");
        t.do_step("a");
        match status {
            TaskStatus::Pending => {
                t.write("b", StepStatus::Blocked);
                t.ok(block_task());
                t.ok(reopen_task());
            }
            TaskStatus::Blocked => drop(t.ok(block_task())),
            TaskStatus::Paused => drop(t.ok(pause())),
            _ => {}
        }
        assert_eq!(t.task_status(), status);
        t.ok(complete_task());
        assert_eq!(t.task_status(), TaskStatus::Completed);
    }
}

/// 3.1: the reducer's table, every status against every event of a Task.
#[test]
fn every_status_meets_every_event() {
    let moved = |from: TaskStatus| Moved { from, reason: None };
    let stopped = |from: TaskStatus| Stopped { from, reason: Reason::code("x") };
    let ended = || Box::new(Ended::default());
    type Make<'a> = (&'a str, Box<dyn Fn(TaskStatus) -> Body + 'a>);
    let events: [Make<'_>; 9] = [
        ("submitted", Box::new(|from| Body::TaskSubmitted(moved(from)))),
        ("running", Box::new(|from| Body::TaskRunning(moved(from)))),
        ("blocked", Box::new(|from| Body::TaskBlocked(stopped(from)))),
        ("reopened", Box::new(|from| Body::TaskReopened(moved(from)))),
        ("paused", Box::new(|from| Body::TaskPaused(stopped(from)))),
        ("resumed", Box::new(|from| Body::TaskResumed(moved(from)))),
        ("completed", Box::new(|_| Body::TaskCompleted(ended()))),
        ("failed", Box::new(|_| Body::TaskFailed(ended()))),
        ("cancelled", Box::new(|_| Body::TaskCancelled(ended()))),
    ];
    let mut table = String::new();
    for (name, event) in &events {
        table += &format!("{name:<9}");
        for &from in TaskStatus::ALL {
            let to = from.after(&event(from)).map_or(".".to_owned(), |to| to.to_string());
            table += &format!(" {to:<9}");
        }
        table = table.trim_end().to_owned() + "\n";
    }
    // Columns: draft, pending, running, blocked, paused, completed, failed, cancelled.
    let expected = "\
submitted pending   .         .         .         .         .         .         .\n\
running   .         running   .         .         .         .         .         .\n\
blocked   .         blocked   blocked   .         .         .         .         .\n\
reopened  .         .         .         pending   .         .         .         .\n\
paused    .         paused    paused    .         .         .         .         .\n\
resumed   .         .         .         .         pending   .         .         .\n\
completed .         completed completed completed completed .         .         .\n\
failed    .         failed    failed    failed    failed    .         .         .\n\
cancelled cancelled cancelled cancelled cancelled cancelled .         .         .\n";
    let expected = expected.lines().map(|l| l.trim_end().to_owned() + "\n").collect::<String>();
    assert_eq!(table, expected, "\n{table}");
}

/// TASK-01: the statuses by name; archived is a flag beside them.
#[test]
fn there_are_eight_statuses_and_archived_is_a_flag() {
    let names: Vec<&str> = TaskStatus::ALL.iter().map(|s| s.as_str()).collect();
    assert_eq!(
        names,
        ["draft", "pending", "running", "blocked", "paused", "completed", "failed", "cancelled"]
    );
    let mut t = Fixture::with_task(TaskStatus::Failed);
    t.ok(Command::ArchiveTask(Why::default()));
    assert_eq!(t.events(), ["task_archived"]);
    assert_eq!(t.task_status(), TaskStatus::Failed);
    assert!(t.task.head().archived_at.is_some());
    let commits = t.log.len();
    t.ok(Command::ArchiveTask(Why::default()));
    assert_eq!(t.log.len(), commits, "archived twice: a no-op");
}

/// TASK-02: a new Task is pending, or draft if asked for.
#[test]
fn a_new_task_is_pending_or_draft() {
    assert_eq!(Fixture::manual("a").payload("task_created")["task"]["status"], "pending");
    let t = Fixture::draft("a");
    assert_eq!(t.task_status(), TaskStatus::Draft);
    assert_eq!(t.payload("task_created")["task"]["status"], "draft");
}

/// TASK-03, T03: in draft nothing moves, but the DAG is built; then it is submitted.
#[test]
fn a_draft_is_built_and_then_submitted() {
    let mut t = Fixture::draft("a b<-a");
    for &status in StepStatus::ALL {
        t.refuse(write_command("a", status), Code::InvalidTransition);
    }
    t.refuse(Command::TaskUpdateStep(StepReport::on(id("a"))), Code::InvalidTransition);
    let dispatch = serde_json::from_value(json!({"worker_pool_id": POOL})).unwrap();
    t.refuse(Command::DispatchWorker(dispatch), Code::TaskNotDispatchable);
    for op in ["cancel_step", "reopen_step"] {
        let operations = json!([{"op": op, "step_id": "a"}]);
        let rejection = t.refuse(patch(operations), Code::InvalidTransition);
        assert_eq!(rejection.details["op_index"], 0);
    }
    for op in ["block_task", "reopen_task"] {
        t.refuse(patch(json!([{"op": op}])), Code::InvalidTransition);
    }
    t.ok(patch(json!([
        {"op": "add_step", "step": {"step_id": "c", "title": "", "summary": "", "depends_on_step_ids": ["b"]}},
        {"op": "delete_step", "step_id": "a"},
        {"op": "remove_dependency", "step_id": "b", "depends_on_step_id": "a"},
        {"op": "update_task", "title": "x"},
    ])));
    assert_eq!(t.events(), ["task_updated"]);
    assert_eq!(t.statuses("b c"), "b:pending c:pending");
    t.ok(Command::SubmitTask(Why::default()));
    assert_eq!(t.events(), ["task_submitted", "task_step_ready b", "task_running"]);
    t.refuse(Command::SubmitTask(Why::default()), Code::InvalidTransition);
}

/// TASK-03: an automatic draft is neither dispatched, nor failed, nor ended by its deadline.
#[test]
fn the_scheduler_leaves_a_draft_alone() {
    let constraints = json!({"deadline_at": START + 5}).as_object().cloned();
    let given = CreateTask { draft: Some(true), constraints, ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Auto);
    assert!(t.grant(WORKER, POOL).is_none());
    t.wait_ms(1_000);
    assert_eq!(t.task.next_due(), None);
    t.ok(patch(json!([{"op": "delete_step", "step_id": "a"}])));
    assert_eq!(t.task_status(), TaskStatus::Draft);
    t.ok(cancel_task());
    assert_eq!(t.events(), ["task_cancelled"]);
}

/// TASK-04, T04: running in the commit that makes the first Step ready.
#[test]
fn a_pending_task_is_running_as_soon_as_a_step_is_ready() {
    let t = Fixture::manual("a");
    assert_eq!(t.events(), ["task_created", "task_step_ready a", "task_running"]);
    assert_eq!(t.payload("task_running")["from"], "pending");
    let mut t = Fixture::with_task(TaskStatus::Pending);
    t.write("x", StepStatus::Pending);
    assert_eq!(t.events(), ["task_step_reopened x", "task_step_ready x", "task_running"]);
}

/// TASK-04: a Step in work is enough.
#[test]
fn a_reopened_task_with_a_step_in_work_is_running() {
    let mut t = Fixture::manual("a");
    t.claim("a");
    t.ok(block_task());
    t.ok(reopen_task());
    assert_eq!(t.events(), ["task_reopened", "task_running"]);
}

/// TASK-05: never blocked by itself.
#[test]
fn a_task_is_not_blocked_by_its_steps() {
    for policy in [Policy::Manual, Policy::Auto] {
        let mut t = Fixture::create(create_input("a b"), policy);
        t.write("a", StepStatus::Blocked);
        t.write("b", StepStatus::Blocked);
        assert_eq!(t.task_status(), TaskStatus::Running, "{policy}");
    }
}

/// TASK-06, TASK-07, TASK-08: a block changes no Step and stops no run; reports pass and lift
/// nothing.
#[test]
fn holders_go_on_in_a_blocked_task() {
    for stop in [block_task(), pause()] {
        let mut t = Fixture::manual("a b c d e");
        let held: Vec<Held> = ["a", "b", "c", "d"].iter().map(|s| t.claim(s)).collect();
        let before = t.statuses("a b c d e");
        t.ok(stop);
        let stopped = t.task_status();
        assert_eq!(t.statuses("a b c d e"), before);
        assert!(held.iter().all(|h| t.attempt_of(h).outcome.is_none()));
        t.start(&held[0]);
        let progress = Some(Progress { percent: Some(5.0), ..Progress::default() });
        let report = StepReport { progress, ..held[0].says() };
        t.ok_as(&held[0].caller(), Command::TaskUpdateStep(report));
        t.complete(&held[0]);
        t.report(&held[1], StepStatus::Failed);
        t.report(&held[2], StepStatus::Blocked);
        t.report(&held[3], StepStatus::Cancelled);
        assert_eq!(t.task_status(), stopped);
        assert_eq!(t.statuses("a b c d e"), "a:completed b:failed c:blocked d:cancelled e:ready");
    }
}

/// TASK-09, TASK-12, TASK-13: nothing is dispatched or claimed unless the Task is pending or
/// running, also under Runs of before; unused Runs stay.
#[test]
fn a_stopped_task_gives_out_nothing() {
    for (stop, go_on) in [(block_task(), reopen_task()), (pause(), resume())] {
        let mut t = Fixture::manual("a");
        let run_id = t.dispatch(POOL);
        t.ok(stop);
        let dispatch = serde_json::from_value(json!({"worker_pool_id": POOL})).unwrap();
        let rejection = t.refuse(Command::DispatchWorker(dispatch), Code::TaskNotDispatchable);
        assert_eq!(rejection.details["status"], t.task_status().as_str());
        let caller = worker(WORKER, POOL, Some(run_id));
        t.refuse_as(&caller, claim_command(run_id, "a"), Code::TaskNotDispatchable);
        t.ok(go_on);
        let held = t.claim_under(WORKER, run_id, "a");
        assert_eq!(t.status(&held.step_id), StepStatus::Claimed);
    }
}

/// TASK-12: the same for the scheduler's own grants.
#[test]
fn a_stopped_automatic_task_gives_out_nothing() {
    let mut t = Fixture::auto("a");
    t.ok(pause());
    assert!(t.grant(WORKER, POOL).is_none());
    assert_eq!(t.task.open_pools().count(), 0);
    t.ok(resume());
    assert!(t.grant(WORKER, POOL).is_some());
}

/// TASK-10, TASK-13: reopened or resumed, it is pending and judged again in the same commit.
#[test]
fn a_reopened_task_is_judged_again_at_once() {
    let mut t = Fixture::manual("a b<-a");
    t.ok(block_task());
    assert_eq!(t.task.head().status_reason.as_ref().unwrap().code, "blocked");
    t.ok(reopen_task());
    assert_eq!(t.events(), ["task_reopened", "task_running"]);
    assert!(t.task.head().status_reason.is_none());
    t.ok(pause());
    t.ok(resume());
    assert_eq!(t.events(), ["task_resumed", "task_running"]);
    t.do_step("a");
    t.write("b", StepStatus::Blocked);
    t.ok(block_task());
    t.ok(reopen_task());
    assert_eq!(t.events(), ["task_reopened"]);
    assert_eq!(t.task_status(), TaskStatus::Pending);
}

/// TASK-11: Steps become ready, and wait again, in blocked and paused Tasks.
#[test]
fn readiness_goes_on_in_a_stopped_task() {
    for stop in [block_task(), pause()] {
        let mut t = Fixture::manual("a b<-a c");
        let held = t.claim("a");
        t.ok(stop);
        t.complete(&held);
        assert_eq!(t.events(), ["task_step_completed a", "task_step_ready b"]);
        t.ok(patch(json!([{"op": "add_dependency", "step_id": "b", "depends_on_step_id": "c"}])));
        assert_eq!(t.payload("task_updated")["demoted_step_ids"], json!(["b"]));
        assert_eq!(t.status("b"), StepStatus::Pending);
    }
}

/// TASK-14, POL-03: completed by the command, or by `system` where completion is automatic.
#[test]
fn a_task_completes_by_command_or_by_policy() {
    let mut t = Fixture::manual("a");
    t.do_step("a");
    assert_eq!(t.task_status(), TaskStatus::Running);
    assert!(t.task.is_completeable());
    t.ok(complete_task());
    assert_eq!(t.last().events.last().unwrap().actor.as_str(), ORCHESTRATOR);

    let mut t = Fixture::auto("a");
    let held = t.grant(WORKER, POOL).unwrap();
    t.complete(&held);
    assert_eq!(t.events(), ["task_step_completed a", "task_completed"]);
    assert_eq!(t.last().events.last().unwrap().actor.as_str(), "system");
}

/// TASK-15: with completion=manual no failure, lost worker or deadline fails the Task.
#[test]
fn a_manual_task_is_failed_by_its_orchestrator_only() {
    let constraints = json!({"deadline_at": START + 5}).as_object().cloned();
    let given = CreateTask { constraints, ..create_input("a b c<-a") };
    let mut t = Fixture::create(given, Policy::Manual);
    let held = t.claim("a");
    t.report(&held, StepStatus::Failed);
    t.write("b", StepStatus::Cancelled);
    t.wait_ms(1_000);
    t.judge_due();
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.ok(fail_task());
    assert_eq!(t.task_status(), TaskStatus::Failed);
}

/// TASK-16: leases may expire as often as they like.
#[test]
fn lost_leases_do_not_end_a_task() {
    let mut t = Fixture::manual("a");
    for lost in 1..=20 {
        let held = t.claim("a");
        t.lose(&held);
        assert_eq!(t.step("a").state.lost_count, lost);
        assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
    }
    assert_eq!(t.task_status(), TaskStatus::Running);
}

/// TASK-17: a failed Task carries a reason code: the default, its orchestrator's, or the policy's.
#[test]
fn a_failed_task_says_why() {
    let code = |t: &Fixture| t.task.head().status_reason.as_ref().unwrap().code.to_string();
    assert_eq!(code(&Fixture::with_task(TaskStatus::Failed)), "task_failed");
    let mut t = Fixture::manual("a");
    t.ok(fail_with("no_budget"));
    assert_eq!(code(&t), "no_budget");

    let mut t = Fixture::auto("a b<-a");
    t.write("a", StepStatus::Cancelled);
    assert_eq!(code(&t), "required_step_cancelled");

    let mut t = Fixture::auto("a? b<-a");
    t.write("a", StepStatus::Cancelled);
    assert_eq!(code(&t), "unreachable_step");

    for (own, expected) in
        [("rejected", "rejected"), ("timed_out", "timed_out"), ("x", "step_failed")]
    {
        let mut t = Fixture::auto("a");
        let held = t.grant(WORKER, POOL).unwrap();
        let mut why = reason(own, "m");
        why.retryable = Some(false);
        let report =
            StepReport { status: Some(StepStatus::Failed), reason: Some(why), ..held.says() };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
        assert_eq!(code(&t), expected);
        assert_eq!(t.task_status(), TaskStatus::Failed);
    }

    let mut t = Fixture::auto("a");
    for _ in 0..3 {
        let held = t.grant(WORKER, POOL).unwrap();
        t.lose(&held);
    }
    assert_eq!(code(&t), "lost");

    let constraints = json!({"deadline_at": START + 5}).as_object().cloned();
    let given = CreateTask { constraints, ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Auto);
    t.wait_ms(10);
    t.judge_due();
    assert_eq!(code(&t), "timed_out");
}

/// TASK-19, TASK-20: completeable is a diagnosis of the state and writes nothing.
#[test]
fn completeable_is_a_diagnosis() {
    let mut t = Fixture::manual("a b?");
    assert!(!t.task.is_completeable());
    let a = t.claim("a");
    let b = t.claim("b");
    t.complete(&a);
    assert!(!t.task.is_completeable(), "an optional step is in work");
    t.report(&b, StepStatus::Failed);
    assert!(t.task.is_completeable());
    assert_eq!(t.events(), ["task_step_failed b"]);
}

/// TASK-21: with no required Step, automatic completion waits until all have settled.
#[test]
fn a_task_without_required_steps_completes_when_all_have_settled() {
    let mut t = Fixture::auto("a? b? c?");
    assert!(t.task.is_completeable());
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.write("a", StepStatus::Completed);
    t.write("b", StepStatus::Cancelled);
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.write("c", StepStatus::Failed);
    assert_eq!(t.events(), ["task_step_failed c", "task_completed"]);
}

/// TASK-21, POL-04: a patch can be what makes a Task complete.
#[test]
fn a_patch_may_complete_an_automatic_task() {
    let given = CreateTask { optional_wait_ms: Some(0), ..create_input("a b") };
    let mut t = Fixture::create(given, Policy::Auto);
    let held = t.grant(WORKER, POOL).unwrap();
    t.complete(&held);
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.ok(patch(json!([{"op": "update_step", "step_id": "b", "fields": {"required": false}}])));
    assert_eq!(t.events(), ["task_updated", "task_step_cancelled b", "task_completed"]);
}

/// TASK-21, POL-10: so can a change of policy, with the next evaluation.
#[test]
fn a_change_of_policy_acts_at_once() {
    let mut t = Fixture::manual("a");
    t.do_step("a");
    t.ok(patch(json!([{"op": "update_task", "completion": "auto"}])));
    assert_eq!(t.events(), ["task_updated", "task_completed"]);
    let mut t = Fixture::manual("a");
    t.ok(patch(json!([{"op": "update_task", "dispatch": "auto"}])));
    assert!(t.grant(WORKER, POOL).is_some());
}
