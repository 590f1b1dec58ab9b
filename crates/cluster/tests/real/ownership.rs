//! Partitions find their owners, and change hands when nodes come and go.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ::redis::cmd;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tenure_cluster::owned::Epochs;
use tenure_cluster::ownership::{Keeper, OwnershipOptions};
use tenure_cluster::{JetStreamJournal, LogSettings, RedisAt};
use tenure_core::id::Millis;
use tenure_ports::Journal;
use tenure_testkit::conformance::{History, read_all};

use crate::journal::{create, owner, settings};
use crate::servers::{Server, nats, redis};

pub(crate) const PARTITIONS: u32 = 8;

/// Whatever a test waits for comes sooner than this, on a machine that is busy too.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    pub(crate) journal: Arc<JetStreamJournal>,
    pub(crate) keeper: Keeper,
}

impl Node {
    pub(crate) fn owns(&self) -> usize {
        self.journal.owned().all().len()
    }
}

async fn node(nats: &Server, redis: &Server, name: &str) -> Node {
    node_with(nats, redis, name, |options| options).await
}

async fn node_with(
    nats: &Server,
    redis: &Server,
    name: &str,
    with: impl FnOnce(OwnershipOptions) -> OwnershipOptions,
) -> Node {
    let redis = RedisAt::from(format!("redis://127.0.0.1:{}", redis.port));
    node_of(nats.port, with(OwnershipOptions::new(redis, name))).await
}

/// A node that keeps its partitions there.
pub(crate) async fn node_at(nats: &Server, redis: RedisAt, name: &str) -> Node {
    node_of(nats.port, OwnershipOptions::new(redis, name)).await
}

/// A node with these options.
pub(crate) async fn node_of(nats: u16, options: OwnershipOptions) -> Node {
    let client = async_nats::connect(format!("127.0.0.1:{nats}")).await.unwrap();
    let settings = LogSettings {
        node: options.node.clone(),
        partitions: PARTITIONS,
        timeout: Duration::from_secs(1),
        ..LogSettings::default()
    };
    let journal = Arc::new(JetStreamJournal::open(client, settings).await.unwrap());
    let keeper = Keeper::start(options, Arc::clone(&journal)).unwrap();
    Node { journal, keeper }
}

pub(crate) async fn until(limit: Duration, what: &str, holds: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

/// Each partition is owned by exactly one of the nodes.
pub(crate) fn is_shared_out(nodes: &[&Node]) -> bool {
    (0..PARTITIONS).all(|partition| {
        nodes.iter().filter(|node| node.journal.owned().epoch(partition).is_some()).count() == 1
    })
}

/// OWN-02 to OWN-05, mechanisms 3: a lone node takes everything; one that joins is handed its share;
/// one that falls silent loses its share to the other; what was acknowledged is there. The tests of whole clusters
/// hold it to the 3.5 s that this takes by design.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_change_hands_as_nodes_come_and_go() {
    let (nats, redis) = (nats(), redis(&[]));
    let one = node(&nats, &redis, "one").await;
    until(SOON, "a lone node takes everything", || one.owns() == 8).await;
    let mut histories: Vec<History> =
        (0..20).map(|n| History::of("s", &format!("task-{n}"))).collect();
    for history in &mut histories {
        history.epoch = one.journal.epoch(&history.key).unwrap();
        let commit = history.create();
        one.journal.create(&history.key, &history.wal_name, vec![commit]).await.unwrap();
    }
    let two = node(&nats, &redis, "two").await;
    until(SOON, "a second node gets its share", || {
        two.owns() >= 2 && one.owns() >= 2 && is_shared_out(&[&one, &two])
    })
    .await;
    assert!(one.keeper.is_certain() && two.keeper.is_certain());
    // It falls silent: nobody renews for it any more, and nobody hands anything over.
    drop(one.keeper);
    until(SOON, "the other takes over", || two.owns() == 8).await;
    for history in &histories {
        let read = read_all(&*two.journal, &history.key).await.unwrap();
        assert!(read.iter().eq(history.commits.iter().map(|commit| &**commit)));
    }
    // The silent one believes still; its first append tells it better.
    for history in &mut histories {
        let after = history.last_seq();
        let late = history.clone().work(1);
        assert!(one.journal.append(&history.key, after, vec![late]).await.is_err());
        history.epoch = two.journal.epoch(&history.key).unwrap();
        let late = history.work(1);
        two.journal.append(&history.key, after, vec![late]).await.unwrap();
    }
}

