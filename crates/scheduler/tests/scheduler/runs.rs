//! Dispatched Runs: offered to workers, used, left, offered again (5.4 `take_run`, DISP, RUN).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use futures::StreamExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::{Dispatch, RunAndWhy, Why};
use tenure_core::id::{AgentId, CommandId, PoolId, RunId};
use tenure_core::status::{EndReason, Policy, RunState, StepStatus, TaskStatus};
use tenure_core::view::{RunEnd, RunOffer};
use tenure_core::{Code, Command};
use tenure_ports::bus::{Credit, Delivery, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Envelope, WorkerLink};

type Link =
    WorkerLink<tenure_testkit::Faulty<tenure_testkit::MemoryJournal>, tenure_local::MemoryLeases>;

fn dispatch(scope: Option<&[&str]>, wait: bool) -> Command {
    Command::DispatchWorker(Dispatch {
        allowed_step_ids: scope.map(|ids| ids.iter().map(|id| step_id(id)).collect()),
        bindings: None,
        instructions: Some("with care".into()),
        on_behalf: None,
        ttl_ms: None,
        wait: Some(wait),
        worker_pool_id: PoolId::new(POOL).unwrap(),
    })
}

async fn manual(node: &Node, task: &str, steps: &str) -> TaskKey {
    node.create(envelope(), dag(task, steps), Policy::Manual).await.unwrap();
    key(task)
}

async fn dispatched(node: &Node, key: &TaskKey, scope: Option<&[&str]>) -> RunId {
    node.command(key, envelope(), dispatch(scope, false)).await.unwrap().run_id.unwrap()
}

fn join(node: &Node, who: &str) -> (Link, UnboundedReceiver<Delivery>) {
    node.join(AgentId::new(who).unwrap(), PoolId::new(POOL).unwrap(), None).unwrap()
}

fn command_id(id: &str) -> CommandId {
    CommandId::new(id).unwrap()
}

async fn offer(inbox: &mut UnboundedReceiver<Delivery>) -> RunOffer {
    let delivery = tokio::time::timeout(Duration::from_secs(300), inbox.next());
    match delivery.await.expect("something comes") {
        Some(Delivery::Run(run)) => *run,
        other => panic!("not an offer: {other:?}"),
    }
}

async fn run_state(node: &Node, key: &TaskKey, run: RunId) -> (RunState, Option<EndReason>) {
    let look = move |task: &View<'_>| {
        let run = task.run(run).unwrap();
        (run.state, run.end_reason)
    };
    node.read(key, look).await.unwrap()
}

/// 5.4 `take_run`, DISP-10, DISP-11, CLAIM-14: workers take dispatched Runs, claim within their scope
/// and nothing beside it, and are given the dispatcher's instructions.
#[tokio::test(start_paused = true)]
async fn workers_use_dispatched_runs_within_their_scope() {
    let node = node().await;
    let key = manual(&node, "t", "a b c<-a").await;
    let told = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&told);
    let pool = workers(&node, 2, move |ctx| {
        let instructions = ctx.instructions().map(str::to_owned);
        heard
            .fetch_add(usize::from(instructions.as_deref() == Some("with care")), Ordering::SeqCst);
        async move { Ok(ctx.complete(None)?) }
    });
    node.command(&key, envelope(), dispatch(Some(&["b"]), true)).await.unwrap();
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Ready, "out of the scope");
    assert_eq!(step_status(&node, &key, "b").await, StepStatus::Completed);
    for _ in 0..2 {
        node.command(&key, envelope(), dispatch(None, true)).await.unwrap();
    }
    assert_eq!(step_status(&node, &key, "c").await, StepStatus::Completed);
    assert_eq!(told.load(Ordering::SeqCst), 3);
    assert_eq!(status(&node, &key).await, TaskStatus::Running, "its orchestrator completes it");
    drop(pool);
}

/// DISP-12, DISP-16, R05, QUERY-15: a Run that finds nothing to claim ends as a success, in the log before
/// its dispatcher hears of it; the worker is free for the next.
#[tokio::test(start_paused = true)]
async fn a_run_that_finds_nothing_ends_well() {
    let node = node().await;
    let key = manual(&node, "t", "a b<-a").await;
    let pool = completing(&node, 1);
    let before = events(&node, &key).await.len();
    let answer = node.command(&key, envelope(), dispatch(Some(&["b"]), true)).await.unwrap();
    assert_eq!(events(&node, &key).await.len(), before + 2, "the dispatch and the end");
    let ended = node.read(&key, move |task| {
        let run = task.find_run(answer.run_id.unwrap()).unwrap();
        tenure_core::view::RunView::of(task, run).end_reason
    });
    assert_eq!(ended.await.unwrap(), Some(EndReason::NoStepClaimed));
    node.command(&key, envelope(), dispatch(Some(&["a"]), true)).await.unwrap();
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Completed);
    drop(pool);
}

