//! What readers of a Task cost others.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::common::{Hand, Node, POOL, cancel, create, dag, key, node, orchestrator, status};
use futures::FutureExt as _;
use tenure_core::id::{AgentId, PoolId};
use tenure_core::status::{Role, TaskStatus};
use tenure_core::view::{GetInput, Known};
use tenure_core::{Limits, Query as _, TaskQuery as _};
use tenure_local::MemoryLeases;
use tenure_ports::bus::{Holding, Pulse, WorkerPort as _};
use tenure_ports::client::ClientPort as _;
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Config, LiveTaskLimits, ReadHold, Scheduler, read_holding};
use tokio::time::{Instant, sleep, timeout};

/// A Task with a Step that this worker holds.
async fn held(node: &crate::common::Node) -> (TaskKey, Hand, Holding) {
    let mut hand = Hand::join(node, "w");
    hand.says_room(1);
    let task = create(node, dag("t", "a")).await.unwrap();
    hand.expect_step("a").await;
    let held = Holding::of(&hand.held[0].0);
    (task, hand, held)
}

/// Has readers read a Task until the sender is dropped. Returns when all of them are at it.
async fn busy_readers(node: &crate::common::Node, task: &TaskKey, count: usize) -> Vec<Sender<()>> {
    let (begun, mut all) = (Arc::new(AtomicUsize::new(0)), Vec::new());
    for _ in 0..count {
        let (ends, over) = channel::<()>();
        let (node, task, begun) = (node.clone(), task.clone(), Arc::clone(&begun));
        tokio::spawn(async move {
            let look = move |_: &crate::common::View<'_>| {
                begun.fetch_add(1, Ordering::SeqCst);
                let _ = over.recv(); // Until the test drops the other end.
            };
            node.read(&task, look).await.unwrap();
        });
        all.push(ends);
    }
    let all_begun = async {
        while begun.load(Ordering::SeqCst) < count {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let all_begun = timeout(Duration::from_secs(10), all_begun).await;
    assert!(all_begun.is_ok(), "readers do not read beside each other");
    all
}

/// LEASE-14: heartbeats are answered while readers of the Task are at work, and while commands wait for these. Commands
/// on other Tasks go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn readers_cost_no_worker_its_lease() {
    let node = node().await;
    let (task, hand, held) = held(&node).await;
    let other = create(&node, dag("u", "a")).await.unwrap();
    let readers = busy_readers(&node, &task, 3).await;
    let waits = tokio::spawn({
        let (node, task) = (node.clone(), task.clone());
        async move { cancel(&node, &task).await }
    });
    cancel(&node, &other).await.unwrap();
    assert_eq!(status(&node, &other).await, TaskStatus::Cancelled);
    for _ in 0..3 {
        let pulses = hand.link.heartbeat(std::slice::from_ref(&held)).await;
        assert!(matches!(pulses[..], [Pulse::Renewed { .. }]), "{pulses:?}");
    }
    assert!(!waits.is_finished(), "the command waits for the readers");
    drop(readers);
    waits.await.unwrap().unwrap();
    let pulses = hand.link.heartbeat(&[held]).await;
    let is_told =
        matches!(pulses[..], [Pulse::Renewed { cancel_requested: true, .. } | Pulse::Lost(_)]);
    assert!(is_told, "it sees what the command did: {pulses:?}");
}

/// A reader that asks for a Task and does not go on holds up its commands only for a moment, and reads it later.
#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_does_not_stop_the_task() {
    let node = node().await;
    let task = create(&node, dag("t", "a")).await.unwrap();
    let mut reader = Box::pin(node.read(&task, |view| view.version()));
    assert!(reader.as_mut().now_or_never().is_none(), "it has asked the actor");
    let begun = Instant::now();
    let cancelled = cancel(&node, &task).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(reader.await.unwrap(), cancelled.reply.version, "it finds what there is now");
}

