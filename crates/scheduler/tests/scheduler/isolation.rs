//! Steps that were lost or failed: apart from each other, and with another worker.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{self, Hand, Node, completes, create, dag, node, with_policy};
use tenure_core::command::GiveBack;
use tenure_core::id::AgentId;
use tenure_core::record::{Backoff, RetryPolicy};
use tenure_core::retry_policy::Limit;
use tenure_core::status::TaskStatus;
use tenure_core::view::ClaimResult;
use tenure_ports::bus::{Holding, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tokio::time::{Instant, sleep};

fn patient() -> RetryPolicy {
    let backoff = Backoff { initial_ms: 1, factor: 1.0, max_ms: 1, jitter: 0.0 };
    RetryPolicy {
        max_attempts: Some(Limit::Of(9)),
        max_lost: Some(Limit::Of(3)),
        backoff: Some(backoff.into()),
        ..RetryPolicy::default()
    }
}

/// DISP-18: the next Attempt goes to another worker with room, whatever ended the last one there; where there is
/// none it waits for nobody.
#[tokio::test(start_paused = true)]
async fn a_step_is_tried_by_another_worker_where_there_is_one() {
    let node = node().await;
    let (mut ant, mut bee) = (Hand::join(&node, "ant"), Hand::join(&node, "bee"));
    ant.says_room(1);
    create(&node, with_policy(dag("t", "a"), patient())).await.unwrap();
    ant.expect_step("a").await;
    bee.says_room(1);
    ant.fails(1).await; // Its room was said last: its turn is next.
    bee.expect_step("a").await;
    bee.gives_back(GiveBack::default(), 1).await;
    ant.expect_step("a").await;
    // The other has no room now.
    bee.says_room(0);
    ant.fails(1).await;
    ant.expect_step("a").await;
}

/// DISP-18: one that has not tried the Step goes before one that did, though that was not the last.
#[tokio::test(start_paused = true)]
async fn a_step_is_tried_by_whoever_has_not_tried_it() {
    let node = node().await;
    let mut hands = ["ant", "bee", "cat"].map(|name| Hand::join(&node, name));
    let [ant, bee, cat] = &mut hands;
    ant.says_room(1);
    create(&node, with_policy(dag("t", "a"), patient())).await.unwrap();
    ant.expect_step("a").await;
    bee.says_room(1);
    ant.fails(1).await;
    bee.expect_step("a").await;
    cat.says_room(1); // Behind the first, whose turn it is.
    bee.gives_back(GiveBack::default(), 1).await;
    cat.expect_step("a").await;
}

/// DISP-18, CLAIM-13: a Step that is assigned goes back to its worker, whoever else has room.
#[tokio::test(start_paused = true)]
async fn a_step_that_is_assigned_is_tried_by_the_same_worker() {
    let node = node().await;
    let (mut ant, mut bee) = (Hand::join(&node, "ant"), Hand::join(&node, "bee"));
    let mut task = with_policy(dag("t", "a"), patient());
    task.steps[0].claim_only_by = Some(AgentId::new("ant").unwrap());
    bee.says_room(1);
    ant.says_room(1);
    create(&node, task).await.unwrap();
    for _ in 0..3 {
        ant.expect_step("a").await;
        ant.fails(1).await;
    }
    assert_eq!(bee.takes().len(), 0);
}

/// LEASE-19: of Steps that were lost together each goes to another worker, where there are so many.
#[tokio::test(start_paused = true)]
async fn steps_that_were_lost_together_part() {
    let node = node().await;
    let mut first = Hand::join(&node, "first");
    first.says_room(2);
    create(&node, with_policy(dag("t", "a b"), patient())).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(first.takes().len(), 2);
    drop(first);
    let mut others = ["ant", "bee"].map(|name| Hand::join(&node, name));
    for _ in 0..36 {
        others.iter_mut().for_each(|hand| hand.says_room(4));
        sleep(Duration::from_secs(1)).await; // The leases end 30 s after the claim.
    }
    assert_eq!(others.map(|mut hand| hand.takes().len()), [1, 1]);
}

/// Creates a Task of which some Steps are lost with their worker: those that it has room for.
async fn lose(node: &Node, steps: &str, room: u64) {
    let mut first = Hand::join(node, "first");
    first.says_room(room);
    create(node, with_policy(dag("t", steps), patient())).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(first.takes().len() as u64, room);
    drop(first);
    sleep(Duration::from_secs(33)).await; // Their leases end, 30 s after the claim.
}

/// LEASE-19: a Step that was not lost goes where none is that was, as long as there is room.
#[tokio::test(start_paused = true)]
async fn steps_go_where_none_is_that_was_lost() {
    let node = node().await;
    lose(&node, "a", 1).await;
    let (mut ant, mut bee) = (Hand::join(&node, "ant"), Hand::join(&node, "bee"));
    ant.says_room(3);
    ant.expect_step("a").await;
    bee.says_room(3);
    for step in ["b", "c", "d"] {
        create(&node, dag(step, step)).await.unwrap();
        bee.expect_step(step).await;
    }
    create(&node, dag("e", "e")).await.unwrap();
    ant.expect_step("e").await;
}

/// LEASE-19: a Step that was lost once waits for no place. Where another worker has none in hand that was lost,
/// what was not lost goes there, also when those places are free again.
#[tokio::test(start_paused = true)]
async fn steps_go_where_none_is_that_was_lost_without_a_place() {
    let node = node().await;
    lose(&node, "a b", 2).await;
    let mut ant = Hand::join(&node, "ant");
    ant.says_room(2);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ant.takes(), ["a", "b"], "the second without the place");
    let mut bee = Hand::join(&node, "bee");
    bee.says_room(1);
    ant.held.swap(0, 1);
    ant.completes(7).await; // Its place is free, and its turn is next.
    create(&node, dag("c", "c")).await.unwrap();
    bee.expect_step("c").await;
    create(&node, dag("d", "d")).await.unwrap();
    ant.expect_step("d").await;
}

