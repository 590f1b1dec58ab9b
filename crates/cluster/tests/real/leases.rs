//! Leases in Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis::Commands as _;
use tenure_cluster::leases::RedisOpenError;
use tenure_cluster::{Owned, RedisAt, RedisLeases};
use tenure_core::id::AttemptId;
use tenure_ports::Leases;
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::{Lease, Scan};
use tenure_testkit::conformance::leases_suite;
use uuid::Uuid;

use crate::servers::{Server, redis};

const PARTITIONS: u32 = 8;

fn url(server: &Server) -> RedisAt {
    RedisAt::from(format!("redis://127.0.0.1:{}", server.port))
}

pub(crate) fn owning(epoch: u64) -> Arc<Owned> {
    let owned = Arc::new(Owned::none(PARTITIONS));
    (0..PARTITIONS).for_each(|partition| owned.set(partition, Some(epoch)));
    owned
}

async fn leases(server: &Server, epoch: u64) -> RedisLeases {
    RedisLeases::open(&url(server), "tenure", owning(epoch)).await.unwrap()
}

pub(crate) fn lease(number: u128, duration_ms: u64) -> Lease {
    let task = TaskKey {
        session_id: "s".parse().unwrap(),
        task_id: format!("t{number}").parse().unwrap(),
    };
    Lease { task, attempt_id: AttemptId(Uuid::from_u128(number)), duration_ms }
}

/// LEASE: what every store of leases does.
#[tokio::test(flavor = "multi_thread")]
async fn redis_keeps_leases() {
    let server = Arc::new(redis(&[]));
    let number = std::sync::atomic::AtomicU64::new(0);
    leases_suite(|| {
        let server = Arc::clone(&server);
        let name = format!("n{}", number.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        async move {
            let leases = RedisLeases::open(&url(&server), &name, owning(1)).await.unwrap();
            (leases, server)
        }
    })
    .await;
}

/// Mechanisms 6: an owner of an older epoch changes nothing any more, is told of no lease that has ended,
/// and gives the newer owner no reason to doubt.
#[tokio::test]
async fn an_older_epoch_is_refused() {
    let server = redis(&[]);
    let (old, new) = (leases(&server, 5).await, leases(&server, 6).await);
    old.acquire(vec![lease(1, 60_000)]).await.unwrap();
    new.acquire(vec![lease(1, 60_000)]).await.unwrap();
    let refused = old.renew(vec![lease(1, 1)]).await.unwrap_err();
    assert!(refused.0.contains("behind 6"), "{refused}");
    assert!(old.release(vec![lease(1, 0).attempt_id]).await.is_err());
    assert!(new.left_ms(lease(1, 0).attempt_id).unwrap() > 50_000);
    assert!(new.expired().await.unwrap().doubtful, "its first scan");
    new.acquire(vec![lease(3, 0)]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(old.expired().await.unwrap(), Scan::default());
    let found = new.expired().await.unwrap();
    assert_eq!((found.doubtful, found.ended.len()), (false, 1));
    let next = leases(&server, 7).await;
    next.expired().await.unwrap();
    assert!(new.renew(vec![lease(1, 1)]).await.is_err(), "a scan fences as well");
    let nothing = Arc::new(Owned::none(PARTITIONS));
    let nobody = RedisLeases::open(&url(&server), "tenure", nothing).await.unwrap();
    let refused = nobody.acquire(vec![lease(2, 1)]).await.unwrap_err();
    assert!(refused.0.contains("not owned"), "{refused}");
}

/// Mechanisms 6, LEASE-14: whoever takes over leases that another has set thinks of none that it lasts longer
/// than the store does: what a scan finds over is over for those who look as well.
#[tokio::test]
async fn a_lease_that_another_has_set_lasts_no_longer_here_than_in_the_store() {
    let server = redis(&[]);
    let (old, new) = (leases(&server, 5).await, leases(&server, 6).await);
    let held = || vec![lease(1, 600)];
    old.acquire(held()).await.unwrap();
    new.ensure(held()).await.unwrap();
    assert_eq!(
        new.left_ms(held()[0].attempt_id),
        None,
        "the other has set it, to what is not known"
    );
    new.raise(held()).await.unwrap();
    assert!(new.left_ms(held()[0].attempt_id).unwrap() <= 300);
    wait(async || !new.expired().await.unwrap().ended.is_empty()).await;
    assert_eq!(new.left_ms(held()[0].attempt_id), Some(0));
}

/// A Redis that may drop leases in silence is refused, with the setting that mends it.
#[tokio::test]
async fn a_redis_that_evicts_is_refused() {
    let server = redis(&["--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"]);
    let refused = RedisLeases::open(&url(&server), "tenure", owning(1)).await.unwrap_err();
    assert!(matches!(refused, RedisOpenError::Evicts(_)), "{refused}");
    assert!(refused.to_string().contains("set maxmemory-policy to noeviction"), "{refused}");
}

/// LEASE-14, mechanisms 6: a Redis that takes no writes, full or a copy of another, keeps no lease, and each scan
/// finds that out before a Step is claimed; nothing is doubted once it takes them again.
#[tokio::test]
async fn a_redis_that_refuses_writes_fails_each_scan() {
    let server = redis(&[]);
    let leases = leases(&server, 1).await;
    let mut plain = redis::Client::open(url(&server).url).unwrap().get_connection().unwrap();
    let mut set = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        let () = command.query(&mut plain).unwrap();
    };
    leases.acquire(vec![lease(1, 60_000)]).await.unwrap();
    assert!(leases.expired().await.unwrap().doubtful, "the first scan of this owner");
    let refusals: [(&[&str], &[&str], &str); 2] = [
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "OOM"),
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], "READONLY"),
    ];
    for (refuse, take, says) in refusals {
        set(refuse);
        for _ in 0..3 {
            let refused = leases.expired().await.unwrap_err();
            assert!(refused.0.to_uppercase().contains(says), "{says}: {refused}");
            assert!(leases.acquire(vec![lease(2, 60_000)]).await.is_err());
        }
        set(take);
        assert_eq!(leases.expired().await.unwrap(), Scan::default(), "after {says}");
        leases.acquire(vec![lease(2, 60_000)]).await.unwrap();
    }
}

