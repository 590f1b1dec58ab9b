//! Tasks that leave memory and come back, and what others notice of that.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Weak;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use smol_str::SmolStr;
use tenure_core::command::{AppendProgress, Close, RunAndWhy, StepReport, Why};
use tenure_core::id::{AttemptId, CommandId, Ref, SessionId};
use tenure_core::status::{Policy, Role, StepStatus};
use tenure_core::view::{ClaimResult, View};
use tenure_core::{Caller, Code, Command, Commit, RejectionKind};
use tenure_local::MemoryLeases;
use tenure_ports::Observer;
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_ports::observer::{Called, LeaseCall, LinkEnd};
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::*;
use crate::config::Config;
use crate::handle::Scheduler;
use crate::live::{LiveTaskLimits, MemoryPlace, PlaceOwner};
use crate::worker::WorkerLink;

type TestJournal = Faulty<MemoryJournal>;
type TestNode = Scheduler<TestJournal, MemoryLeases>;
type TestLink = WorkerLink<TestJournal, MemoryLeases>;
type TestTask = ActorTask<TestJournal, MemoryLeases>;

/// So many bytes of Tasks are in memory.
const MEMORY: u64 = 1 << 20;

/// Notes which Tasks were opened, and looks where heartbeats find a Task when its creation is durable.
#[derive(Debug, Default)]
struct OpeningsSeen {
    opened: Mutex<Vec<String>>,
    node: Mutex<Weak<NodeShared<TestJournal, MemoryLeases>>>,
    places: Mutex<Vec<String>>,
}

impl Observer for OpeningsSeen {
    fn appended(&self, task: &Task, _: &[Arc<Commit>]) {
        let Some(node) = self.node.lock().upgrade() else { return };
        let address = node.directory.get(&key(task.task_id().as_str())).unwrap();
        self.places.lock().push(format!("{:?}", address.shared()));
    }
    fn refused(&self, _: &Rejection) {}
    fn wrote(&self, _: Called) {}
    fn leased(&self, _: LeaseCall, _: Called) {}
    fn expired(&self, _: AttemptId, _: Duration) {}
    fn framed(&self, _: Called) {}
    fn took_over(&self, _: Duration) {}
    fn answered(&self, _: &'static str, _: Duration, _: Option<Code>) {}
    fn parted(&self, _: LinkEnd) {}
    fn opened(&self, task: &Task) {
        self.opened.lock().push(task.task_id().to_string());
    }
    fn ended_before(&self, _: &Task) {}
    fn taken(&self) -> Option<tokio::sync::oneshot::Receiver<u64>> {
        None
    }
    fn trace_of(&self, _: &View<'_>, _: AttemptId) -> Option<SmolStr> {
        None
    }
}

fn key(task: &str) -> TaskKey {
    TaskKey { session_id: "s".parse().unwrap(), task_id: task.parse().unwrap() }
}

fn envelope() -> Envelope {
    let caller = Caller {
        agent: "boss".parse().unwrap(),
        role: Role::Orchestrator,
        session_id: SessionId::new("s").unwrap(),
        run_id: None,
        worker_pool_id: None,
        origin: None,
    };
    let id = CommandId::new(uuid::Uuid::now_v7().to_string()).unwrap();
    Envelope::new(caller, Some(id))
}

async fn node_on(journal: &Arc<TestJournal>) -> (TestNode, Arc<OpeningsSeen>) {
    let seen = Arc::<OpeningsSeen>::default();
    let config = Config {
        live: LiveTaskLimits { memory: MEMORY, ..LiveTaskLimits::default() },
        observer: Some(Arc::clone(&seen) as _),
        ..Config::embedded("default".parse().unwrap())
    };
    let leases = Arc::new(MemoryLeases::default());
    let node = Scheduler::start(Arc::clone(journal), leases, config).await.unwrap();
    *seen.node.lock() = Arc::downgrade(&node.node);
    (node, seen)
}

/// A Task of two Steps, one behind the other.
async fn create(node: &TestNode, task: &str, policy: Policy, parent: Option<&str>) -> TaskKey {
    let step = |id: &str, on: &[&str]| json!({"step_id": id, "title": id, "summary": "", "depends_on_step_ids": on});
    let steps = [step("a", &[]), step("b", &["a"])];
    let mut input = json!({"task_id": task, "title": task, "summary": "", "steps": steps});
    if let Some(parent) = parent {
        input["parent_task_id"] = parent.into();
    }
    let input: tenure_core::command::create::CreateTask = serde_json::from_value(input).unwrap();
    node.create(envelope(), input, policy).await.unwrap();
    key(task)
}

fn address(node: &TestNode, key: &TaskKey) -> Address {
    node.node.directory.get(key).unwrap()
}

fn is_at_rest(node: &TestNode, key: &TaskKey) -> bool {
    address(node, key).at_rest(|_: &mut TestTask| true)
}

/// Waits until a Task at rest is as it is to be.
async fn until(node: &TestNode, key: &TaskKey, is_so: impl Fn(&mut TestTask) -> bool) {
    for _ in 0..10_000 {
        let mut found = false;
        let look = |state: &mut TestTask| {
            found = is_so(state);
            true
        };
        address(node, key).at_rest(look);
        if found {
            return;
        }
        yield_now().await;
    }
    panic!("it does not come to pass");
}

async fn put_away(node: &TestNode, key: &TaskKey) {
    until(node, key, |state| state.put_away().is_some()).await;
    assert!(address(node, key).shared().is_stored());
}

/// Takes all the memory for Tasks.
async fn fill(node: &TestNode) -> MemoryPlace {
    node.node.live.place(PlaceOwner::Unread, MEMORY).await.unwrap()
}

async fn until_readable(node: &TestNode, key: &TaskKey) {
    for _ in 0..1_000 {
        if node.read(key, |_| ()).await.is_ok() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("it is not read");
}

fn journal() -> Arc<TestJournal> {
    Arc::new(Faulty::new(MemoryJournal::default()))
}

/// LIVE-02: a Task for which there was no place goes on as if it had been in memory: what is done once when a Task is
/// made or read is not done again. If it had never been read, all of that is done when there is a place.
#[tokio::test(start_paused = true)]
async fn a_task_that_had_no_place_is_opened_once() {
    let journal = journal();
    let (node, seen) = node_on(&journal).await;
    let parent = create(&node, "parent", Policy::Manual, None).await;
    let child = create(&node, "child", Policy::Manual, Some("parent")).await;
    put_away(&node, &child).await;
    put_away(&node, &parent).await;
    let full = fill(&node).await;
    let refused = node.read(&child, |_| ()).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.kind()),
        (Code::Unavailable, Some(RejectionKind::Overloaded))
    );
    drop(full);
    until_readable(&node, &child).await;
    let watches = |state: &mut TestTask| Arc::strong_count(state.spared.as_ref().unwrap()) == 2;
    until(&node, &child, |_| true).await;
    assert!(address(&node, &child).at_rest(|state: &mut TestTask| {
        assert!(watches(state), "one loop watches its parent");
        true
    }));
    assert!(seen.opened.lock().is_empty(), "both were made here");
    node.stop().await;

