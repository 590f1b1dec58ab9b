//! A store that has lost what it acknowledged: nobody writes there, whoever may take the partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::cmd;
use tenure_cluster::ownership::OwnershipOptions;
use tenure_cluster::{JetStreamJournal, LogSettings, RedisAt};
use tenure_ports::journal::AppendError;
use tenure_testkit::conformance::History;

use crate::journal::{connect, create, settings, work};
use crate::ownership::{Node, PARTITIONS, is_shared_out, node_of, until};
use crate::servers::{Server, nats, redis};

/// So many polls of a node are enough to let go what it cannot take, and for another to take it.
const POLLS: usize = 25;

/// Options of a node, and how often it has polled and heard Redis.
pub(crate) fn polled(options: OwnershipOptions) -> (OwnershipOptions, Arc<AtomicUsize>) {
    let polls: Arc<AtomicUsize> = Arc::default();
    let (count, system) = (Arc::clone(&polls), Arc::clone(&options.clock));
    let clock = move || {
        count.fetch_add(1, Ordering::SeqCst);
        system()
    };
    (OwnershipOptions { clock: Arc::new(clock), ..options }, polls)
}

/// A node, and how often it has polled.
async fn node(nats: &Server, redis: &Server, name: &str) -> (Node, Arc<AtomicUsize>) {
    let redis = RedisAt::from(format!("redis://127.0.0.1:{}", redis.port));
    let (options, polls) = polled(OwnershipOptions::new(redis, name));
    (node_of(nats.port, options).await, polls)
}

pub(crate) async fn until_polled(polls: &[&AtomicUsize], times: usize) {
    let by_now: Vec<usize> = polls.iter().map(|polls| polls.load(Ordering::SeqCst)).collect();
    let is_past = || {
        let mut all = polls.iter().zip(&by_now);
        all.all(|(polls, before)| polls.load(Ordering::SeqCst) >= before + times)
    };
    until(Duration::from_secs(60), "they poll", is_past).await;
}

/// How far the streams go.
async fn lasts(nats: &Server) -> Vec<u64> {
    let context = async_nats::jetstream::new(connect(nats).await);
    let mut lasts = Vec::new();
    for partition in 0..PARTITIONS {
        let stream = context.get_stream(format!("TENURE_WAL_{partition}")).await.unwrap();
        lasts.push(stream.get_info().await.unwrap().state.last_sequence);
    }
    lasts
}

/// A Task of each partition.
fn one_of_each() -> Vec<History> {
    let of = |partition| {
        let mut all = (0..).map(|n| History::of("s", &format!("task-{n}")));
        all.find(|history| history.key.partition(PARTITIONS) == partition).unwrap()
    };
    (0..PARTITIONS).map(of).collect()
}

/// Mechanisms 1: that the store has lost what it acknowledged is no reason for another node to take the
/// partition; nor does one take it that was not there when it was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_writes_over_what_was_lost() {
    let (mut nats, redis) = (nats(), redis(&[]));
    let (one, polls_of_one) = node(&nats, &redis, "one").await;
    let (two, polls_of_two) = node(&nats, &redis, "two").await;
    let polls = [&*polls_of_one, &*polls_of_two];
    until(Duration::from_secs(30), "both have a share", || {
        two.owns() >= 2 && one.owns() >= 2 && is_shared_out(&[&one, &two])
    })
    .await;
    until_polled(&polls, 10).await; // Shares may move for a moment.
    let owner = |history: &History| {
        let has =
            |node: &&Node| node.journal.owned().epoch(history.key.partition(PARTITIONS)).is_some();
        &*[&one, &two].into_iter().find(has).unwrap().journal
    };
    let mut histories = one_of_each();
    for history in &mut histories {
        create(owner(history), history).await;
    }
    until_polled(&polls, 2).await; // How far that is, is told with the next poll.
    nats.kill();
    std::fs::remove_dir_all(nats.dir().join("js")).unwrap();
    nats.restart();
    let anew = LogSettings { partitions: PARTITIONS, ..settings("anew") };
    JetStreamJournal::open(connect(&nats).await, anew).await.unwrap();
    let works = histories.iter_mut().map(async |history| work(owner(history), history, 1).await);
    for told in futures::future::join_all(works).await {
        let AppendError::MustReread(why) = told.unwrap_err() else { panic!("it is told") };
        assert!(why.contains("has lost data"), "{why}");
    }
    until_polled(&polls, POLLS).await;
    assert_eq!((one.owns(), two.owns()), (0, 0));
    assert_eq!(lasts(&nats).await, [0; PARTITIONS as usize], "nothing was written");

    drop((one, two));
    let (three, polls) = node(&nats, &redis, "three").await;
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let mut plain = ::redis::Client::open(url).unwrap().get_connection().unwrap();
    let has_all = move || {
        let owners: Vec<String> =
            cmd("HVALS").arg("tenure:{own}:owners").query(&mut plain).unwrap();
        owners.iter().all(|owner| owner == "three")
    };
    let has_all = parking_lot::Mutex::new(has_all);
    until(Duration::from_secs(30), "it may take everything", || (has_all.lock())()).await;
    until_polled(&[&polls], 10).await;
    assert_eq!(three.owns(), 0);
    assert_eq!(lasts(&nats).await, [0; PARTITIONS as usize], "nothing is written still");
}
