//! Runtime events: what happens around Runs and changes no Task (EVENT-07).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use futures::channel::mpsc::UnboundedReceiver;
use futures::{FutureExt as _, StreamExt as _};
use tenure_core::command::Dispatch;
use tenure_core::id::{AgentId, CommandId, PoolId, RunId, SessionId};
use tenure_core::status::{Policy, Role};
use tenure_core::view::RuntimeName::*;
use tenure_core::view::{RunOffer, RuntimeEvent};
use tenure_core::{Code, Command};
use tenure_ports::ClientPort as _;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

async fn manual(node: &Node, task: &str, steps: &str) -> TaskKey {
    node.create(envelope(), dag(task, steps), Policy::Manual).await.unwrap();
    key(task)
}

async fn dispatched(node: &Node, key: &TaskKey) -> RunId {
    let dispatch = Command::DispatchWorker(Dispatch::to(PoolId::new(POOL).unwrap()));
    node.command(key, envelope(), dispatch).await.unwrap().run_id.unwrap()
}

async fn offer(inbox: &mut UnboundedReceiver<Delivery>) -> RunOffer {
    match inbox.next().await {
        Some(Delivery::Run(run)) => *run,
        other => panic!("not an offer: {other:?}"),
    }
}

async fn next(events: &mut Receiver<RuntimeEvent>) -> RuntimeEvent {
    let event = tokio::time::timeout(Duration::from_secs(300), events.recv());
    event.await.expect("it is told").unwrap()
}

/// EVENT-07, TERM-13, CLAIM-10, CANCEL-07, DISP-13, RUN-11: each of the five is told, with
/// whose it is, and none of them is in the log.
#[tokio::test(start_paused = true)]
async fn what_happens_to_runs_is_told_and_not_written() {
    let node = node().await;
    let key = manual(&node, "t", "a").await;
    let mut events = node.runtime_events();
    let runs = [dispatched(&node, &key).await, dispatched(&node, &key).await];
    let ant = AgentId::new("ant").unwrap();
    let (link, mut inbox) = node.join(ant.clone(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 2, seen: 0, lost: 0, number: 1 });
    let offers = [offer(&mut inbox).await, offer(&mut inbox).await];
    let claim = async |run: &RunOffer, id: &str| {
        link.claim(run, &step_id("a"), &CommandId::new(id).unwrap()).await
    };
    let won = claim(&offers[0], "1").await.unwrap();
    let lost = claim(&offers[1], "2").await.unwrap_err();
    assert_eq!(lost.code, Code::StepAlreadyClaimed);
    link.leave(&offers[1], None, None).await.unwrap();
    cancel(&node, &key).await.unwrap(); // The worker is deaf: this takes the wait limit.
    let last_words = Some("I was at it".to_owned());
    link.end_run(&Holding::of(&won), FINISHED, last_words, None).await.unwrap();

    let (one, other) = (runs[0], runs[1]);
    for (name, run) in [
        (RunTaken, one),
        (RunTaken, other),
        (ClaimLost, other),
        (CancelSignal, one),
        (ChildAgentCancelTimeout, one),
        (RunResult, one),
    ] {
        let event = next(&mut events).await;
        assert_eq!((event.event, event.run_id), (name, run));
        assert_eq!((event.session_id, event.task_id), (session(), key.task_id.clone()));
        assert_eq!(event.worker_id.as_ref(), Some(&ant), "{name}");
        let of_step = name != RunTaken;
        assert_eq!(event.step_id, of_step.then(|| step_id("a")), "{name}");
        let of_attempt = of_step && name != ClaimLost;
        assert_eq!(event.attempt_id, of_attempt.then_some(won.attempt_id), "{name}");
        let said = (name == RunResult).then_some("I was at it");
        assert_eq!(event.result.as_deref(), said, "{name}");
    }
    assert_eq!(events.try_recv().unwrap_err(), TryRecvError::Empty);
    assert_eq!(
        crate::common::events(&node, &key).await,
        [
            "task_created",
            "task_step_ready",
            "task_running",
            "task_run_dispatched",
            "task_run_dispatched",
            "task_step_claimed",
            "task_run_ended",
            "task_cancel_requested",
            "task_step_cancelled",
            "task_cancelled",
        ]
    );
}

