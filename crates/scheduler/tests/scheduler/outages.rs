//! Losses that the owner has part in, and Attempts that outlive their loss.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{POOL, View, completes, create, dag, node, status, with_policy};
use futures::StreamExt as _;
use tenure_core::Code;
use tenure_core::event::{Body, LeaseEnd};
use tenure_core::id::{AgentId, PoolId};
use tenure_core::record::{RetryPolicy, WorkerOrigin};
use tenure_core::status::{LeaseDoubt, TaskStatus};
use tenure_core::view::ClaimResult;
use tenure_local::MemoryLeases;
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Scheduler, WorkerLink};
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::sleep;

type Node = Scheduler<Faulty<MemoryJournal>, MemoryLeases>;
type Link = WorkerLink<Faulty<MemoryJournal>, MemoryLeases>;
type Inbox = futures::channel::mpsc::UnboundedReceiver<Delivery>;

/// A worker with room for one Step.
fn join(node: &Node, name: &str) -> (Link, Inbox) {
    let (id, pool) = (AgentId::new(name).unwrap(), PoolId::new(POOL).unwrap());
    let (link, inbox) = node.join(id, pool, None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    (link, inbox)
}

async fn grant(inbox: &mut Inbox) -> ClaimResult {
    let next = tokio::time::timeout(Duration::from_secs(60), inbox.next());
    let Ok(Some(Delivery::Grant(claim))) = next.await else { panic!("a grant comes") };
    *claim
}

/// How leases ended, and how many losses counted then.
async fn ends(node: &Node, key: &TaskKey) -> Vec<(LeaseEnd, u32)> {
    let commits = node.commits(key).await.unwrap();
    let bodies = commits.iter().flat_map(|commit| &commit.events).map(|event| &event.body);
    let end = |body: &Body| match body {
        Body::StepLeaseExpired(end) => Some((end.reason, end.lost_count)),
        _ => None,
    };
    bodies.filter_map(end).collect()
}

/// What was seen: the bus was away for 34 s, and what was lost by that counted.
///
/// LEASE-14: a lease that ends is an outage exactly if the node saw a gap since the last renewal.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_after_a_gap_is_an_outage() {
    for (has_gap, is_heard_after, reason, lost) in [
        (true, false, LeaseEnd::Outage, 0),
        (true, true, LeaseEnd::LeaseExpired, 1),
        (false, false, LeaseEnd::LeaseExpired, 1),
    ] {
        let node = node().await;
        let (link, mut inbox) = join(&node, "w");
        let key = create(&node, dag("t", "a")).await.unwrap();
        let held = Holding::of(&grant(&mut inbox).await);
        sleep(Duration::from_secs(5)).await;
        if has_gap {
            node.note_unacknowledged();
        }
        sleep(Duration::from_secs(20)).await;
        if is_heard_after {
            let pulses = link.heartbeat(&[held]).await;
            assert_eq!(pulses, [Pulse::Renewed { cancel_requested: false, time_left_ms: None }]);
        }
        sleep(Duration::from_secs(90)).await;
        assert_eq!(ends(&node, &key).await, [(reason, lost)], "{has_gap} {is_heard_after}");
    }
}

/// LEASE-14: nor does it matter which part was away: so for a log that takes no writes.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_away_makes_an_outage() {
    let node = node().await;
    let (_link, mut inbox) = join(&node, "w");
    let key = create(&node, dag("t", "a")).await.unwrap();
    grant(&mut inbox).await;
    let held_up = node.journal().hold_next();
    let other = tokio::spawn({
        let node = node.clone();
        async move { create(&node, dag("other", "b")).await }
    });
    sleep(Duration::from_secs(34)).await;
    held_up.open();
    other.await.unwrap().unwrap();
    assert_eq!(ends(&node, &key).await, []);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(ends(&node, &key).await, [(LeaseEnd::Outage, 0)]);
}

/// LEASE-17, REPORT-14: while nobody else has the Step, a lost Attempt whose worker goes on is neither renewed
/// nor called lost, and its result counts. Once somebody has it, its worker learns that.
#[tokio::test(start_paused = true)]
async fn a_lost_attempt_is_told_so_when_somebody_else_has_its_step() {
    for is_taken in [false, true] {
        let node = node().await;
        let (link, mut inbox) = join(&node, "w");
        let on_lease_doubt = Some(LeaseDoubt::Finish);
        let policy = RetryPolicy { on_lease_doubt, ..RetryPolicy::default() };
        let key = create(&node, with_policy(dag("t", "a"), policy)).await.unwrap();
        let claim = grant(&mut inbox).await;
        let held = Holding::of(&claim);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(ends(&node, &key).await.len(), 1);
        assert!(inbox.try_recv().is_err(), "it is told nothing");
        assert_eq!(link.heartbeat(std::slice::from_ref(&held)).await, [Pulse::Unknown]);
        if is_taken {
            let (_other, mut its) = join(&node, "other");
            grant(&mut its).await;
            let pulses = link.heartbeat(std::slice::from_ref(&held)).await;
            assert!(matches!(&pulses[..], [Pulse::Lost(no)] if no.code == Code::StaleAttempt));
            let refused = link.report(&held, completes(&claim), None).await.unwrap_err();
            assert_eq!(refused.code, Code::StaleAttempt);
        } else {
            link.report(&held, completes(&claim), None).await.unwrap();
            assert_eq!(status(&node, &key).await, TaskStatus::Completed);
            link.report(&held, completes(&claim), None).await.unwrap(); // Again (REPORT-16).
        }
    }
}

/// LEASE-17: by default the worker is told, as it must not run what others may get; a result that it has already
/// counts all the same.
#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_is_told_that_its_attempt_is_lost() {
    let node = node().await;
    let (link, mut inbox) = join(&node, "w");
    let key = create(&node, dag("t", "a")).await.unwrap();
    let claim = grant(&mut inbox).await;
    let held = Holding::of(&claim);
    sleep(Duration::from_secs(60)).await;
    assert!(matches!(inbox.try_recv().unwrap(), Delivery::Lost(id) if id == claim.attempt_id));
    let pulses = link.heartbeat(std::slice::from_ref(&held)).await;
    assert!(matches!(&pulses[..], [Pulse::Lost(_)]));
    link.report(&held, completes(&claim), None).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
}

/// ATT-12: an Attempt names machine and build of a worker that said them.
#[tokio::test(start_paused = true)]
async fn an_attempt_names_what_its_worker_said_of_itself() {
    let node = node().await;
    let (id, pool) = (AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap());
    let origin = WorkerOrigin::of(Some("rack-7"), Some("tenure 0.1.0")).map(Arc::new);
    let (link, mut inbox) = node.join_from(id, pool, None, origin.clone()).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    let claim = grant(&mut inbox).await;
    let said = move |task: &View<'_>| task.attempt(claim.attempt_id).unwrap().origin.clone();
    assert_eq!(node.read(&key, said).await.unwrap(), origin);
}
