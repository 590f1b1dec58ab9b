//! DISP-19: workers that fail what others complete are given nothing for a while.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::time::Duration;

use tenure_core::command::GiveBack;
use tenure_core::event::ReleaseReason;
use tenure_core::suspension::FAILED_MIN;
use tokio::time::{Instant, sleep};

use crate::common::{Hand, Node, create, dag, node};

/// More Steps than are needed, of which each may fail.
async fn many_steps(node: &Node) {
    let steps: Vec<String> = (0..2_000).map(|n| format!("s{n}")).collect();
    let mut task = dag("t", &steps.join(" "));
    task.steps.iter_mut().for_each(|step| step.required = Some(false));
    create(node, task).await.unwrap();
}

/// For so long one worker fails at once what it is given, and the other completes it. Answers how many each had.
async fn work(bad: &mut Hand, good: &mut Hand, lasts: Duration) -> (usize, usize) {
    let (begun, mut had) = (Instant::now(), (0, 0));
    while begun.elapsed() < lasts {
        sleep(Duration::from_millis(100)).await;
        had.0 += bad.takes().len();
        had.1 += good.takes().len();
        while !bad.held.is_empty() {
            bad.fails(1).await;
        }
        while !good.held.is_empty() {
            good.completes(1).await;
        }
    }
    had
}

/// A worker that is suspended, and another that is not.
async fn suspended(node: &Node) -> [Hand; 2] {
    many_steps(node).await;
    let [mut bad, mut good] = ["bad", "good"].map(|name| Hand::join(node, name));
    bad.says_room(1);
    good.says_room(1);
    let (failed, completed) = work(&mut bad, &mut good, Duration::from_secs(3)).await;
    // The room that it says with its tenth failure is used in the same append.
    assert_eq!(failed, FAILED_MIN as usize + 1);
    assert!(completed > failed, "{completed}");
    [bad, good]
}

fn of_pool(node: &Node) -> u64 {
    node.sample().pools[0].suspended
}

/// DISP-19: it has nothing for 30 s, then one Step, then nothing for a minute; with a Step that it completes it is
/// trusted again.
#[tokio::test(start_paused = true)]
async fn a_worker_that_fails_what_others_complete_is_suspended() {
    let node = node().await;
    let [mut bad, mut good] = suspended(&node).await;
    let (handler, again_ms) = bad.link.suspension().unwrap();
    assert_eq!(handler.as_str(), "h");
    assert!((25_000..30_000).contains(&again_ms), "{again_ms}");
    assert_eq!((of_pool(&node), good.link.suspension(), bad.link.free()), (1, None, 0));

    assert_eq!(work(&mut bad, &mut good, Duration::from_secs(20)).await.0, 0);
    assert_eq!(work(&mut bad, &mut good, Duration::from_secs(20)).await.0, 1, "it is tried");
    assert_eq!(work(&mut bad, &mut good, Duration::from_secs(40)).await.0, 0);
    bad.says_room(5);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(bad.takes().len(), 1, "with one, whatever room it has");
    bad.completes(5).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bad.takes().len(), 5);
    assert_eq!((of_pool(&node), bad.link.suspension()), (0, None));
}

/// DISP-19, DISP-20: a worker is not suspended where no other serves all of its sessions.
#[tokio::test(start_paused = true)]
async fn who_alone_serves_a_session_is_not_suspended() {
    let node = node().await;
    many_steps(&node).await;
    let (mut bad, mut good) = (Hand::join(&node, "bad"), Hand::join_for(&node, "good", "s"));
    bad.says_room(1);
    good.says_room(1);
    let (failed, completed) = work(&mut bad, &mut good, Duration::from_secs(5)).await;
    assert!(failed > 2 * FAILED_MIN as usize && completed > 3, "{failed} {completed}");
    assert_eq!((of_pool(&node), bad.link.suspension()), (0, None));
}

/// DISP-19: where the other leaves it is needed at once.
#[tokio::test(start_paused = true)]
async fn the_last_worker_is_not_suspended() {
    let node = node().await;
    let [mut bad, good] = suspended(&node).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bad.takes().len(), 0);
    drop(good);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((bad.takes().len(), bad.link.suspension()), (1, None));
}

/// DISP-19: where the other left while this one had no link, it is given Steps as it comes again.
#[tokio::test(start_paused = true)]
async fn a_worker_that_comes_again_alone_is_not_suspended() {
    let node = node().await;
    let [bad, good] = suspended(&node).await;
    drop(bad);
    drop(good);
    let mut same = Hand::join(&node, "bad");
    same.says_room(2);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((same.takes().len(), same.link.suspension()), (2, None));
}

/// DISP-19: one that was away for as long as its pause is as another that is started.
#[tokio::test(start_paused = true)]
async fn a_worker_that_was_away_for_a_pause_is_known_no_more() {
    let node = node().await;
    let [bad, good] = suspended(&node).await;
    drop(bad);
    sleep(Duration::from_secs(40)).await;
    let mut same = Hand::join(&node, "bad");
    same.says_room(2);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((same.takes().len(), same.link.suspension()), (2, None));
    drop(good);
}

/// DISP-19: another link of the same worker is not another worker; one that was started anew is.
#[tokio::test(start_paused = true)]
async fn a_worker_that_connects_again_is_still_suspended() {
    let node = node().await;
    let [bad, _good] = suspended(&node).await;
    drop(bad);
    let [mut same, mut anew] = ["bad", "anew"].map(|name| Hand::join(&node, name));
    same.says_room(1);
    anew.says_room(1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((same.takes().len(), anew.takes().len()), (0, 1));
    anew.completes(0).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(same.takes().len(), 1, "it is tried");
}

/// DISP-19: a trial that comes to nothing is followed by the next.
#[tokio::test(start_paused = true)]
async fn a_worker_that_gives_back_what_it_is_tried_with_is_tried_again() {
    let node = node().await;
    let [mut bad, _good] = suspended(&node).await;
    sleep(Duration::from_secs(31)).await;
    let surplus = GiveBack::because(ReleaseReason::Surplus);
    for _ in 0..3 {
        assert_eq!(bad.takes().len(), 1);
        bad.gives_back(surplus, 4).await;
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(bad.takes().len(), 1);
    bad.gives_back(GiveBack::default(), 4).await; // As unfit for it.
    sleep(Duration::from_secs(50)).await;
    assert_eq!(bad.takes().len(), 0, "twice as long");
}
