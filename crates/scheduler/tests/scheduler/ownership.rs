//! A node that loses Tasks to another, and gets them back.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    Node, POOL, View, cancel, completes, completing, create, dag, envelope, events, key, node_on,
    step_id, step_status, until,
};
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::{AppendProgress, Close, Dispatch, OnBehalf, RunAndWhy};
use tenure_core::id::{AgentId, CommandId, PoolId, Ref};
use tenure_core::status::{End, EndReason, Policy, StepStatus, TaskStatus};
use tenure_core::view::ClaimResult;
use tenure_core::{Code, Command};
use tenure_local::MemoryLeases;
use tenure_ports::Leases as _;
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Config, Scheduler, WorkerLink};
use tenure_testkit::{Faulty, MemoryJournal};

type Link = WorkerLink<Faulty<MemoryJournal>, MemoryLeases>;

/// OWN-03: what another node owns is neither read nor changed here.
#[tokio::test(start_paused = true)]
async fn tasks_of_another_node_are_refused() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = node_on(Arc::clone(&journal)).await;
    create(&node, dag("t", "a")).await.unwrap();
    journal.set_epoch(None);
    node.leave(key("t").partition(8), Some(0)).await;
    let not_owner = |code: Code| assert_eq!(code, Code::NotOwner);
    not_owner(node.read(&key("t"), |_| ()).await.unwrap_err().code);
    not_owner(cancel(&node, &key("t")).await.unwrap_err().code);
    not_owner(create(&node, dag("u", "a")).await.unwrap_err().code);
    journal.set_epoch(Some(0));
    let version = node.read(&key("t"), |task| task.version()).await.unwrap();
    assert_eq!(version, 3, "nothing was written meanwhile");
}

/// OWN-06: a Task whose append was on its way when its partition was left and taken again goes on by
/// itself, though nobody names it.
#[tokio::test(start_paused = true)]
async fn a_task_that_was_left_and_taken_again_goes_on() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = node_on(Arc::clone(&journal)).await;
    create(&node, dag("t", "a b")).await.unwrap();
    let partition = key("t").partition(8);
    let gate = journal.hold_next();
    let _workers = completing(&node, 1);
    wait(async || journal.is_spent()).await;
    journal.set_epoch(None);
    node.leave(partition, Some(0)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    journal.set_epoch(Some(7));
    assert_eq!(node.resume(partition).await.unwrap(), 1);
    gate.open(); // What was decided before is refused.
    let ended = async || {
        let status = journal_status(&journal).await;
        status == Some(TaskStatus::Completed)
    };
    wait(ended).await;
}

/// Mechanisms 7: a new owner sends the grant of an open Attempt again: it may have got lost with the
/// owner before. The worker has one Attempt, and ends it where it is now.
#[tokio::test(start_paused = true)]
async fn a_new_owner_sends_grants_again() {
    let Moved { node, link, claim, key, .. } = granted_and_moved(Duration::ZERO).await;
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    let claims = events(&node, &key).await;
    assert_eq!(claims.iter().filter(|name| **name == "task_step_claimed").count(), 1);
}

