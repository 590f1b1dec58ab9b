//! REL: relations between Tasks, and those that views derive.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::{CreateTask, Parent};
use tenure_core::command::relate::check_blocks;
use tenure_core::command::{AppendProgress, Link, StepReport, Unlink};
use tenure_core::id::{Ref, TaskId};
use tenure_core::record::{Edge, EdgeReason};
use tenure_core::status::{EdgeKind, EdgeStatus, Policy, StepStatus};
use tenure_core::view::TaskView;
use tenure_core::view::artifact::relationships;
use tenure_core::{Code, Command, Limits, Task};
use views::*;

fn link(kind: EdgeKind, to: &str) -> Command {
    Command::LinkTasks(Link { kind, reason: Some("why".into()), to: Ref::new(to).unwrap() })
}

fn unlink(edge_id: &str) -> Command {
    let edge_id = edge_id.parse().unwrap();
    Command::UnlinkTasks(Unlink { edge_id, reason: Some("over".into()) })
}

fn stored(task: &Task) -> Vec<Edge> {
    task.durable().edges().cloned().collect()
}

fn child_of(parent: &Fixture, name: &str) -> Result<Fixture, tenure_core::Rejection> {
    let given = CreateTask {
        parent_task_id: Some(parent.task.task_id().clone()),
        task_id: Some(name.parse().unwrap()),
        ..create_input("a")
    };
    Fixture::try_create_under(
        given,
        Policy::Manual,
        Limits::default(),
        Some(&Parent::of(&parent.task.durable(), &name.parse().unwrap())),
    )
}

/// REL-01, REL-02: an edge is a record with its kind, ends, status, times and reason.
#[test]
fn an_edge_is_a_record() {
    let mut t = Fixture::manual("a");
    t.ok(link(EdgeKind::Blocks, "u"));
    let made = t.now;
    let edge = as_json(&stored(&t.task)[0]);
    assert_eq!(
        edge,
        json!({"edge_id": "blocks:t:u", "kind": "blocks", "from": "t", "to": "u",
            "status": "active", "reason": "why", "created_at": made, "updated_at": made})
    );
    let kinds: Vec<&str> = EdgeKind::ALL.iter().map(|k| k.as_str()).collect();
    assert_eq!(
        kinds.join(" "),
        "parent child blocks blocked_by source_task source_attempt spawned_subagent \
         assigned_thread produced_artifact consumed_artifact evidence retry_of"
    );
}

/// REL-03: link and unlink write on the `from` Task; taking back sets the status, the history and
/// the record remain, and the same relation may be made again under an id of its own.
#[test]
fn a_relation_that_was_taken_back_remains() {
    let mut t = Fixture::manual("a");
    t.ok(link(EdgeKind::SourceTask, "u"));
    assert_eq!(t.events(), ["task_linked"]);
    t.ok(unlink("source_task:t:u"));
    assert_eq!(t.events(), ["task_unlinked"]);
    let edges = stored(&t.task);
    assert_eq!((edges.len(), edges[0].status), (1, EdgeStatus::Removed));
    let over = Some(EdgeReason::Text("over".into()));
    assert_eq!((&edges[0].reason, edges[0].updated_at), (&over, t.now));
    t.ok(link(EdgeKind::SourceTask, "u"));
    let ids: Vec<_> = stored(&t.task).iter().map(|e| e.edge_id.to_string()).collect();
    assert_eq!(ids, ["source_task:t:u", "source_task:t:u:1"]);
    t.refuse(unlink("nothing"), Code::ValidationError);
    let version = t.task.version();
    t.ok(unlink("source_task:t:u"));
    assert_eq!(t.task.version(), version, "taken back twice is taken back");
}

