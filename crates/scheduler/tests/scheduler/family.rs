//! Tasks and other Tasks: children end with their parents, relations and references are checked.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{
    self, Node, View, cancel, completing, create, dag, envelope, events, key, node, node_on,
    status, step_id, until,
};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tenure_core::command::create::{CreateTask, Parent};
use tenure_core::command::{Close, Link, StepReport};
use tenure_core::id::{Ref, TaskId, WalName};
use tenure_core::record::{ArtifactInput, Value, ValueBody};
use tenure_core::status::{
    ArtifactKind, ArtifactState, EdgeKind, ParentClose, Policy, StepStatus, TaskStatus,
};
use tenure_core::{Code, Command, Rejection, Task};
use tenure_ports::Journal as _;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{FamilyNotice, Peers, WriteAnswer};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::Instant;

fn child_of(parent: &str, task: CreateTask) -> CreateTask {
    CreateTask { parent_task_id: Some(parent.parse().unwrap()), ..task }
}

async fn link(
    node: &Node,
    from: &TaskKey,
    kind: EdgeKind,
    to: &str,
) -> Result<WriteAnswer, Rejection> {
    let link = Link { kind, reason: None, to: Ref::new(to).unwrap() };
    node.command(from, envelope(), Command::LinkTasks(link)).await
}

/// The children that a Task has recorded.
async fn children(node: &Node, of: &TaskKey) -> Vec<String> {
    let all = |task: &View<'_>| task.children().iter().map(ToString::to_string).collect();
    node.read(of, all).await.unwrap()
}

fn reason(task: &View<'_>) -> String {
    task.head().status_reason.as_ref().unwrap().code.to_string()
}

/// REL-05: a parent has recorded its child, once, when that is made. Where it cannot, none is made; and where
/// none may be made, nothing is recorded.
#[tokio::test(start_paused = true)]
async fn a_parent_records_its_children() {
    let node = node().await;
    let parent = create(&node, dag("p", "a")).await.unwrap();
    create(&node, child_of("p", dag("c", "a"))).await.unwrap();
    assert_eq!(children(&node, &parent).await, ["c"]);
    let before = node.read(&parent, |task| task.version()).await.unwrap();
    node.journal().next_of(&parent, Fault::Fail);
    let refused = create(&node, child_of("p", dag("d", "a"))).await.unwrap_err();
    assert_eq!(refused.code, Code::StorageError);
    let refused = create(&node, child_of("p", dag("d", "a<-a"))).await.unwrap_err();
    assert_eq!(refused.code, Code::DependencyCycle);
    let nobody = node.read(&key("d"), |_| ()).await.unwrap_err();
    assert_eq!(nobody.code, Code::TaskNotFound);
    let after = node.read(&parent, |task| task.version()).await.unwrap();
    assert_eq!((after, children(&node, &parent).await.len()), (before, 1));
    create(&node, child_of("p", dag("d", "a"))).await.unwrap();
    tokio::time::sleep(ASKS * 3).await;
    assert_eq!(children(&node, &parent).await, ["c", "d"]);
    let linked = events(&node, &parent).await.iter().filter(|e| **e == "task_linked").count();
    assert_eq!(linked, 2);
}

/// REL-05: whichever write breaks off, and though the node dies when the child has just ended, no child is
/// left that its parent does not know; the same create again makes what was not made.
#[tokio::test(start_paused = true)]
async fn no_crash_leaves_a_child_that_its_parent_does_not_know() {
    for fault in [Fault::Fail, Fault::UnknownLost, Fault::UnknownKept] {
        for of in ["p", "c"] {
            let journal = Arc::new(Faulty::new(MemoryJournal::default()));
            let first = node_on(Arc::clone(&journal)).await;
            let parent = create(&first, dag("p", "a")).await.unwrap();
            journal.next_of(&key(of), fault.clone());
            let (asked, input) = (envelope(), child_of("p", dag("c", "a")));
            let _ = first.create(asked.clone(), input.clone(), Policy::Auto).await;
            let _ = cancel(&first, &key("c")).await;
            first.stop().await;

            let second = node_on(journal).await;
            second.resume_all().await.unwrap();
            let is_made = second.read(&key("c"), |_| ()).await.is_ok();
            let known = children(&second, &parent).await;
            assert!(!is_made || known == ["c"], "{fault:?} of {of}: {known:?}");
            second.create(asked, input, Policy::Auto).await.unwrap();
            assert_eq!(children(&second, &parent).await, ["c"], "{fault:?} of {of}");
        }
    }
}