/// A Task that one node granted and another has now, and the claim: the worker `w` has links to both, and its
/// lease was taken so long ago.
async fn granted_and_moved(ago: Duration) -> Moved {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let leases = Arc::new(MemoryLeases::default());
    let mut config = Config::embedded(PoolId::new(POOL).unwrap());
    config.embedded = false;
    let start = || Scheduler::start(Arc::clone(&journal), Arc::clone(&leases), config.clone());
    let (old, new) = (start().await.unwrap(), start().await.unwrap());
    let (link, mut inbox) = join(&old, "w");
    let (next_link, mut next_inbox) = join(&new, "w");
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&old, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    tokio::time::sleep(ago).await;
    let partition = key.partition(8);
    journal.set_epoch(None);
    old.leave(partition, Some(0)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    journal.set_epoch(Some(7));
    assert_eq!(new.resume(partition).await.unwrap(), 1);
    let Some(Delivery::Grant(again)) = next_inbox.next().await else { panic!("it comes again") };
    assert_eq!(again, claim);
    Moved { node: new, leases, link: next_link, inbox: next_inbox, claim, key }
}

struct Moved {
    node: Node,
    leases: Arc<MemoryLeases>,
    link: Link,
    inbox: UnboundedReceiver<Delivery>,
    claim: Box<ClaimResult>,
    key: TaskKey,
}

/// LEASE-14, RECOVER-03: the leases of a Task that comes to a node are raised: its workers have the time to
/// find that node, whatever was left of them.
#[tokio::test(start_paused = true)]
async fn a_new_owner_raises_the_leases_of_what_it_opens() {
    let Moved { node, leases, link, claim, key, .. } =
        granted_and_moved(Duration::from_secs(29)).await;
    let left = leases.left_ms(claim.attempt_id).unwrap();
    assert!((14_900..=15_000).contains(&left), "{left} ms are left");
    tokio::time::sleep(Duration::from_secs(14)).await;
    let held = Holding::of(&claim);
    let pulses = link.heartbeat(std::slice::from_ref(&held)).await;
    assert_eq!(pulses, [Pulse::Renewed { cancel_requested: false, time_left_ms: None }]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    link.report(&held, completes(&claim), None).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert!(!events(&node, &key).await.contains(&"task_step_lease_expired"));
}

/// S26, mechanisms 7: that a grant which was sent once more did not arrive says nothing of the first one: the
/// worker may be at work, and its lease alone tells.
#[tokio::test(start_paused = true)]
async fn a_grant_sent_again_in_vain_ends_no_running_work() {
    let Moved { node, link, mut inbox, claim, key, .. } = granted_and_moved(Duration::ZERO).await;
    let before = events(&node, &key).await;
    link.undelivered(&key, claim.attempt_id);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(events(&node, &key).await, before);
    assert!(inbox.try_recv().is_err(), "nor is it told to stop");
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
}

/// DISP-16: a dispatched Run that nobody has used survives a restart and a change of owners, who took it
/// does not: it is offered again, and who claims under it then has it.
#[tokio::test(start_paused = true)]
async fn an_unused_run_is_offered_again_by_the_next_owner() {
    for is_restarted in [true, false] {
        let journal = Arc::new(Faulty::new(MemoryJournal::default()));
        let old = node_on(Arc::clone(&journal)).await;
        let (ant, mut to_ant) = join(&old, "ant");
        ant.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
        old.create(envelope(), dag("t", "a"), Policy::Manual).await.unwrap();
        let dispatch = Command::DispatchWorker(Dispatch {
            allowed_step_ids: Some(vec![step_id("a")]),
            bindings: None,
            instructions: Some("with care".into()),
            on_behalf: None,
            ttl_ms: None,
            wait: Some(false),
            worker_pool_id: PoolId::new(POOL).unwrap(),
        });
        let key = key("t");
        old.command(&key, envelope(), dispatch).await.unwrap();
        let Some(Delivery::Run(first)) = to_ant.next().await else { panic!("an offer comes") };

        let new = node_on(Arc::clone(&journal)).await;
        if is_restarted {
            old.stop().await;
            new.resume_all().await.unwrap();
        } else {
            let partition = key.partition(8);
            journal.set_epoch(None);
            old.leave(partition, Some(0)).await;
            journal.set_epoch(Some(7));
            assert_eq!(new.resume(partition).await.unwrap(), 1);
        }
        let (bee, mut to_bee) = join(&new, "bee");
        bee.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
        let Some(Delivery::Run(again)) = to_bee.next().await else { panic!("it comes again") };
        assert_eq!(again, first, "its scope and its instructions too");
        let id = CommandId::new("c").unwrap();
        let claim = bee.claim(&again, &step_id("a"), &id).await.unwrap();
        assert_eq!(claim.run_id, first.run_id);
        let (ant, _to_ant) = join(&new, "ant");
        let late = ant.claim(&first, &step_id("a"), &CommandId::new("late").unwrap()).await;
        assert!(late.is_err(), "{late:?}");
    }
}

/// CLAIM-16, LEASE-15: a host that starts again ends the Attempts of the workers that it had, and not that of a worker
/// for which somebody has claimed: that one was elsewhere.
#[tokio::test(start_paused = true)]
async fn a_claim_on_behalf_outlives_its_host() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let old = node_on(Arc::clone(&journal)).await;
    old.create(envelope(), dag("t", "a b"), Policy::Manual).await.unwrap();
    let key = key("t");
    let dispatch = |step: &str| Dispatch {
        allowed_step_ids: Some(vec![step_id(step)]),
        ..Dispatch::to(PoolId::new(POOL).unwrap())
    };
    let on_behalf = Some(OnBehalf {
        lease_ms: Some(3_600_000),
        ..OnBehalf::of(AgentId::new("far.macp").unwrap())
    });
    let claims = Command::DispatchWorker(Dispatch { on_behalf, ..dispatch("a") });
    old.command(&key, envelope(), claims).await.unwrap();
    let (ant, mut to_ant) = join(&old, "ant");
    ant.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    old.command(&key, envelope(), Command::DispatchWorker(dispatch("b"))).await.unwrap();
    let Some(Delivery::Run(run)) = to_ant.next().await else { panic!("an offer comes") };
    ant.claim(&run, &step_id("b"), &CommandId::new("c").unwrap()).await.unwrap();

    let new = node_on(Arc::clone(&journal)).await;
    old.stop().await;
    new.resume_all().await.unwrap();
    until(&new, &key, |task| task.tally().held() == 1).await;
    tokio::time::sleep(Duration::from_secs(600)).await; // Far longer than an ordinary lease.
    assert_eq!(step_status(&new, &key, "a").await, StepStatus::Claimed);
    assert_eq!(step_status(&new, &key, "b").await, StepStatus::Ready);
}

/// CLAIM-16, CTRL-12, CANCEL-07: a claim on behalf of a worker sends that worker nothing, whoever it is, and costs it
/// nothing of its hand: neither late input, nor a request to stop, nor the end; nor does anything wait for one that has
/// no link.
#[tokio::test(start_paused = true)]
async fn a_worker_hears_nothing_of_claims_on_its_behalf() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let mut node = node_on(Arc::clone(&journal)).await;
    let (mut link, mut inbox) = join(&node, "ant");
    let key = create(&node, dag("t", "a b")).await.unwrap();
    for (step, worker) in [("a", "ant"), ("b", "gone")] {
        let lease_ms = Some(3_600_000);
        let on_behalf = OnBehalf { lease_ms, ..OnBehalf::of(AgentId::new(worker).unwrap()) };
        let claim = Dispatch {
            allowed_step_ids: Some(vec![step_id(step)]),
            on_behalf: Some(on_behalf),
            ..Dispatch::to(PoolId::new(POOL).unwrap())
        };
        node.command(&key, envelope(), Command::DispatchWorker(claim)).await.unwrap();
    }
    let input_refs = vec![Ref::new("mem:x").unwrap()];
    let input = AppendProgress { input_refs, ..AppendProgress::default() };
    for _ in 0..2 {
        let input = Command::AppendTaskProgress(input.clone());
        node.command(&key, envelope(), input).await.unwrap();
        assert!(inbox.try_recv().is_err());
        assert_eq!((node.kept().signals, link.holds()), (0, 0));
        node.stop().await;
        node = node_on(Arc::clone(&journal)).await;
        (link, inbox) = join(&node, "ant");
        node.resume_all().await.unwrap();
        until(&node, &key, |task| task.tally().held() == 2).await;
    }
    let close = Close { wait: Some(false), ..Close::default() };
    node.command(&key, envelope(), Command::TaskCancel(close)).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert!(inbox.try_recv().is_err());
    assert_eq!((node.kept().signals, link.holds()), (0, 0));
}

