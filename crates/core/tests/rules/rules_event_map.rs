//! EVENT and 7.1: WAL events as public events.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use std::collections::BTreeSet;

use common::*;
use proptest::prelude::*;
use serde_json::Value as Json;
use tenure_core::Rules;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{AppendProgress, Close, Link, RetrySteps, RunAndWhy, StepReport, Why};
use tenure_core::event::{Body, LeaseEnd};
use tenure_core::id::Ref;
use tenure_core::status::{DeliveryState, EdgeKind, Policy, Role, StepStatus, WaitKind};
use tenure_core::view::public::EventName;
use tenure_core::view::{Facts, public_events};
use tenure_core::{Command, Task};
use views::*;

/// The public events of the whole log, as a replay gives them.
fn stream(t: &Fixture) -> Vec<Json> {
    let (mut task, mut stages) = Task::restore_traced(&t.log[0]).unwrap();
    let mut out = Vec::new();
    for at in 0..t.log.len() {
        if at > 0 {
            stages = task.replay_traced(&t.log[at]).unwrap();
        }
        let events = public_events(&task.durable(), &t.log[at], &stages);
        out.extend(events.iter().map(as_json));
    }
    out
}

/// The public events of the last commit.
fn last(t: &Fixture) -> Vec<Json> {
    let first = t.last().first_seq;
    stream(t).into_iter().filter(|e| e["wal_seq"].as_u64().unwrap() >= first).collect()
}

/// Their names, as one line.
fn names(t: &Fixture) -> String {
    let names = last(t).into_iter().map(|e| e["event"].as_str().unwrap().to_owned());
    names.collect::<Vec<_>>().join(" ")
}

fn say(t: &mut Fixture, held: &Held, report: StepReport) {
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
}

fn expire(t: &mut Fixture, held: &Held, reason: LeaseEnd) {
    let attempt_ids = vec![held.attempt_id];
    t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason });
}

fn with_policy(notation: &str, policy: Json) -> CreateTask {
    let policy = serde_json::from_value(policy).unwrap();
    CreateTask { retry_policy: Some(std::sync::Arc::new(policy)), ..create_input(notation) }
}

/// 7.1: `task_created`, `task_submitted`, `task_running`, `task_step_ready`.
#[test]
fn a_new_task_is_created_accepted_and_queued() {
    let t = Fixture::manual("a b<-a");
    assert_eq!(names(&t), "task.created task.accepted task.queued task.updated");
    let mut t = Fixture::draft("a");
    assert_eq!(names(&t), "task.created");
    t.ok(Command::SubmitTask(Why::default()));
    assert_eq!(names(&t), "task.accepted task.queued task.updated");
}

/// 7.1, STEP-36: a Step that is marked is not tried again, whatever it was before.
#[test]
fn a_marked_step_is_updated_and_progresses() {
    for from in [StepStatus::Blocked, StepStatus::Failed] {
        let mut t = Fixture::manual("a");
        t.write("a", from);
        t.write("a", StepStatus::Completed);
        assert_eq!(names(&t), "task.updated task.progress");
    }
}

/// The statuses in the events of the last commit, as `normalized/native`.
fn statuses(t: &Fixture) -> Vec<String> {
    let both = |e: &Json| {
        format!("{}/{}", e["status"].as_str().unwrap(), e["native_status"].as_str().unwrap())
    };
    last(t).iter().map(both).collect()
}

/// EVENT-10: events say the status after their commit, and never one in between, as it would be while a
/// Step has completed and the next one is not ready yet.
#[test]
fn every_event_shows_the_status_after_its_commit() {
    let mut t = Fixture::manual("a b<-a");
    assert_eq!(
        statuses(&t),
        ["queued/pending", "queued/pending", "queued/pending", "queued/running"]
    );
    t.do_step("a");
    assert_eq!(names(&t), "task.attempt.completed task.progress task.queued");
    assert_eq!(statuses(&t), ["queued/running"; 3]);
}

/// EVENT-10: before the event that ends the Task, events say the status before the commit.
#[test]
fn no_event_says_that_the_task_has_ended_before_the_one_that_ends_it() {
    let mut t = Fixture::auto("a");
    t.do_step("a");
    assert_eq!(names(&t), "task.attempt.completed task.progress task.completed");
    assert_eq!(statuses(&t), ["preparing/running", "preparing/running", "completed/completed"]);
}

