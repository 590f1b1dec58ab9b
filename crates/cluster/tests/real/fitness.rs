//! Partitions go to nodes that can serve them: those that hear Redis in time and reach the log.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use ::redis::cmd;
use tenure_cluster::RedisAt;
use tenure_cluster::ownership::{HandoverFn, OwnershipOptions};

use crate::lost::{polled, until_polled};
use crate::ownership::{Node, is_shared_out, node_of, until};
use crate::proxy::{HELD, Proxy};
use crate::servers::{Server, nats, redis};

const SOON: Duration = Duration::from_secs(30);

fn options(redis: u16, name: &str) -> OwnershipOptions {
    OwnershipOptions::new(RedisAt::from(format!("redis://127.0.0.1:{redis}")), name)
}

/// A node, and how often it has heard Redis.
async fn node(nats: u16, redis: u16, name: &str) -> (Node, Arc<AtomicUsize>) {
    let (options, polls) = polled(options(redis, name));
    (node_of(nats, options).await, polls)
}

/// The same, which polls so seldom that what it says can be counted.
async fn node_that_polls_seldom(
    nats: u16,
    redis: u16,
    given: HandoverFn,
) -> (Node, Arc<AtomicUsize>) {
    let (every, lease) = (Duration::from_secs(1), Duration::from_secs(4));
    let (options, polls) =
        polled(OwnershipOptions { every, lease, given: Some(given), ..options(redis, "one") });
    (node_of(nats, options).await, polls)
}

/// Both have a part, and it stays so.
async fn until_shared(nodes: &[&Node; 2], polls: &[&AtomicUsize]) {
    until(SOON, "both have a share", || {
        nodes.iter().all(|node| node.owns() >= 2) && is_shared_out(nodes)
    })
    .await;
    until_polled(polls, 4).await;
}

/// Who has a lease that has not ended.
fn holders(redis: &Server) -> Vec<String> {
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let mut plain = ::redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut holders: Vec<String> =
        cmd("HVALS").arg("tenure:{own}:owners").query(&mut plain).unwrap();
    holders.sort();
    holders.dedup();
    holders
}

/// OWN-02, OWN-09, mechanisms 3: a node that Redis hears and that does not hear Redis in time is no candidate and
/// keeps no lease: the other has everything, and is not made to give any of it away. It has its share
/// again when it hears again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_hear_redis_in_time_holds_nothing() {
    let (nats, redis) = (nats(), redis(&[]));
    let slow = Proxy::before(redis.port);
    let (one, polls) = node(nats.port, redis.port, "one").await;
    let (two, polls_of_two) = node(nats.port, slow.port, "two").await;
    until_shared(&[&one, &two], &[&polls, &polls_of_two]).await;

    // Everything that it says arrives, and every answer comes too late.
    slow.delay(Duration::ZERO, Duration::from_millis(600));
    until(SOON, "the other has everything", || one.owns() == 8).await;
    let before = one.journal.owned().all();
    for _ in 0..10 {
        until_polled(&[&polls], 1).await;
        assert_eq!(holders(&redis), ["one"]);
    }
    assert_eq!(one.journal.owned().all(), before, "nothing was given away");
    until(SOON, "it has found out by the log", || two.owns() == 0).await;

    slow.delay(Duration::ZERO, Duration::ZERO);
    until_shared(&[&one, &two], &[&polls, &polls_of_two]).await;
}