/// RUN-11, DISP-13: what a Run had to say is told, though its handler was still at it when the Task
/// ended.
#[tokio::test(start_paused = true)]
async fn what_a_run_says_is_told_after_the_end_of_its_task() {
    let node = node().await;
    let key = manual(&node, "t", "a").await;
    let mut events = node.runtime_events();
    let (link, inbox) =
        node.join(AgentId::new("ant").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    let handlers = Handlers::new().on("h", |ctx| async move {
        ctx.set_run_result("I was at it")?;
        std::future::pending().await
    });
    let mut options = Options::new(NonZeroUsize::MIN);
    options.grace = Duration::from_secs(60);
    let _pool = WorkerPool::start(link, inbox, handlers.unwrap(), options);
    let run_id = dispatched(&node, &key).await;
    until(&node, &key, |task| task.tally().held() == 1).await;
    cancel(&node, &key).await.unwrap(); // It does not stop: this takes the wait limit.
    let told = loop {
        let event = next(&mut events).await;
        if event.event == RunResult {
            break event;
        }
    };
    assert_eq!((told.run_id, told.result.as_deref()), (run_id, Some("I was at it")));
}

/// EVENT-07, DISP-14: Runs that the scheduler makes by itself tell nothing on their way.
#[tokio::test(start_paused = true)]
async fn automatic_runs_tell_nothing() {
    let node = node().await;
    let mut events = node.runtime_events();
    let pool = completing(&node, 2);
    let key = create(&node, dag("t", "a b c<-a,b")).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(events.try_recv().unwrap_err(), TryRecvError::Empty);
    drop(pool);
}

/// EVENT-07: what is decided with an append that fails has not happened, and is not told.
#[tokio::test(start_paused = true)]
async fn what_is_taken_back_is_not_told() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = node_on(journal.clone()).await;
    let key = manual(&node, "t", "a").await;
    dispatched(&node, &key).await;
    let (link, mut inbox) =
        node.join(AgentId::new("ant").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let run = offer(&mut inbox).await;
    let claim = link.claim(&run, &step_id("a"), &CommandId::new("c").unwrap()).await.unwrap();
    let mut events = node.runtime_events();
    let held = Holding::of(&claim);
    let end = || link.end_run(&held, FINISHED, Some("done".into()), None);
    journal.next(Fault::Fail);
    assert_eq!(end().await.unwrap_err().code, Code::StorageError);
    assert_eq!(events.try_recv().unwrap_err(), TryRecvError::Empty);
    end().await.unwrap();
    assert_eq!(next(&mut events).await.event, RunResult);
}

/// EVENT-07, PERM-16: a caller hears of its own session, of one Task if it likes; and whoever is too
/// slow misses some and holds nobody up.
#[tokio::test(start_paused = true)]
async fn callers_hear_of_their_session() {
    let node = node().await;
    let (t, u) = (manual(&node, "t", "a").await, manual(&node, "u", "a").await);
    let client = |session: &str| {
        let session = SessionId::new(session).unwrap();
        node.client(Role::Observer, AgentId::new("eve").unwrap(), session)
    };
    let (own, foreign) = (client("s"), client("other"));
    let mut all = own.runtime(None).await.unwrap();
    let mut of_u = own.runtime(Some(&u.task_id)).await.unwrap();
    let mut nothing = foreign.runtime(None).await.unwrap();
    let (link, mut inbox) =
        node.join(AgentId::new("ant").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 10_000, seen: 0, lost: 0, number: 1 });
    for _ in 0..1_100 {
        let run_id = dispatched(&node, &t).await;
        offer(&mut inbox).await;
        let event = all.next().await.unwrap();
        assert_eq!((event.event, event.run_id), (RunTaken, run_id), "who keeps up misses nothing");
    }
    let last = dispatched(&node, &u).await;
    offer(&mut inbox).await;
    assert_eq!(of_u.next().await.unwrap().run_id, last);
    assert!(nothing.next().now_or_never().is_none());
}