/// Every call ends in a time of our own: while Redis hangs, after it died, and it works again once
/// Redis is back, empty as it may be.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_gone_is_an_error_in_time_and_comes_back() {
    let mut server = redis(&[]);
    let leases = leases(&server, 1).await;
    leases.acquire(vec![lease(1, 60_000)]).await.unwrap();
    server.signal(Signal::SIGSTOP);
    let asked = Instant::now();
    assert!(leases.renew(vec![lease(1, 60_000)]).await.is_err());
    assert!(leases.expired().await.is_err());
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    server.signal(Signal::SIGCONT);
    wait(async || leases.renew(vec![lease(1, 60_000)]).await.is_ok()).await;
    server.kill();
    let asked = Instant::now();
    assert!(leases.expired().await.is_err());
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    server.restart();
    wait(async || leases.renew(vec![lease(2, 60_000)]).await.is_ok()).await;
    assert!(leases.expired().await.unwrap().doubtful, "it came back empty");
    assert!(!leases.expired().await.unwrap().doubtful, "told once");
    assert!(leases.left_ms(lease(2, 0).attempt_id).is_some());
}

/// The scripts are loaded again where Redis has forgotten them.
#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    let server = redis(&[]);
    let leases = leases(&server, 1).await;
    leases.acquire(vec![lease(1, 60_000)]).await.unwrap();
    let mut plain = redis::Client::open(url(&server).url).unwrap().get_connection().unwrap();
    let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut plain).unwrap();
    leases.renew(vec![lease(1, 60_000)]).await.unwrap();
    assert_eq!(leases.expired().await.unwrap().ended, []);
    let keys: Vec<String> = plain.keys("*").unwrap();
    let place = lease(1, 0).task.partition(PARTITIONS);
    let tag = format!("{{{place}}}");
    let of_partition = keys.iter().filter(|key| key.contains(&tag));
    assert_eq!(of_partition.count(), 3, "one hash tag: {keys:?}");
    assert!(keys.iter().all(|key| key.contains('{')), "no key is without a tag: {keys:?}");
}