/// REL-05: the same where the parent lives on another node. One that cannot be asked lets no child be made.
#[tokio::test(start_paused = true)]
async fn a_parent_on_another_node_records_its_children() {
    let (home, away) = (node().await, node().await);
    home.journal().give_away(&key("c"));
    away.journal().give_away(&key("p"));
    let to_parent = Deaf::new(&home);
    away.set_peers(to_parent.clone());
    let parent = create(&home, dag("p", "a")).await.unwrap();
    to_parent.is_gone.store(true, Ordering::SeqCst);
    let refused = create(&away, child_of("p", dag("c", "a"))).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    assert_eq!(away.read(&key("c"), |_| ()).await.unwrap_err().code, Code::TaskNotFound);
    assert!(children(&home, &parent).await.is_empty());
    to_parent.is_gone.store(false, Ordering::SeqCst);
    create(&away, child_of("p", dag("c", "a"))).await.unwrap();
    assert_eq!(children(&home, &parent).await, ["c"]);
    tokio::time::sleep(ASKS * 2).await;
    assert_eq!(*to_parent.lost.lock(), [], "nothing is left to be told");
}

/// REL-05: a child that its parent has not recorded, as logs came from elsewhere, or from before, has it
/// recorded when it asks.
#[tokio::test(start_paused = true)]
async fn a_live_child_has_itself_recorded() {
    let before = node().await;
    create(&before, dag("p", "a")).await.unwrap();
    create(&before, child_of("p", dag("c", "a"))).await.unwrap();
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    for id in ["p", "c"] {
        let commits = before.commits(&key(id)).await.unwrap();
        let made = vec![Arc::new(commits[0].clone())];
        journal.create(&key(id), &WalName::new(id).unwrap(), made).await.unwrap();
    }
    let node = node_on(journal).await;
    assert!(children(&node, &key("p")).await.is_empty());
    node.resume_all().await.unwrap();
    until(&node, &key("p"), |task| task.children().len() == 1).await;

    let (home, away) = (common::node().await, common::node().await);
    home.journal().give_away(&key("c"));
    away.journal().give_away(&key("p"));
    let to_parent = Deaf { records: false, ..Deaf::new(&home) };
    away.set_peers(to_parent.clone());
    let parent = create(&home, dag("p", "a")).await.unwrap();
    let child = create(&away, child_of("p", dag("c", "a"))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let told = to_parent.lost.lock().pop().unwrap();
    assert_eq!(told, FamilyNotice::Adopt(child.task_id.clone()));
    home.hear_of_family(&parent, told);
    until(&home, &parent, |task| task.children().len() == 1).await;
}

/// REL-05, CANCEL-03: a Task that was recorded as a child and is none, since its creation broke off and
/// somebody else made one of its name, does not end with whoever recorded it.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_no_child_after_all_goes_on() {
    let node = node().await;
    let parent = create(&node, dag("p", "a")).await.unwrap();
    node.journal().next_of(&key("x"), Fault::Fail);
    create(&node, child_of("p", dag("x", "a"))).await.unwrap_err();
    let other = create(&node, dag("x", "a")).await.unwrap();
    assert_eq!(children(&node, &parent).await, ["x"]);
    cancel(&node, &parent).await.unwrap();
    tokio::time::sleep(ASKS * 2).await;
    assert_eq!(status(&node, &other).await, TaskStatus::Running);
}

/// CANCEL-03: cancelling a parent cancels its live children, and theirs; those that ended stay.
#[tokio::test(start_paused = true)]
async fn children_are_cancelled_with_their_parent() {
    let node = node().await;
    let parent = create(&node, dag("p", "a")).await.unwrap();
    let child = create(&node, child_of("p", dag("c", "a"))).await.unwrap();
    let grandchild = create(&node, child_of("c", dag("g", "a"))).await.unwrap();
    let ended = create(&node, child_of("p", dag("e", "a"))).await.unwrap();
    let failed = Command::TaskFail(Close::default());
    node.command(&ended, envelope(), failed).await.unwrap();
    until(&node, &parent, |task| task.children().len() == 2).await;
    cancel(&node, &parent).await.unwrap();
    for key in [&child, &grandchild] {
        until(&node, key, |task| task.is_terminal()).await;
        assert_eq!(status(&node, key).await, TaskStatus::Cancelled);
        assert_eq!(node.read(key, reason).await.unwrap(), "parent_cancelled");
    }
    assert_eq!(node.read(&ended, reason).await.unwrap(), "task_failed");
}