/// LEASE-19: what a worker says to have from other nodes counts, until it says otherwise.
#[tokio::test(start_paused = true)]
async fn steps_go_where_none_is_that_another_node_lost() {
    let node = node().await;
    let (mut ant, mut bee) = (Hand::join(&node, "ant"), Hand::join(&node, "bee"));
    bee.says_room(1);
    ant.says_lost(1, 1); // Its turn is next.
    for (step, hand) in [("a", &mut bee), ("b", &mut ant)] {
        create(&node, dag(step, step)).await.unwrap();
        hand.expect_step(step).await;
    }
    bee.says_room(1);
    ant.says_lost(1, 0); // Its turn is next.
    create(&node, dag("c", "c")).await.unwrap();
    ant.expect_step("c").await;
}

/// DISP-18, LEASE-19: a Step that was lost once by a worker that is still there goes to another, whose place is
/// taken, rather than back.
#[tokio::test(start_paused = true)]
async fn a_step_does_not_go_back_to_who_lost_it() {
    let node = node().await;
    let mut ant = Hand::join(&node, "ant");
    ant.says_room(3);
    create(&node, with_policy(dag("t", "a b c"), patient())).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ant.takes(), ["a", "b", "c"]);
    let mut bee = Hand::join(&node, "bee");
    for _ in 0..33 {
        ant.says_room(40); // It is there, and has dropped what it was given.
        bee.says_room(3);
        sleep(Duration::from_secs(1)).await; // The leases end, 30 s after the claim.
    }
    assert_eq!((bee.takes().len(), ant.takes().len()), (3, 0));
}

/// LEASE-19: Steps that were not lost go elsewhere also where their Task has one that was, ready with them.
#[tokio::test(start_paused = true)]
async fn steps_beside_one_that_was_lost_go_elsewhere() {
    let node = node().await;
    lose(&node, "a b c", 1).await;
    let mut hands = ["ant", "bee"].map(|name| Hand::join(&node, name));
    hands.iter_mut().for_each(|hand| hand.says_room(3));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(hands.map(|mut hand| hand.takes()), [vec!["b", "c"], vec!["a"]]);
}