/// 7.1: `task_updated` also announces the graph if an edge, Step or dependency changed, and only
/// then.
#[test]
fn a_patch_announces_the_graph_if_it_changed() {
    let mut t = Fixture::manual("a b c<-a");
    let both = "task.updated task.dependency.updated";
    for (operation, expected) in [
        (json!({"op": "update_task", "title": "new"}), "task.updated"),
        (json!({"op": "update_step", "step_id": "b", "fields": {"title": "new"}}), "task.updated"),
        (json!({"op": "update_step", "step_id": "b", "fields": {"depends_on_step_ids": []}}), both),
        (json!({"op": "add_dependency", "step_id": "c", "depends_on_step_id": "b"}), both),
        (json!({"op": "remove_dependency", "step_id": "c", "depends_on_step_id": "b"}), both),
        (json!({"op": "delete_step", "step_id": "c"}), both),
        (
            json!({"op": "add_step", "step": {"step_id": "d", "title": "", "summary": "",
                "depends_on_step_ids": ["a"]}}),
            both,
        ),
        (json!({"op": "block_task"}), "task.updated task.blocked"),
        (json!({"op": "reopen_task"}), "task.updated task.resumed task.updated"),
        (json!({"op": "cancel_step", "step_id": "b"}), "task.updated task.progress"),
    ] {
        t.ok(t.patch(json!([operation])));
        assert_eq!(names(&t), expected, "{operation}");
    }
}

/// 7.1: the moves of a Task between live statuses, and its ends.
#[test]
fn the_moves_of_a_task_have_their_names() {
    let mut t = Fixture::manual("a");
    for (command, expected) in [
        (Command::PauseTask(Why::default()), "task.paused"),
        (Command::ResumeTask(Why::default()), "task.resumed task.updated"),
        (Command::BlockTask(Why::default()), "task.blocked"),
        (Command::ReopenTask(Why::default()), "task.resumed task.updated"),
    ] {
        t.ok(command.clone());
        assert_eq!(names(&t), expected, "{command:?}");
    }
    t.do_step("a");
    t.ok(Command::TaskComplete(Default::default()));
    assert_eq!(names(&t), "task.completed");
    t.ok(Command::ArchiveTask(Why::default()));
    assert_eq!(names(&t), "task.archived");
    let close = |code: &str| Close { grace_ms: None, reason: Some(reason(code, "")), wait: None };
    for (command, expected) in [
        (Command::TaskCancel(close("x")), "task.progress task.cancelled"),
        (Command::TaskFail(close("x")), "task.progress task.failed"),
        (Command::TaskFail(close("timed_out")), "task.progress task.timed_out"),
        (Command::TaskFail(close("lost")), "task.progress task.lost"),
    ] {
        let mut t = Fixture::manual("a");
        t.ok(command.clone());
        assert_eq!(names(&t), expected, "{command:?}");
        assert_eq!(last(&t).last().unwrap()["terminal"], true);
    }
}

/// 7.1, CANCEL-01: a closing that waits for runs announces the wish first.
#[test]
fn a_closing_task_announces_the_wish() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.ok(Command::TaskCancel(Close::default()));
    assert_eq!(names(&t), "task.cancel_requested");
    assert_eq!(last(&t)[0]["data"]["intent"], "cancel");
    let end = tenure_core::command::EndRun {
        outcome: tenure_core::command::RunOutcome::Cancelled,
        result: None,
        run_id: held.run_id,
    };
    t.ok_as(&held.caller(), Command::EndRun(end));
    assert_eq!(names(&t), "task.attempt.failed task.cancelled");
    let ended = &last(&t)[0];
    assert_eq!(
        (&ended["data"]["outcome"], &ended["status"]),
        (&json!("cancelled"), &json!("cancelling"))
    );
    assert_eq!(ended["run_id"], held.run_id.to_string());
    assert_eq!(ended["attempt_id"], held.attempt_id.to_string());
}