/// Mechanisms 3: a node that stops hands over, without anybody waiting for a lease to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_hands_over() {
    let (nats, redis) = (nats(), redis(&[]));
    let given = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&given);
    let one = node_with(&nats, &redis, "one", |options| OwnershipOptions {
        given: Some(Arc::new(move |_: &str| {
            count.fetch_add(1, Ordering::SeqCst);
        })),
        ..options
    });
    let one = one.await;
    until(SOON, "a lone node takes everything", || one.owns() == 8).await;
    let two = node(&nats, &redis, "two").await;
    until(SOON, "both have a share", || {
        two.owns() >= 2 && one.owns() >= 2 && is_shared_out(&[&one, &two])
    })
    .await;
    let before = given.load(Ordering::SeqCst);
    one.keeper.hand_over().await;
    assert_eq!(one.journal.owned().all(), []);
    assert!(given.load(Ordering::SeqCst) > before, "they are given, not let run out");
    until(SOON, "the other has all", || two.owns() == 8).await;
    let client = async_nats::connect(format!("127.0.0.1:{}", nats.port)).await.unwrap();
    let index = async_nats::jetstream::new(client).get_stream("TENURE_INDEX").await;
    let messages = index.unwrap().get_info().await.unwrap().state.messages;
    assert!(messages > 0, "who hands over leaves a checkpoint");
}

/// Mechanisms 6: while Redis is away, and when it comes back empty, everybody keeps what he has, in the
/// same epochs.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_loses_a_partition_to_a_redis_that_fails() {
    let (nats, mut redis) = (nats(), redis(&[]));
    let one = node(&nats, &redis, "one").await;
    let two = node(&nats, &redis, "two").await;
    until(SOON, "both have a share", || {
        two.owns() >= 2 && one.owns() >= 2 && is_shared_out(&[&one, &two])
    })
    .await;
    let epochs = || (one.journal.owned().all(), two.journal.owned().all());
    // Shares may still move for a moment after the first time that both have some.
    let mut settled = epochs();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        settled = epochs();
    }
    redis.kill();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(epochs(), settled);
    assert!(!one.keeper.is_certain(), "it says that it cannot be sure");
    redis.restart();
    until(Duration::from_secs(10), "they are sure again", || {
        one.keeper.is_certain() && two.keeper.is_certain()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(epochs(), settled, "it came back empty");
}

/// Notes when which partition had which epoch on a node.
fn noted(node: &Node) -> Arc<Mutex<Vec<(Instant, Epochs)>>> {
    let notes: Arc<Mutex<Vec<(Instant, Epochs)>>> = Arc::default();
    let (into, mut changes) = (Arc::clone(&notes), node.journal.owned().changes());
    tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            let now = changes.borrow_and_update().clone();
            into.lock().push((Instant::now(), now));
        }
    });
    notes
}

/// How long each partition of `had` was without an owner on its way to `has`, once it had one.
fn gaps(had: &[(Instant, Epochs)], has: &[(Instant, Epochs)]) -> Vec<Duration> {
    let gap = |partition: usize| {
        let got = has.iter().find(|(_, epochs)| epochs[partition].is_some())?.0;
        let left = had.iter().rev().find(|(at, epochs)| *at < got && epochs[partition].is_none());
        Some(got - left?.0)
    };
    (0..PARTITIONS as usize).filter_map(gap).collect()
}

/// OWN-05, mechanisms 3: a partition that is handed over goes to the next node as soon as its appends
/// have returned, and that node takes it as soon as it is told: neither waits for its own next poll.
/// By design under 200 ms: half of them must keep it, as a busy machine holds some of them up.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_takes_a_moment() {
    let (nats, redis) = (nats(), redis(&[]));
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    let one = node_with(&nats, &redis, "one", |options| OwnershipOptions {
        every: Duration::from_secs(1),
        lease: Duration::from_secs(2),
        given: Some(Arc::new(move |node: &str| told.send(node.to_owned()).unwrap())),
        ..options
    });
    let one = one.await;
    until(SOON, "a lone node takes everything", || one.owns() == 8).await;
    // It would not learn of anything by itself.
    let (every, lease) = (Duration::from_secs(60), Duration::from_secs(120));
    let two =
        node_with(&nats, &redis, "two", |options| OwnershipOptions { every, lease, ..options });
    let Node { journal, keeper } = two.await;
    let two = Arc::new(Node { journal, keeper });
    let poked = Arc::clone(&two);
    tokio::spawn(async move {
        while let Some(node) = tells.recv().await {
            assert_eq!(node, "two");
            poked.keeper.poke();
        }
    });
    let (had, has) = (noted(&one), noted(&two));
    until(SOON, "the other is given a part", || two.owns() >= 2).await;
    one.keeper.hand_over().await;
    until(SOON, "the other is given the rest", || two.owns() == 8).await;
    let mut all = gaps(&had.lock(), &has.lock());
    all.sort_unstable();
    assert_eq!(all.len(), 8);
    assert!(all[3] < Duration::from_millis(200), "{all:?}");
}