/// REL-03: an end too long for an id is still one relation.
#[test]
fn long_ends_still_have_an_id() {
    let mut t = Fixture::manual("a");
    let long = format!("https://example.org/{}", "x".repeat(3_000));
    t.ok(link(EdgeKind::Evidence, &long));
    let version = t.task.version();
    t.ok(link(EdgeKind::Evidence, &long));
    assert_eq!(t.task.version(), version);
    t.ok(link(EdgeKind::Evidence, &format!("{long}y")));
    assert_ne!(stored(&t.task)[0].edge_id, stored(&t.task)[1].edge_id);
}

/// REL-04, REL-05: the parent edge is in the child's creation; the parent's `task_linked` is the
/// scheduler's alone and idempotent.
#[test]
fn a_child_is_born_with_its_edge() {
    let mut parent = Fixture::manual("a");
    let child = child_of(&parent, "child").unwrap();
    let edges = stored(&child.task);
    assert_eq!((edges[0].kind, edges[0].to.as_str()), (EdgeKind::Parent, "t"));
    assert_eq!(edges[0].from.as_str(), "child");
    assert_eq!(child.task.head().spec.root_task_id.as_str(), "t");
    assert!(stored(&parent.task).is_empty());
    let adopt = parent.task.durable().adopts(child.task.task_id()).unwrap();
    for _ in 0..2 {
        parent.ok_as(&system(), adopt.clone());
    }
    assert_eq!(stored(&parent.task).len(), 1);
    assert_eq!(parent.task.durable().adopts(child.task.task_id()), None);
    assert_eq!(parent.task.durable().children(), [child.task.task_id().clone()]);
    parent.refuse(link(EdgeKind::Child, "other"), Code::ValidationError);
}

/// REL-05, CANCEL-02: no child under a parent that is unknown, ended or closing.
#[test]
fn a_child_needs_a_live_parent() {
    let given = CreateTask {
        parent_task_id: Some("nobody".parse().unwrap()),
        task_id: Some("child".parse().unwrap()),
        ..create_input("a")
    };
    let no = Fixture::try_create(given, Policy::Manual, Limits::default()).unwrap_err();
    assert_eq!(no.code, Code::TaskNotFound);
    let mut closing = Fixture::manual("a");
    closing.claim("a");
    closing.ok(Command::TaskCancel(Default::default()));
    assert_eq!(child_of(&closing, "child").unwrap_err().code, Code::TaskCancelling);
    let mut ended = Fixture::manual("a");
    ended.ok(Command::TaskCancel(Default::default()));
    assert_eq!(child_of(&ended, "child").unwrap_err().code, Code::TaskTerminal);
}

/// REL-06: parent, child and retry_of come from creation only and stay; a Task does not block
/// itself.
#[test]
fn creation_edges_cannot_be_made_or_taken_back_later() {
    let parent = Fixture::manual("a");
    let mut t = child_of(&parent, "child").unwrap();
    for kind in [EdgeKind::Parent, EdgeKind::Child, EdgeKind::RetryOf] {
        let no = t.refuse(link(kind, "u"), Code::ValidationError);
        assert_eq!(no.details["field"], "kind");
    }
    t.refuse(unlink("parent:child:t"), Code::ValidationError);
    for kind in [EdgeKind::Blocks, EdgeKind::BlockedBy] {
        t.refuse(link(kind, "child"), Code::DependencyCycle);
    }
    t.refuse(link(EdgeKind::SourceTask, "child"), Code::ValidationError);
}

/// REL-06: a `blocks` edge that would close a visible cycle is refused with the path.
#[test]
fn blocks_edges_close_no_visible_cycle() {
    let task = |name: &str| name.parse::<TaskId>().unwrap();
    let edges: Vec<(TaskId, TaskId)> = [("a", "b"), ("b", "c"), ("b", "d"), ("x", "a")]
        .map(|(from, to)| (task(from), task(to)))
        .into();
    assert!(check_blocks(&task("a"), &task("c"), &edges).is_ok());
    assert!(check_blocks(&task("d"), &task("e"), &edges).is_ok());
    let no = check_blocks(&task("c"), &task("x"), &edges).unwrap_err();
    assert_eq!(no.code, Code::DependencyCycle);
    assert_eq!(no.details["task_ids"], json!(["c", "x", "a", "b", "c"]));
    let itself = check_blocks(&task("a"), &task("a"), &[]).unwrap_err();
    assert_eq!(itself.details["task_ids"], json!(["a", "a"]));
    let cyclic = [("a", "b"), ("b", "a")].map(|(from, to)| (task(from), task(to)));
    assert!(check_blocks(&task("c"), &task("a"), &cyclic).is_ok(), "an old cycle is no new one");
}

