//! States of long Tasks: what a new owner reads of them, and what becomes of those that have gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_nats::Client;
use async_nats::jetstream::Context;
use nix::sys::signal::Signal;
use tenure_cluster::{JetStreamJournal, LogSettings, RedisLeases};
use tenure_core::command::AppendProgress;
use tenure_core::id::{AgentId, CommandId, PoolId, Ref};
use tenure_core::status::Role;
use tenure_core::{Caller, Command, Task};
use tenure_ports::Journal;
use tenure_ports::journal::EncodedSnapshot;
use tenure_scheduler::{Config, Envelope, Scheduler, load, load_until};
use tenure_testkit::conformance::History;
use tenure_wire::stored::encode_snapshot;
use uuid::Uuid;

use crate::journal::{connect, create, owner, settings, work};
use crate::scheduler::{Node, create as create_task, graph};
use crate::servers::{Server, nats, redis};

/// Commits of an append.
const TOGETHER: usize = 100;

/// One partition, whose checkpoints are written when a test says so.
fn one() -> LogSettings {
    let (checkpoint_commits, checkpoint_every) = (u64::MAX, Duration::from_secs(3_600));
    LogSettings { partitions: 1, checkpoint_commits, checkpoint_every, ..settings("one") }
}

/// More commits, in appends of [`TOGETHER`].
async fn go_on(journal: &JetStreamJournal, history: &mut History, appends: usize) {
    history.epoch = journal.epoch(&history.key).unwrap();
    for _ in 0..appends {
        let after = history.last_seq();
        let commits = (0..TOGETHER).map(|_| history.work(1)).collect();
        journal.append(&history.key, after, commits).await.unwrap();
    }
}

async fn complete(journal: &JetStreamJournal, history: &mut History) {
    let (after, commit) = (history.last_seq(), history.complete());
    journal.append(&history.key, after, vec![commit]).await.unwrap();
}

/// A Task of some 1,100 commits.
async fn long(journal: &JetStreamJournal, name: &str) -> History {
    let mut history = History::of("s", name);
    create(journal, &mut history).await;
    go_on(journal, &mut history, 11).await;
    history
}

fn folded(task: Task) -> EncodedSnapshot {
    let records = task.into_snapshot();
    EncodedSnapshot { version: records.version(), bytes: encode_snapshot(&records).unwrap() }
}

/// Folds what the journal wants, as a scheduler does.
fn serve(journal: &Arc<JetStreamJournal>) {
    let mut wanted = journal.wanted().unwrap();
    let journal = Arc::downgrade(journal);
    tokio::spawn(async move {
        while let Some(wanted) = wanted.recv().await {
            let Some(journal) = journal.upgrade() else { return };
            let task = load(&*journal, &wanted.key).await.unwrap();
            journal.keep(&wanted.key, folded(task)).await;
        }
    });
}

/// Has the states of long Tasks kept, and a checkpoint point to them.
async fn checkpoint(journal: &JetStreamJournal) {
    journal.store_snapshots(0).await;
    journal.checkpoint(0).await.unwrap();
}

async fn version(journal: &JetStreamJournal, history: &History) -> Option<u64> {
    journal.kept(&history.key, u64::MAX).await.map(|kept| kept.version)
}

async fn whole(journal: &JetStreamJournal, history: &History) -> Task {
    load_until(journal, &history.key, u64::MAX).await.unwrap()
}

fn context(client: Client) -> Context {
    async_nats::jetstream::new(client)
}

/// The bytes in a cell; none if there is no such cell.
async fn cell(server: &Server, cell: u32) -> Option<usize> {
    let stream = context(connect(server).await).get_stream("TENURE_INDEX").await.unwrap();
    let subject = format!("tenure.index.0.state.{cell}");
    let found = stream.get_last_raw_message_by_subject(&subject).await.ok()?;
    Some(found.payload.len())
}

