//! VIEW: the snapshot of many Tasks.
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
use tenure_core::view::ViewsInput;
use tenure_core::view::snapshot::{Ends, Snapshot, ViewName};
use tenure_core::view::{Facts, Known, Normal};
use tenure_core::{Command, Task};
use views::*;

pub(crate) fn named(name: &str, notation: &str) -> CreateTask {
    CreateTask { task_id: Some(name.parse().unwrap()), ..create_input(notation) }
}

pub(crate) fn manual(name: &str, notation: &str) -> Fixture {
    Fixture::create(named(name, notation), Policy::Manual)
}

pub(crate) fn snapshot_of<'a>(
    tasks: impl IntoIterator<Item = &'a Task>,
    names: &[ViewName],
) -> Json {
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
    let why = tenure_core::command::Close {
        grace_ms: None,
        reason: Some(reason("lost", "")),
        wait: None,
    };
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

/// VIEW-01 to VIEW-06: every view keeps the Tasks whose statuses fit; the counts do not depend on it.
#[test]
fn a_snapshot_keeps_the_tasks_whose_statuses_fit() {
    let mut all = Snapshot::asking(&[]);
    some_tasks().iter().for_each(|t| all.add(&t.task.durable(), &known()));
    all.keep(|_, normal| normal == Normal::WaitingInput);
    let shown = as_json(&all.finish());
    let ids = |view: &str| -> Vec<Json> {
        shown[view].as_array().unwrap().iter().map(|task| task["task_id"].clone()).collect()
    };
    assert_eq!(
        (ids("tasks"), ids("blocked_tasks")),
        (vec!["waiting".into()], vec!["waiting".into()])
    );
    assert_eq!(shown["delivery_state"].as_object().unwrap().len(), 1);
    assert_eq!(shown["task_summary"]["terminal"], 4);
    assert!(shown["task_summary"]["recent_terminal"].as_array().unwrap().is_empty());
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
                let asked = ViewsInput::of(&[ViewName::TaskSummary]);
                all.merge(asked.of_task(&t.task.durable(), &known(), true));
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
    let parent = tenure_core::command::create::Parent::of(&a.task.durable(), &"c".parse().unwrap());
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

/// VIEW-02, VIEW-04, VIEW-06, TERM-21: an ended Task that the index has counted is in all views but that of
/// blocked ones, and not counted again.
#[test]
fn ended_tasks_are_shown() {
    let mut t = Fixture::create(
        CreateTask { thread_id: Some("th".into()), ..named("x", "a") },
        Policy::Manual,
    );
    let held = t.claim("a");
    t.complete(&held);
    t.ok(Command::TaskComplete(Default::default()));
    let asked = ViewsInput::default();
    assert!(asked.shows_ended());
    let shown = as_json(&asked.of_task(&t.task.durable(), &known(), true).finish());
    assert_eq!(shown["task_summary"]["terminal"], 0, "the index has counted it");
    assert_eq!(shown["task_summary"]["recent_terminal"][0]["task_id"], "x");
    let record = &shown["tasks"][0];
    assert_eq!(
        (&record["status"], &record["native_status"]),
        (&json!("completed"), &json!("completed"))
    );
    assert_eq!(shown["attempts"]["recent"][0]["attempt_id"], held.attempt_id.to_string());
    assert_eq!(shown["delivery_state"], json!({"x": "pending"}), "its result is on its way");
    assert_eq!(shown["blocked_tasks"], json!([]));
    let blocked = ViewsInput::of(&[ViewName::BlockedTasks]);
    assert!(!blocked.shows_ended(), "no log is read in vain");
}

/// VIEW-10, 5.4: filters leave Tasks out of what is shown, and not out of what is counted.
#[test]
fn views_are_of_the_tasks_asked_for() {
    let mut tasks = some_tasks();
    let visibility = Some(tenure_core::status::Visibility::Foreground);
    let given = CreateTask { visibility, ..named("shown", "a") };
    tasks.push(Fixture::create(given, Policy::Manual));
    let of = |asked: &ViewsInput| {
        let mut all = asked.begin();
        tasks.iter().for_each(|t| all.merge(asked.of_task(&t.task.durable(), &known(), false)));
        let all = all.finish();
        let totals = all.task_summary.unwrap();
        let names =
            |ids: Vec<&tenure_core::id::TaskId>| ids.iter().map(|id| id.to_string()).collect();
        let shown: Vec<String> = names(all.tasks.iter().flatten().map(|it| &it.task_id).collect());
        let ended: Vec<String> =
            names(totals.recent_terminal.iter().map(|it| &it.task_id).collect());
        assert_eq!(all.delivery_state.unwrap().len(), shown.len());
        ((totals.active, totals.terminal), shown, ended.len())
    };
    let statuses =
        |some: &[TaskStatus]| ViewsInput { statuses: Some(some.to_vec()), ..ViewsInput::default() };
    let all = of(&ViewsInput::default());
    assert_eq!((all.0, all.1.len(), all.2), ((3, 4), 7, 4));
    let failed = statuses(&[TaskStatus::Failed]);
    assert!(failed.shows_ended());
    let (counts, shown, ended) = of(&failed);
    assert_eq!((counts, shown.join(" "), ended), (all.0, "archived failed lost".into(), 3));
    let running = statuses(&[TaskStatus::Running]);
    assert!(!running.shows_ended());
    let (counts, shown, ended) = of(&running);
    assert_eq!((counts, shown.join(" "), ended), (all.0, "running shown waiting".into(), 0));
    let for_users = ViewsInput { user_facing: true, ..ViewsInput::default() };
    let (counts, shown, ended) = of(&for_users);
    assert_eq!((counts, shown.join(" "), ended), (all.0, "shown".into(), 0));
    let many = statuses(&[TaskStatus::Running; 9]);
    assert_eq!(many.check().unwrap_err().code, tenure_core::Code::ValidationError);
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