/// CTRL-03: a `cancel_run` that waits for the end of its Run when the Task goes to another owner is answered
/// that its fate is not known; the same again waits for that end there.
#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_run_is_asked_again_of_the_next_owner() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let mut config = Config::embedded(PoolId::new(POOL).unwrap());
    config.embedded = false;
    let leases = Arc::new(MemoryLeases::default());
    let start = || Scheduler::start(Arc::clone(&journal), Arc::clone(&leases), config.clone());
    let (old, new) = (start().await.unwrap(), start().await.unwrap());
    let (link, mut inbox) = join(&old, "deaf");
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&old, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let stop = Command::CancelRun(RunAndWhy { reason: None, run_id: claim.run_id });
    let around = envelope();
    let asked = tokio::spawn({
        let (old, key, around, stop) = (old.clone(), key.clone(), around.clone(), stop.clone());
        async move { old.command(&key, around, stop).await }
    });
    assert!(matches!(inbox.next().await, Some(Delivery::CancelRequested(..))));
    let partition = key.partition(8);
    journal.set_epoch(None);
    old.leave(partition, Some(0)).await;
    let refused = asked.await.unwrap().unwrap_err();
    assert_eq!((refused.code, &refused.details["kind"]), (Code::Unavailable, &"ambiguous".into()));
    journal.set_epoch(Some(7));
    new.resume(partition).await.unwrap();
    new.command(&key, around, stop).await.unwrap();
    let ended = move |task: &View<'_>| task.run(claim.run_id).unwrap().end_reason;
    assert_eq!(new.read(&key, ended).await.unwrap(), Some(EndReason::Cancelled));
}

/// A word to leave an epoch that is over does not end what was read in a newer one.
#[tokio::test(start_paused = true)]
async fn a_late_word_to_leave_ends_nothing_newer() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    journal.set_epoch(Some(3));
    let node = node_on(Arc::clone(&journal)).await;
    create(&node, dag("t", "a")).await.unwrap();
    node.leave(key("t").partition(8), Some(2)).await;
    let _workers = completing(&node, 1);
    wait(async || journal_status(&journal).await == Some(TaskStatus::Completed)).await;
}

fn join(node: &Node, who: &str) -> (Link, UnboundedReceiver<Delivery>) {
    node.join(AgentId::new(who).unwrap(), PoolId::new(POOL).unwrap(), None).unwrap()
}

/// How a Task ended, as the log has it: the node is not asked, which would have it read the Task.
async fn journal_status(journal: &Faulty<MemoryJournal>) -> Option<TaskStatus> {
    use tenure_ports::Journal as _;
    journal.inner().entry(&key("t")).await.unwrap().unwrap().ended.map(End::status)
}

async fn wait<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    for _ in 0..10_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come to pass");
}
