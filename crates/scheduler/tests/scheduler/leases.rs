//! Leases beside the log: an Attempt is given out with its lease only, and keeps none that it should not
//! have, whichever of the two could not be written.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, Mood, Moody, POOL, completes, dag, envelope, key};
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::{Close, Why};
use tenure_core::event::{Body, LeaseEnd};
use tenure_core::id::{AgentId, PoolId};
use tenure_core::status::{Policy, StepStatus};
use tenure_core::view::ClaimResult;
use tenure_core::{Code, Command};
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Config, Scheduler, WorkerLink};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::{sleep, timeout};

type Node = Scheduler<Faulty<MemoryJournal>, Moody>;
type Link = WorkerLink<Faulty<MemoryJournal>, Moody>;
type Inbox = UnboundedReceiver<Delivery>;

/// Long enough for everything that is to happen at once, and for what is tried again after a second; much
/// shorter than a lease.
const SOON: Duration = Duration::from_secs(5);

/// Longer than a lease and the look at it.
const LATE: Duration = Duration::from_secs(35);

async fn node() -> (Node, Arc<Moody>) {
    let (journal, leases) = (Arc::new(Faulty::new(MemoryJournal::default())), Arc::default());
    let config = Config::embedded(PoolId::new(POOL).unwrap());
    let node = Scheduler::start(journal, Arc::clone(&leases), config).await.unwrap();
    (node, leases)
}

/// A worker with room for so many Steps.
fn join(node: &Node, free: u64) -> (Link, Inbox) {
    let (id, pool) = (AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap());
    let (link, inbox) = node.join(id, pool, None).unwrap();
    link.credit(Credit { free, seen: 0, lost: 0, number: 1 });
    (link, inbox)
}

async fn grant(inbox: &mut Inbox) -> ClaimResult {
    let next = timeout(LATE, inbox.next()).await.unwrap();
    let Some(Delivery::Grant(claim)) = next else { panic!("a grant comes, not {next:?}") };
    *claim
}

/// Why leases ended, as the log has it.
async fn ends(node: &Node, key: &TaskKey) -> Vec<LeaseEnd> {
    let commits = node.commits(key).await.unwrap();
    let bodies = commits.iter().flat_map(|commit| &commit.events).map(|event| &event.body);
    let reason = |body: &Body| match body {
        Body::StepLeaseExpired(end) => Some(end.reason),
        _ => None,
    };
    bodies.filter_map(reason).collect()
}

/// CLAIM-14, LEASE-01, law 5: a Step whose lease could not be taken is given to nobody: its Attempt ends at
/// once, counts as no loss, and the Step is given out when leases are kept again.
#[tokio::test(start_paused = true)]
async fn a_step_without_its_lease_is_given_to_nobody() {
    let (node, leases) = node().await;
    let (link, mut inbox) = join(&node, 1);
    sleep(Duration::from_millis(1_500)).await; // Between two looks at leases, the first of which went well.
    leases.set(Mood::Fails);
    node.create(envelope(), dag("t", "a"), Policy::Auto).await.unwrap();
    let key = key("t");
    sleep(SOON).await;
    assert!(inbox.try_recv().is_err(), "nobody keeps its lease");
    assert_eq!(ends(&node, &key).await, [LeaseEnd::Released]);
    assert_eq!(common::step_status(&node, &key, "a").await, StepStatus::Ready);
    assert_eq!(link.holds(), 0);
    leases.set(Mood::Answers);
    let claim = grant(&mut inbox).await;
    assert_eq!(claim.ordinal, 2);
    assert!(leases.kept().contains(&claim.attempt_id), "it comes with its lease");
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(ends(&node, &key).await, [LeaseEnd::Released]);
}

/// WAL-07, LEASE-01: of claims that were not written no lease is left, whatever is known of the append.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_written_leaves_no_lease() {
    for fault in [Fault::Fail, Fault::UnknownLost] {
        let ((node, leases), key) = (node().await, key("t"));
        node.create(envelope(), dag("t", "a"), Policy::Auto).await.unwrap();
        node.command(&key, envelope(), Command::PauseTask(Why::default())).await.unwrap();
        let (_link, mut inbox) = join(&node, 1);
        node.journal().next(fault.clone());
        let resume = Command::ResumeTask(Why::default());
        let refused = node.command(&key, envelope(), resume).await.unwrap_err();
        assert_eq!(refused.code, Code::StorageError);
        sleep(SOON).await;
        assert_eq!(leases.kept(), [].into(), "{fault:?}");
        assert!(inbox.try_recv().is_err());
    }
}

/// WAL-07: nor of those of a Task that was not made.
#[tokio::test(start_paused = true)]
async fn a_task_that_was_not_made_leaves_no_lease() {
    let (node, leases) = node().await;
    let (_link, mut inbox) = join(&node, 2);
    node.journal().next(Fault::Fail);
    let refused = node.create(envelope(), dag("t", "a b"), Policy::Auto).await.unwrap_err();
    assert_eq!(refused.code, Code::StorageError);
    sleep(SOON).await;
    assert_eq!(leases.kept(), [].into());
    node.create(envelope(), dag("t", "a b"), Policy::Auto).await.unwrap();
    let held = [grant(&mut inbox).await.attempt_id, grant(&mut inbox).await.attempt_id];
    assert_eq!(leases.kept(), held.into(), "the room of its worker has come back");
}