/// Mechanisms 3: a partition is given once its appends have returned, and the next owner reads what they
/// wrote.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_waits_for_an_append_in_flight() {
    let (nats, redis) = (nats(), redis(&[]));
    let Node { journal, keeper } = node(&nats, &redis, "one").await;
    let has_all = || journal.owned().all().len() == 8;
    until(SOON, "a lone node takes everything", has_all).await;
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    let two = node(&nats, &redis, "two").await;
    until(SOON, "the other lives", || two.keeper.is_certain()).await;

    nats.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(100)).await; // It may be answering still.
    let (key, after, commit) = (history.key.clone(), history.last_seq(), history.work(1));
    let writing = Arc::clone(&journal);
    let write = tokio::spawn(async move { writing.append(&key, after, vec![commit]).await });
    let hand_over = tokio::spawn(async move { keeper.hand_over().await });
    let busy = history.key.partition(PARTITIONS);
    let others = || (0..PARTITIONS).filter(|partition| *partition != busy);
    // One is enough: the append does not wait for its answer for ever.
    until(SOON, "another is given", || {
        others().any(|partition| holder(&redis, partition) == "two")
    })
    .await;
    assert_eq!((&*holder(&redis, busy), write.is_finished()), ("one", false));
    nats.signal(Signal::SIGCONT);
    write.await.unwrap().unwrap();
    hand_over.await.unwrap();
    until(Duration::from_secs(10), "the other has all", || two.owns() == 8).await;
    assert_eq!(read_all(&*two.journal, &history.key).await.unwrap().len(), 2);
}

/// Who has the lease of a partition.
fn holder(redis: &Server, partition: u32) -> String {
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let mut plain = ::redis::Client::open(url).unwrap().get_connection().unwrap();
    cmd("HGET").arg("tenure:{own}:owners").arg(partition).query(&mut plain).unwrap()
}

/// OWN-02: a node that has the lease of a partition and no way to its log lets it go where there is
/// another, who keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_cannot_be_taken_is_let_go() {
    let (sound, mut broken, redis) = (nats(), nats(), redis(&[]));
    for _ in 0..5 {
        // No log there ends before what the other acknowledged.
        owner(&sound, LogSettings { partitions: PARTITIONS, ..settings("before") }).await;
    }
    let one = node(&broken, &redis, "one").await;
    broken.kill();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let two = node(&sound, &redis, "two").await;
    until(SOON, "the other has all", || two.owns() == 8).await;
    assert_eq!(one.owns(), 0);
    let epochs = two.journal.owned().all();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(two.journal.owned().all(), epochs, "it is not handed back");
}

/// OWN-03, mechanisms 3: an idle owner that cannot be certain finds another's record by itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_owner_steps_down_where_another_is() {
    let (nats, mut first, second) = (nats(), redis(&[]), redis(&[]));
    let one = node(&nats, &first, "one").await;
    until(SOON, "a lone node takes everything", || one.owns() == 8).await;
    first.kill();
    until(SOON, "it is not certain", || !one.keeper.is_certain()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(one.owns(), 8, "nobody else is there");
    let two = node(&nats, &second, "two").await;
    until(SOON, "the other takes everything", || two.owns() == 8).await;
    let took = until(SOON, "it steps down", || one.owns() == 0).await;
    // By design within 2 s.
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(two.owns(), 8);
}

/// OWN-03, mechanisms 3: so does one that is certain of its lease, where Redis is another for other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_owner_that_is_certain_steps_down_too() {
    let (nats, first, second) = (nats(), redis(&[]), redis(&[]));
    let one = node(&nats, &first, "one").await;
    until(SOON, "a lone node takes everything", || one.owns() == 8).await;
    let before = one.journal.owned().all();
    let _two = node(&nats, &second, "two").await;
    // Neither lets the other be: each takes again what it has the lease of.
    until(Duration::from_secs(20), "it has stepped down from all", || {
        let owned = one.journal.owned();
        before.iter().all(|(partition, epoch)| owned.epoch(*partition) != Some(*epoch))
    })
    .await;
    assert!(one.keeper.is_certain());
}