    let (next, seen) = node_on(&journal).await;
    let full = fill(&next).await;
    assert_eq!(next.read(&child, |_| ()).await.unwrap_err().code, Code::Unavailable);
    assert!(seen.opened.lock().is_empty());
    drop(full);
    until_readable(&next, &child).await;
    let opened = seen.opened.lock().iter().filter(|task| *task == "child").count();
    assert_eq!(opened, 1, "it asks for its parent, which is opened too");
    next.stop().await;
}

/// A Run for whose end its dispatcher waits, and one who waits for the end of the Task; the Task is put away.
async fn waited_for(
    node: &TestNode,
) -> (
    TaskKey,
    JoinHandle<Result<crate::ask::WriteAnswer, Rejection>>,
    JoinHandle<Result<(), Rejection>>,
) {
    let key = create(node, "t", Policy::Manual, None).await;
    let given: Json = json!({"worker_pool_id": "default", "wait": true});
    let dispatch = Command::DispatchWorker(serde_json::from_value(given).unwrap());
    let run = tokio::spawn({
        let (node, key) = (node.clone(), key.clone());
        async move { node.command(&key, envelope(), dispatch).await }
    });
    let end = tokio::spawn({
        let (node, key) = (node.clone(), key.clone());
        async move { node.wait_for_end(&key).await }
    });
    until(node, &key, |state| !state.late.is_empty() && state.watchers.len() == 1).await;
    put_away(node, &key).await;
    (key, run, end)
}

fn pause() -> Command {
    Command::PauseTask(Why::default())
}

