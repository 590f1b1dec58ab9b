//! RECOVER and WAL, as far as they are decisions on the state.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::RunOutcome;
use tenure_core::command::create::CreateTask;
use tenure_core::event::{Body, LeaseEnd, Nothing};
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::{Command, Commit, Event, Task};

/// A Task with a past: Attempts of many outcomes, Runs, a patch, a block, a retry that waits.
fn eventful() -> Fixture {
    let policy = json!({"max_attempts": 3, "backoff": {"initial_ms": 500, "jitter": 0.0}});
    let mut t = with_policy("a b<-a c d? e<-c,d", policy, Policy::Manual);
    t.do_step("a");
    let lost = t.claim("b");
    t.lose(&lost);
    let failed = t.claim("c");
    t.start(&failed);
    t.fail(&failed, "broken");
    t.ok(patch(json!([
        {"op": "update_step", "step_id": "b", "fields": {"title": "new"}},
        {"op": "add_step", "step": {"step_id": "f", "title": "", "summary": "", "depends_on_step_ids": ["b"]}},
        {"op": "remove_dependency", "step_id": "e", "depends_on_step_id": "d"},
    ])));
    t.ok(block_task());
    t.ok(Command::ReopenTask(Default::default()));
    t.claim("b");
    t.dispatch("gpu");
    t
}

/// RECOVER-01, WAL-13, STORE-01: the log alone gives the state, indexes, memory of commands and
/// timers included.
#[test]
fn a_replay_is_the_state() {
    let mut t = eventful();
    let due = t.task.next_due();
    assert!(due.is_some());
    let replayed = t.replayed();
    assert_eq!(replayed, t.task);
    assert_eq!(replayed.next_due(), due);
    t.restart();
    t.now += 1_000;
    t.judge_due();
    assert_eq!(t.status("c"), StepStatus::Ready);
}

/// RECOVER-01: every prefix of the log is a state, and going on from it is the same.
#[test]
fn every_prefix_of_the_log_replays() {
    let t = eventful();
    let mut task = Task::restore(&t.log[0]).unwrap();
    for commit in &t.log[1..] {
        task.check_invariants().unwrap();
        task.replay(commit).unwrap();
    }
    assert_eq!(task, t.task);
}

/// WAL-13: a replay asks for nothing and makes nothing: twice gives the same.
#[test]
fn a_replay_has_no_effect_but_the_state() {
    let t = eventful();
    let log = t.log.clone();
    assert_eq!(t.replayed(), t.replayed());
    assert_eq!(t.log, log);
}

/// WAL-04, WAL-08: sequence numbers have no gap; all events of a command are one commit, and a
/// granted claim is one of its own.
#[test]
fn commits_follow_one_another_without_a_gap() {
    let mut t = Fixture::auto("a b<-a");
    let a = t.grant("ant", POOL).unwrap();
    t.complete(&a);
    t.grant("ant", POOL).unwrap();
    let events: Vec<_> = t.log.iter().map(names).collect();
    assert_eq!(
        events,
        [
            vec!["task_created", "task_step_ready a", "task_running"],
            vec!["task_step_claimed a"],
            vec!["task_step_completed a", "task_step_ready b"],
            vec!["task_step_claimed b"],
        ]
    );
    let mut next = 1;
    for commit in &t.log {
        assert_eq!(commit.first_seq, next);
        next = commit.last_seq() + 1;
    }
}

/// Where a log was changed so that it is no history of a Task any more.
fn refuses(log: &[Commit], what: &str) {
    let mut task = Task::restore(&log[0]).unwrap();
    let last = log.last().unwrap();
    log[1..log.len() - 1].iter().for_each(|c| task.replay(c).unwrap());
    let illegal = task.replay(last).expect_err(what);
    assert!((last.first_seq..=last.last_seq()).contains(&illegal.wal_seq), "{what}: {illegal}");
}

/// RECOVER-05: gaps, repeats, and events that the tables do not have are refused.
#[test]
fn a_log_that_is_no_history_is_refused() {
    let t = eventful();
    let with = |change: &dyn Fn(&mut Commit)| {
        let mut log = t.log.clone();
        change(log.last_mut().unwrap());
        log
    };
    refuses(&with(&|c| c.first_seq += 1), "a gap");
    refuses(&with(&|c| c.first_seq -= 1), "a repeat");
    refuses(&with(&|c| c.created_at = START - 1), "a time before the last");
    let event = |step: Option<&str>, body: Body| Event {
        actor: agent_id("system"),
        run: None,
        step_id: step.map(id),
        body,
    };
    let wrong: [(&str, Event); 6] = [
        ("ready before its dependency", event(Some("f"), Body::StepReady(Nothing {}))),
        ("ready while held", event(Some("b"), Body::StepReady(Nothing {}))),
        ("an unknown step", event(Some("never"), Body::StepReady(Nothing {}))),
        ("a step event without a step", event(None, Body::StepReady(Nothing {}))),
        ("archived while live", event(None, Body::TaskArchived(Default::default()))),
        ("completed while held", event(None, Body::TaskCompleted(Default::default()))),
    ];
    for (what, event) in wrong {
        refuses(&with(&|c| c.events = vec![event.clone()]), what);
    }
    assert!(Task::restore(&t.log[1]).is_err(), "a log starts with its creation");
}

