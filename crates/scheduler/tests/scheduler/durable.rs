//! Nothing is told before it is durable (law 3): an append is held, and then fails, while workers and
//! clients ask. And while appends are slow, or fail, nobody loses an Attempt by it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::{Close, Dispatch, RunAndWhy, RunOutcome, StepReport};
use tenure_core::id::{AgentId, PoolId};
use tenure_core::record::{Progress, RetryPolicy};
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::view::RunEnd;
use tenure_core::{Code, Command, Rejection};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{WorkerLink, WriteAnswer};
use tenure_testkit::faulty::{Fault, Gate};
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::task::JoinHandle;

type Link = WorkerLink<Faulty<MemoryJournal>, tenure_local::MemoryLeases>;

const LEASE_MS: u64 = 8_000;

/// A Task whose Step is held by a worker that says nothing by itself.
async fn held(node: &Node) -> (TaskKey, Arc<Link>, Holding, UnboundedReceiver<Delivery>) {
    let (link, mut inbox) =
        node.join(AgentId::new("ant").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let short = RetryPolicy { heartbeat_ms: Some(LEASE_MS), ..RetryPolicy::default() };
    let mut input = with_policy(dag("t", "a"), short);
    input.completion = Some(Policy::Manual);
    let key = create(node, input).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    (key, Arc::new(link), Holding::of(&claim), inbox)
}

fn report(held: &Holding, status: Option<StepStatus>) -> StepReport {
    StepReport {
        attempt_id: Some(held.attempt_id),
        fencing_token: Some(held.fencing_token),
        status,
        ..StepReport::on(step_id("a"))
    }
}

fn stop(held: &Holding) -> Command {
    Command::CancelRun(RunAndWhy { reason: None, run_id: held.run_id })
}

fn retitle() -> Command {
    let title = r#"[{"op": "update_task", "title": "meanwhile"}]"#;
    Command::TaskUpdate { operations: serde_json::from_str(title).unwrap() }
}

async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Commands that are decided for one append, which fails when the gate is opened.
async fn in_one_failing_append(
    node: &Node,
    key: &TaskKey,
    commands: Vec<Command>,
) -> (Gate, Vec<JoinHandle<Result<WriteAnswer, Rejection>>>) {
    let before = node.journal().hold_next();
    let mut asked = Vec::new();
    for command in std::iter::once(retitle()).chain(commands) {
        let (node, key) = (node.clone(), key.clone());
        asked.push(tokio::spawn(async move { node.command(&key, envelope(), command).await }));
        settle().await;
    }
    let failing = node.journal().hold_next_to_fail();
    before.open();
    asked.remove(0).await.unwrap().unwrap();
    while !node.journal().is_spent() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (failing, asked)
}

const GOES_ON: Pulse = Pulse::Renewed { cancel_requested: false, time_left_ms: None };

/// WAL-07, CANCEL-07, LEASE-04: a heartbeat is not told of a cancel, of the Task or of its Run, that is not
/// in the log: the append may fail, and then nobody has asked it to stop. Meanwhile its lease is renewed;
/// nobody who looks sees more, and the worker that stops all the same gives its Step back.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_not_written_stops_nobody() {
    for (is_run, is_first) in [(false, false), (true, false), (true, true)] {
        let node = node().await;
        let (key, link, held, mut inbox) = held(&node).await;
        let cancel = if is_run { stop(&held) } else { Command::TaskCancel(Close::default()) };
        let commands = if is_first { vec![cancel, retitle()] } else { vec![retitle(), cancel] };
        let (gate, asked) = in_one_failing_append(&node, &key, commands).await;
        let before = node.read(&key, |task| task.to_task()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(link.heartbeat(std::slice::from_ref(&held)).await, [GOES_ON]);
        assert_eq!(node.lease_left_ms(held.attempt_id), Some(LEASE_MS));
        let asks =
            move |task: &View<'_>| task.is_asked_to_stop(task.attempt(held.attempt_id).unwrap());
        assert!(!node.read(&key, asks).await.unwrap());
        gate.open();
        for refused in asked {
            assert_eq!(refused.await.unwrap().unwrap_err().code, Code::StorageError);
        }
        assert_eq!(link.heartbeat(std::slice::from_ref(&held)).await, [GOES_ON]);
        assert!(inbox.try_recv().is_err(), "it was told nothing");
        assert_eq!(node.read(&key, |task| task.to_task()).await.unwrap(), before);
        link.end_run(&held, RunOutcome::Cancelled, None, None).await.unwrap();
        assert_eq!(status(&node, &key).await, TaskStatus::Running);
        assert_eq!(step_status(&node, &key, "a").await, StepStatus::Ready, "it went back");
    }
}

/// WAL-07, DISP-13: what a Run says in the end is not shown before the append with it is durable, nor after
/// that has failed.
#[tokio::test(start_paused = true)]
async fn a_result_that_is_not_written_is_not_shown() {
    let node = node().await;
    node.create(envelope(), dag("t", "a"), Policy::Manual).await.unwrap();
    let key = key("t");
    let (link, mut inbox) =
        node.join(AgentId::new("ant").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let dispatch = Dispatch::to(PoolId::new(POOL).unwrap());
    node.command(&key, envelope(), Command::DispatchWorker(dispatch)).await.unwrap();
    let Some(Delivery::Run(offer)) = inbox.next().await else { panic!("an offer comes") };
    let id = "claim".parse().unwrap();
    let held = Holding::of(&link.claim(&offer, &step_id("a"), &id).await.unwrap());
    let run_id = held.run_id;
    let said = move |task: &View<'_>| {
        let at = task.find_run(run_id).unwrap();
        (RunEnd::of(task, at), task.memory_of(at).result.cloned())
    };
    let gate = node.journal().hold_next_to_fail();
    let end = link.end_run(&held, RunOutcome::Error, Some("a secret".into()), None);
    let end = tokio::spawn(end);
    settle().await;
    assert!(node.journal().is_spent());
    assert_eq!(node.read(&key, said).await.unwrap(), (None, None));
    gate.open();
    assert_eq!(end.await.unwrap().unwrap_err().code, Code::StorageError);
    assert_eq!(node.read(&key, said).await.unwrap(), (None, None));
}

/// LEASE-04, LEASE-14, mechanisms 2: while the log is full a worker repeats its report, and each try takes
/// long to fail. The log still gives it the Attempt: its heartbeats renew the lease, and once there is room
/// its result counts. An Attempt that its report would end is renewed, and so is one that is thought lost.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_full_costs_no_attempt() {
    let node = node().await;
    let (key, link, held, _inbox) = held(&node).await;
    let gates: Vec<Gate> = (0..60).map(|_| node.journal().hold_next_to_fail()).collect();
    let renewing = {
        let (link, held) = (Arc::clone(&link), held.clone());
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(LEASE_MS / 3)).await;
                assert_eq!(link.heartbeat(std::slice::from_ref(&held)).await, [GOES_ON]);
            }
        }
    };
    let full = async {
        for gate in gates {
            let word = link.report(&held, report(&held, Some(StepStatus::Completed)), None);
            tokio::time::sleep(Duration::from_millis(630)).await;
            gate.open();
            assert_eq!(word.await.unwrap_err().code, Code::StorageError);
        }
    };
    tokio::select! { () = full => {}, () = renewing => {} }
    link.report(&held, report(&held, Some(StepStatus::Completed)), None).await.unwrap();
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Completed);
    let events = events(&node, &key).await;
    assert!(!events.contains(&"task_step_lease_expired"), "{events:?}");
}

