//! VIEW: the snapshot of many Tasks, the history of one, and its graph.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Link, StepReport, Why};
use tenure_core::event::{Body, Ended, LeaseEnd};
use tenure_core::id::Ref;
use tenure_core::record::Reason;
use tenure_core::status::{EdgeKind, End, Policy, StepStatus, TaskStatus, WaitKind};
use tenure_core::view::snapshot::{Ends, Snapshot, ViewName};
use tenure_core::view::timeline::Entry;
use tenure_core::view::{Facts, Inspection, Known, Normal, TaskView, graph, inspect, timeline};
use tenure_core::{Command, Task};
use views::*;

fn named(name: &str, notation: &str) -> CreateTask {
    CreateTask { task_id: Some(name.parse().unwrap()), ..create_input(notation) }
}

fn manual(name: &str, notation: &str) -> Fixture {
    Fixture::create(named(name, notation), Policy::Manual)
}

fn snapshot_of<'a>(tasks: impl IntoIterator<Item = &'a Task>, names: &[ViewName]) -> Json {
    let mut snapshot = Snapshot::asking(names);
    tasks.into_iter().for_each(|task| snapshot.add(&task.durable(), &known()));
    as_json(&snapshot.finish())
}

fn blocked_on(t: &mut Fixture, step: &str, kind: WaitKind) {
    let mut report = StepReport::on(id(step));
    (report.status, report.wait_kind) = (Some(StepStatus::Blocked), Some(kind));
    report.reason = Some(reason("question", "which one?"));
    t.ok(Command::TaskUpdateStep(report));
}

/// One Task in each state that the totals count.
fn some_tasks() -> Vec<Fixture> {
    let running = manual("running", "a");
    let mut waiting = manual("waiting", "a b");
    blocked_on(&mut waiting, "a", WaitKind::Input);
    let mut done = manual("done", "a?");
    done.ok(Command::TaskComplete(Default::default()));
    let mut failed = manual("failed", "a");
    failed.ok(Command::TaskFail(Default::default()));
    let mut lost = manual("lost", "a");
    let why = tenure_core::command::Close { reason: Some(reason("lost", "")), wait: None };
    lost.ok(Command::TaskFail(why));
    let mut archived = manual("archived", "a");
    archived.ok(Command::TaskFail(Default::default()));
    archived.ok(Command::ArchiveTask(Why::default()));
    vec![running, waiting, done, failed, lost, archived]
}

/// VIEW-01: totals of active, terminal, failed, lost and waiting Tasks, and the newest ended ones.
#[test]
fn totals_count_every_task_where_it_belongs() {
    let tasks = some_tasks();
    let shown = snapshot_of(tasks.iter().map(|t| &t.task), &[ViewName::TaskSummary]);
    let totals = &shown["task_summary"];
    let of = |name: &str| totals[name].as_u64().unwrap();
    assert_eq!(
        ["active", "terminal", "failed", "lost", "waiting", "unknown"].map(of),
        [2, 4, 3, 1, 1, 0]
    );
    let recent: Vec<_> = totals["recent_terminal"].as_array().unwrap().iter().collect();
    assert_eq!(recent.len(), 4);
    let times: Vec<_> = recent.iter().map(|t| t["updated_at"].as_i64().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "newest first: {times:?}");
    assert_eq!(shown.as_object().unwrap().len(), 1, "only what was asked for: {shown}");
}

/// VIEW-01, VIEW-07: what an index knows of ended Tasks counts as their logs would, and one that
/// cannot be read is neither live nor ended.
#[test]
fn an_index_counts_as_the_logs_do() {
    let tasks = some_tasks();
    let whole = snapshot_of(tasks.iter().map(|t| &t.task), &[ViewName::TaskSummary]);
    let (mut all, mut ends) = (Snapshot::asking(&[ViewName::TaskSummary]), Ends::default());
    for t in &tasks {
        let archived = t.task.head().archived_at.is_some();
        let bodies = t.log.iter().flat_map(|commit| &commit.events).map(|event| &event.body);
        match bodies.filter_map(Body::end).next() {
            Some(end) => {
                assert_eq!(end.status(), t.task.head().status);
                assert_eq!(End::of_status(end.status(), end.failed_as()), Some(end));
                let facts = Facts::ended(end, archived);
                assert_eq!(facts.status(), Facts::of(&t.task.durable(), &known()).status());
                ends.add(end, archived);
                all.show_ended(&t.task.durable(), &known());
            }
            None => all.add(&t.task.durable(), &known()),
        }
    }
    ends.add(End::Lost, false);
    ends.remove(End::Lost, false);
    all.count_ended(&ends);
    assert_eq!(as_json(&all.clone().finish()), whole);
    all.note_unreadable(&"damaged".parse().unwrap());
    let all = all.finish();
    let totals = all.task_summary.unwrap();
    assert_eq!((totals.active, totals.terminal, totals.unknown), (2, 4, 1));
    assert_eq!(all.unreadable.len(), 1);
}