/// OWN-06, RECOVER-01, mechanisms 5: who takes a partition reads of a long Task its state and the
/// commits behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_reads_a_long_task_from_its_state_on() {
    let server = nats();
    let first = Arc::new(owner(&server, one()).await);
    serve(&first);
    let mut history = long(&first, "t").await;
    let mut short = History::of("s", "short");
    create(&first, &mut short).await;
    let at = history.last_seq();
    checkpoint(&first).await;
    assert_eq!((version(&first, &history).await, version(&first, &short).await), (Some(at), None));
    for _ in 0..3 {
        work(&first, &mut history, 1).await.unwrap();
    }
    let client = connect(&server).await;
    let heir = JetStreamJournal::open(client.clone(), one()).await.unwrap();
    heir.take(0).await.unwrap();
    let before = client.statistics().in_messages.load(Ordering::Relaxed);
    let task = load(&heir, &history.key).await.unwrap();
    let fetched = client.statistics().in_messages.load(Ordering::Relaxed) - before;
    assert!(fetched <= 8, "{fetched} messages came for a state and three commits, not for all");
    assert_eq!(task.version(), history.last_seq());
    assert_eq!(task, whole(&heir, &history).await);
    task.check_invariants().unwrap();
    // It says as much in its own checkpoint.
    work(&heir, &mut history, 1).await.unwrap();
    checkpoint(&heir).await;
    let last = owner(&server, one()).await;
    assert_eq!(version(&last, &history).await, Some(at));
    assert_eq!(load(&last, &history.key).await.unwrap(), whole(&last, &history).await);
}

/// RECOVER-08, mechanisms 5: what is told again of a long Task is read from its state on.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_task_is_told_of_again_from_its_state_on() {
    let (server, redis) = (nats(), redis(&[]));
    let first = Arc::new(owner(&server, one()).await);
    serve(&first);
    let mut history = long(&first, "t").await;
    let at = history.last_seq();
    checkpoint(&first).await;
    work(&first, &mut history, 1).await.unwrap();
    let (key, last) = (&history.key, history.last_seq());
    let client = connect(&server).await;
    let heir = Arc::new(JetStreamJournal::open(client.clone(), one()).await.unwrap());
    heir.take(0).await.unwrap();
    let node = node(&heir, &redis).await;
    let before = client.statistics().in_messages.load(Ordering::Relaxed);
    let told = node.read_again(key, at, last).await.unwrap();
    let fetched = client.statistics().in_messages.load(Ordering::Relaxed) - before;
    assert!(fetched <= 8, "{fetched} messages came for a state and a commit, not for all");
    assert_eq!(told.page.through, last);
    heir.forget_snapshot(key);
    assert_eq!(node.read_again(key, at, last).await.unwrap(), told);
}

/// Mechanisms 5: a state that nobody gives out just now is there another time.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_out_of_reach_is_not_forgotten() {
    let server = nats();
    let first = Arc::new(owner(&server, one()).await);
    serve(&first);
    let history = long(&first, "t").await;
    checkpoint(&first).await;
    let good = first.kept(&history.key, u64::MAX).await;
    assert!(good.is_some());
    server.signal(Signal::SIGSTOP);
    while first.kept(&history.key, u64::MAX).await.is_some() {} // It may be answering still.
    server.signal(Signal::SIGCONT);
    let begun = Instant::now();
    while first.kept(&history.key, u64::MAX).await != good {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is forgotten");
    }
}

/// Mechanisms 5: a newer state is kept after many more commits and not before, in cells that are
/// free; what no checkpoint points to any more is emptied, and its cell is used again, by others
/// too.
#[tokio::test(flavor = "multi_thread")]
async fn states_that_have_gone_leave_their_room() {
    let server = nats();
    let first = Arc::new(owner(&server, one()).await);
    serve(&first);
    let mut history = long(&first, "t").await;
    let at = history.last_seq();
    checkpoint(&first).await;
    assert!(cell(&server, 0).await.is_some_and(|bytes| bytes > 0));
    go_on(&first, &mut history, 9).await;
    checkpoint(&first).await;
    assert_eq!((version(&first, &history).await, cell(&server, 1).await), (Some(at), None));
    go_on(&first, &mut history, 2).await;
    checkpoint(&first).await;
    assert_eq!(version(&first, &history).await, Some(history.last_seq()));
    assert_eq!(cell(&server, 0).await, Some(0), "what was there is of no use");
    assert!(cell(&server, 1).await.is_some_and(|bytes| bytes > 0));
    complete(&first, &mut history).await;
    assert_eq!(version(&first, &history).await, None);
    checkpoint(&first).await;
    assert_eq!(cell(&server, 1).await, Some(0), "it has ended");
    let next = Arc::new(owner(&server, one()).await);
    serve(&next);
    let other = long(&next, "other").await;
    checkpoint(&next).await;
    assert_eq!(version(&next, &other).await, Some(other.last_seq()));
    assert!(cell(&server, 0).await.is_some_and(|bytes| bytes > 0));
    assert_eq!(cell(&server, 2).await, None, "two were enough");
}

