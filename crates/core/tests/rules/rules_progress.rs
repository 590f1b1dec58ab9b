//! PROG: progress, delivery and acceptance.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{AppendProgress, StepReport};
use tenure_core::event::LeaseEnd;
use tenure_core::record::Progress;
use tenure_core::status::{DeliveryState, Policy, StepStatus, TaskStatus};
use tenure_core::view::{AttemptView, Known, LeaseFact, TaskSummary, TaskView};
use tenure_core::{Code, Command, Limits};
use views::*;

fn progress(delta: Json) -> Option<Progress> {
    Some(serde_json::from_value(delta).expect("progress"))
}

fn on_task(delta: Json) -> Command {
    let progress = progress(delta);
    Command::AppendTaskProgress(AppendProgress { progress, ..AppendProgress::default() })
}

fn on_step(held: &Held, delta: Json) -> Command {
    Command::TaskUpdateStep(StepReport { progress: progress(delta), ..held.says() })
}

fn of_step(t: &Fixture, step: &str) -> Json {
    as_json(t.step(step).state.facts().progress.as_ref().expect("there is progress"))
}

/// PROG-01, 2.7: progress is a record; of a delta what is there replaces, counters and offsets merge
/// by key, refs are added once.
#[test]
fn a_delta_changes_what_it_names() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let first = json!({
        "percent": 10.0, "phase": "planning", "current_step": "read", "checklist": [{"x": true}],
        "summary": "begun", "counters": {"tests": {"done": 1, "total": 9}, "files": {"done": 2}},
        "output_refs": ["mem:a"], "output_offsets": {"mem:log": 5}, "validation_state": "open",
        "acceptance_coverage": {"met": 0, "total": 2},
    });
    t.ok_as(&held.caller(), on_step(&held, first));
    let second = json!({
        "percent": 60.0, "counters": {"tests": {"done": 4, "total": 9}},
        "output_refs": ["mem:a", "mem:b"], "output_offsets": {"mem:err": 1},
    });
    t.ok_as(&held.caller(), on_step(&held, second));
    let now = of_step(&t, "a");
    for (field, expected) in [
        ("percent", json!(60.0)),
        ("phase", json!("planning")),
        ("current_step", json!("read")),
        ("counters", json!({"tests": {"done": 4, "total": 9}, "files": {"done": 2}})),
        ("output_refs", json!(["mem:a", "mem:b"])),
        ("output_offsets", json!({"mem:log": 5, "mem:err": 1})),
        ("updated_at", json!(t.now)),
    ] {
        assert_eq!(now[field], expected, "{field}");
    }
    let wrong = serde_json::from_value::<Progress>(json!({"percentage": 1}));
    assert!(wrong.is_err(), "progress is a closed record");
}

/// PROG-02: the five known phases and any other.
#[test]
fn any_phase_is_accepted() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    for phase in ["planning", "working", "verifying", "delivering", "waiting", "baking"] {
        t.ok_as(&held.caller(), on_step(&held, json!({"phase": phase})));
        assert_eq!(of_step(&t, "a")["phase"], phase);
    }
}

/// PROG-03: an offset never goes backwards, on a Step or on the Task; a new Attempt begins anew.
#[test]
fn an_offset_never_goes_backwards() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let at = |offset: u64| json!({"output_offsets": {"mem:log": offset}});
    t.ok_as(&held.caller(), on_step(&held, at(10)));
    t.ok_as(&held.caller(), on_step(&held, at(10)));
    let no = t.refuse_as(&held.caller(), on_step(&held, at(9)), Code::ValidationError);
    assert_eq!(no.details["field"], "progress.output_offsets");
    assert_eq!((&no.details["ref"], &no.details["current"]), (&json!("mem:log"), &json!(10)));
    let done = StepReport {
        status: Some(StepStatus::Completed),
        progress: progress(at(3)),
        ..held.says()
    };
    t.refuse_as(&held.caller(), Command::TaskUpdateStep(done), Code::ValidationError);
    let attempt_ids = vec![held.attempt_id];
    t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason: LeaseEnd::LeaseExpired });
    let held = t.claim("a");
    t.ok_as(&held.caller(), on_step(&held, at(2)));
    t.ok(on_task(at(7)));
    t.refuse(on_task(at(6)), Code::ValidationError);
}

/// PROG-03: an outdated Attempt is told that it is outdated, whatever its offsets say.
#[test]
fn a_stale_report_is_stale_before_anything_else() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.ok_as(&held.caller(), on_step(&held, json!({"output_offsets": {"mem:log": 9}})));
    t.write("a", StepStatus::Blocked);
    let late = on_step(&held, json!({"output_offsets": {"mem:log": 1}}));
    t.refuse_as(&held.caller(), late, Code::StaleAttempt);
}