/// CANCEL-04: a failed parent fails its children, and a parent that completes leaves them be.
#[tokio::test(start_paused = true)]
async fn children_fail_with_their_parent() {
    let node = node().await;
    let parent = create(&node, dag("p", "a")).await.unwrap();
    let child = create(&node, child_of("p", dag("c", "a"))).await.unwrap();
    node.command(&parent, envelope(), Command::TaskFail(Close::default())).await.unwrap();
    until(&node, &child, |task| task.is_terminal()).await;
    assert_eq!(status(&node, &child).await, TaskStatus::Failed);
    assert_eq!(node.read(&child, reason).await.unwrap(), "parent_failed");

    let parent = create(&node, dag("q", "a")).await.unwrap();
    let child = create(&node, child_of("q", dag("d", "x<-y y"))).await.unwrap();
    let workers = completing(&node, 1);
    until(&node, &parent, |task| task.is_terminal()).await;
    until(&node, &child, |task| task.is_terminal()).await;
    drop(workers);
    assert_eq!(status(&node, &child).await, TaskStatus::Completed);
}

/// REL-09: a child that says so is cancelled when its parent has completed, as soon as it asks; nobody
/// tells it.
#[tokio::test(start_paused = true)]
async fn a_child_may_end_with_the_completion_of_its_parent() {
    let node = node().await;
    let parent = create(&node, dag("p", "a")).await.unwrap();
    let given = CreateTask { parent_close: Some(ParentClose::Cancel), ..dag("c", "x<-y y") };
    let begun = Instant::now();
    let child = create(&node, child_of("p", given)).await.unwrap();
    let other = create(&node, child_of("p", dag("o", "x<-y y"))).await.unwrap();
    let output = Command::TaskUpdateStep(StepReport {
        status: Some(StepStatus::Completed),
        ..StepReport::on(common::step_id("a"))
    });
    node.command(&parent, envelope(), output).await.unwrap();
    until(&node, &parent, |task| task.is_terminal()).await;
    until(&node, &child, |task| task.is_terminal()).await;
    assert!(begun.elapsed() < ASKS * 2);
    assert_eq!(status(&node, &child).await, TaskStatus::Cancelled);
    assert_eq!(node.read(&child, reason).await.unwrap(), "parent_completed");
    tokio::time::sleep(ASKS * 2).await;
    assert_eq!(status(&node, &other).await, TaskStatus::Running);
}

/// CANCEL-03: a child whose parent was closed while nobody told it finds out when it is read.
#[tokio::test(start_paused = true)]
async fn a_child_asks_when_it_is_read_again() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let first = node_on(Arc::clone(&journal)).await;
    let parent = create(&first, dag("p", "a")).await.unwrap();
    let child = create(&first, child_of("p", dag("c", "a"))).await.unwrap();
    until(&first, &parent, |task| task.children().len() == 1).await;
    first.journal().next(Fault::Delay(Duration::ZERO)); // The end of the parent.
    first.journal().next(Fault::Fail); // That of the child.
    cancel(&first, &parent).await.unwrap();
    first.stop().await;

    let second = node_on(journal).await;
    second.resume_all().await.unwrap();
    until(&second, &child, |task| task.is_terminal()).await;
    assert_eq!(status(&second, &child).await, TaskStatus::Cancelled);
}

/// Another node, to which the way is such that all that is told gets lost.
#[derive(Debug, Clone)]
struct Deaf {
    node: Node,
    lost: Arc<Mutex<Vec<FamilyNotice>>>,
    is_gone: Arc<AtomicBool>,
    /// How often it was asked for a parent.
    asked: Arc<AtomicUsize>,
    /// Whether it records a child that is to be made.
    records: bool,
}

impl Deaf {
    fn new(node: &Node) -> Self {
        let (lost, is_gone, asked) = Default::default();
        Self { node: node.clone(), lost, is_gone, asked, records: true }
    }
}

impl Peers for Deaf {
    fn read(&self, key: &TaskKey) -> BoxFuture<'static, Result<Box<Task>, Rejection>> {
        panic!("nobody reads the log of {key}");
    }

    fn parent(
        &self,
        key: &TaskKey,
        child: &TaskId,
    ) -> BoxFuture<'static, Result<Parent, Rejection>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (node, key, child) = (self.node.clone(), key.clone(), child.clone());
        let is_gone = Arc::clone(&self.is_gone);
        Box::pin(async move {
            if is_gone.load(Ordering::SeqCst) {
                return Err(Rejection::new(Code::Unavailable, "it does not answer"));
            }
            node.parent(&key, &child).await
        })
    }

    fn record(
        &self,
        key: &TaskKey,
        child: &TaskId,
    ) -> BoxFuture<'static, Result<Parent, Rejection>> {
        if !self.records {
            return self.parent(key, child);
        }
        let (node, key, child) = (self.node.clone(), key.clone(), child.clone());
        Box::pin(async move { node.record(&key, &child).await })
    }

    fn tell(&self, _: &TaskKey, word: FamilyNotice) {
        self.lost.lock().push(word);
    }
}