/// RECOVER-05, TERM-19: nothing but archive and delivery is read after the end.
#[test]
fn a_log_that_goes_on_after_the_end_is_refused() {
    let mut t = Fixture::manual("a");
    let first = t.clone();
    t.ok(cancel_task());
    let mut log = t.log.clone();
    let mut other = first;
    other.ok(block_task());
    let late = other.log.pop().unwrap();
    log.push(Commit { first_seq: t.task.version() + 1, created_at: t.now, ..late });
    refuses(&log, "an event after the end");
}

/// Puts everything of RECOVER-09 into the past of a Task.
fn overdue() -> Fixture {
    let mut steps = dag("nb sts stc other?");
    let policy =
        |p: serde_json::Value| Some(std::sync::Arc::new(serde_json::from_value(p).unwrap()));
    let patient = json!({"max_attempts": 9, "backoff": {"initial_ms": 1_000, "jitter": 0.0}});
    steps[0].retry_policy = policy(patient);
    steps[1].retry_policy = policy(json!({"schedule_to_start_ms": 1_000}));
    steps[2].retry_policy = policy(json!({"start_to_close_ms": 1_000, "max_attempts": 1}));
    for step in &mut steps {
        step.required = Some(false);
    }
    let constraints = serde_json::from_value(json!({"deadline_at": START + 2_000})).unwrap();
    let given = CreateTask { steps, constraints: Some(constraints), ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Auto);
    t.dispatch(POOL);
    let failing = t.claim("nb");
    t.fail(&failing, "broken");
    t.claim("stc");
    t.claim("other");
    t
}

/// RECOVER-09: after a recovery everything that fell due is judged once, in the order of the rule.
#[test]
fn what_fell_due_is_judged_once_and_in_order() {
    let mut t = overdue();
    t.restart();
    t.now += 1_000_000;
    let mut judged = Vec::new();
    let started = t.log.len();
    t.judge_due();
    for commit in &t.log[started..] {
        judged.push(names(commit).join(", "));
    }
    assert_eq!(
        judged,
        [
            "task_step_ready nb",
            "task_step_failed sts",
            "task_step_failed stc",
            "task_cancel_requested",
            "task_run_ended",
        ]
    );
    assert_eq!(
        t.task.next_due(),
        Some(t.task.head().cancel_requested.clone().unwrap().deadline_at)
    );
    t.restart();
    t.now += 10_000;
    t.judge_due();
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));
    assert_eq!(t.task.next_due(), None);
}

/// RECOVER-09, READY-06: backoffs that ended together are one commit, in creation order.
#[test]
fn backoffs_that_ended_together_are_one_commit() {
    let policy = json!({"max_attempts": 9, "backoff": {"initial_ms": 100, "jitter": 0.0}});
    let mut t = with_policy("a b c", policy, Policy::Manual);
    for step in ["c", "a", "b"] {
        let held = t.claim(step);
        t.fail(&held, "broken");
    }
    t.now += 1_000;
    t.judge_due();
    assert_eq!(t.events(), ["task_step_ready a", "task_step_ready b", "task_step_ready c"]);
}

/// LEASE-15: the Attempts of an earlier boot end together, by the scheduler, and count
/// for nothing.
#[test]
fn attempts_of_an_earlier_boot_end_together() {
    let mut t = with_policy("a b c", json!({"max_lost": 1}), Policy::Manual);
    let held = [t.claim("b"), t.claim("a")];
    t.restart();
    let open: Vec<_> = t.task.open_attempts().map(|a| a.attempt_id).collect();
    assert_eq!(open, [held[1].attempt_id, held[0].attempt_id]);
    let all = Command::ExpireLeases { attempt_ids: open, reason: LeaseEnd::HostRestarted };
    t.ok_as(&system(), all);
    assert_eq!(t.statuses("a b c"), "a:ready b:ready c:ready");
}

/// Mechanisms 2: several commands are decided for one append, and all are taken back together,
/// exactly; or stay, and are the same as one by one.
#[test]
fn commands_of_one_append_stand_or_fall_together() {
    let mut t = eventful();
    let held = t.claim("d");
    let before = t.task.clone();
    let commands = [
        (held.caller(), held.reports(StepStatus::Running)),
        (orchestrator(), patch(json!([{"op": "update_task", "title": "x", "retry_policy": null}]))),
        (orchestrator(), write_command("never", StepStatus::Failed)),
        (held.caller(), held.reports(StepStatus::Completed)),
        (orchestrator(), block_task()),
        (orchestrator(), Command::ReopenTask(Default::default())),
        (orchestrator(), cancel_task()),
        (held.caller(), held.ends(RunOutcome::Finished)),
    ];
    let mut trial = t.clone();
    let results = trial.in_one_append(&commands);
    assert_eq!(results.iter().filter(|r| r.is_err()).count(), 1);
    assert!(trial.task.is_ahead());
    trial.task.abort();
    assert_eq!(trial.task, before);
    assert!(!trial.task.is_ahead());

    let results = t.in_one_append(&commands);
    t.task.settle();
    t.log.extend(results.into_iter().filter_map(|r| r.ok()?.commit));
    t.check();
}