/// 7.1, EVENT-06: the first claim starts the Task, once; a later claim of a Step retries it.
#[test]
fn the_first_claim_starts_the_task() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    assert_eq!(names(&t), "task.started task.attempt.started");
    expire(&mut t, &held, LeaseEnd::LeaseExpired);
    t.claim("b");
    assert_eq!(names(&t), "task.attempt.started");
    t.claim("a");
    assert_eq!(names(&t), "task.retrying task.attempt.started");
    let started = stream(&t).into_iter().filter(|e| e["event"] == "task.started").count();
    assert_eq!(started, 1);
}

/// 7.1: what a holder reports.
#[test]
fn reports_have_their_names() {
    let mut t = Fixture::manual("a b c d");
    let held = t.claim("a");
    t.start(&held);
    assert_eq!(names(&t), "task.progress");
    assert_eq!(last(&t)[0]["data"]["phase"], "working");
    t.start(&held);
    assert_eq!(
        (names(&t).as_str(), last(&t)[0]["native_event"].as_str()),
        ("task.progress", Some("task_step_updated"))
    );
    t.complete(&held);
    assert_eq!(names(&t), "task.attempt.completed task.progress");
    let held = t.claim("b");
    t.report(&held, StepStatus::Failed);
    assert_eq!(names(&t), "task.attempt.failed");
    assert_eq!(last(&t)[0]["data"]["outcome"], "failed");
    let held = t.claim("c");
    t.report(&held, StepStatus::Cancelled);
    assert_eq!(names(&t), "task.attempt.failed");
    assert_eq!(last(&t)[0]["data"]["outcome"], "cancelled");
}

/// 7.1: a Step that blocks ends its Attempt as completed, with outcome blocked, and says what it
/// waits for; blocked by the orchestrator no Attempt ends.
#[test]
fn a_blocked_step_says_what_it_waits_for() {
    for (kind, expected) in WaitKind::ALL.iter().map(|&kind| match kind {
        WaitKind::Other => (kind, "task.blocked"),
        _ => (kind, "task.waiting"),
    }) {
        let mut t = Fixture::manual("a b");
        let held = t.claim("a");
        let status = Some(StepStatus::Blocked);
        say(&mut t, &held, StepReport { status, wait_kind: Some(kind), ..held.says() });
        assert_eq!(names(&t), format!("task.attempt.completed {expected}"));
        assert_eq!(last(&t)[0]["data"]["outcome"], "blocked");
        assert_eq!(last(&t)[1]["data"]["wait_kind"], kind.as_str());
        let mut given = StepReport::on(id("b"));
        (given.status, given.wait_kind) = (status, Some(kind));
        t.ok(Command::TaskUpdateStep(given));
        assert_eq!(names(&t), expected);
    }
}

/// 7.1: what the orchestrator writes without an Attempt is progress.
#[test]
fn moves_without_an_attempt_are_progress() {
    for to in [StepStatus::Completed, StepStatus::Failed, StepStatus::Cancelled] {
        let mut t = Fixture::manual("a b");
        t.write("a", to);
        assert_eq!(names(&t), "task.progress", "{to}");
    }
    let mut t = Fixture::manual("a b");
    t.claim("a");
    t.write("a", StepStatus::Completed);
    assert_eq!(names(&t), "task.attempt.completed task.progress");
}

/// 7.1: a reopened Step is retried if it had failed, else updated.
#[test]
fn a_reopened_step_is_retried_if_it_failed() {
    let mut t = Fixture::manual("a b");
    t.bring("a", StepStatus::Failed);
    let again = RetrySteps { reason: reason("again", ""), step_ids: None };
    t.ok(Command::RetryTask(again));
    assert_eq!(names(&t), "task.retrying task.queued");
    t.bring("b", StepStatus::Blocked);
    t.write("b", StepStatus::Pending);
    assert_eq!(names(&t), "task.updated task.queued");
    let mut t = Fixture::create(with_policy("a", json!({"max_attempts": 2})), Policy::Manual);
    let held = t.claim("a");
    t.report(&held, StepStatus::Failed);
    assert_eq!(names(&t), "task.attempt.failed task.retrying");
}

