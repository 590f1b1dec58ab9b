//! GET and LIST: a Task in full, and the list of Tasks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::{CreateTask, Parent};
use tenure_core::command::{StepReport, Why};
use tenure_core::status::{Policy, StepStatus, TaskStatus, Visibility};
use tenure_core::view::{
    Known, ListInput, TaskPage, TaskRead, TaskSummary, get_task, list_entry, page_tasks,
    worker_page,
};
use tenure_core::{Caller, Code, Command, Limits, Task};
use views::*;

fn get(t: &Fixture, caller: &Caller) -> Json {
    as_json(&get_task(&t.task.durable(), caller, &known()).expect("the get is in order"))
}

/// GET-01, GET-02, GET-05: live, ended and archived Tasks are read alike, and a read changes
/// nothing.
#[test]
fn every_task_can_be_read_at_any_time() {
    let mut t = Fixture::auto("a");
    assert_eq!(get(&t, &orchestrator())["native_status"], "running");
    t.do_step("a");
    assert_eq!(get(&t, &observer())["native_status"], "completed");
    t.ok(Command::ArchiveTask(Why::default()));
    let before = t.task.clone();
    let read = get(&t, &orchestrator());
    assert_eq!(
        (&read["status"], &read["native_status"]),
        (&json!("archived"), &json!("completed"))
    );
    assert_eq!(read["steps"].as_array().unwrap().len(), 1);
    assert_eq!(t.task, before);
    let replayed = get_task(&t.replayed().durable(), &orchestrator(), &known()).unwrap();
    assert_eq!(as_json(&replayed), read, "a read of the log alone gives the same");
}

/// GET-03: what a lease fact says of an open Attempt is shown: the store's expiry, or nothing
/// confirmed (LEASE-05).
#[test]
fn leases_are_shown_as_of_the_last_tick() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let wal = t.attempt_of(&held).lease_expires_at;
    let shown = get(&t, &orchestrator());
    assert_eq!(shown["steps"][0]["lease_expires_at"], START + 60_000);
    assert_eq!(shown["steps"][0]["lease_state"], "valid");
    assert_eq!(shown["attempts"][0]["lease_expires_at"], START + 60_000);
    let unreachable = Known::new(t.now, &silent);
    let shown = as_json(&get_task(&t.task.durable(), &orchestrator(), &unreachable).unwrap());
    assert_eq!(shown["steps"][0]["lease_expires_at"], wal);
    assert_eq!(shown["steps"][0]["lease_state"], "unconfirmed");
    assert_eq!(shown["status"], "lost");
}

/// GET-04: the whole DAG for those who see the Task.
#[test]
fn the_whole_dag_is_there() {
    let mut t = Fixture::manual("a b<-a c<-a,b");
    let held = t.claim("a");
    t.start(&held);
    let read = get(&t, &orchestrator());
    for field in [
        "task_id",
        "session_id",
        "wal_name",
        "title",
        "summary",
        "objective",
        "status",
        "native_status",
        "counts",
        "progress",
        "diagnostics",
        "root_step_ids",
        "steps",
        "runs",
        "attempts",
        "artifacts",
        "relationships",
        "active_run_ids",
        "current_run_id",
        "version",
        "spec_version",
        "dispatch",
        "completion",
        "visibility",
        "priority",
        "default_worker_pool_id",
        "created_by_agent_id",
        "created_at",
        "updated_at",
        "started_at",
        "delivery_state",
        "archived",
        "input_refs",
        "evidence_refs",
        "root_task_id",
    ] {
        assert!(!read[field].is_null(), "{field} is in {read}");
    }
    assert_eq!(read["root_step_ids"], json!(["a"]));
    assert_eq!(read["steps"][2]["depends_on_step_ids"], json!(["a", "b"]));
    assert_eq!(read["active_run_ids"], json!([held.run_id.to_string()]));
    assert_eq!(read["current_run_id"], held.run_id.to_string());
    assert_eq!(read["steps"][0]["current_attempt_id"], held.attempt_id.to_string());
    assert_eq!(read["steps"][0]["fencing_token"], held.token);
    assert_eq!(read["counts"]["running"], 1);
    assert_eq!(read["objective"], "summary", "the summary stands in for the objective (C14)");
}