/// LEASE-16: a lease that the store would not drop when its Attempt ended, or that was renewed once too
/// often, is dropped when it has run out; the log has nothing of it.
#[tokio::test(start_paused = true)]
async fn a_lease_that_outlives_its_attempt_is_dropped_when_it_ends() {
    for has_ended in [false, true] {
        let (node, leases) = node().await;
        let (link, mut inbox) = join(&node, 1);
        let steps = if has_ended { "a" } else { "a b" };
        node.create(envelope(), dag("t", steps), Policy::Auto).await.unwrap();
        let key = key("t");
        let claim = grant(&mut inbox).await;
        leases.set(Mood::Fails);
        link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
        sleep(SOON).await;
        leases.set(Mood::Answers);
        assert_eq!(leases.kept(), [claim.attempt_id].into(), "the store could not be told");
        let before = node.commits(&key).await.unwrap();
        sleep(2 * LATE).await;
        assert_eq!(leases.kept(), [].into());
        assert_eq!(node.commits(&key).await.unwrap(), before);
    }
}

/// LEASE-16, S26: the same lease is dropped when the worker's node finds that the grant did not arrive: by then
/// the Attempt has ended, and there is nothing else to do.
#[tokio::test(start_paused = true)]
async fn a_grant_of_an_ended_attempt_that_did_not_arrive_leaves_no_lease() {
    let (node, leases) = node().await;
    let (link, mut inbox) = join(&node, 1);
    node.create(envelope(), dag("t", "a b<-a"), Policy::Auto).await.unwrap();
    let key = key("t");
    let claim = grant(&mut inbox).await;
    leases.set(Mood::Fails);
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
    sleep(SOON).await;
    leases.set(Mood::Answers);
    assert_eq!(leases.kept(), [claim.attempt_id].into(), "the store could not be told");
    let before = node.commits(&key).await.unwrap();
    link.undelivered(&key, claim.attempt_id);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(leases.kept(), [].into());
    assert_eq!(node.commits(&key).await.unwrap(), before);
}

/// WAL-07, S26: a grant that reached nobody is released although the append of that failed once: at once,
/// and not when its lease runs out.
#[tokio::test(start_paused = true)]
async fn a_release_whose_append_failed_is_written_again() {
    let (node, leases) = node().await;
    let (link, mut inbox) = join(&node, 1);
    node.create(envelope(), dag("t", "a"), Policy::Auto).await.unwrap();
    let key = key("t");
    let claim = grant(&mut inbox).await;
    node.journal().next(Fault::Fail);
    link.undelivered(&key, claim.attempt_id);
    sleep(SOON).await;
    assert!(node.journal().is_spent());
    assert_eq!(ends(&node, &key).await, [LeaseEnd::Released]);
    assert_eq!(leases.kept(), [].into());
}

/// S26, S11, S12, LEASE-07: a Step that nobody says to have got goes to others, and not for ever: what ends each
/// worker before it can say so is lost in the end, as its policy has it.
#[tokio::test(start_paused = true)]
async fn a_step_that_nobody_acknowledges_is_lost_in_the_end() {
    let (node, leases) = node().await;
    let (link, mut inbox) = join(&node, 9);
    node.create(envelope(), dag("t", "a"), Policy::Auto).await.unwrap();
    let key = key("t");
    for _ in 0..7 {
        let claim = loop {
            match inbox.next().await {
                Some(Delivery::Grant(claim)) => break claim,
                Some(Delivery::Lost(_)) => {} // The one before.
                other => panic!("{other:?}"),
            }
        };
        link.undelivered(&key, claim.attempt_id);
    }
    node.wait_for_end(&key).await.unwrap();
    let (given_back, lost) = ([LeaseEnd::Released; 4], [LeaseEnd::LeaseExpired; 3]);
    assert_eq!(ends(&node, &key).await, [&given_back[..], &lost[..]].concat());
    sleep(SOON).await;
    assert_eq!(leases.kept(), [].into());
    while let Ok(next) = inbox.try_recv() {
        assert!(matches!(next, Delivery::Lost(_)), "it is given to nobody any more: {next:?}");
    }
}

/// TERM-15: what a Task that is cancelled held has no lease any more.
#[tokio::test(start_paused = true)]
async fn a_cancelled_task_keeps_no_lease() {
    let (node, leases) = node().await;
    let (_link, mut inbox) = join(&node, 1);
    node.create(envelope(), dag("t", "a"), Policy::Auto).await.unwrap();
    let claim = grant(&mut inbox).await;
    assert_eq!(leases.kept(), [claim.attempt_id].into());
    node.command(&key("t"), envelope(), Command::TaskCancel(Close::default())).await.unwrap();
    sleep(SOON).await;
    assert_eq!(leases.kept(), [].into());
}