/// 7.1, ATT-10, LEASE-18: an ended lease is a failed Attempt with outcome lost, and `task.lost` that does not
/// end the Task; one that was given back is no loss and no failure, and the next claim no retry.
#[test]
fn a_lost_lease_is_a_loss_and_a_released_one_is_not() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    expire(&mut t, &held, LeaseEnd::LeaseExpired);
    assert_eq!(names(&t), "task.attempt.failed task.lost task.queued");
    assert_eq!(last(&t)[0]["data"]["outcome"], "lost");
    assert!(last(&t)[1]["terminal"] == false && last(&t)[1]["status"] == "retrying");
    let mut held = t.claim("a");
    for (end, attempt, next) in [
        (LeaseEnd::HostRestarted, "task.attempt.failed", "task.retrying task.attempt.started"),
        (LeaseEnd::Released, "task.attempt.completed", "task.attempt.started"),
    ] {
        expire(&mut t, &held, end);
        assert_eq!(names(&t), format!("{attempt} task.queued"));
        assert_eq!(last(&t)[0]["data"]["outcome"], "abandoned");
        assert_eq!(last(&t)[0]["data"]["end_reason"] == "released", end == LeaseEnd::Released);
        held = t.claim("a");
        let id = last(&t).pop().unwrap()["event_id"].to_string(); // As ever (EVENT-04).
        assert_eq!((names(&t).as_str(), id.ends_with(".0.1\"")), (next, true));
    }
}

/// 7.1: a loss that uses the budget up (S12) fails one Attempt, not two.
#[test]
fn a_step_lost_for_good_counts_once() {
    let mut t = Fixture::create(with_policy("a b", json!({"max_lost": 1})), Policy::Manual);
    let held = t.claim("a");
    expire(&mut t, &held, LeaseEnd::LeaseExpired);
    assert_eq!(names(&t), "task.attempt.failed task.lost task.progress");
}

/// 7.1, DISP-17: progress, delivery, relations and Runs; each dispatch delegates, a Run of the
/// scheduler is not announced.
#[test]
fn everything_else_has_its_names() {
    let mut t = Fixture::manual("a");
    let both = AppendProgress {
        progress: Some(Default::default()),
        delivery_state: Some(DeliveryState::Delivered),
        ..AppendProgress::default()
    };
    t.ok(Command::AppendTaskProgress(both));
    assert_eq!(names(&t), "task.progress task.progress");
    let link = |kind| Command::LinkTasks(Link { kind, reason: None, to: Ref::new("u").unwrap() });
    for (kind, expected) in [
        (EdgeKind::Blocks, "task.dependency.updated"),
        (EdgeKind::SpawnedSubagent, "task.dependency.updated task.delegated"),
        (EdgeKind::AssignedThread, "task.dependency.updated task.delegated"),
    ] {
        t.ok(link(kind));
        assert_eq!(names(&t), expected);
    }
    t.ok_as(&system(), link(EdgeKind::Child));
    assert_eq!(names(&t), "task.dependency.updated task.delegated");
    let edge_id = "blocks:t:u".parse().unwrap();
    t.ok(Command::UnlinkTasks(tenure_core::command::Unlink { edge_id, reason: None }));
    assert_eq!(names(&t), "task.dependency.updated");
    let run_id = t.dispatch("main");
    assert_eq!(names(&t), "task.delegated");
    assert_eq!(last(&t)[0]["run_id"], run_id.to_string());
    t.ok(Command::CancelRun(RunAndWhy { reason: None, run_id }));
    assert_eq!(names(&t), "task.updated");
    let mut auto = Fixture::auto("a");
    auto.grant("ant", POOL).unwrap();
    assert!(!names(&auto).contains("task.delegated"));
}