/// LIVE-02, CTRL-03: while there is no place for a Task, who waits for its end or for that of a Run waits on,
/// whoever is refused meanwhile; and is answered when it comes.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_task_without_a_place_waits_on() {
    let (node, _) = node_on(&journal()).await;
    let (key, run, end) = waited_for(&node).await;
    let full = fill(&node).await;
    for _ in 0..3 {
        let refused = node.command(&key, envelope(), pause()).await.unwrap_err();
        assert_eq!(refused.kind(), Some(RejectionKind::Overloaded), "{refused}");
    }
    let later = tokio::spawn({
        let (node, key) = (node.clone(), key.clone());
        async move { node.wait_for_end(&key).await }
    });
    assert!(later.await.unwrap().is_err(), "who asks now is told so");
    assert!(!run.is_finished() && !end.is_finished(), "they wait on");
    drop(full);
    until_readable(&node, &key).await;
    assert!(!run.is_finished() && !end.is_finished(), "nothing has ended");
    let run_id = node.read(&key, |task| task.live_runs().next().unwrap().1.run_id).await.unwrap();
    let cancel = Command::CancelRun(RunAndWhy { reason: None, run_id });
    node.command(&key, envelope(), cancel).await.unwrap();
    assert_eq!(run.await.unwrap().unwrap().run_id, Some(run_id));
    assert!(!end.is_finished());
    node.command(&key, envelope(), Command::TaskCancel(Close::default())).await.unwrap();
    end.await.unwrap().unwrap();
}

/// RECOVER-04, WAL-09: if the log of a Task cannot be read any more, who waits is told that the command stands, and who
/// watches the Task is told what is wrong.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_task_that_cannot_be_read_is_told_so() {
    let (node, _) = node_on(&journal()).await;
    let (key, run, end) = waited_for(&node).await;
    node.journal().fail_reads(u64::MAX);
    let refused = node.command(&key, envelope(), pause()).await.unwrap_err();
    assert_eq!(refused.code, Code::StorageError, "{refused}");
    assert!(!run.is_finished() && !end.is_finished(), "it is tried again");
    let in_doubt = run.await.unwrap().unwrap_err();
    assert!(
        in_doubt.is_ambiguous() && in_doubt.message.contains("the command stands"),
        "{in_doubt}"
    );
    assert_eq!(end.await.unwrap().unwrap_err().code, Code::StorageError);
    node.journal().fail_reads(0);
    until_readable(&node, &key).await;
}

/// LEASE-14: heartbeats look for a Task where it lies, and wait for it there and not in the mailbox, also while it is
/// read again and from the moment at which its creation is durable.
#[tokio::test(start_paused = true)]
async fn heartbeats_never_wait_in_the_mailbox() {
    let (node, seen) = node_on(&journal()).await;
    let key = create(&node, "t", Policy::Manual, None).await;
    assert!(seen.places.lock()[0].contains("Away"), "{:?}", seen.places);
    put_away(&node, &key).await;
    let gate = node.journal().hold_reads();
    let reader = tokio::spawn({
        let (node, key) = (node.clone(), key.clone());
        async move { node.read(&key, |_| ()).await }
    });
    let place = || format!("{:?}", address(&node, &key).shared());
    for _ in 0..1_000 {
        if !place().contains("Stored") {
            break;
        }
        yield_now().await;
    }
    assert!(place().contains("Away"), "{}", place());
    let looks = tokio::spawn({
        let address = address(&node, &key);
        async move { address.shared().look(None, |task| task.version()).await }
    });
    yield_now().await;
    assert!(!looks.is_finished(), "it waits for the task");
    gate.open();
    assert!(looks.await.unwrap().is_some());
    reader.await.unwrap().unwrap();
}

fn completes(claim: &ClaimResult) -> StepReport {
    StepReport {
        attempt_id: Some(claim.attempt_id),
        fencing_token: Some(claim.fencing_token),
        status: Some(StepStatus::Completed),
        ..StepReport::on(claim.step.step_id.clone())
    }
}