/// PROG-04: a progress event over the limit is refused and says where large output belongs; a
/// percentage is one.
#[test]
fn large_progress_is_refused() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let max = t.limits.progress_bytes_max;
    let large = json!({"summary": "x".repeat(max)});
    let no = t.refuse_as(&held.caller(), on_step(&held, large.clone()), Code::ValidationError);
    assert_eq!(no.details["limit"], max);
    assert!(no.message.contains("refs"), "{}", no.message);
    t.refuse(on_task(large), Code::ValidationError);
    t.ok(on_task(json!({"summary": "x".repeat(max - 50)})));
    for percent in [-1.0, 100.5] {
        t.refuse(on_task(json!({"percent": percent})), Code::ValidationError);
    }
}

/// PROG-05: a holder's progress is a Step event, the orchestrator's a Task event; a delivery state
/// alone is its own; both are both, in this order.
#[test]
fn progress_is_written_where_it_belongs() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.ok_as(&held.caller(), on_step(&held, json!({"percent": 1.0})));
    assert_eq!(t.events(), ["task_step_updated a"]);
    t.ok(on_task(json!({"percent": 2.0})));
    assert_eq!(t.events(), ["task_progress"]);
    let delivery_state = Some(DeliveryState::Queued);
    let delivery = AppendProgress { delivery_state, ..AppendProgress::default() };
    t.ok(Command::AppendTaskProgress(delivery.clone()));
    assert_eq!(t.events(), ["task_delivery_updated"]);
    let both = AppendProgress { progress: progress(json!({"percent": 3.0})), ..delivery };
    t.ok(Command::AppendTaskProgress(both));
    assert_eq!(t.events(), ["task_progress", "task_delivery_updated"]);
    assert_eq!(t.task.head().progress.percent, Some(3.0));
    t.refuse(Command::AppendTaskProgress(AppendProgress::default()), Code::ValidationError);
    let run = t.dispatch("main");
    let by_worker = on_task(json!({"percent": 4.0}));
    let no = t.run(&worker("ant", "main", Some(run)), &by_worker).unwrap_err();
    assert_eq!(no.code, Code::PermissionDenied);
}

/// PROG-06: progress, checklists and a hundred percent change no status.
#[test]
fn a_hundred_percent_changes_no_status() {
    let mut t = Fixture::auto("a");
    let held = t.grant("ant", "main").unwrap();
    let full = json!({"percent": 100.0, "checklist": [{"text": "all", "done": true}],
        "counters": {"items": {"done": 9, "total": 9}}});
    t.ok_as(&held.caller(), on_step(&held, full.clone()));
    t.ok(on_task(full));
    assert_eq!((t.status("a"), t.task_status()), (StepStatus::Claimed, TaskStatus::Running));
}

/// PROG-07: delivery starts as pending where somebody waits, else as not applicable; six values.
#[test]
fn delivery_starts_where_somebody_waits() {
    let state = |given: CreateTask, parent: Option<&Fixture>| {
        let child = "c".parse().unwrap();
        let parent =
            parent.map(|p| tenure_core::command::create::Parent::of(&p.task.durable(), &child));
        let limits = tenure_core::Limits::default();
        let t = Fixture::try_create_under(given, Policy::Manual, limits, parent.as_ref()).unwrap();
        TaskSummary::of(&t.task.durable(), &known()).delivery_state
    };
    assert_eq!(state(create_input("a"), None), DeliveryState::NotApplicable);
    let thread_id = Some("th".into());
    assert_eq!(state(CreateTask { thread_id, ..create_input("a") }, None), DeliveryState::Pending);
    let parent = Fixture::manual("a");
    let child = CreateTask {
        parent_task_id: Some("t".parse().unwrap()),
        task_id: Some("child".parse().unwrap()),
        ..create_input("a")
    };
    assert_eq!(state(child, Some(&parent)), DeliveryState::Pending);
    assert_eq!(DeliveryState::ALL.len(), 6);
}

/// PROG-07, TERM-21: delivery may still change when the Task has ended; progress may not.
#[test]
fn delivery_outlives_the_task() {
    let mut t = Fixture::auto("a");
    t.do_step("a");
    let delivery_state = Some(DeliveryState::Delivered);
    let delivery = AppendProgress { delivery_state, ..AppendProgress::default() };
    t.ok(Command::AppendTaskProgress(delivery));
    assert_eq!(t.task.head().delivery_state, DeliveryState::Delivered);
    t.refuse(on_task(json!({"percent": 1.0})), Code::TaskTerminal);
}