/// EVENT-02, U10: the names are the 23 of the public stream, and every one of them is produced.
#[test]
fn all_names_are_produced() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut take = |t: &Fixture| {
        seen.extend(stream(t).into_iter().map(|e| e["event"].as_str().unwrap().to_owned()));
    };
    let mut t = Fixture::manual("a b c");
    let held = t.claim("a");
    expire(&mut t, &held, LeaseEnd::LeaseExpired);
    let held = t.claim("a");
    t.start(&held);
    t.complete(&held);
    let held = t.claim("b");
    say(
        &mut t,
        &held,
        StepReport {
            status: Some(StepStatus::Blocked),
            wait_kind: Some(WaitKind::Input),
            ..held.says()
        },
    );
    t.ok(Command::PauseTask(Why::default()));
    t.ok(Command::ResumeTask(Why::default()));
    t.ok(Command::BlockTask(Why::default()));
    t.ok(t.patch(json!([{"op": "add_dependency", "step_id": "c", "depends_on_step_id": "a"}])));
    t.ok(Command::TaskCancel(Close::default()));
    t.ok(Command::ArchiveTask(Why::default()));
    take(&t);
    for code in ["x", "timed_out"] {
        let mut t = Fixture::manual("a");
        t.claim("a");
        let close = Close { grace_ms: None, reason: Some(reason(code, "")), wait: None };
        t.ok(Command::TaskFail(close));
        t.wait_ms(20_000);
        t.judge_due();
        take(&t);
    }
    let mut t = Fixture::auto("a");
    t.do_step("a");
    take(&t);
    let all: BTreeSet<String> = EventName::ALL.iter().map(|n| n.as_str().to_owned()).collect();
    assert_eq!(all.len(), 23);
    assert_eq!(seen, all);
}

/// 2.6, EVENT-03, EVENT-09: the fields of the envelope.
#[test]
fn the_envelope_has_its_fields() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let event = last(&t).into_iter().find(|e| e["event"] == "task.attempt.started").unwrap();
    let commit = t.last();
    assert_eq!(event["event_id"], format!("{}.0.1", commit.commit_id));
    assert_eq!(event["native_event"], "task_step_claimed");
    assert_eq!((&event["task_id"], &event["session_id"]), (&json!("t"), &json!("s")));
    assert_eq!(event["step_id"], "a");
    assert_eq!(event["run_id"], held.run_id.to_string());
    assert_eq!(event["attempt_id"], held.attempt_id.to_string());
    assert_eq!(event["wal_seq"], held.token);
    assert_eq!(
        (&event["status"], &event["native_status"]),
        (&json!("preparing"), &json!("running"))
    );
    assert_eq!((&event["terminal"], &event["actor"]), (&json!(false), &json!("ant")));
    assert_eq!(event["created_at"], commit.created_at);
    assert_eq!(event["data"]["ordinal"], 1);
}