/// REL-07: a Task that is said to be blocked by another one runs as before.
#[test]
fn blocks_between_tasks_gate_nothing() {
    let mut t = Fixture::auto("a");
    t.ok(link(EdgeKind::BlockedBy, "u"));
    let held = t.grant("ant", "main").expect("it is given out");
    t.complete(&held);
    assert!(t.task.is_terminal());
}

/// REL-08: derived kinds are not stored by anybody.
#[test]
fn derived_kinds_cannot_be_linked() {
    let mut t = Fixture::manual("a");
    for kind in [EdgeKind::ProducedArtifact, EdgeKind::ConsumedArtifact, EdgeKind::SourceAttempt] {
        t.refuse(link(kind, "u"), Code::ValidationError);
        let no = t.run(&system(), &link(kind, "u")).unwrap_err();
        assert_eq!(no.code, Code::ValidationError);
    }
}

/// REL-08, ART-04: what an Attempt made and was given shows as edges of the view: its artifacts and
/// outputs, the artifacts of its inputs, and the Attempts they came from.
#[test]
fn views_derive_what_was_made_and_used() {
    let mut t = Fixture::manual("a b<-a");
    let input_refs = vec![Ref::new("other/theirs").unwrap(), Ref::new("mem:elsewhere").unwrap()];
    t.ok(Command::AppendTaskProgress(AppendProgress { input_refs, ..Default::default() }));
    let artifacts = vec![artifact("log", "of the task")];
    t.ok(Command::AppendTaskProgress(AppendProgress { artifacts, ..Default::default() }));
    let a = t.claim("a");
    let said = StepReport {
        status: Some(StepStatus::Completed),
        artifacts: vec![artifact("made", "report")],
        output_refs: vec![Ref::new("made").unwrap(), Ref::new("log").unwrap()],
        ..a.says()
    };
    t.ok_as(&a.caller(), Command::TaskUpdateStep(said));
    let b = t.claim("b");
    let derived: Vec<String> = relationships(&t.task.durable())
        .iter()
        .map(|e| format!("{} {} {}", e.from, e.kind, e.to))
        .collect();
    let (a, b) = (a.attempt_id, b.attempt_id);
    let expected = [
        format!("attempt:{a} produced_artifact made"),
        format!("attempt:{a} produced_artifact log"),
        format!("attempt:{a} consumed_artifact other/theirs"),
        format!("attempt:{b} consumed_artifact made"),
        format!("attempt:{b} consumed_artifact other/theirs"),
        format!("attempt:{b} source_attempt attempt:{a}"),
    ];
    assert_eq!(derived, expected);
    assert!(stored(&t.task).is_empty(), "none of it is stored");
    let shown = as_json(&TaskView::of(&t.task.durable(), &known()));
    assert_eq!(shown["relationships"].as_array().map(Vec::len), Some(expected.len()));
}

/// REL-08: what an earlier Attempt made stays its own, also after its Step was reopened.
#[test]
fn products_of_earlier_attempts_stay() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let said = StepReport {
        status: Some(StepStatus::Failed),
        artifacts: vec![artifact("draft", "report")],
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(said));
    t.write("a", StepStatus::Pending);
    let shown = as_json(&relationships(&t.task.durable()));
    assert_eq!(shown[0]["from"], Json::from(format!("attempt:{}", held.attempt_id)));
    assert_eq!(shown[0]["to"], "draft");
}