/// More leases than one call takes, all at once.
#[tokio::test]
async fn many_leases_at_once() {
    let server = redis(&[]);
    let leases = leases(&server, 1).await;
    leases.acquire((1..=5_000).map(|n| lease(n, 60_000)).collect()).await.unwrap();
    leases.acquire((1..=3_000).map(|n| lease(n, 0)).collect()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut ended = 0;
    loop {
        let found = leases.expired().await.unwrap().ended;
        if found.is_empty() {
            break;
        }
        ended += found.len();
        leases.release(found.into_iter().map(|lease| lease.attempt_id).collect()).await.unwrap();
    }
    assert_eq!(ended, 3_000);
}

/// Those of a session in a partition whose Attempts were claimed first are known to whoever set them, while
/// Redis does not answer as well; what was released is not among them, whether Redis heard of it or not.
#[tokio::test]
async fn the_oldest_are_known_without_redis() {
    let mut server = redis(&[]);
    let leases = leases(&server, 1).await;
    let place = |n: u128| lease(n, 0).task.partition(PARTITIONS);
    let partition = place(1_000);
    let here: Vec<u128> = (1_000..1_200).filter(|n| place(*n) == partition).collect();
    let of_session = |session: &str, first: u128| {
        let lease = |n| {
            let mut lease = lease(n, 60_000);
            lease.task.session_id = session.parse().unwrap();
            lease
        };
        (first..first + 200).rev().map(lease).collect::<Vec<_>>()
    };
    leases.acquire([of_session("s2", 0), of_session("s", 1_000)].concat()).await.unwrap();
    server.kill();
    let behind = |after: Option<u128>, most| {
        let after = after.map(|n| lease(n, 0).attempt_id);
        let oldest = leases.oldest(partition, &"s".parse().unwrap(), after, most);
        assert!(oldest.iter().all(|lease| (50_000..=60_000).contains(&lease.duration_ms)));
        oldest.iter().map(|lease| lease.attempt_id.0.as_u128()).collect::<Vec<_>>()
    };
    let oldest = |most| behind(None, most);
    assert_eq!(oldest(3), here[..3]);
    assert_eq!(oldest(1_000), here);
    assert_eq!(behind(Some(here[2]), 3), here[3..6], "a page goes on behind the one before");
    assert_eq!(behind(here.last().copied(), 3), [0_u128; 0]);
    assert!(leases.release(vec![lease(here[0], 0).attempt_id]).await.is_err());
    assert_eq!(oldest(3), here[1..4]);
}

/// A renewal that was on its way when its Attempt ended brings nothing back that would be shown for ever.
#[tokio::test]
async fn what_was_released_is_not_among_the_oldest_for_a_late_renewal() {
    let server = redis(&[]);
    let leases = leases(&server, 1).await;
    let ours = lease(1, 60_000);
    let (partition, session) = (ours.task.partition(PARTITIONS), ours.task.session_id.clone());
    leases.acquire(vec![ours.clone()]).await.unwrap();
    assert_eq!(leases.oldest(partition, &session, None, 10).len(), 1);
    let (released, renewed) =
        tokio::join!(leases.release(vec![ours.attempt_id]), leases.renew(vec![ours.clone()]));
    released.and(renewed).unwrap();
    assert_eq!(leases.oldest(partition, &session, None, 10), []);
}

pub(crate) async fn wait(mut works: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !works().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// LEASE-14, mechanisms 6: where Redis' clock and this node's have moved apart, as when this machine was
/// suspended, the scan says that what it found is not to be believed, once.
#[tokio::test]
async fn a_clock_that_was_set_is_told() {
    let server = redis(&[]);
    let leases = leases(&server, 1).await;
    let doubts = async || leases.expired().await.unwrap().doubtful;
    assert!(doubts().await, "the first scan of this owner");
    assert!(!doubts().await);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(5)).await;
    tokio::time::resume();
    assert!(doubts().await);
    assert!(!doubts().await, "told once");
}