/// A reader that has gone is not waited for.
#[tokio::test(start_paused = true)]
async fn a_reader_that_has_gone_costs_nothing() {
    let node = node().await;
    let task = create(&node, dag("t", "a")).await.unwrap();
    let mut reader = Box::pin(node.read(&task, |view| view.version()));
    assert!(reader.as_mut().now_or_never().is_none());
    drop(reader);
    let begun = Instant::now();
    cancel(&node, &task).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// CTRL-06: of a Task that is certainly too long for the caller only the header is made. It is what shortening the
/// whole Task would leave.
#[tokio::test]
async fn a_task_that_is_too_long_is_not_made_whole() {
    let node = node().await;
    let steps: Vec<String> = (0..500).map(|n| format!("s{n}")).collect();
    let task = create(&node, dag("t", &steps.join(" "))).await.unwrap();
    let read = |most: usize| {
        let look = move |view: &crate::common::View<'_>| {
            let (leases, limits) = (|_| None, Limits::default());
            let known = Known::new(7, &leases);
            GetInput {}.read_within(view, &orchestrator(), &known, &limits, most).unwrap()
        };
        node.read(&task, look)
    };
    let whole = read(1 << 20).await.unwrap();
    let short = read(8 << 10).await.unwrap();
    assert_eq!((whole.steps.len(), short.steps.len()), (500, 0));
    assert!(tenure_wire::bus::answer_bytes(&whole) > 500 * 120, "the least bytes are least");
    let mut shortened = whole;
    assert!(GetInput {}.shorten(&mut shortened));
    assert_eq!(short, shortened);
    let link = node.client(Role::Orchestrator, AgentId::new("o").unwrap(), key("t").session_id);
    let (task, whole) = (&task.task_id, link.ask(&task.task_id, GetInput {}).await.unwrap());
    assert_eq!(whole.steps.len(), 500, "the process itself has no limit");
    let sent = link.clone().sent_in(8 << 10).ask(task, GetInput {}).await.unwrap();
    assert!(sent.left_out.is_some() && sent.steps.is_empty());
    let asked = link.within(8 << 10).ask(task, GetInput {}).await.unwrap();
    assert_eq!(asked.left_out, sent.left_out);
}

/// A node of which so many bytes of Tasks may be in memory, and a Task that ended before it began.
async fn ended(memory: u64) -> (Node, TaskKey) {
    let first = node().await;
    let task = create(&first, dag("e", "a")).await.unwrap();
    cancel(&first, &task).await.unwrap();
    first.stop().await;
    let live = LiveTaskLimits { memory, ..LiveTaskLimits::default() };
    let config = Config { live, ..Config::embedded(PoolId::new(POOL).unwrap()) };
    let (journal, leases) = (Arc::clone(first.journal()), Arc::new(MemoryLeases::default()));
    (Scheduler::start(journal, leases, config).await.unwrap(), task)
}

/// What a reader holds, and the nanoseconds that it was charged.
#[derive(Default)]
struct HeldTurn(AtomicU64);

impl ReadHold for HeldTurn {
    fn charge(&self, busy: Duration) {
        self.0.fetch_add(u64::try_from(busy.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

/// Asks for a Task, and goes when it has not come for a while. Answers what the reader held.
async fn ask_and_go(node: &Node, task: &TaskKey) -> Arc<HeldTurn> {
    let turn = Arc::new(HeldTurn::default());
    let read = read_holding(Arc::clone(&turn) as _, node.read(task, |view| view.version()));
    assert!(timeout(Duration::from_millis(50), read).await.is_err(), "it is not in memory");
    turn
}

async fn until_given_back(turn: &Arc<HeldTurn>) {
    let given_back = async {
        while Arc::strong_count(turn) > 1 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(Duration::from_secs(1), given_back).await.is_ok(), "it is held for ever");
}

/// Mechanisms 16: a log for which nobody waits any more is not read, and is when somebody asks again.
#[tokio::test]
async fn a_log_for_which_nobody_waits_is_not_read() {
    let (node, task) = ended(1 << 30).await;
    let before = node.journal().commits_read();
    let mut reader = Box::pin(node.read(&task, |view| view.version()));
    assert!(reader.as_mut().now_or_never().is_none(), "it has asked the actor");
    drop(reader);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(node.journal().commits_read(), before);
    assert_eq!(status(&node, &task).await, TaskStatus::Cancelled);
    assert!(node.journal().commits_read() > before);
}

/// Mechanisms 16: a reader that goes while a log is read for it holds its turn until that is done, and is charged.
#[tokio::test]
async fn a_reader_holds_its_turn_until_the_log_is_read() {
    let (node, task) = ended(1 << 30).await;
    let gate = node.journal().hold_reads();
    let turn = ask_and_go(&node, &task).await;
    sleep(Duration::from_millis(50)).await;
    assert!(Arc::strong_count(&turn) > 1, "its log is being read");
    let charged = turn.0.load(Ordering::SeqCst);
    gate.open();
    until_given_back(&turn).await;
    assert!(turn.0.load(Ordering::SeqCst) > charged);
    assert_eq!(status(&node, &task).await, TaskStatus::Cancelled);
}

/// LIVE-02: no place in memory is waited for once the reader has gone for whom it would be.
#[tokio::test]
async fn who_has_gone_waits_for_no_place() {
    let (node, task) = ended(10_000).await;
    let _held = held(&node).await; // It stays in memory, and leaves no place for another.
    let before = node.journal().commits_read();
    let turn = ask_and_go(&node, &task).await;
    until_given_back(&turn).await;
    assert_eq!(node.journal().commits_read(), before);
}