/// Mechanisms 17: a node whose clock is off Redis' takes nothing, and gives what it has to another.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_is_off_takes_nothing() {
    let (nats, redis) = (nats(), redis(&[]));
    let off = Arc::new(AtomicI64::new(-6_500));
    let one = node_with(&nats, &redis, "one", |options| {
        let (off, system) = (Arc::clone(&off), Arc::clone(&options.clock));
        OwnershipOptions {
            clock: Arc::new(move || system() + off.load(Ordering::SeqCst)),
            ..options
        }
    });
    let one = one.await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(one.owns(), 0);
    off.store(-3_000, Ordering::SeqCst);
    until(Duration::from_secs(10), "so much is no reason", || one.owns() == 8).await;
    off.store(6_500, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(one.owns(), 8, "there is nobody else");
    let two = node(&nats, &redis, "two").await;
    until(SOON, "the other has all", || two.owns() == 8).await;
    off.store(0, Ordering::SeqCst);
    until(SOON, "it has its share again", || one.owns() >= 2 && is_shared_out(&[&one, &two])).await;
}

/// Mechanisms 3: the lease of a partition is taken when it was seen to have ended in two polls, one behind
/// the other. Polls are driven by the clock that each of them reads once it has its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_taken_when_it_was_seen_to_have_ended_twice() {
    let (nats, redis) = (nats(), redis(&[]));
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let plain = || ::redis::Client::open(&*url).unwrap().get_connection().unwrap();
    let set = |key: &str, value: &str| {
        let () = cmd("HSET").arg(key).arg(0).arg(value).query(&mut plain()).unwrap();
    };
    let (owners, ends) = ("tenure:{own}:owners", "tenure:{own}:ends");
    let (past, never) = ("1", "9000000000000");
    set(owners, "ghost");
    set(ends, never);

    let (told, mut polls) = tokio::sync::mpsc::unbounded_channel();
    let (lets_go, waits) = std::sync::mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let options = OwnershipOptions::new(format!("redis://127.0.0.1:{}", redis.port), "one");
    let system = Arc::clone(&options.clock);
    let clock = move || {
        let now = system();
        let _ = told.send(()); // At the end nobody listens.
        let _ = waits.lock().recv();
        now
    };
    let options =
        OwnershipOptions { clock: Arc::new(clock), every: Duration::from_secs(1), ..options };
    let settings = LogSettings { partitions: 1, ..LogSettings::default() };
    let client = async_nats::connect(format!("127.0.0.1:{}", nats.port)).await.unwrap();
    let journal = Arc::new(JetStreamJournal::open(client, settings).await.unwrap());
    let _keeper = Keeper::start(options, Arc::clone(&journal)).unwrap();

    polls.recv().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await; // Nothing is believed before a lease has passed.
    // When the next poll sees the lease end, and who has it after that poll.
    let steps =
        [(past, "ghost"), (never, "ghost"), (past, "ghost"), (past, "ghost"), (past, "one")];
    for (at, expected) in steps {
        set(ends, at);
        lets_go.send(()).unwrap();
        polls.recv().await.unwrap();
        assert_eq!(holder(&redis, 0), expected);
    }
    drop(lets_go);
    until(Duration::from_secs(20), "it is taken", || journal.owned().epoch(0).is_some()).await;
}

/// Tells a process that it is the one that fails, and where the servers are.
const FAILS: &str = "TENURE_TEST_OWNERSHIP_FAILS";

/// Mechanisms 18: a node that cannot keep its partitions any more ends; this test again is its process.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_ownership_panics_ends_and_says_why() {
    if let Ok(ports) = std::env::var(FAILS) {
        return run_a_node_that_fails(&ports).await;
    }
    let (nats, redis) = (nats(), redis(&[]));
    let name = "ownership::a_node_whose_ownership_panics_ends_and_says_why";
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args([name, "--exact", "--nocapture"]);
    process.env(FAILS, format!("{} {}", nats.port, redis.port));
    let ended = process.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{ended:?}");
    assert!(said.lines().any(|line| line.contains("a defect of the clock")), "{said}");
}

/// Ends well, if late, where nobody minds what keeps the partitions.
async fn run_a_node_that_fails(ports: &str) {
    let (nats, redis) = ports.split_once(' ').unwrap();
    let options = OwnershipOptions::new(format!("redis://127.0.0.1:{redis}"), "one");
    let clock = Arc::new(|| -> Millis { panic!("a defect of the clock") });
    let _node = node_of(nats.parse().unwrap(), OwnershipOptions { clock, ..options }).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
}