/// DISP-12, DISP-13, DAG-13, IDEM-01: a dispatcher that waits is told how its Run ended and what it said
/// in the end, also when it asks again; the log has nothing of that.
#[tokio::test(start_paused = true)]
async fn a_dispatcher_that_waits_is_told_what_its_run_says() {
    let node = node().await;
    let key = manual(&node, "t", "a b<-a c").await;
    let pool = workers(&node, 1, |ctx| async move {
        ctx.set_run_result(&format!("{} as you like it", ctx.step_id()))?;
        assert!(ctx.set_run_result(&"x".repeat(1 << 20)).is_err());
        if ctx.step_id().as_str() == "a" {
            ctx.complete(None)?;
        }
        Ok(())
    });
    let end = async |id: &str, step: &str| {
        let envelope = Envelope::new(orchestrator(), Some(command_id(id)));
        let answer = node.command(&key, envelope, dispatch(Some(&[step]), true)).await.unwrap();
        answer.summary.unwrap().run_end.unwrap()
    };
    let told = |end_reason, no_step_claimed, result: Option<&str>| {
        let result = result.map(Arc::from);
        RunEnd { end_reason, no_step_claimed, result }
    };
    assert_eq!(end("1", "b").await, told(EndReason::NoStepClaimed, true, None));
    let done = told(EndReason::Completed, false, Some("a as you like it"));
    assert_eq!(end("2", "a").await, done);
    assert_eq!(end("2", "a").await, done, "asked again");
    let silent = EndReason::FinishedWithoutTerminalStepStatus;
    assert_eq!(end("3", "c").await, told(silent, false, Some("c as you like it")));
    assert_eq!(step_status(&node, &key, "c").await, StepStatus::Failed);
    let log = format!("{:?}", node.commits(&key).await.unwrap());
    assert!(!log.contains("as you like it"), "{log}");
    drop(pool);
}

/// RUN-12: a worker that has no handler for what is ready declines the Run, and says why.
#[tokio::test(start_paused = true)]
async fn a_run_that_fits_no_handler_is_declined() {
    let node = node().await;
    let mut input = dag("t", "a");
    input.steps[0].handler = Some("other".parse().unwrap());
    node.create(envelope(), input, Policy::Manual).await.unwrap();
    let key = key("t");
    let pool = completing(&node, 1);
    let answer = node.command(&key, envelope(), dispatch(None, true)).await.unwrap();
    let ended = run_state(&node, &key, answer.run_id.unwrap()).await;
    assert_eq!(ended, (RunState::Ended, Some(EndReason::Declined)));
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Ready);
    drop(pool);
}

/// 5.4 `take_run`: Runs go out oldest first, as many as there is room for; one whose worker says
/// nothing for a lease duration goes to another, and the first has lost it (CLAIM-01).
#[tokio::test(start_paused = true)]
async fn a_silent_worker_loses_its_run() {
    let node = node().await;
    let key = manual(&node, "t", "a b").await;
    let runs = [dispatched(&node, &key, None).await, dispatched(&node, &key, None).await];
    let (ant, mut to_ant) = join(&node, "ant");
    ant.credit(Credit { free: 2, seen: 0, lost: 0, number: 1 });
    let offers = [offer(&mut to_ant).await, offer(&mut to_ant).await];
    assert_eq!(offers.each_ref().map(|o| o.run_id), runs);
    let (bee, mut to_bee) = join(&node, "bee");
    bee.credit(Credit { free: 2, seen: 0, lost: 0, number: 1 });
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(ant.query(&offers[1], 0).await.unwrap().steps.len(), 2, "it asks, and keeps it");
    }
    let taken_over = offer(&mut to_bee).await;
    assert_eq!(taken_over.run_id, runs[0]);
    assert!(to_bee.try_recv().is_err(), "the other is still the first worker's");
    let no = ant.claim(&offers[0], &step_id("a"), &command_id("c-1")).await.unwrap_err();
    assert_eq!(no.code, Code::PermissionDenied);
    bee.claim(&taken_over, &step_id("a"), &command_id("c-2")).await.unwrap();
    let claim = ant.claim(&offers[1], &step_id("b"), &command_id("c-3")).await.unwrap();
    let again = ant.claim(&offers[1], &step_id("b"), &command_id("c-3")).await.unwrap();
    assert_eq!(claim, again, "CLAIM-15");
}