/// LEASE-07, REPORT-15: a lease that a scan found over is renewed while its Task's append is under way: its
/// holder is there, and it is not ended.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_while_its_end_waits_goes_on() {
    let node = node().await;
    let (key, link, held, _inbox) = held(&node).await;
    tokio::time::sleep(Duration::from_millis(LEASE_MS - 500)).await;
    node.journal().next(Fault::Delay(Duration::from_millis(1_900)));
    let (asks, of) = (node.clone(), key.clone());
    let slow = tokio::spawn(async move { asks.command(&of, envelope(), retitle()).await });
    tokio::time::sleep(Duration::from_millis(1_700)).await;
    assert_eq!(node.lease_left_ms(held.attempt_id), Some(0), "a tick has found it over");
    assert_eq!(link.heartbeat(std::slice::from_ref(&held)).await, [GOES_ON]);
    slow.await.unwrap().unwrap();
    settle().await;
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Claimed);
}

/// LEASE-04, REPORT-06: a holder that reports and whose heartbeats are lost keeps its lease, in the store as
/// in the log: each report that ends nothing renews it.
#[tokio::test(start_paused = true)]
async fn reports_renew_the_lease() {
    let node = node().await;
    let (key, link, held, _inbox) = held(&node).await;
    link.report(&held, report(&held, Some(StepStatus::Running)), None).await.unwrap();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(LEASE_MS * 5 / 8)).await;
        let progress = Progress { percent: Some(50.0), ..Progress::default() };
        let word = StepReport { progress: Some(progress), ..report(&held, None) };
        link.report(&held, word, None).await.unwrap();
        settle().await;
        assert_eq!(node.lease_left_ms(held.attempt_id), Some(LEASE_MS));
    }
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Running);
    tokio::time::sleep(Duration::from_millis(LEASE_MS + 3_000)).await;
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Ready, "and then it is silent");
}

/// CANCEL-07: a holder whose Run is cancelled is told so in the answer to its report too.
#[tokio::test(start_paused = true)]
async fn the_answer_to_a_report_says_that_the_run_is_cancelled() {
    let node = node().await;
    let (key, link, held, _inbox) = held(&node).await;
    let running = || link.report(&held, report(&held, Some(StepStatus::Running)), None);
    assert!(!running().await.unwrap().cancel_requested);
    let (asks, of, stop) = (node.clone(), key.clone(), stop(&held));
    let stopped = tokio::spawn(async move { asks.command(&of, envelope(), stop).await });
    settle().await;
    assert!(running().await.unwrap().cancel_requested);
    link.end_run(&held, RunOutcome::Cancelled, None, None).await.unwrap();
    stopped.await.unwrap().unwrap();
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Failed);
}

/// WAL-07: pools, and the workers that are asked for room, are not told of Steps that an append in flight
/// makes ready, though the Task has something to tell them of meanwhile.
#[tokio::test(start_paused = true)]
async fn a_step_that_is_not_ready_in_the_log_wants_no_room() {
    let node = node().await;
    let (link, mut inbox) =
        node.join(AgentId::new("ant").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a b<-a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    node.journal().next(Fault::Fail); // It is tried again in a second.
    let failed = node.command(&key, envelope(), retitle()).await.unwrap_err();
    assert_eq!(failed.code, Code::StorageError);
    let gate = node.journal().hold_next();
    let word = link.report(&Holding::of(&claim), completes(&claim), None);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(step_status(&node, &key, "b").await, StepStatus::Pending);
    assert_eq!(node.hungry_pools(), []);
    gate.open();
    word.await.unwrap();
    settle().await;
    assert_eq!(node.hungry_pools(), [(PoolId::new(POOL).unwrap(), 1)]);
}