/// DAG-02: absent optional fields are left out, and the fields of section 2.2 have their names.
#[test]
fn absent_fields_are_left_out() {
    let t = Fixture::manual("a b<-a");
    let read = get(&t, &orchestrator());
    let pending = read["steps"][1].as_object().unwrap();
    let names: Vec<&str> = pending.keys().map(String::as_str).collect();
    let mut expected = vec![
        "step_id",
        "title",
        "summary",
        "depends_on_step_ids",
        "required",
        "worker_pool_id",
        "handler",
        "status",
        "normalized_status",
        "attempt_count",
        "lost_count",
        "position",
        "created_at",
        "updated_at",
        "artifact_ids",
        "input_refs",
    ];
    expected.sort_unstable();
    let mut names = names;
    names.sort_unstable();
    assert_eq!(names, expected);
    assert!(read.get("ended_at").is_none() && read.get("cancel_requested").is_none());
}

/// DAG-02, 2.1, 2.2, 2.8: all that a create says stands in `task_created`, and in the Task as it is read.
#[test]
fn everything_that_a_create_says_is_kept() {
    let policy = |max: u32| {
        json!({"max_attempts": max, "max_lost": 2, "non_retryable": ["oom"],
            "backoff": {"initial_ms": 7, "factor": 1.5, "max_ms": 70, "jitter": 0.5},
            "schedule_to_start_ms": 60_000, "start_to_close_ms": 50_000, "heartbeat_ms": 9_000})
    };
    let mut said = json!({
        "task_id": "t", "wal_name": "log", "title": "Title", "summary": "Summary",
        "objective": "Objective", "dispatch": "auto", "completion": "manual",
        "default_worker_pool_id": "gpu", "thread_id": "thread", "turn_id": "turn",
        "parent_task_id": "parent", "requested_by": "client", "owner": "owner", "assignee": "ant",
        "retry_policy": policy(3), "task_kind": "build", "task_family": "release",
        "visibility": "background", "priority": 7, "scope": {"project": "p"},
        "constraints": {"network": "none", "deadline_at": 9_000_000}, "task_profile": {"budget": 5},
        "acceptance": [{"id": "green", "text": "tests pass", "state": "unknown"}],
        "retry_of": "before", "job_id": "nightly", "metadata": {"colour": "red"},
        "native_protocol": "a2a",
        "steps": [
            {"step_id": "a", "title": "A", "summary": "do a", "depends_on_step_ids": []},
            {"step_id": "b", "title": "B", "summary": "do b", "depends_on_step_ids": ["a"],
             "required": false, "worker_pool_id": "cpu", "handler": "sew",
             "input": {"content_type": "text/plain", "data": "thread"},
             "retry_policy": policy(4), "assignee": "bee"},
        ],
    });
    let more = json!({"labels": {"team": "blue"}, "ext": {"x": null}, "claim_only_by": "eve"});
    said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (said["steps"][1]["claim_only_by"], said["steps"][1]["ext"]) = (json!("bob"), json!({"y": 1}));
    let given: CreateTask = serde_json::from_value(said.clone()).unwrap();
    let root_task_id = "root".parse().unwrap();
    let parent = Parent {
        root_task_id,
        status: TaskStatus::Running,
        closing: false,
        closes_children: None,
        adopts: false,
    };
    let limits = Limits::default();
    let t = Fixture::try_create_under(given, Policy::Auto, limits, Some(&parent)).unwrap();

    let (created, read) = (t.payload("task_created")["task"].clone(), get(&t, &orchestrator()));
    for (name, value) in said.as_object().unwrap() {
        if name != "steps" {
            assert_eq!((&created[name], &read[name]), (value, value), "{name}");
        }
    }
    for (at, step) in said["steps"].as_array().unwrap().iter().enumerate() {
        for (name, value) in step.as_object().unwrap() {
            let (created, read) = (&created["steps"][at][name], &read["steps"][at][name]);
            assert_eq!((created, read), (value, value), "{name} of step {at}");
        }
    }
    let derived = ["root_task_id", "delivery_state"];
    for of in [&created, &read] {
        assert_eq!(derived.map(|name| of[name].as_str()), [Some("root"), Some("pending")]);
        let edges = of["relationships"].as_array().unwrap();
        let kinds: Vec<_> = edges.iter().map(|edge| edge["kind"].as_str().unwrap()).collect();
        assert!(kinds.contains(&"parent") && kinds.contains(&"retry_of"), "{kinds:?}");
    }
    assert_eq!(
        (&created["session_id"], &read["created_by_agent_id"]),
        (&json!("s"), &json!("boss"))
    );
}

