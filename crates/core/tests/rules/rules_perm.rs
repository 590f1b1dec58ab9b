//! PERM: who has which tool, and the order of the checks of 5.1.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{
    AppendProgress, Complete, Dispatch, Operator, RetrySteps, RunOutcome, StepReport, check_tool,
};
use tenure_core::event::LeaseEnd;
use tenure_core::id::{Ref, RunId, SessionId};
use tenure_core::status::{Policy, Role, StepStatus};
use tenure_core::{Caller, Code, Command, Cx, Limits, Task};

/// PERM-17, 5.2: the tools of agents are these twelve, by these names, and each has who may use it.
#[test]
fn agents_have_twelve_tools() {
    use Role::{Observer, Orchestrator, Worker};
    let told: [(&str, &str, &[Role]); 12] = [
        ("agent.task_template", "task_template", &[Orchestrator]),
        ("agent.task_create", "task_create", &[Orchestrator]),
        ("agent.task_get", "task_get", &[Orchestrator, Worker, Observer]),
        ("agent.task_list", "task_list", &[Orchestrator, Worker, Observer]),
        ("agent.task_update", "task_update", &[Orchestrator]),
        ("agent.task_query_steps", "task_query_steps", &[Orchestrator, Worker, Observer]),
        ("agent.task_claim_step", "task_claim_step", &[Worker]),
        ("agent.task_update_step", "task_update_step", &[Orchestrator, Worker]),
        ("agent.task_complete", "task_complete", &[Orchestrator]),
        ("agent.task_fail", "task_fail", &[Orchestrator]),
        ("agent.task_cancel", "task_cancel", &[Orchestrator]),
        ("agent.dispatch_worker", "dispatch_worker", &[Orchestrator]),
    ];
    let there_are = Operator::TOOLS.map(|(name, operation)| (name, operation.as_str()));
    assert_eq!(there_are, told.map(|(name, operation, _)| (name, operation)));
    for (name, own, whose) in told {
        let operation = Operator::called(name).unwrap();
        assert_eq!(operation, Operator::from_name(own).unwrap());
        for role in [Orchestrator, Worker, Observer, Role::SubAgent] {
            assert_eq!(operation.is_open_to(role), whose.contains(&role), "{name} for {role}");
        }
    }
}

/// CTRL-01, 5.3: the control plane's names, its own and those of what agents have as tools; no name is
/// of two operations.
#[test]
fn the_control_plane_has_its_names() {
    let names = [
        ("create_task", "task_create"),
        ("submit_task", "submit_task"),
        ("update_task", "task_update"),
        ("start_task", "dispatch_worker"),
        ("append_task_progress", "append_task_progress"),
        ("pause_task", "pause_task"),
        ("resume_task", "resume_task"),
        ("block_task", "block_task"),
        ("reopen_task", "reopen_task"),
        ("cancel_task", "task_cancel"),
        ("retry_task", "retry_task"),
        ("complete_task", "task_complete"),
        ("fail_task", "task_fail"),
        ("list_tasks", "task_list"),
        ("get_task", "task_get"),
        ("link_tasks", "link_tasks"),
        ("unlink_tasks", "unlink_tasks"),
        ("archive_task", "archive_task"),
    ];
    for (name, own) in names {
        assert_eq!(Operator::called(name).unwrap().as_str(), own, "{name}");
    }
    let others = Operator::TOOLS.iter().chain(&Operator::CONTROL_PLANE);
    let mut all: Vec<&str> = others.map(|(name, _)| *name).collect();
    all.extend(Operator::ALL.iter().map(|own| own.as_str()));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    assert_eq!(Operator::called("agent.retry_task"), None);
}

/// PERM-04, PERM-05, PERM-06, PERM-07, PERM-08, PERM-15, TERM-01: the tool set of every role, exhaustively.
#[test]
fn every_role_has_its_tools_and_no_others() {
    let workers = [
        "task_get",
        "task_list",
        "task_query_steps",
        "task_claim_step",
        "task_update_step",
        "append_task_progress",
        "take_run",
        "heartbeat",
        "end_run",
        "decline_run",
        "release_step",
        "task_board_summary",
        "blob_put",
        "blob_get",
    ];
    let observers =
        ["task_get", "task_list", "task_query_steps", "inspect_task", "task_views", "blob_get"];
    let not_orchestrators = [
        "task_claim_step",
        "take_run",
        "heartbeat",
        "end_run",
        "decline_run",
        "release_step",
        "grant_step",
        "expire_leases",
        "due",
    ];
    for &tool in Operator::ALL {
        let name = tool.as_str();
        for &role in Role::ALL {
            let may = match role {
                Role::System => true,
                Role::SubAgent => false,
                Role::Observer => observers.contains(&name),
                Role::Worker => workers.contains(&name),
                Role::Orchestrator => !not_orchestrators.contains(&name),
            };
            assert_eq!(tool.is_open_to(role), may, "{name} for {role}");
            let asked = check_tool(&caller("x", role), tool);
            assert_eq!(asked.is_ok(), may);
            if let Err(no) = asked {
                assert_eq!(no.code, Code::ToolNotAvailable);
                assert_eq!(no.details["operation"], name);
            }
        }
    }
    for name in workers.iter().chain(&observers).chain(&not_orchestrators) {
        assert!(Operator::from_name(name).is_some(), "{name} is a tool");
    }
}