/// How a Task ended is told by its last event alone, whatever its reason.
#[test]
fn every_end_is_told_apart() {
    let failed = |code| {
        let reason = Some(Reason::code(code));
        Body::TaskFailed(Box::new(Ended { reason, ..Ended::default() })).end()
    };
    assert_eq!(failed("timed_out"), Some(End::TimedOut));
    assert_eq!(failed("lost"), Some(End::Lost));
    assert_eq!(failed("step_failed"), Some(End::Failed));
    assert_eq!(Body::TaskFailed(Box::default()).end(), Some(End::Failed));
    assert_eq!(Body::TaskCompleted(Box::default()).end(), Some(End::Completed));
    assert_eq!(Body::TaskCancelled(Box::default()).end(), Some(End::Cancelled));
    for end in End::ALL {
        assert!(end.status().is_terminal());
        let status = Facts::ended(*end, false).status();
        assert_eq!(status.as_str(), end.as_str());
        assert_eq!(Facts::ended(*end, true).status(), Normal::Archived);
        assert_eq!(End::of_status(end.status(), end.failed_as()), Some(*end));
    }
    assert_eq!(End::of_status(TaskStatus::Paused, None), None);
}

/// VIEW-02: a compact record of every Task.
#[test]
fn every_task_has_a_compact_record() {
    let mut given = named("x", "a b<-a");
    given.owner = Some(agent_id("ann"));
    given.scope = serde_json::from_value(json!({"project": "p"})).unwrap();
    let mut t = Fixture::create(given, Policy::Manual);
    let held = t.claim("a");
    let other = manual("w", "a");
    let shown = snapshot_of([&t.task, &other.task], &[ViewName::Tasks]);
    let records = shown["tasks"].as_array().unwrap();
    assert_eq!(records[0]["task_id"], "w");
    let x = &records[1];
    for (field, expected) in [
        ("task_id", json!("x")),
        ("title", json!("title")),
        ("status", json!("preparing")),
        ("native_status", json!("running")),
        ("owner", json!("ann")),
        ("scope", json!({"project": "p"})),
        ("current_run_id", json!(held.run_id.to_string())),
        ("relationships", json!([])),
        ("artifact_ids", json!([])),
        ("evidence_refs", json!([])),
    ] {
        assert_eq!(x[field], expected, "{field}");
    }
    assert_eq!(x["progress"]["counters"]["steps"], json!({"done": 0, "total": 2}));
}

/// VIEW-03, REL-04: the edges to rebuild both directions: stored ones, and the inverse of those of
/// which only one end stores anything.
#[test]
fn the_graph_of_tasks_goes_both_ways() {
    let mut a = manual("a", "s");
    let b = manual("b", "s");
    let to = Ref::new("b").unwrap();
    a.ok(Command::LinkTasks(Link { kind: EdgeKind::Blocks, reason: None, to }));
    let parent = tenure_core::command::create::Parent::of(&a.task, &"c".parse().unwrap());
    let given = CreateTask { parent_task_id: Some("a".parse().unwrap()), ..named("c", "s") };
    let c = Fixture::try_create_under(given, Policy::Manual, Default::default(), Some(&parent))
        .unwrap();
    let shown = snapshot_of([&a.task, &b.task, &c.task], &[ViewName::TaskGraph]);
    let mut edges: Vec<String> = shown["task_graph"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| {
            let text = |name: &str| e[name].as_str().unwrap().to_owned();
            format!("{} {} {} {}", text("from"), text("kind"), text("to"), e["derived"])
        })
        .collect();
    edges.sort();
    assert_eq!(
        edges,
        ["a blocks b false", "a child c true", "b blocked_by a true", "c parent a false"]
    );
    // With the parent's own hint, the child is stored and not derived a second time.
    let to = Ref::new("c").unwrap();
    a.ok_as(&system(), Command::LinkTasks(Link { kind: EdgeKind::Child, reason: None, to }));
    let shown = snapshot_of([&a.task, &c.task], &[ViewName::TaskGraph]);
    let children =
        shown["task_graph"].as_array().unwrap().iter().filter(|e| e["kind"] == "child").count();
    assert_eq!(children, 1);
}

/// VIEW-04: open Attempts, and the newest ended ones with what they made.
#[test]
fn attempts_are_active_or_recent() {
    let mut t = manual("x", "a b");
    let held = t.claim("a");
    let refs = vec![Ref::new("mem:out").unwrap()];
    let said = StepReport {
        status: Some(StepStatus::Completed),
        output_refs: refs.clone(),
        checkpoint_refs: vec![Ref::new("mem:here").unwrap()],
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(said));
    let open = t.claim("b");
    let shown = snapshot_of([&t.task], &[ViewName::Attempts]);
    let (active, recent) = (&shown["attempts"]["active"], &shown["attempts"]["recent"]);
    assert_eq!(active[0]["attempt_id"], open.attempt_id.to_string());
    assert_eq!(recent[0]["attempt_id"], held.attempt_id.to_string());
    assert_eq!(recent[0]["output_refs"], json!(["mem:out"]));
    assert_eq!(recent[0]["checkpoint_refs"], json!(["mem:here"]));
    assert_eq!((active.as_array().unwrap().len(), recent.as_array().unwrap().len()), (1, 1));
}