/// GET-04, PERM-16: a worker gets the header, its Run, its Steps, and what their direct
/// dependencies handed on; nothing else of the Task.
#[test]
fn a_worker_gets_its_part_of_the_task() {
    let mut t = Fixture::manual("secret@gpu dep@gpu<-secret mine<-dep later<-mine other@gpu");
    t.do_step("secret");
    let held = t.claim("dep");
    let said = StepReport {
        status: Some(StepStatus::Completed),
        output: serde_json::from_value(json!({"data": "42"})).unwrap(),
        result_summary: Some("the answer".into()),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(said));
    let run = t.dispatch("main");
    let read = get(&t, &worker("ant", "main", Some(run)));
    let mut names: Vec<&str> = read.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "dependencies",
            "native_status",
            "run",
            "status",
            "steps",
            "summary",
            "task_id",
            "title",
            "version"
        ]
    );
    let visible = read["steps"].as_array().unwrap();
    let visible: Vec<_> = visible.iter().map(|s| s["step_id"].as_str().unwrap()).collect();
    assert_eq!(visible, ["mine", "later"]);
    assert_eq!(read["run"]["run_id"], run.to_string());
    let handed_on = read["dependencies"].as_array().unwrap();
    assert_eq!(handed_on.len(), 1, "only completed direct dependencies: {handed_on:?}");
    assert_eq!(handed_on[0]["step_id"], "dep");
    assert_eq!(handed_on[0]["output"]["data"], "42");
    let text = read.to_string();
    assert!(!text.contains("secret") && !text.contains("other"), "{text}");
}

/// GET-04: a worker of no Run here reads nothing.
#[test]
fn a_stranger_reads_nothing() {
    let t = Fixture::manual("a");
    let no = get_task(&t.task.durable(), &worker("ant", "main", None), &known()).unwrap_err();
    assert_eq!(no.code, Code::PermissionDenied);
    let session_id = "elsewhere".parse().unwrap();
    let no = get_task(&t.task.durable(), &Caller { session_id, ..observer() }, &known());
    assert_eq!(no.unwrap_err().code, Code::PermissionDenied);
}

/// DISP-16, R05: a Run that ended with nothing claimed is shown as ended while the owner remembers.
#[test]
fn a_spent_run_is_shown_as_ended() {
    let mut t = Fixture::manual("a b@gpu");
    let run = t.dispatch("main");
    t.bring("a", StepStatus::Blocked);
    let end = tenure_core::command::EndRun {
        outcome: tenure_core::command::RunOutcome::Finished,
        result: None,
        run_id: run,
    };
    t.ok_as(&worker("ant", "main", Some(run)), Command::EndRun(end));
    let read = get(&t, &orchestrator());
    assert_eq!(read["runs"][0]["state"], "ended");
    assert_eq!(read["runs"][0]["end_reason"], "no_step_claimed");
    assert_eq!(read["active_run_ids"], json!([]));
}

/// CTRL-05: what is read can be read back by a client.
#[test]
fn a_read_survives_the_wire() {
    let mut t = Fixture::manual("a b<-a c@gpu");
    let held = t.claim("a");
    t.report(&held, StepStatus::Blocked);
    t.claim("c");
    let TaskRead::Whole(read) = get_task(&t.task.durable(), &orchestrator(), &known()).unwrap()
    else {
        panic!("an orchestrator reads the whole task")
    };
    let again: tenure_core::view::TaskView = serde_json::from_value(as_json(&read)).unwrap();
    assert_eq!(again, *read);
}

// ---- LIST

/// A Task by its id, made at a time, in a status.
fn listed(id: &str, at: i64, status: TaskStatus) -> TaskSummary {
    let t = Fixture::manual("a");
    let mut summary = TaskSummary::of(&t.task.durable(), &known());
    summary.task_id = id.parse().unwrap();
    (summary.created_at, summary.updated_at) = (at, at + 100);
    summary.native_status = status;
    summary
}

fn live() -> Vec<TaskSummary> {
    vec![
        listed("c", 3, TaskStatus::Running),
        listed("b", 1, TaskStatus::Blocked),
        listed("a", 3, TaskStatus::Running),
    ]
}

