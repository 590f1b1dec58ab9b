//! VIEW: the history of a Task, its graph, and what all views have.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::rules_snapshot::{manual, named, snapshot_of};
use crate::views;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Link, StepReport, Why};
use tenure_core::event::{Body, Ended, LeaseEnd};
use tenure_core::id::Ref;
use tenure_core::record::Reason;
use tenure_core::status::{EdgeKind, End, Policy, StepStatus, TaskStatus, WaitKind};
use tenure_core::view::ViewsInput;
use tenure_core::view::snapshot::{Ends, Snapshot, ViewName};
use tenure_core::view::timeline::TimelineEntry;
use tenure_core::view::{Facts, Inspection, Known, Normal, TaskView, graph, inspect, timeline};
use tenure_core::{Command, Task};
use views::*;

/// VIEW-08: wherever a Task is shown, both statuses are.
#[test]
fn every_view_of_a_task_shows_both_statuses() {
    let mut t = manual("x", "a");
    let run = t.dispatch("main");
    let view = t.task.durable();
    let shown = [
        as_json(&tenure_core::view::TaskSummary::of(&view, &known())),
        as_json(&tenure_core::view::TaskView::of(&view, &known())),
        as_json(&graph(&view, &known())),
        snapshot_of([&t.task], &[ViewName::Tasks])["tasks"][0].clone(),
        as_json(
            &tenure_core::view::get_task(&view, &worker("ant", "main", Some(run)), &known())
                .unwrap(),
        ),
    ];
    for one in shown {
        assert_eq!((&one["status"], &one["native_status"]), (&json!("queued"), &json!("running")));
    }
    t.ok(Command::BlockTask(Why::default()));
    let caller = orchestrator();
    let again = t.ok(Command::AppendTaskProgress(tenure_core::command::AppendProgress {
        input_refs: vec![Ref::new("mem:x").unwrap()],
        ..Default::default()
    }));
    let view = t.task.durable();
    let written = tenure_core::view::write_summary(&view, &caller, &again.reply, &known());
    for one in [
        snapshot_of([&t.task], &[ViewName::BlockedTasks])["blocked_tasks"][0].clone(),
        as_json(&written)["task"].clone(),
    ] {
        assert_eq!((&one["status"], &one["native_status"]), (&json!("blocked"), &json!("blocked")));
    }
}

/// VIEW-11, VIEW-14: Task, Run, Attempt and Step are objects of their own, joined by ids.
#[test]
fn records_are_joined_by_their_ids() {
    let mut t = manual("x", "a");
    let held = t.claim("a");
    let read = as_json(&tenure_core::view::TaskView::of(&t.task.durable(), &known()));
    let (step, run, attempt) = (&read["steps"][0], &read["runs"][0], &read["attempts"][0]);
    assert_eq!(attempt["attempt_id"], held.attempt_id.to_string());
    assert_eq!(step["current_attempt_id"], attempt["attempt_id"]);
    assert_eq!(step["claimed_by_run_id"], run["run_id"]);
    assert_eq!(
        (&run["attempt_id"], &run["claimed_step_id"]),
        (&attempt["attempt_id"], &step["step_id"])
    );
    assert_eq!((&attempt["run_id"], &attempt["step_id"]), (&run["run_id"], &step["step_id"]));
    assert_eq!((&attempt["task_id"], &run["task_id"]), (&read["task_id"], &read["task_id"]));
}

fn timeline_of(t: &Fixture, range: std::ops::RangeInclusive<u64>) -> Vec<TimelineEntry> {
    timeline(&"s".parse().unwrap(), t.task.task_id(), &t.log, range)
}

fn inspected(t: &Fixture, range: std::ops::RangeInclusive<u64>) -> Inspection {
    inspect(&t.task.durable(), timeline_of(t, range.clone()), *range.end(), &known())
}

/// VIEW-12, 2.5: the complete timeline, with its envelope, or the part asked for.
#[test]
fn the_timeline_is_the_whole_log() {
    let mut t = Fixture::manual("a b<-a");
    t.do_step("a");
    t.ok(Command::TaskCancel(Default::default()));
    let all = timeline_of(&t, 1..=u64::MAX);
    let seqs: Vec<u64> = all.iter().map(|e| e.wal_seq).collect();
    assert_eq!(seqs, (1..=t.task.version()).collect::<Vec<_>>());
    let types: Vec<_> = t.log.iter().flat_map(|c| &c.events).map(|e| e.body.event_type()).collect();
    assert_eq!(all.iter().map(|e| e.event_type.as_str()).collect::<Vec<_>>(), types);
    let first = as_json(&all[0]);
    let commit = &t.log[0];
    for (field, expected) in [
        ("wal_seq", json!(1)),
        ("session_id", json!("s")),
        ("task_id", json!("t")),
        ("event_id", json!(format!("{}.0", commit.commit_id))),
        ("event_type", json!("task_created")),
        ("actor_agent_id", json!("boss")),
        ("actor_run_id", Json::Null),
        ("created_at", json!(commit.created_at)),
        ("schema_version", json!(1)),
        ("command_id", json!("create")),
        ("commit_index", json!(0)),
        ("commit_count", json!(commit.events.len())),
        ("epoch", json!(0)),
    ] {
        assert_eq!(first[field], expected, "{field}");
    }
    assert!(first["payload"]["task"]["steps"].is_array());
    assert!(first["command_digest"].is_string() && as_json(&all[1])["command_digest"].is_null());
    let part = timeline_of(&t, 3..=4);
    assert_eq!(part.iter().map(|e| e.wal_seq).collect::<Vec<_>>(), [3, 4]);
}