/// A worker with capacity for one Step.
fn worker(node: &TestNode, name: &str) -> (TestLink, UnboundedReceiver<Delivery>) {
    let (link, inbox) = node.join(name.parse().unwrap(), "default".parse().unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    (link, inbox)
}

/// LEASE-14, PERM-16, LIVE-02: a worker that holds nothing in a Task that was put away is told nothing, and the Task is
/// not read for that. Who held an Attempt learns that it does no longer.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_of_who_holds_nothing_reads_no_task() {
    let (node, _) = node_on(&journal()).await;
    let key = create(&node, "t", Policy::Auto, None).await;
    let (link, mut inbox) = worker(&node, "ann");
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let held = Holding::of(&claim);
    let renewed = link.heartbeat(std::slice::from_ref(&held)).await;
    assert!(matches!(&renewed[..], [Pulse::Renewed { .. }]), "{renewed:?}");
    link.report(&held, completes(&claim), None).await.unwrap();
    put_away(&node, &key).await;
    let read = node.journal().commits_read();
    let id = "stranger".parse().unwrap();
    let (stranger, _deliveries) = node.join(id, "default".parse().unwrap(), None).unwrap();
    let told = stranger.heartbeat(&[Holding { input_seen: Some(1), ..held.clone() }]).await;
    assert!(matches!(&told[..], [Pulse::Unknown]), "{told:?}");
    for _ in 0..100 {
        yield_now().await;
    }
    assert!(address(&node, &key).shared().is_stored());
    assert_eq!(node.journal().commits_read(), read, "no log was read");
    let told = link.heartbeat(&[held]).await;
    let [Pulse::Lost(refused)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(refused.code, Code::StaleAttempt);
}

/// CTRL-12, LEASE-14: a heartbeat wakes the actor of its Task only if it says that its holder has seen more of the
/// input than the Task knows.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_wakes_a_task_only_with_news() {
    let (node, _) = node_on(&journal()).await;
    let key = create(&node, "t", Policy::Auto, None).await;
    let (link, mut inbox) = worker(&node, "ann");
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let beats = async |seen| {
        until(&node, &key, |_| true).await;
        let held = Holding { input_seen: Some(seen), ..Holding::of(&claim) };
        let told = link.heartbeat(&[held]).await;
        assert!(matches!(&told[..], [Pulse::Renewed { .. }]), "{told:?}");
        !is_at_rest(&node, &key)
    };
    assert!(!beats(0).await, "there is nothing to see");
    let input_refs = vec![Ref::new("urn:x").unwrap()];
    let more = AppendProgress { input_refs, ..AppendProgress::default() };
    node.command(&key, envelope(), Command::AppendTaskProgress(more)).await.unwrap();
    assert!(!beats(0).await, "it has seen nothing of it yet");
    assert!(beats(1).await, "the next report is to take it into the log");
    assert!(!beats(1).await, "this is known");
}

/// OWN-06: a node that leaves a Task that was put away has its pools take back what they were sent of it.
#[tokio::test(start_paused = true)]
async fn a_task_that_was_put_away_and_left_waits_for_no_worker_here() {
    let (node, _) = node_on(&journal()).await;
    let key = create(&node, "t", Policy::Auto, None).await;
    let waits = || node.sample().pools.iter().map(|pool| pool.waiting).sum::<u64>();
    put_away(&node, &key).await;
    assert_eq!(waits(), 1, "its first Step waits, in memory or not");
    node.leave(key.partition(8), None).await;
    for _ in 0..100 {
        yield_now().await;
    }
    assert_eq!(waits(), 0);
}

/// LEASE-14: while a Task that came to this node cannot be read, no lease of it is judged: its holders cannot show that
/// they are there.
#[tokio::test(start_paused = true)]
async fn no_lease_of_a_task_without_a_place_is_judged() {
    let journal = journal();
    let (first, _) = node_on(&journal).await;
    let key = create(&first, "t", Policy::Auto, None).await;
    let (_link, mut inbox) = worker(&first, "ann");
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    first.stop().await;
    let (node, _) = node_on(&journal).await;
    let full = fill(&node).await;
    assert_eq!(node.read(&key, |_| ()).await.unwrap_err().code, Code::Unavailable);
    let (link, _inbox) = worker(&node, "ann");
    let told = link.heartbeat(&[Holding::of(&claim)]).await;
    assert!(matches!(&told[..], [Pulse::Unknown]), "{told:?}");
    assert!(node.node.was_unasked_within(&key, Duration::from_secs(1)));
    let other = Holding { task: self::key("nowhere"), ..Holding::of(&claim) };
    link.heartbeat(&[other]).await;
    assert!(!node.node.was_unasked_within(&self::key("nowhere"), Duration::from_secs(1)));
    drop(full);
}