/// How often a child asks.
const ASKS: Duration = Duration::from_secs(30);

/// CANCEL-03, CANCEL-04: a child asks its parent every 30 s, wherever that lives, and is closed as that
/// was, though no word of it came; whoever cannot be asked once is asked again.
#[tokio::test(start_paused = true)]
async fn a_child_that_nobody_tells_asks_by_itself() {
    for (close, status_of_child, why) in [
        (Command::TaskCancel(Close::default()), TaskStatus::Cancelled, "parent_cancelled"),
        (Command::TaskFail(Close::default()), TaskStatus::Failed, "parent_failed"),
    ] {
        let (home, away) = (node().await, node().await);
        home.journal().give_away(&key("c"));
        away.journal().give_away(&key("p"));
        let (to_child, to_parent) = (Deaf::new(&away), Deaf::new(&home));
        home.set_peers(to_child.clone());
        away.set_peers(to_parent.clone());
        let parent = create(&home, dag("p", "a")).await.unwrap();
        let begun = Instant::now();
        let child = create(&away, child_of("p", dag("c", "a"))).await.unwrap();
        home.hear_of_family(&parent, FamilyNotice::Adopt(child.task_id.clone()));
        until(&home, &parent, |task| task.children().len() == 1).await;
        home.command(&parent, envelope(), close).await.unwrap();
        until(&home, &parent, |task| task.is_terminal()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*to_child.lost.lock(), [FamilyNotice::ParentCloses]);
        assert!(!away.read(&child, |task| task.is_terminal()).await.unwrap(), "nobody has told it");
        to_parent.is_gone.store(true, Ordering::SeqCst);
        tokio::time::sleep_until(begun + ASKS * 3 / 2).await;
        assert!(
            !away.read(&child, |task| task.is_terminal()).await.unwrap(),
            "nobody has answered it"
        );
        to_parent.is_gone.store(false, Ordering::SeqCst);
        until(&away, &child, |task| task.is_terminal()).await;
        let took = begun.elapsed();
        assert!(took >= ASKS * 2 && took < ASKS * 2 + Duration::from_secs(1), "{took:?}");
        assert_eq!(status(&away, &child).await, status_of_child);
        assert_eq!(away.read(&child, reason).await.unwrap(), why);
    }
}

/// CANCEL-03, mechanisms 12: a child is told once that its parent is being closed, however much is still
/// written of that parent until its end.
#[tokio::test(start_paused = true)]
async fn a_child_is_told_once_that_its_parent_closes() {
    let (home, away) = (node().await, node().await);
    home.journal().give_away(&key("c"));
    away.journal().give_away(&key("p"));
    let to_child = Deaf::new(&away);
    home.set_peers(to_child.clone());
    away.set_peers(Deaf::new(&home));
    let pool = common::POOL.parse().unwrap();
    let (link, mut inbox) = home.join("w".parse().unwrap(), pool, None).unwrap();
    link.credit(Credit { free: 3, seen: 0, lost: 0, number: 1 });
    let parent = create(&home, dag("p", "x y z")).await.unwrap();
    let child = create(&away, child_of("p", dag("c", "a"))).await.unwrap();
    home.hear_of_family(&parent, FamilyNotice::Adopt(child.task_id.clone()));
    until(&home, &parent, |task| task.children().len() == 1).await;
    let close = Close { wait: Some(false), ..Close::default() };
    home.command(&parent, envelope(), Command::TaskCancel(close)).await.unwrap();
    for _ in 0..3 {
        let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
        link.report(&Holding::of(&claim), common::completes(&claim), None).await.unwrap();
    }
    until(&home, &parent, |task| task.status().is_terminal()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*to_child.lost.lock(), [FamilyNotice::ParentCloses]);
}