/// One command of every kind, in order on the Task of `everyone`.
fn every_command(held: &Held, unused: RunId) -> Vec<Command> {
    let why = Default::default;
    vec![
        patch(json!([{"op": "update_task", "title": "new"}])),
        claim_command(unused, "b"),
        held.reports(StepStatus::Running),
        Command::TaskComplete(Complete::default()),
        fail_task(),
        cancel_task(),
        Command::DispatchWorker(Dispatch::to(pool_id(POOL))),
        Command::SubmitTask(why()),
        Command::PauseTask(why()),
        Command::ResumeTask(why()),
        Command::BlockTask(why()),
        Command::ReopenTask(why()),
        Command::AppendTaskProgress(AppendProgress {
            input_refs: vec![Ref::new("mem:x").unwrap()],
            ..AppendProgress::default()
        }),
        Command::RetryTask(RetrySteps { reason: reason("r", ""), step_ids: None }),
        Command::LinkTasks(tenure_core::command::Link {
            kind: tenure_core::status::EdgeKind::Blocks,
            reason: None,
            to: Ref::new("other").unwrap(),
        }),
        Command::UnlinkTasks(tenure_core::command::Unlink {
            edge_id: "e".parse().unwrap(),
            reason: None,
        }),
        Command::ArchiveTask(why()),
        held.ends(RunOutcome::Finished),
        decline_run(unused),
        cancel_run(unused),
        held.releases(),
        Command::GrantStep(tenure_core::command::Grant {
            worker_id: agent_id("ant"),
            worker_pool_id: pool_id(POOL),
            origin: None,
            handlers: None,
            may_be_suspect: true,
        }),
        expire(&[held], LeaseEnd::LeaseExpired),
        Command::Due,
    ]
}

/// PERM-01, PERM-08, K2: every command is refused to the roles that do not have it, before its
/// input or the Task is looked at.
#[test]
fn every_command_checks_its_tool_first() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let unused = t.dispatch(POOL);
    t.ok(block_task());
    t.ok(cancel_task());
    t.end(&held, RunOutcome::Finished);
    for command in every_command(&held, unused) {
        for &role in Role::ALL {
            if role != Role::System && !command.operation().is_open_to(role) {
                let elsewhere = SessionId::new("elsewhere").unwrap();
                let asker = Caller { session_id: elsewhere, ..caller("x", role) };
                t.refuse_as(&asker, command.clone(), Code::ToolNotAvailable);
            }
        }
    }
}

/// K1, U12: nobody but the scheduler bears the scheduler's name, in any role; nor does the
/// scheduler bear another.
#[test]
fn the_schedulers_name_is_its_own() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let unused = t.dispatch(POOL);
    for command in every_command(&held, unused) {
        for &role in Role::ALL.iter().filter(|r| **r != Role::System) {
            t.refuse_as(&caller("system", role), command.clone(), Code::Unauthenticated);
        }
        t.refuse_as(&caller("boss", Role::System), command, Code::Unauthenticated);
    }
    let given = create_input("a");
    let refused = create_as(&caller("system", Role::Orchestrator), &given);
    assert_eq!(refused.unwrap_err().code, Code::Unauthenticated);
}

fn create_as(caller: &Caller, given: &CreateTask) -> Result<Task, tenure_core::Rejection> {
    let limits = Limits::default();
    let defaults = Defaults { policy: Policy::Manual, worker_pool_id: pool_id(POOL) };
    let stamp = Fixture::manual("a").stamp();
    let cx = Cx {
        caller,
        stamp,
        command_id: None,
        digest: None,
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits: &limits,
    };
    Task::create(&cx, given, &defaults, None).map(|(task, _)| task)
}

/// PERM-04: only an orchestrator (or the scheduler) creates Tasks.
#[test]
fn only_orchestrators_create() {
    for &role in Role::ALL {
        let agent = if role == Role::System { "system" } else { "x" };
        let made = create_as(&caller(agent, role), &create_input("a"));
        let may = matches!(role, Role::Orchestrator | Role::System);
        assert_eq!(made.is_ok(), may, "{role}");
    }
}

/// PERM-14, K4: the right to a Task is the right to its session.
#[test]
fn another_session_is_denied() {
    let mut t = Fixture::manual("a");
    let elsewhere = Caller { session_id: SessionId::new("elsewhere").unwrap(), ..orchestrator() };
    t.refuse_as(&elsewhere, cancel_task(), Code::PermissionDenied);
    let colleague = caller("another-boss", Role::Orchestrator);
    t.ok_as(&colleague, block_task());
    assert_eq!(t.actors(), ["another-boss"], "not only the creator");
}