/// STEP-28: inspect shows what a Step says now, and what it said to each of its Attempts.
#[test]
fn inspect_shows_texts_of_then_and_now() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let edit = json!([{"op": "update_step", "step_id": "a", "fields": {"title": "new"}}]);
    t.ok(t.patch(edit));
    let attempt_ids = vec![held.attempt_id];
    t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason: LeaseEnd::LeaseExpired });
    t.claim("a");
    let shown = inspected(&t, 1..=u64::MAX);
    let texts = &shown.steps[0];
    assert_eq!(texts.current.title, "new");
    let dispatched: Vec<_> = texts
        .dispatched
        .iter()
        .map(|d| (d.ordinal, d.step_snapshot.title.as_str(), d.updated_after_dispatch))
        .collect();
    assert_eq!(dispatched, [(1, "title of a", true), (2, "new", false)]);
    assert_eq!(shown.task.version, t.task.version());
    assert_eq!(shown.timeline.len() as u64, t.task.version());
    let read: Inspection = serde_json::from_value(as_json(&shown)).unwrap();
    assert_eq!(read, shown, "whoever is sent it reads the same");
}

/// VIEW-12: in parts, each with the Steps that it is about, it is the same; and a part that ends where
/// it was to end says so.
#[test]
fn a_history_in_parts_is_the_whole() {
    let mut t = Fixture::manual("a b<-a c");
    t.do_step("a");
    t.do_step("b");
    let (whole, last) = (inspected(&t, 0..=u64::MAX), t.task.version());
    let named = |shown: &Inspection| -> Vec<String> {
        shown.steps.iter().map(|s| s.step_id.to_string()).collect()
    };
    assert_eq!((named(&whole), whole.next_seq), (vec!["a".into(), "b".into(), "c".into()], None));
    assert_eq!(inspected(&t, 1..=3).next_seq, None);
    for kept in 1..whole.timeline.len() {
        let mut parts = whole.clone();
        parts.cut(kept);
        let next = parts.next_seq.unwrap();
        assert_eq!((parts.timeline.len(), next), (kept, kept as u64 + 1));
        let is_told = |id: &String| {
            parts.timeline.iter().any(|e| e.step_id.as_ref().is_some_and(|s| s.as_str() == id))
        };
        assert!(named(&parts).iter().all(is_told), "{kept}");
        parts.append(inspected(&t, next..=last));
        assert_eq!((&parts.timeline, &parts.task), (&whole.timeline, &whole.task));
        let mut all = named(&parts);
        all.sort();
        assert_eq!(all, named(&whole));
    }
    let mut same = whole.clone();
    same.cut(whole.timeline.len());
    assert_eq!(same, whole);
}

/// VIEW-12: a Task as it was is what a reader of that moment saw, whatever became of it.
#[test]
fn a_task_is_shown_as_it_was() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.start(&held);
    let then = t.task.version();
    let seen = TaskView::of(&t.task.durable(), &known());
    t.complete(&held);
    let mut task = Task::restore(&t.log[0]).unwrap();
    let until = t.log[1..].iter().take_while(|commit| commit.first_seq <= then);
    until.for_each(|commit| task.replay(commit).unwrap());
    let shown = TaskView::as_it_was(&task.durable());
    assert_eq!((shown.task.status, shown.task.version), (seen.task.status, then));
    assert_eq!(shown.task.counts, seen.task.counts);
    assert_eq!(as_json(&shown)["steps"][0]["lease_state"], "valid");
}

/// VIEW-13: nothing but Tasks that were created is ever a Task: timers and ticks write no record.
#[test]
fn timers_are_no_tasks() {
    let mut t = Fixture::auto("a");
    t.wait_ms(1_000_000);
    t.ok_as(&system(), Command::Due);
    let shown = snapshot_of([&t.task], &[ViewName::TaskSummary]);
    assert_eq!(shown["task_summary"]["active"], 1);
    assert_eq!(t.log.len(), 1);
}

/// The DAG as a picture's data: nodes with status and duration, edges with whether they are met. LEASE-18: an
/// Attempt that was given back is no try.
#[test]
fn the_graph_has_nodes_edges_and_durations() {
    let mut t = Fixture::manual("a b@gpu<-a c?<-a,b");
    let held = t.claim("a");
    t.wait_ms(499);
    t.complete(&held);
    let back = t.claim("b");
    t.ok_as(&back.caller(), back.releases());
    let open = t.claim("b");
    let shown = graph(&t.task.durable(), &Known::new(t.now + 70, &alive));
    let nodes: Vec<_> = shown
        .nodes
        .iter()
        .map(|n| (n.step_id.as_str(), n.normalized_status, n.attempts, n.duration_ms))
        .collect();
    assert_eq!(
        nodes,
        [
            ("a", Normal::Completed, 1, Some(500)),
            ("b", Normal::Preparing, 1, Some(70)),
            ("c", Normal::Queued, 0, None),
        ]
    );
    assert_eq!(shown.nodes[1].worker_id.as_ref().unwrap().as_str(), open.worker);
    assert!(!shown.nodes[2].required);
    let edges: Vec<_> =
        shown.edges.iter().map(|e| format!("{}->{}:{}", e.from, e.to, e.satisfied)).collect();
    assert_eq!(edges, ["a->b:true", "a->c:true", "b->c:false"]);
    assert_eq!(shown.native_status, TaskStatus::Running);
}