/// PROG-08: an open Attempt shows its last sign of progress and its lease; an ended one neither.
#[test]
fn open_attempts_show_signs_of_life() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let life = |t: &Fixture, known: &Known<'_>| {
        AttemptView::of(&t.task.durable(), t.attempt_of(&held), known).life
    };
    let claimed = t.now;
    assert_eq!(life(&t, &known()).unwrap().last_progress_at, claimed);
    t.wait_ms(5_000);
    t.ok_as(&held.caller(), on_step(&held, json!({"percent": 1.0})));
    assert_eq!(life(&t, &known()).unwrap().last_progress_at, claimed + 5_001);
    let heartbeat = |_| Some(LeaseFact { expires_at: 77, valid: true });
    assert_eq!(life(&t, &Known::new(t.now, &heartbeat)).unwrap().lease_expires_at, 77);
    t.complete(&held);
    assert_eq!(life(&t, &known()), None);
}

/// PROG-09: acceptance is shown as met of total; waived counts as met, and nothing asked for is
/// nothing shown.
#[test]
fn acceptance_is_shown_as_met_of_total() {
    let t = Fixture::manual("a");
    assert_eq!(TaskView::of(&t.task.durable(), &known()).acceptance_coverage, None);
    let given = CreateTask {
        acceptance: serde_json::from_value(json!([
            {"id": "1", "text": "x", "state": "met"}, {"id": "2", "text": "y", "state": "waived"},
            {"id": "3", "text": "z", "state": "unmet"}, {"id": "4", "text": "z", "state": "unknown"},
        ]))
        .unwrap(),
        ..create_input("a")
    };
    let t = Fixture::create(given, Policy::Manual);
    let shown = as_json(&TaskView::of(&t.task.durable(), &known()));
    assert_eq!(shown["acceptance_coverage"], json!({"met": 2, "total": 4}));
}

/// 2.1: the scheduler adds `counters.steps` and nothing else to what the orchestrator wrote.
#[test]
fn the_scheduler_counts_the_steps() {
    let mut t = Fixture::manual("a b c d");
    t.ok(on_task(json!({"percent": 5.0, "counters": {"files": {"done": 1}}})));
    t.do_step("a");
    t.bring("b", StepStatus::Cancelled);
    t.bring("c", StepStatus::Failed);
    let shown = as_json(&TaskSummary::of(&t.task.durable(), &known()).progress);
    assert_eq!(shown["counters"], json!({"files": {"done": 1}, "steps": {"done": 1, "total": 3}}));
    assert_eq!(shown["percent"], 5.0);
    assert!(!t.task.head().progress.counters.contains_key("steps"), "it is derived, not stored");
}

/// TASK-18 to TASK-20, POL-08: the diagnostics, and that they are no part of the state.
#[test]
fn diagnostics_follow_from_the_state() {
    let mut given = create_input("a b?<-a");
    given.constraints = serde_json::from_value(json!({"deadline_at": START + 1_000})).unwrap();
    let mut t = Fixture::create(given, Policy::Manual);
    let at = |t: &Fixture, now| {
        let d = TaskSummary::of(&t.task.durable(), &Known { now, ..known() }).diagnostics;
        (d.stalled, d.completeable, d.overdue)
    };
    assert_eq!(at(&t, START), (false, false, false));
    assert_eq!(at(&t, START + 1_000), (false, false, true));
    t.bring("a", StepStatus::Blocked);
    assert_eq!(at(&t, START), (true, false, false));
    t.write("a", StepStatus::Pending);
    t.do_step("a");
    assert_eq!(at(&t, START), (false, true, false));
    t.bring("b", StepStatus::Blocked);
    assert_eq!(at(&t, START), (true, true, false));
    t.ok(Command::TaskComplete(Default::default()));
    assert_eq!(at(&t, START + 2_000), (false, false, false), "said of live tasks only");
}

/// TASK-18: a Step that is tried again later moves by itself. What waits for a Step that failed does not.
#[test]
fn a_task_that_waits_for_its_next_try_is_not_stalled() {
    let policy = json!({"max_attempts": 2, "backoff": {"initial_ms": 500, "jitter": 0.0}});
    let retry_policy = serde_json::from_value(policy).unwrap();
    let given = CreateTask { retry_policy: Some(retry_policy), ..create_input("a b<-a") };
    let mut t = Fixture::create(given, Policy::Manual);
    let is_stalled = |t: &Fixture| TaskSummary::of(&t.task.durable(), &known()).diagnostics.stalled;
    let held = t.claim("a");
    t.report(&held, StepStatus::Failed);
    assert!(t.step("a").state.not_before.is_some() && !is_stalled(&t));
    t.write("a", StepStatus::Failed);
    assert!(is_stalled(&t));
}