/// RECOVER-01, mechanisms 5: a state that is damaged, cut off, gone or none at all costs a reading
/// of the whole log, and nothing else; nor does one that says more than the log.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_sound_state_a_task_is_read_whole() {
    let server = nats();
    let first = Arc::new(owner(&server, one()).await);
    serve(&first);
    let history = long(&first, "t").await;
    checkpoint(&first).await;
    let heir = owner(&server, one()).await;
    let task = whole(&heir, &history).await;
    let good = heir.kept(&history.key, u64::MAX).await.unwrap();
    assert_eq!(load(&heir, &history.key).await.unwrap(), task);
    let context = context(connect(&server).await);
    let mut damaged = good.bytes.clone();
    damaged[20] ^= 1;
    for bytes in [damaged, good.bytes[..50].to_vec(), Vec::new()] {
        let put = context.publish("tenure.index.0.state.0", bytes.into()).await.unwrap();
        put.await.unwrap();
        assert_eq!(heir.kept(&history.key, u64::MAX).await, None);
        assert_eq!(load(&heir, &history.key).await.unwrap(), task);
    }
    context.delete_stream("TENURE_INDEX").await.unwrap();
    assert_eq!(load(&heir, &history.key).await.unwrap(), task);
    assert_eq!(load(&owner(&server, one()).await, &history.key).await.unwrap(), task);

    // The journal keeps what it is given, and it is no state. It is not believed.
    let last = owner(&server, one()).await;
    let ahead = EncodedSnapshot { version: history.last_seq() + 1, ..good.clone() };
    last.keep(&history.key, ahead).await;
    assert_eq!(last.kept(&history.key, u64::MAX).await, None);
    let bytes = b"no state".repeat(100_000);
    last.keep(&history.key, EncodedSnapshot { version: history.last_seq(), bytes: bytes.clone() })
        .await;
    assert!(
        last.kept(&history.key, u64::MAX).await.is_some_and(|kept| kept.bytes == bytes),
        "in two parts"
    );
    assert_eq!(load(&last, &history.key).await.unwrap(), task);
    assert_eq!(last.kept(&history.key, u64::MAX).await, None, "what was of no use is forgotten");
    last.keep(&history.key, good.clone()).await;
    let same = EncodedSnapshot { version: good.version, bytes };
    last.keep(&history.key, same).await;
    let is_good = last.kept(&history.key, u64::MAX).await.is_some_and(|kept| kept == good);
    assert!(is_good, "neither an older one takes its place nor one of the same place");
}

async fn node(journal: &Arc<JetStreamJournal>, redis: &Server) -> Node {
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let owned = Arc::clone(journal.owned());
    let leases = RedisLeases::open(&url.into(), "tenure", owned).await.unwrap();
    let config = Config::embedded(PoolId::new("default").unwrap());
    Scheduler::start(Arc::clone(journal), Arc::new(leases), config).await.unwrap()
}

fn envelope() -> Envelope {
    let caller = Caller {
        agent: AgentId::new("o").unwrap(),
        role: Role::Orchestrator,
        session_id: "s".parse().unwrap(),
        run_id: None,
        worker_pool_id: None,
        origin: None,
    };
    Envelope::new(caller, Some(CommandId::new(Uuid::now_v7().to_string()).unwrap()))
}

/// Mechanisms 5: a scheduler folds the states that its journal wants, while its Tasks go on and
/// while they rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_has_the_states_of_its_tasks_kept() {
    let (nats, redis) = (nats(), redis(&[]));
    let often = LogSettings { checkpoint_every: Duration::from_millis(200), ..one() };
    let journal = Arc::new(owner(&nats, often).await);
    let node = node(&journal, &redis).await;
    let key = create_task(&node, graph("t", 0)).await;
    let said = (0..1_100).map(|_| {
        let input_refs = vec![Ref::new("mem:late").unwrap()];
        let said = AppendProgress { input_refs, ..AppendProgress::default() };
        node.command(&key, envelope(), Command::AppendTaskProgress(said))
    });
    for answer in futures::future::join_all(said).await {
        answer.unwrap();
    }
    let begun = Instant::now();
    let kept = loop {
        if let Some(kept) = journal.kept(&key, u64::MAX).await {
            break kept;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no state is kept");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    node.stop().await;
    journal.checkpoint(0).await.unwrap();
    let next = owner(&nats, one()).await;
    assert!(next.kept(&key, u64::MAX).await.is_some_and(|found| found.version >= kept.version));
    let task = load(&next, &key).await.unwrap();
    assert_eq!(task, load_until(&next, &key, u64::MAX).await.unwrap());
}