/// EVENT-07, WAL-11: what changes no Task makes no public event.
#[test]
fn what_writes_nothing_announces_nothing() {
    let mut t = Fixture::manual("a");
    let before = stream(&t).len();
    t.claim("a");
    let claimed = stream(&t).len();
    assert_eq!(claimed, before + 3, "dispatch, start, attempt");
    let run = t.dispatch("main");
    let lost = t.run(&worker("bee", "main", Some(run)), &claim_command(run, "a"));
    assert!(lost.is_err());
    assert_eq!(stream(&t).len(), claimed + 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// EVENT-04, EVENT-05, EVENT-06: over any history ids are unique, the order is the log's, at
    /// most one event is terminal (exactly one once the Task has ended), the Task starts at most
    /// once, attempt events name their Run and Attempt, and each Attempt ends in one event.
    #[test]
    fn the_stream_keeps_its_promises(
        dag in dags(), auto in any::<bool>(), moves in moves(60),
    ) {
        let t = after(dag, auto, &moves);
        let events = stream(&t);
        let ids: BTreeSet<_> = events.iter().map(|e| e["event_id"].to_string()).collect();
        prop_assert_eq!(ids.len(), events.len());
        prop_assert!(events.is_sorted_by_key(|e| e["wal_seq"].as_u64()));
        let count = |test: &dyn Fn(&Json) -> bool| events.iter().filter(|e| test(e)).count();
        let terminal = count(&|e| e["terminal"] == true);
        prop_assert_eq!(terminal, usize::from(t.task.is_terminal()));
        let mut before = events.iter().take_while(|e| e["terminal"] == false);
        let ended = ["completed", "failed", "cancelled", "timed_out"];
        prop_assert!(before.all(|e| ended.iter().all(|status| e["status"] != *status)));
        let attempts = t.task.durable().attempts().count();
        prop_assert_eq!(count(&|e| e["event"] == "task.started"), attempts.min(1));
        prop_assert_eq!(count(&|e| e["event"] == "task.attempt.started"), attempts);
        let ended = t.task.durable().attempts().filter(|a| a.outcome.is_some()).count();
        let ends = ["task.attempt.completed", "task.attempt.failed"];
        prop_assert_eq!(count(&|e| ends.iter().any(|n| e["event"] == *n)), ended);
        for event in events.iter().filter(|e| e["event"].as_str().unwrap().contains("attempt")) {
            prop_assert!(event["run_id"].is_string() && event["attempt_id"].is_string());
        }
        prop_assert!(events.iter().all(|e| e["task_id"] == "t"));
    }

    /// 7.1, RECOVER-08: a state that decided everything until then says of a commit what a state that was
    /// read from the log says of it, and the last status is that of a view.
    #[test]
    fn live_and_replay_say_the_same(
        dag in dags(), auto in any::<bool>(), moves in moves(60),
    ) {
        let mut live = if auto { Fixture::auto(dag) } else { Fixture::manual(dag) };
        let (mut replay, _) = Task::restore_traced(&live.log[0]).unwrap();
        for one in moves {
            let (caller, command) = read_move(&live.task, one);
            let mut before = live.task.clone();
            let Ok(outcome) = live.run(&caller, &command) else { continue };
            let Some(commit) = outcome.commit else { continue };
            let stages = replay.replay_traced(&commit).unwrap();
            prop_assert_eq!(&stages, &before.replay_traced(&commit).unwrap());
            prop_assert_eq!(stages.len(), commit.events.len());
            let last = stages.last().unwrap();
            prop_assert_eq!(last.status, Facts::of(&live.task.durable(), &known()).status());
            prop_assert_eq!(last.native, live.task_status());
        }
    }
}

/// EVENT-08: nothing of a Task depends on its events having been asked for.
#[test]
fn events_are_a_reading_of_the_log_alone() {
    let mut t = Fixture::manual("a");
    t.do_step("a");
    let before = t.task.clone();
    drop(stream(&t));
    assert_eq!(t.task, before);
    let observer = caller("eye", Role::Observer);
    t.refuse_as(&observer, Command::PauseTask(Why::default()), tenure_core::Code::ToolNotAvailable);
    assert!(t.log.iter().all(|c| !c.events.iter().any(|e| matches!(e.body, Body::TaskPaused(_)))));
}

/// 7.1, FACT-01, RETRY-15, TASK-22: a fact is an update without its content, and a Step that was taken over
/// is progress; the end names the Step with the output.
#[test]
fn facts_and_what_was_taken_over_have_their_names() {
    let mut t = Fixture::manual("a b<-a");
    let kind = tenure_core::status::FactKind::A2aPushConfig;
    let payload = tenure_core::record::Value::json(*b"{\"secret\": 1}");
    let fact = tenure_core::command::KeepFact::alone(kind, "k".into(), payload);
    t.ok(Command::TaskFact(fact));
    assert_eq!(names(&t), "task.updated");
    let data = json!({"kind": "a2a_push_config", "key": "k"});
    assert_eq!((&last(&t)[0]["native_event"], &last(&t)[0]["data"]), (&json!("task_fact"), &data));
    let held = t.claim("a");
    let output = Some(tenure_core::record::Value::json(*b"1"));
    let status = Some(StepStatus::Completed);
    say(&mut t, &held, StepReport { status, output, ..held.says() });
    t.ok(Command::TaskFail(Close::default()));
    let given = t.task.durable().retry_input(
        "t2".parse().unwrap(),
        &gone_on(&reason("again", "")),
        Rules::NEWEST,
    );
    let mut new = Fixture::create(
        CreateTask { output_from: Some(id("a")), ..given.unwrap() },
        Policy::Manual,
    );
    assert_eq!(names(&new), "task.created task.accepted task.progress task.queued task.updated");
    assert_eq!(last(&new)[2]["data"]["step_status"], "completed");
    new.ok(patch(json!([{"op": "update_task", "completion": "auto"}])));
    new.write("b", StepStatus::Completed);
    assert_eq!(last(&new).last().unwrap()["data"]["output_from"], "a");
}