/// CANCEL-07, RUN-02: who claimed by itself is told at once when it must stop, and when its Attempt
/// is over.
#[tokio::test(start_paused = true)]
async fn who_claimed_under_a_run_is_told_to_stop() {
    let node = node().await;
    let key = manual(&node, "t", "a").await;
    let run_id = dispatched(&node, &key, None).await;
    let (ant, mut to_ant) = join(&node, "ant");
    ant.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let run = offer(&mut to_ant).await;
    let claim = ant.claim(&run, &step_id("a"), &command_id("c")).await.unwrap();
    let cancel = Command::CancelRun(RunAndWhy { reason: None, run_id });
    let (other, task) = (node.clone(), key.clone());
    let cancelled = tokio::spawn(async move { other.command(&task, envelope(), cancel).await });
    match to_ant.next().await {
        Some(Delivery::CancelRequested(attempt, _)) => assert_eq!(attempt, claim.attempt_id),
        other => panic!("not told to stop: {other:?}"),
    }
    cancelled.await.unwrap().unwrap();
    match to_ant.next().await {
        Some(Delivery::Lost(attempt)) => assert_eq!(attempt, claim.attempt_id),
        other => panic!("not told that it is over: {other:?}"),
    }
}

/// DISP-04, DISP-16: while the Task is paused no Run is offered; a worker that joins later finds
/// those that wait, and one that leaves with its Run unused gives it up within a lease.
#[tokio::test(start_paused = true)]
async fn runs_wait_for_their_task_and_for_workers() {
    let node = node().await;
    let key = manual(&node, "t", "a").await;
    dispatched(&node, &key, None).await;
    node.command(&key, envelope(), Command::PauseTask(Default::default())).await.unwrap();
    let (ant, mut to_ant) = join(&node, "ant");
    ant.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(to_ant.try_recv().is_err());
    node.command(&key, envelope(), Command::ResumeTask(Default::default())).await.unwrap();
    offer(&mut to_ant).await;
    drop(ant);
    let pool = completing(&node, 1);
    until(&node, &key, |task| {
        task.step(&step_id("a")).unwrap().state.status == StepStatus::Completed
    })
    .await;
    drop(pool);
}

/// CLAIM-13: a Run for an assigned Step waits for its worker; one with nothing ready is for anybody.
#[tokio::test(start_paused = true)]
async fn a_run_waits_for_the_worker_its_steps_are_assigned_to() {
    let node = node().await;
    let mut input = dag("t", "a");
    input.steps[0].claim_only_by = Some(AgentId::new("bee").unwrap());
    node.create(envelope(), input, Policy::Manual).await.unwrap();
    let key = key("t");
    let (ant, mut to_ant) = join(&node, "ant");
    ant.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let run = dispatched(&node, &key, Some(&["a"])).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(to_ant.try_recv().is_err());
    let (bee, mut to_bee) = join(&node, "bee");
    bee.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let offered = offer(&mut to_bee).await;
    assert_eq!(offered.run_id, run);
    bee.claim(&offered, &step_id("a"), &command_id("c")).await.unwrap();
}

/// LIVE-04, CTRL-11: one command that waits, repeated without end, holds so many answers and no more; the others are
/// told to ask again. The Task goes on meanwhile, and when the Run has ended all that still wait are answered.
#[tokio::test(start_paused = true)]
async fn repetitions_of_a_waiting_command_are_bounded() {
    const REPEATS: usize = 3_000;
    const HELD: usize = 256;
    let node = node().await;
    let key = manual(&node, "t", "a").await;
    let around = envelope();
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..REPEATS {
        let (node, key, around) = (node.clone(), key.clone(), around.clone());
        asked.spawn(async move { node.command(&key, around, dispatch(None, true)).await });
    }
    let mut refused = 0;
    while refused < REPEATS - HELD {
        let answer = asked.join_next().await.unwrap().unwrap();
        let told = answer.unwrap_err();
        assert!(told.is_ambiguous() && told.code == Code::Unavailable, "{told}");
        refused += 1;
    }
    assert_eq!((node.kept().waiters, node.kept().commands), (HELD as u64, 0));
    let before = node.read(&key, |task| task.runs().count()).await.unwrap();
    assert_eq!(before, 1, "it was carried out once");
    node.command(&key, envelope(), Command::PauseTask(Why::default())).await.unwrap();
    cancel(&node, &key).await.unwrap();
    while let Some(answer) = asked.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status, TaskStatus::Cancelled);
    }
    assert_eq!(node.kept().waiters, 0);
}