/// Mechanisms 12: a child asks no more of a parent on another node that has ended and leaves it be; and what
/// an ended parent is its owner knows without a look at the log.
#[tokio::test(start_paused = true)]
async fn a_parent_that_ended_well_is_asked_no_more() {
    let (home, away) = (node().await, node().await);
    home.journal().give_away(&key("c"));
    away.journal().give_away(&key("p"));
    let to_parent = Deaf::new(&home);
    away.set_peers(to_parent.clone());
    let parent = create(&home, dag("p", "a")).await.unwrap();
    let child = create(&away, child_of("p", dag("c", "a"))).await.unwrap();
    home.hear_of_family(&parent, FamilyNotice::Adopt(child.task_id.clone()));
    until(&home, &parent, |task| task.children().len() == 1).await;
    let _workers = completing(&home, 1);
    home.wait_for_end(&parent).await.unwrap();
    assert_eq!(status(&home, &parent).await, TaskStatus::Completed);
    let asked = || to_parent.asked.load(Ordering::SeqCst);
    home.journal().fail_reads(u64::MAX);
    tokio::time::sleep(ASKS * 3 / 2).await;
    let once_more = asked();
    tokio::time::sleep(ASKS * 5).await;
    assert_eq!(asked(), once_more, "it is known to be over");
    assert!(!away.read(&child, |task| task.is_terminal()).await.unwrap());
    let late = create(&away, child_of("p", dag("d", "a"))).await.unwrap_err();
    assert_eq!(late.code, Code::TaskTerminal);
}

/// REL-03, REL-06: the other end exists, and Tasks do not block each other in a circle, whichever
/// end their relations are stored at.
#[tokio::test]
async fn tasks_are_linked_to_tasks_that_exist_and_not_in_circles() {
    let node = node().await;
    for id in ["a", "b", "c"] {
        create(&node, dag(id, "s")).await.unwrap();
    }
    let missing = link(&node, &key("a"), EdgeKind::SourceTask, "nobody").await.unwrap_err();
    assert_eq!(missing.code, Code::TaskNotFound);
    link(&node, &key("a"), EdgeKind::Blocks, "b").await.unwrap();
    link(&node, &key("c"), EdgeKind::BlockedBy, "b").await.unwrap();
    let before = node.read(&key("c"), |task| task.to_task()).await.unwrap();
    let circle = link(&node, &key("c"), EdgeKind::Blocks, "a").await.unwrap_err();
    assert_eq!(circle.code, Code::DependencyCycle);
    assert_eq!(node.read(&key("c"), |task| task.to_task()).await.unwrap(), before);
    link(&node, &key("a"), EdgeKind::Blocks, "c").await.unwrap();
}

/// ART-05: artifacts of other Tasks exist before an input or a report may name them.
#[tokio::test]
async fn references_to_other_tasks_are_looked_up() {
    let node = node().await;
    let maker = create(&node, dag("maker", "a")).await.unwrap();
    let mut report = StepReport::on(step_id("a"));
    report.artifacts.push(ArtifactInput {
        artifact_id: "found".parse().unwrap(),
        name: "found".into(),
        description: None,
        media_type: None,
        kind: ArtifactKind::Text,
        uri: None,
        data: Some("x".into()),
        size_bytes: None,
        digest: None,
        state: ArtifactState::Available,
    });
    report.status = Some(StepStatus::Completed);
    node.command(&maker, envelope(), Command::TaskUpdateStep(report)).await.unwrap();

    let reading = |task: &str, reference: &str| {
        let mut input = dag(task, "a");
        input.steps[0].input =
            Some(Value::of("text/plain", ValueBody::Ref(Ref::new(reference).unwrap())));
        input
    };
    for nothing in ["maker/lost", "nobody/found"] {
        let refused = create(&node, reading("reader", nothing)).await.unwrap_err();
        assert_eq!(
            (refused.code, &refused.details["ref"]),
            (Code::ValidationError, &nothing.into())
        );
    }
    create(&node, reading("reader", "maker/found")).await.unwrap();
}

/// ART-05, RECOVER-04: a report may name an artifact that comes with it by its full name; one of a
/// Task whose log is damaged is unknown, and costs the report no more than that.
#[tokio::test(start_paused = true)]
async fn a_report_names_its_own_artifacts_in_full() {
    let node = node().await;
    let _workers = common::workers(&node, 1, |ctx| async move {
        let name = format!("{}/made", ctx.task_id());
        let artifact = ArtifactInput {
            artifact_id: "made".parse().unwrap(),
            name: "made".into(),
            description: None,
            media_type: None,
            kind: ArtifactKind::File,
            uri: None,
            data: None,
            size_bytes: None,
            digest: None,
            state: ArtifactState::Available,
        };
        ctx.attach(artifact);
        let value = Value::of("text/plain", ValueBody::Ref(Ref::new(name)?));
        Ok(ctx.complete(Some(value))?)
    });
    let key = create(&node, dag("t", "a")).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
}