/// Ended Tasks `e000`, `e001`, ..., newest first, as an index that honours the input answers.
fn ended<'a>(
    n: usize,
    input: &'a ListInput,
    asked: &'a std::cell::Cell<usize>,
) -> impl FnOnce(usize, usize) -> Vec<TaskSummary> + 'a {
    move |offset, limit| {
        asked.set(limit);
        let all = (0..n).map(|i| {
            let status = if i % 2 == 0 { TaskStatus::Completed } else { TaskStatus::Failed };
            listed(&format!("e{i:03}"), 1_000 - i as i64, status)
        });
        all.filter(|t| input.admits(t.listed())).skip(offset).take(limit).collect()
    }
}

fn list(input: &ListInput, terminal: usize) -> (String, bool, Option<usize>, usize) {
    let asked = std::cell::Cell::new(0);
    let page =
        page_tasks(live(), ended(terminal, input, &asked), input, &Limits::default()).unwrap();
    let ids: Vec<&str> = page.tasks.iter().map(|t| t.task_id.as_str()).collect();
    (ids.join(" "), page.truncated, page.next_offset, asked.get())
}

/// LIST-01, LIST-02: live Tasks alone, unless ended ones are asked for.
#[test]
fn ended_tasks_need_to_be_asked_for() {
    assert_eq!(list(&ListInput::default(), 3), ("b a c".into(), false, None, 0));
    let input = ListInput { include_terminal: true, ..ListInput::default() };
    assert_eq!(list(&input, 3).0, "b a c e000 e001 e002");
}

/// LIST-03, LIST-04, LIST-06, LIST-07: 50 rows with ended Tasks, else 500; pages run over both
/// parts, and no more ended Tasks are asked for than the page needs.
#[test]
fn pages_run_over_live_and_ended_tasks() {
    let input = ListInput { include_terminal: true, ..ListInput::default() };
    let (ids, truncated, next, asked) = list(&input, 200);
    assert_eq!(ids.split(' ').count(), 50);
    assert_eq!((truncated, next, asked), (true, Some(50), 48));
    let second = ListInput { offset: 50, ..input.clone() };
    let (ids, _, next, asked) = list(&second, 200);
    assert!(ids.starts_with("e047 e048"), "{ids}");
    assert_eq!((next, asked), (Some(100), 51));
    let last = ListInput { offset: 200, limit: Some(10), ..input.clone() };
    assert_eq!(list(&last, 200), ("e197 e198 e199".into(), false, None, 11));
    let across = ListInput { offset: 2, limit: Some(2), ..input.clone() };
    assert_eq!(list(&across, 5), ("c e000".into(), true, Some(4), 2));
    let within = ListInput { limit: Some(2), ..input };
    assert_eq!(list(&within, 5), ("b a".into(), true, Some(2), 0));
    assert_eq!(ListInput::default().limit(&Limits::default()).unwrap(), 500);
    let wrong = ListInput { limit: Some(0), ..ListInput::default() };
    assert_eq!(wrong.limit(&Limits::default()).unwrap_err().code, Code::ValidationError);
    let statuses = Some(vec![TaskStatus::Paused; TaskStatus::ALL.len() + 1]);
    let many = ListInput { statuses, ..ListInput::default() }.limit(&Limits::default());
    assert_eq!(many.unwrap_err().details["field"], "statuses");
}

/// LIST-05: a filter by status does not bring ended Tasks in by itself.
#[test]
fn statuses_filter_and_ended_ones_still_need_to_be_asked_for() {
    let statuses = Some(vec![TaskStatus::Blocked, TaskStatus::Failed]);
    let input = ListInput { statuses, ..ListInput::default() };
    assert_eq!(list(&input, 4).0, "b");
    let input = ListInput { include_terminal: true, ..input };
    assert_eq!(list(&input, 4).0, "b e001 e003");
}