/// PERM-05, PERM-13: a worker has no tool for content, and none for Task progress.
#[test]
fn a_worker_changes_no_content_and_no_task() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let patch = patch(json!([{"op": "update_step", "step_id": "a", "fields": {"title": "mine"}}]));
    t.refuse_as(&held.caller(), patch, Code::ToolNotAvailable);
    let progress = Command::AppendTaskProgress(AppendProgress {
        input_refs: vec![Ref::new("mem:x").unwrap()],
        ..AppendProgress::default()
    });
    t.refuse_as(&held.caller(), progress.clone(), Code::PermissionDenied);
    t.ok(cancel_task());
    t.end(&held, RunOutcome::Finished);
    t.refuse_as(&held.caller(), progress, Code::PermissionDenied);
}

/// PERM-10: an orchestrator's writes pass the state checks, too.
#[test]
fn an_orchestrator_is_checked_as_well() {
    let mut t = Fixture::manual("a b<-a");
    t.refuse(write_command("b", StepStatus::Completed), Code::StepNotReady);
    t.refuse(write_command("never", StepStatus::Completed), Code::StepNotFound);
}

/// CTRL-02, 5.1: for one command that is wrong in every way the checks come in order; each
/// correction uncovers the next.
#[test]
fn checks_come_in_the_order_of_the_table() {
    let mut t = Fixture::manual("a b");
    let elsewhere = SessionId::new("elsewhere").unwrap();
    let wrong_output = |report: StepReport| StepReport {
        output: Some(tenure_core::record::Value::json(b"1".to_vec())),
        ..report
    };
    let content =
        |report: StepReport| StepReport { content_fields: vec!["title".into()], ..report };
    let base = || StepReport { status: Some(StepStatus::Running), ..StepReport::on(id("a")) };
    let known =
        Envelope { command_id: Some("known".into()), digest: Some([1; 32]), ..Envelope::default() };
    let other = Envelope { digest: Some([2; 32]), ..known.clone() };
    let versioned = Envelope { expected_version: Some(1), ..Envelope::default() };
    let boss = orchestrator();
    let ask = |t: &mut Fixture, caller: &Caller, report: StepReport, envelope: &Envelope| {
        t.run_with(caller, &Command::TaskUpdateStep(report), envelope).unwrap_err().code
    };
    // K1, K2, K3, K4.
    let fake = caller("system", Role::SubAgent);
    assert_eq!(ask(&mut t, &fake, wrong_output(base()), &other), Code::Unauthenticated);
    let sub = Caller { session_id: elsewhere.clone(), ..caller("x", Role::SubAgent) };
    assert_eq!(ask(&mut t, &sub, wrong_output(base()), &other), Code::ToolNotAvailable);
    let stranger = Caller { session_id: elsewhere, ..boss.clone() };
    assert_eq!(ask(&mut t, &stranger, wrong_output(base()), &other), Code::ValidationError);
    assert_eq!(ask(&mut t, &stranger, content(base()), &other), Code::PermissionDenied);
    assert_eq!(ask(&mut t, &boss, content(base()), &other), Code::ValidationError);
    // K6: a known command id comes before everything that needs the state.
    t.run_with(&boss, &write_command("a", StepStatus::Completed), &known).unwrap();
    let held = t.claim("b");
    t.ok(cancel_task());
    assert_eq!(ask(&mut t, &boss, base(), &other), Code::IdempotencyConflict);
    // K9 before K10 before K12.
    assert_eq!(ask(&mut t, &boss, base(), &versioned), Code::TaskCancelling);
    // K8 before K10.
    t.end(&held, RunOutcome::Finished);
    assert_eq!(ask(&mut t, &boss, base(), &versioned), Code::TaskTerminal);
    // Rights that need the state come before K8; the Attempt after it.
    let foreign = StepReport { step_id: id("a"), ..held.says() };
    let foreign = StepReport { status: Some(StepStatus::Running), ..foreign };
    assert_eq!(ask(&mut t, &held.caller(), foreign, &versioned), Code::PermissionDenied);
    let outdated = StepReport { status: Some(StepStatus::Running), ..held.says() };
    assert_eq!(ask(&mut t, &held.caller(), outdated, &versioned), Code::TaskTerminal);
    // `run_not_found` and the pool come before K8, too.
    let unknown = RunId(uuid::Uuid::from_u128(55_555));
    let ant = worker("ant", POOL, Some(unknown));
    t.refuse_as(&ant, claim_command(unknown, "a"), Code::RunNotFound);
}

/// K10 before K12.
#[test]
fn the_version_is_judged_before_the_state() {
    let mut t = Fixture::manual("a b<-a");
    let envelope = Envelope { expected_version: Some(1), ..Envelope::default() };
    let command = write_command("b", StepStatus::Completed);
    let no = t.run_with(&orchestrator(), &command, &envelope).unwrap_err();
    assert_eq!(no.code, Code::VersionConflict);
}