/// VIEW-05, REL-07: who waits, for what and for whom, and which action would help; a `blocked_by` edge
/// is shown and gates nothing.
#[test]
fn blocked_tasks_name_blockers_and_actions() {
    let mut waiting = manual("waiting", "a b c");
    blocked_on(&mut waiting, "a", WaitKind::Input);
    blocked_on(&mut waiting, "b", WaitKind::Input);
    let whose = json!([
        {"op": "update_task", "owner": "ann", "requested_by": "bob", "assignee": "worker-1"},
        {"op": "update_step", "step_id": "a", "fields": {"assignee": "worker-2"}},
    ]);
    let operations = serde_json::from_value(whose).unwrap();
    waiting.ok(Command::TaskUpdate { operations });
    let mut stopped = manual("stopped", "a");
    stopped.ok(Command::BlockTask(Why::default()));
    let mut done = manual("done", "a");
    done.do_step("a");
    let mut behind = manual("behind", "a");
    let to = Ref::new("waiting").unwrap();
    behind.ok(Command::LinkTasks(Link { kind: EdgeKind::BlockedBy, reason: None, to }));
    behind.claim("a");
    let free = manual("free", "a");
    let sketch = CreateTask { draft: Some(true), ..named("sketch", "a") };
    let sketch = Fixture::create(sketch, Policy::Manual);
    let tasks = [&waiting, &stopped, &done, &behind, &free, &sketch].map(|t| &t.task);
    let shown = snapshot_of(tasks, &[ViewName::BlockedTasks]);
    let blocked = shown["blocked_tasks"].as_array().unwrap();
    let ids: Vec<_> = blocked.iter().map(|b| b["task_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["behind", "done", "sketch", "stopped", "waiting"]);
    assert_eq!(blocked[0]["blocked_by_task_ids"], json!(["waiting"]));
    assert_eq!(blocked[1]["required_action_ids"], json!(["agent.task_complete"]));
    assert_eq!(blocked[2]["required_action_ids"], json!(["submit_task"]));
    assert_eq!(blocked[3]["required_action_ids"], json!(["reopen_task"]));
    assert_eq!(blocked[4]["required_action_ids"], json!(["reopen_step:a", "reopen_step:b"]));
    assert_eq!(blocked[4]["blockers"][0]["wait_kind"], "input");
    assert_eq!(blocked[4]["blockers"][0]["reason"]["message"], "which one?");
    assert_eq!(["owner", "requested_by"].map(|field| &blocked[4][field]), ["ann", "bob"]);
    let assignee = |n: usize| &blocked[4]["blockers"][n]["assignee"];
    assert_eq!([assignee(0), assignee(1)], ["worker-2", "worker-1"], "the Step's, else the Task's");
    assert_eq!(blocked[3].get("owner"), None);
}

/// VIEW-06: the delivery state of every Task.
#[test]
fn every_task_has_a_delivery_state() {
    let a = manual("a", "s");
    let b = Fixture::create(
        CreateTask { thread_id: Some("th".into()), ..named("b", "s") },
        Policy::Manual,
    );
    let shown = snapshot_of([&a.task, &b.task], &[ViewName::DeliveryState]);
    assert_eq!(shown["delivery_state"], json!({"a": "not_applicable", "b": "pending"}));
}

/// Partitions asked apart and gathered say the same as one.
#[test]
fn parts_of_a_snapshot_add_up() {
    let tasks = some_tasks();
    let whole = snapshot_of(tasks.iter().map(|t| &t.task), &[]);
    let mut gathered = Snapshot::asking(&[]);
    for t in tasks.iter().rev() {
        let mut part = Snapshot::asking(&[]);
        part.add(&t.task.durable(), &known());
        gathered.merge(part);
    }
    assert_eq!(as_json(&gathered.finish()), whole);
}

/// VIEW-07: a status that is not known is never counted as anything better.
#[test]
fn success_is_never_inferred() {
    let mut t = manual("x", "a");
    t.claim("a");
    let mut stale = Snapshot::asking(&[ViewName::TaskSummary]);
    stale.add(&t.task.durable(), &Known { confirmed: false, ..known() });
    let totals = stale.task_summary.unwrap();
    assert_eq!((totals.unknown, totals.active, totals.waiting), (1, 1, 0));
    let mut silent_store = Snapshot::asking(&[ViewName::TaskSummary]);
    silent_store.add(&t.task.durable(), &Known::new(t.now, &silent));
    assert_eq!(silent_store.task_summary.unwrap().lost, 1);
}

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

fn timeline_of(t: &Fixture, range: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
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

/// The DAG as a picture's data: nodes with status and duration, edges with whether they are met.
#[test]
fn the_graph_has_nodes_edges_and_durations() {
    let mut t = Fixture::manual("a b@gpu<-a c?<-a,b");
    let held = t.claim("a");
    t.wait_ms(499);
    t.complete(&held);
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