/// LIST-06: oldest first among live Tasks, ties by `task_id`, whatever order they come in.
#[test]
fn the_order_does_not_depend_on_where_tasks_live() {
    let mut turned = live();
    turned.reverse();
    let ids = |tasks| {
        let page = page_tasks(tasks, |_, _| Vec::new(), &ListInput::default(), &Limits::default());
        page.unwrap().tasks.into_iter().map(|t| t.task_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(turned), ids(live()));
}

/// LIST-06, OWN-08: the first Tasks of each partition are enough for a page of all; who did not answer
/// is named.
#[test]
fn pages_of_partitions_are_one() {
    let asked = std::cell::Cell::new(0);
    let everything = ListInput { include_terminal: true, limit: Some(500), ..ListInput::default() };
    let limits = Limits::default();
    let all = page_tasks(live(), ended(200, &everything, &asked), &everything, &limits).unwrap();
    let pages = [(0, 10), (0, 50), (2, 3), (40, 50), (150, 60), (202, 10), (300, 5)];
    for (offset, limit) in pages {
        let input = ListInput { offset, limit: Some(limit), ..everything.clone() };
        let mut found = TaskPage::default();
        for partition in 0..3 {
            let of_it = all.tasks.iter().skip(partition).step_by(3);
            found.tasks.extend(of_it.take(offset + limit + 1).cloned());
        }
        let page = found.gathered(&input, &limits).unwrap();
        let rest = all.tasks.iter().skip(offset);
        assert_eq!(page.tasks, rest.take(limit).cloned().collect::<Vec<_>>(), "{offset}");
        let next = (all.tasks.len() > offset + limit).then_some(offset + limit);
        assert_eq!((page.next_offset, page.truncated), (next, next.is_some()), "{offset}");
    }
    let missing_partitions = vec!["2".into()];
    let found = TaskPage { missing_partitions: missing_partitions.clone(), ..TaskPage::default() };
    let page = found.gathered(&everything, &limits).unwrap();
    assert_eq!((page.truncated, page.missing_partitions), (true, missing_partitions));
}

/// LIST-08, PERM-16: a worker lists its Run's Task, as a header, and nothing else.
#[test]
fn a_worker_lists_its_runs_task_at_most() {
    let mut t = Fixture::manual("a b@gpu");
    let run = t.dispatch("main");
    let ant = worker("ant", "main", Some(run));
    let view = t.task.durable();
    let input = ListInput::default();
    let page = worker_page(Some(&view), &ant, &input, &known(), &t.limits).unwrap();
    assert_eq!(page.tasks.len(), 1);
    let header = as_json(&page.tasks[0]);
    assert!(header.get("steps").is_none() && header.get("counts").is_none(), "{header}");
    assert_eq!(header["run"]["run_id"], run.to_string());
    let none = worker_page(None, &ant, &input, &known(), &t.limits).unwrap();
    assert!(none.tasks.is_empty());
    let bee = worker("bee", "gpu", Some(run));
    let no = worker_page(Some(&view), &bee, &input, &known(), &t.limits).unwrap_err();
    assert_eq!(no.code, Code::PermissionDenied);
    assert_eq!(list_entry(&view, &ant, &known()).unwrap_err().code, Code::PermissionDenied);
    assert_eq!(list_entry(&view, &orchestrator(), &known()).unwrap().task_id.as_str(), "t");
}

/// LIST-09: archived Tasks need to be asked for, beside being ended.
#[test]
fn archived_tasks_need_to_be_asked_for() {
    let mut archived = listed("x", 1, TaskStatus::Completed);
    archived.archived = true;
    let with = |include_terminal, include_archived| {
        ListInput { include_archived, include_terminal, ..ListInput::default() }
            .admits(archived.listed())
    };
    assert_eq!([with(false, true), with(true, false), with(true, true)], [false, false, true]);
}

/// VIEW-10: user-facing listings leave internal and hidden Tasks out; internal is the default.
#[test]
fn user_facing_lists_leave_internal_tasks_out() {
    let t = Fixture::manual("a");
    let mut summary = TaskSummary::of(&t.task.durable(), &known());
    assert_eq!(summary.visibility, Visibility::Internal);
    let users = ListInput { user_facing: true, ..ListInput::default() };
    let mut seen = Vec::new();
    for &visibility in Visibility::ALL {
        summary.visibility = visibility;
        assert!(ListInput::default().admits(summary.listed()));
        if users.admits(summary.listed()) {
            seen.push(visibility);
        }
    }
    assert_eq!(seen, [Visibility::Foreground, Visibility::Background]);
}

/// RECOVER-01 for readers: the same log gives the same summary.
#[test]
fn a_summary_is_a_function_of_the_log() {
    let mut t = Fixture::manual("a b<-a");
    t.do_step("a");
    let of = |task: &Task| TaskSummary::of(&task.durable(), &known());
    assert_eq!(of(&t.task), of(&t.replayed()));
}