/// OWN-09, mechanisms 3: a node that cannot reach the log, and can reach Redis, gives what it owns to one
/// that does reach it. Where nobody reaches it, everybody keeps what he has.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_reach_the_log_gives_its_partitions_away() {
    let (nats, redis) = (nats(), redis(&[]));
    let (way_of_one, way_of_two) = (Proxy::before(nats.port), Proxy::before(nats.port));
    let (one, polls) = node(way_of_one.port, redis.port, "one").await;
    let (two, polls_of_two) = node(way_of_two.port, redis.port, "two").await;
    let all_polls = [&*polls, &*polls_of_two];
    until_shared(&[&one, &two], &all_polls).await;
    let epochs = || (one.journal.owned().all(), two.journal.owned().all());

    let before = epochs();
    for way in [&way_of_one, &way_of_two] {
        way.delay(HELD, HELD);
    }
    until_polled(&all_polls, 15).await;
    for way in [&way_of_one, &way_of_two] {
        way.delay(Duration::ZERO, Duration::ZERO);
    }
    until_polled(&all_polls, 10).await;
    assert_eq!(epochs(), before, "nobody could do better");

    way_of_two.delay(HELD, HELD);
    until(SOON, "it has let go", || two.owns() == 0).await;
    until(SOON, "the other has everything", || one.owns() == 8).await;
    assert_eq!(holders(&redis), ["one"]);
    way_of_two.delay(Duration::ZERO, Duration::ZERO);
    until_shared(&[&one, &two], &all_polls).await;
}

/// OWN-09, mechanisms 3: a node that was late twice takes nothing for a while, and is given nothing: each time
/// costs what it had a moment without service.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_late_again_rests() {
    let (nats, redis) = (nats(), redis(&[]));
    let slow = Proxy::before(redis.port);
    let (one, polls) = node(nats.port, redis.port, "one").await;
    let (two, polls_of_two) = node(nats.port, slow.port, "two").await;
    let all_polls = [&*polls, &*polls_of_two];
    for _ in 0..2 {
        until_shared(&[&one, &two], &all_polls).await;
        slow.delay(Duration::ZERO, HELD);
        until(SOON, "the other has everything", || one.owns() == 8).await;
        slow.delay(Duration::ZERO, Duration::ZERO);
        until_polled(&[&polls_of_two], 1).await;
    }
    for _ in 0..12 {
        until_polled(&all_polls, 1).await;
        assert_eq!((one.owns(), two.owns()), (8, 0), "it is not given back at once");
    }
    // It takes what nobody else would.
    one.keeper.hand_over().await;
    until(SOON, "it has everything", || two.owns() == 8).await;
}

/// OWN-02: a node that ends while Redis does not answer tries three times, and ends all the same: it
/// accepts nothing more, and its leases run out.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ends_waits_no_longer_for_redis() {
    let (nats, redis) = (nats(), redis(&[]));
    let way = Proxy::before(redis.port);
    let (one, polls) = node_that_polls_seldom(nats.port, way.port, Arc::new(|_| {})).await;
    until(SOON, "it takes everything", || one.owns() == 8).await;
    until_polled(&[&polls], 1).await;
    way.delay(Duration::ZERO, HELD);
    let (before, begun) = (way.said(), Instant::now());
    one.keeper.hand_over().await;
    assert_eq!((way.said() - before, one.owns()), (3, 0), "after {:?}", begun.elapsed());
}

/// Mechanisms 3: a poll that fails does not keep a node that ends from handing over.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ends_hands_over_although_a_poll_fails() {
    let (nats, redis) = (nats(), redis(&[]));
    let way = Proxy::before(redis.port);
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    let given: HandoverFn = Arc::new(move |node: &str| told.send(node.to_owned()).unwrap());
    let (Node { journal, keeper }, polls) =
        node_that_polls_seldom(nats.port, way.port, given).await;
    until(SOON, "it takes everything", || journal.owned().all().len() == 8).await;
    let (two, _) = node(nats.port, redis.port, "two").await;
    until(SOON, "the other lives", || two.keeper.is_certain()).await;
    until_polled(&[&polls], 1).await;
    way.delay(Duration::ZERO, HELD);
    let before = way.said();
    let hand_over = tokio::spawn(async move { keeper.hand_over().await });
    until(SOON, "a poll fails, and another is sent", || way.said() >= before + 2).await;
    way.delay(Duration::ZERO, Duration::ZERO);
    hand_over.await.unwrap();
    assert_eq!(tells.recv().await.as_deref(), Some("two"), "it is given, not let run out");
    until(SOON, "the other has everything", || two.owns() == 8).await;
}