/// P30, PROG-04: what a report lists is bounded, at the limit and over, so that a message holds a claim that has it;
/// and so is what all reports of an Attempt have listed.
#[test]
fn what_a_report_lists_is_bounded() {
    let limits = Limits { told_bytes_max: 30, ..Limits::default() };
    let mut t = Fixture::try_create(create_input("a"), Policy::Manual, limits).unwrap();
    let held = t.claim("a");
    let lists = ["artifact_ids", "output_refs", "checkpoint_refs"];
    let word = |field: &str, names: &[&str]| {
        let word = json!({"step_id": "a", "attempt_id": held.attempt_id,
                          "fencing_token": held.token, (field): names});
        Command::TaskUpdateStep(serde_json::from_value(word).unwrap())
    };
    let caller = worker(&held.worker, &held.pool, Some(held.run_id));
    for field in lists {
        let over = word(field, &["m1", "m22", "m34567890123456789012"]);
        let refused = t.refuse_as(&caller, over, Code::ValidationError);
        assert_eq!(
            (&refused.details["field"], &refused.details["limit"]),
            (&json!(field), &json!(30))
        );
    }
    let refused =
        t.refuse_as(&caller, word("artifact_ids", &[&"x".repeat(29)]), Code::ValidationError);
    assert_eq!(refused.details["given"], 31);
    t.ok_as(&caller, word("artifact_ids", &[&"x".repeat(28)]));
    for field in ["output_refs", "checkpoint_refs"] {
        t.ok_as(&caller, word(field, &["m:1", "m:2"]));
        t.ok_as(&caller, word(field, &["m:2", "m:1", "m:3", "m:4", "m:1", "m:5"]));
        let refused = t.refuse_as(&caller, word(field, &["m:6", "m:7"]), Code::ValidationError);
        assert_eq!(
            (&refused.details["field"], &refused.details["given"]),
            (&json!(field), &json!(35))
        );
        assert!(refused.message.contains("a document that lists more"), "{refused}");
        t.ok_as(&caller, word(field, &["m:5", "m:6"]));
    }
    let attempt = t.attempt_of(&held);
    let listed = ["m:1", "m:2", "m:3", "m:4", "m:5", "m:6"];
    assert_eq!(as_json(&*attempt.output_refs), json!(listed));
    assert_eq!(as_json(&*attempt.checkpoint_refs), json!(listed));
    let delta = |names: &[&str]| on_step(&held, json!({"output_refs": names}));
    t.ok_as(&caller, delta(&["m:1", "m:2", "m:3", "m:4"]));
    let refused = t.refuse_as(&caller, delta(&["m:5", "m:6", "m:7"]), Code::ValidationError);
    assert_eq!(refused.details["field"], "progress.output_refs");
    t.ok_as(&caller, delta(&["m:1", "m:6", "m:5"]));
}

/// P30, PROG-04: what an orchestrator lists is bounded as what a report lists, and so are the `input_refs` of a Task
/// together, as each of its claims has them all, and its `evidence_refs`. A log that has more is read as ever.
#[test]
fn what_is_listed_of_a_task_is_bounded() {
    let limits = Limits { told_bytes_max: 30, ..Limits::default() };
    let mut t = Fixture::try_create(create_input("a b"), Policy::Manual, limits).unwrap();
    let word = |field: &str, names: &[&str]| {
        Command::AppendTaskProgress(serde_json::from_value(json!({(field): names})).unwrap())
    };
    for field in ["input_refs", "evidence_refs"] {
        let over = word(field, &["m1", "m22", "m34567890123456789012"]);
        let details = t.refuse(over, Code::ValidationError).details;
        assert_eq!((&details["field"], &details["limit"]), (&json!(field), &json!(30)));
    }
    let of = |bytes: usize| format!("urn:{}", "x".repeat(bytes - 4));
    t.ok(word("evidence_refs", &[&of(28)]));
    t.ok(word("input_refs", &[&of(10)]));
    let refused = t.refuse(word("input_refs", &[&of(17)]), Code::ValidationError);
    assert_eq!(refused.details["given"], 31);
    assert!(refused.message.contains("another task"), "{refused}");
    let refused = t.refuse(word("evidence_refs", &["urn:more"]), Code::ValidationError);
    assert_eq!(refused.details["given"], 40);
    t.ok(word("evidence_refs", &[&of(28)])); // That is there.
    t.ok(word("input_refs", &[&of(16)]));
    t.limits.told_bytes_max = 5;
    t.restart();
    let held = t.claim("a");
    assert_eq!(t.attempt_of(&held).input_refs.len(), 2);
}