/// A fleet of two workers with room for four, in which what is called `poison` ends its worker, with everything
/// it has, and another comes; until the Task has ended. Answers how often each Step was lost.
async fn run_with_poison(node: &Node, key: &TaskKey) -> BTreeMap<String, u32> {
    let mut born = 0;
    let mut fleet: Vec<Hand> = Vec::new();
    for _ in 0..1_000 {
        while fleet.len() < 2 {
            born += 1;
            let mut hand = Hand::join(node, &format!("w.{born}"));
            hand.says_room(4);
            fleet.push(hand);
        }
        sleep(Duration::from_secs(1)).await;
        for hand in &mut fleet {
            hand.takes();
            let holdings: Vec<_> = hand.held.iter().map(|(it, _)| Holding::of(it)).collect();
            if !holdings.is_empty() && !has_poison(hand) {
                hand.link.heartbeat(&holdings).await;
            }
            let (done, rest) = std::mem::take(&mut hand.held)
                .into_iter()
                .partition(|(it, since)| !is_poison(it) && since.elapsed().as_secs() >= 20);
            hand.held = rest;
            for (claim, _) in done {
                let free = 4 - hand.held.len() as u64;
                let room = Some(hand.room(free));
                hand.link.report(&Holding::of(&claim), completes(&claim), room).await.unwrap();
            }
        }
        fleet.retain(|hand| !has_poison(hand));
        let done =
            node.read(key, |t| t.tally().unfinished() == 0 || t.status().is_terminal()).await;
        if done.unwrap() {
            return node.read(key, lost).await.unwrap();
        }
    }
    panic!("the task does not end");
}

fn is_poison(claim: &ClaimResult) -> bool {
    claim.step.step_id.as_str().starts_with("poison")
}

fn has_poison(hand: &Hand) -> bool {
    hand.held.iter().any(|(claim, _)| is_poison(claim))
}

fn lost(task: &common::View<'_>) -> BTreeMap<String, u32> {
    task.steps().map(|step| (step.spec.step_id.to_string(), step.state.lost_count)).collect()
}

/// LEASE-19: what ends its worker each time is lost apart from the Steps that were lost with it twice: none of
/// those is lost for good, and its reason names the others.
#[tokio::test(start_paused = true)]
async fn a_step_that_ends_its_worker_ends_none_of_its_neighbours() {
    let node = node().await;
    let innocents = "a b c d e f g h i j k l";
    let mut task = with_policy(dag("t", &format!("poison {innocents}")), patient());
    task.steps[0].required = Some(false);
    let key = create(&node, task).await.unwrap();
    let lost = run_with_poison(&node, &key).await;
    assert_eq!(common::status(&node, &key).await, TaskStatus::Completed);
    assert_eq!(lost["poison"], 3, "{lost:?}");
    let most = innocents.split(' ').map(|step| lost[step]).max();
    assert!(most <= Some(2), "{lost:?}");
    let named = node.read(&key, |t| {
        let step = t.step(&common::step_id("poison")).unwrap();
        let first = t.attempts_of(step).last().unwrap();
        first.error.as_ref().unwrap().details.clone().unwrap()["lost_with"].clone()
    });
    assert_eq!(named.await.unwrap(), serde_json::json!(["a", "b", "c"]));
}

/// LEASE-19: Steps that were lost once wait for nobody. Of those that were lost twice the next begins where one
/// has run for longer than it took to be lost.
#[tokio::test(start_paused = true)]
async fn a_step_that_outlives_its_loss_is_no_suspect() {
    let node = node().await;
    create(&node, with_policy(dag("t", "a b c"), patient())).await.unwrap();
    for name in ["first", "second"] {
        let mut hand = Hand::join(&node, name);
        hand.says_room(3);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(hand.takes().len(), 3);
        drop(hand);
        sleep(Duration::from_secs(33)).await; // Their leases end, 30 s after the claim.
    }
    let mut next = Hand::join(&node, "next");
    next.says_room(3);
    let (begun, mut came) = (Instant::now(), Vec::new());
    while came.len() < 3 {
        sleep(Duration::from_secs(1)).await;
        let holdings: Vec<_> = next.held.iter().map(|(it, _)| Holding::of(it)).collect();
        if !holdings.is_empty() {
            next.link.heartbeat(&holdings).await;
        }
        came.extend(next.takes().into_iter().map(|step| (step, begun.elapsed().as_secs())));
        assert!(begun.elapsed().as_secs() < 100, "{came:?}");
    }
    let at: Vec<u64> = came.iter().map(|(_, at)| *at).collect();
    assert!(at[0] <= 2 && (29..40).contains(&at[1]) && (58..75).contains(&at[2]), "{came:?}");
}
