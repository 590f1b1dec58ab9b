//! The log in JetStream.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tenure_cluster::{JetStreamJournal, LogSettings, StreamOpenError};
use tenure_core::Commit;
use tenure_ports::Journal;
use tenure_ports::journal::{AppendError, ReadError};
use tenure_testkit::conformance::{History, journal_suite, read_all};
use tenure_wire::stored::frame::{CommitHead, FRAME_VERSION, Header, encode_header};

use crate::servers::{Server, nats, nats_with};

pub(crate) async fn connect(server: &Server) -> async_nats::Client {
    async_nats::connect(format!("127.0.0.1:{}", server.port)).await.unwrap()
}

pub(crate) fn settings(node: &str) -> LogSettings {
    LogSettings { node: node.into(), timeout: Duration::from_secs(2), ..LogSettings::default() }
}

/// A node that owns everything.
pub(crate) async fn owner(server: &Server, settings: LogSettings) -> JetStreamJournal {
    let partitions = settings.partitions;
    let journal = JetStreamJournal::open(connect(server).await, settings).await.unwrap();
    for partition in 0..partitions {
        journal.take(partition).await.unwrap();
    }
    journal
}

pub(crate) async fn create(journal: &JetStreamJournal, history: &mut History) {
    history.epoch = journal.epoch(&history.key).unwrap_or(history.epoch);
    let commit = history.create();
    journal.create(&history.key, &history.wal_name, vec![commit]).await.unwrap();
}

pub(crate) async fn work(
    journal: &JetStreamJournal,
    history: &mut History,
    events: usize,
) -> Result<(), AppendError> {
    history.epoch = journal.epoch(&history.key).unwrap_or(history.epoch);
    let after = history.last_seq();
    let commit = history.work(events);
    let result = journal.append(&history.key, after, vec![commit]).await;
    if result.is_err() {
        history.commits.pop();
    }
    result
}

pub(crate) async fn assert_holds(journal: &JetStreamJournal, history: &History) {
    let read = read_all(journal, &history.key).await.unwrap();
    assert!(read.iter().eq(history.commits.iter().map(|commit| &**commit)), "{read:#?}");
}

/// STORE-06: what every journal does: a Task is one history, read as it was written.
#[tokio::test(flavor = "multi_thread")]
async fn jetstream_is_a_journal() {
    let server = Arc::new(nats());
    let number = AtomicU64::new(0);
    journal_suite(|| {
        let server = Arc::clone(&server);
        let name = format!("N{}", number.fetch_add(1, Ordering::SeqCst));
        async move {
            let settings = LogSettings { name, partitions: 2, ..settings("one") };
            (owner(&server, settings).await, server)
        }
    })
    .await;
}

/// Mechanisms 10: what is longer than a message goes in chunks, as one, and is read again; also with
/// messages so small that everything does.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_long_goes_in_chunks() {
    let server = nats();
    let small = LogSettings { message_bytes: 300, partitions: 1, ..settings("one") };
    let journal = owner(&server, small.clone()).await;
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    for events in [1, 20, 3, 100] {
        work(&journal, &mut history, events).await.unwrap();
        assert_holds(&journal, &history).await;
    }
    let next = owner(&server, small).await;
    assert_holds(&next, &history).await;
    work(&next, &mut history, 2).await.unwrap();
    assert_holds(&next, &history).await;
}

/// WAL-10, mechanisms 1: many Tasks that wait share appends.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_share_frames() {
    let server = nats();
    let journal = owner(&server, LogSettings { partitions: 1, ..settings("one") }).await;
    let mut histories: Vec<History> =
        (0..200).map(|n| History::of("s", &format!("t{n}"))).collect();
    let creates = histories.iter_mut().map(|history| create(&journal, history));
    futures::future::join_all(creates).await;
    for _ in 0..5 {
        let works = histories.iter_mut().map(|history| work(&journal, history, 2));
        let results = futures::future::join_all(works).await;
        assert!(results.iter().all(Result::is_ok));
    }
    let context = async_nats::jetstream::new(connect(&server).await);
    let mut stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    let messages = stream.info().await.unwrap().state.messages;
    assert!(messages < 300, "{messages} messages for 1,200 commits");
    for history in &histories {
        assert_holds(&journal, history).await;
    }
}

/// OWN-03, OWN-05, WAL-14, mechanisms 3: a new owner reads all that was acknowledged, and from its record on
/// nothing of the older one is accepted; the older one knows it then.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_fences_the_old_one() {
    let server = nats();
    let one = LogSettings { partitions: 1, ..settings("one") };
    let old = owner(&server, one.clone()).await;
    let mut history = History::of("s", "t");
    create(&old, &mut history).await;
    work(&old, &mut history, 3).await.unwrap();
    let first = old.owned().epoch(0).unwrap();
    let new = owner(&server, LogSettings { node: "two".into(), ..one }).await;
    let epoch = new.owned().epoch(0).unwrap();
    assert!(epoch > first);
    let context = async_nats::jetstream::new(connect(&server).await);
    let stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    assert_eq!(stream.get_info().await.unwrap().state.last_sequence, epoch, "the record's place");
    assert_holds(&new, &history).await;
    let refused = work(&old, &mut history, 1).await.unwrap_err();
    assert!(matches!(refused, AppendError::NotOwner), "{refused}");
    assert_eq!(old.owned().epoch(0), None, "it has stepped down");
    let unread = read_all(&old, &history.key).await.unwrap_err();
    assert!(matches!(unread, ReadError::NotOwner), "{unread}");
    work(&new, &mut history, 2).await.unwrap();
    assert_holds(&new, &history).await;
}

/// Mechanisms 3: nodes that take a partition at the same time all read the same history; one is left.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_takers_the_last_owns() {
    let server = nats();
    let one = LogSettings { partitions: 1, ..settings("one") };
    let first = owner(&server, one.clone()).await;
    let mut history = History::of("s", "t");
    create(&first, &mut history).await;
    // Also under one name: a node that was started twice.
    let named = |n: u32| LogSettings { node: format!("node-{}", n / 2), ..one.clone() };
    let takers = (0..8).map(|n| owner(&server, named(n)));
    let takers = futures::future::join_all(takers).await;
    let epochs: std::collections::BTreeSet<_> =
        takers.iter().map(|taker| taker.owned().epoch(0)).collect();
    assert_eq!(epochs.len(), takers.len(), "no two have the same epoch");
    let newest = takers.iter().max_by_key(|taker| taker.owned().epoch(0)).unwrap();
    work(newest, &mut history, 1).await.unwrap();
    for taker in &takers {
        if !std::ptr::eq(taker, newest) {
            let mut other = History::of("s", "u");
            let commit = other.create();
            let refused = taker.create(&other.key, &other.wal_name, vec![commit]).await;
            assert!(refused.is_err(), "{refused:?}");
        }
    }
    assert_holds(newest, &history).await;
}

/// Appends while the server stands still, or is dead and started again.
async fn work_through_trouble(
    server: &mut Server,
    journal: &Arc<JetStreamJournal>,
    history: &mut History,
    is_killed: bool,
) {
    match is_killed {
        true => server.kill(),
        false => server.signal(Signal::SIGSTOP),
    }
    tokio::time::sleep(Duration::from_millis(100)).await; // It may be answering still.
    let after = history.last_seq();
    let commit = history.work(2);
    let (writing, key) = (Arc::clone(journal), history.key.clone());
    let write = tokio::spawn(async move { writing.append(&key, after, vec![commit]).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!write.is_finished(), "nobody could know");
    match is_killed {
        true => server.restart(),
        false => server.signal(Signal::SIGCONT),
    }
    let written = tokio::time::timeout(Duration::from_secs(30), write).await;
    written.expect("it is settled").unwrap().unwrap();
    assert_holds(journal, history).await;
}

/// Mechanisms 1 and 10: an append whose fate is unknown is repeated until it is known: through a server
/// that stands still, and one that is killed and started again. Nothing is written twice, be it one
/// message or a batch of chunks.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_of_unknown_fate_is_settled() {
    let mut server = nats();
    let timeout = Duration::from_millis(300);
    for (name, message_bytes, rounds) in [("WHOLE", 512 << 10, 6), ("CHUNKS", 200, 4)] {
        let name = name.to_owned();
        let one = LogSettings { name, message_bytes, partitions: 1, timeout, ..settings("one") };
        let journal = Arc::new(owner(&server, one.clone()).await);
        let mut history = History::of("s", "t");
        create(&journal, &mut history).await;
        for round in 0..rounds {
            work_through_trouble(&mut server, &journal, &mut history, round % 2 == 1).await;
        }
        let next = owner(&server, one).await;
        assert_holds(&next, &history).await;
    }
}

/// STORE, mechanisms 1: a full stream refuses; nothing is dropped to make room, and the rest goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_refuses_and_loses_nothing() {
    let server = nats();
    let full = LogSettings { partitions: 1, max_bytes: Some(40_000), ..settings("one") };
    let journal = owner(&server, full).await;
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    let refused = loop {
        match work(&journal, &mut history, 5).await {
            Ok(()) => assert!(history.commits.len() < 100, "it is never full"),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AppendError::Failed(_)), "{refused}");
    assert_holds(&journal, &history).await;
    assert!(journal.owned().epoch(0).is_some(), "it is owned still");
}

/// A frame with one commit of a Task, as a node of that version writes it.
fn frame_of(
    version: u32,
    of: &History,
    after: u64,
    commit: &Commit,
    body: &[u8],
    prev: u64,
) -> Vec<u8> {
    let head = CommitHead {
        session_id: of.key.session_id.clone(),
        task_id: of.key.task_id.clone(),
        first_seq: after + 1,
        last_seq: commit.last_seq(),
        created_at: commit.created_at,
        prev,
        len: u32::try_from(body.len()).unwrap(),
        named: None,
        ended: None,
        failed_as: None,
        archived: false,
    };
    let header = Header::Commits { version, epoch: 1, commits: vec![head] };
    let mut frame = encode_header(&header, 0).unwrap();
    frame.extend_from_slice(body);
    frame
}

/// RECOVER-05: frames of the first version, with commits as the lines of a log, are read for ever; and
/// what a frame says of its version is what it is.
#[tokio::test(flavor = "multi_thread")]
async fn frames_of_the_first_version_are_read() {
    let server = nats();
    let one = LogSettings { partitions: 1, ..settings("one") };
    let journal = owner(&server, one.clone()).await;
    let mut old = History::of("s", "old");
    create(&journal, &mut old).await;
    drop(journal);
    let context = async_nats::jetstream::new(connect(&server).await);
    let after = old.last_seq();
    let next = old.work(2);
    let mut lines = Vec::new();
    tenure_wire::stored::encode(&next, &old.key.session_id, &old.key.task_id, &mut lines).unwrap();
    let frame = frame_of(1, &old, after, &next, &lines, 2);
    context.publish("tenure.wal.0", frame.into()).await.unwrap().await.unwrap();
    let journal = owner(&server, one.clone()).await;
    assert_holds(&journal, &old).await;
    work(&journal, &mut old, 1).await.unwrap();
    assert_holds(&journal, &old).await;

    let mut wrong = History::of("s", "wrong");
    create(&journal, &mut wrong).await;
    let after = wrong.last_seq();
    let prev = journal_end(&context).await;
    drop(journal);
    let next = wrong.work(1);
    let mut packed = Vec::new();
    tenure_wire::stored::encode_packed(&next, &mut packed).unwrap();
    let frame = frame_of(1, &wrong, after, &next, &packed, prev);
    context.publish("tenure.wal.0", frame.into()).await.unwrap().await.unwrap();
    let journal = owner(&server, one).await;
    let read = journal.read(&wrong.key, 0, |_| ControlFlow::Continue(())).await;
    assert!(matches!(read, Err(ReadError::Damaged { .. })), "{read:?}");
}

async fn journal_end(context: &async_nats::jetstream::Context) -> u64 {
    let stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    stream.get_info().await.unwrap().state.last_sequence
}

/// RECOVER-04: a flipped byte in a commit makes its own Task unreadable, and no other; the Task is
/// named, with its place.
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_of_one_task() {
    let server = nats();
    let one = LogSettings { partitions: 1, ..settings("one") };
    let journal = owner(&server, one.clone()).await;
    let (mut bad, mut good) = (History::of("s", "bad"), History::of("s", "good"));
    create(&journal, &mut bad).await;
    create(&journal, &mut good).await;
    drop(journal);
    // A frame whose header is sound and whose lines are not: as if written by a faulty machine.
    let context = async_nats::jetstream::new(connect(&server).await);
    let stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    let after = bad.last_seq();
    let next = bad.work(1);
    let mut lines = Vec::new();
    tenure_wire::stored::encode_packed(&next, &mut lines).unwrap();
    lines[40] ^= 1;
    let frame = frame_of(FRAME_VERSION, &bad, after, &next, &lines, 2);
    context.publish("tenure.wal.0", frame.into()).await.unwrap().await.unwrap();
    let at = stream.get_info().await.unwrap().state.last_sequence;
    let journal = owner(&server, one).await;
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let into = Arc::clone(&seen);
    let each = move |commit: Commit| {
        into.lock().push(commit.first_seq);
        ControlFlow::Continue(())
    };
    match journal.read(&bad.key, 0, each).await {
        Err(ReadError::Damaged { file, line, .. }) => {
            assert_eq!((file.as_str(), line), ("TENURE_WAL_0", at));
        }
        other => panic!("not damaged: {other:?}"),
    }
    assert_eq!(*seen.lock(), [1], "what lies before the damage is handed out");
    assert!(journal.entry(&bad.key).await.unwrap().unwrap().damaged);
    assert_holds(&journal, &good).await;
    work(&journal, &mut good, 1).await.unwrap();
    assert_holds(&journal, &good).await;
}

/// Only the owner writes and reads; a partition that was left can be taken again, by anybody.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_not_owned_is_not_used() {
    let server = nats();
    let one = LogSettings { partitions: 1, ..settings("one") };
    let journal = JetStreamJournal::open(connect(&server).await, one).await.unwrap();
    let mut history = History::of("s", "t");
    let commit = history.clone().create();
    let refused = journal.create(&history.key, &history.wal_name, vec![commit]).await;
    assert!(matches!(refused, Err(AppendError::NotOwner)), "{refused:?}");
    assert!(journal.take(1).await.is_err(), "there is no such partition");
    journal.take(0).await.unwrap();
    create(&journal, &mut history).await;
    journal.leave(0);
    assert!(matches!(read_all(&journal, &history.key).await, Err(ReadError::NotOwner)));
    journal.take(0).await.unwrap();
    assert_holds(&journal, &history).await;
}

/// JetStream that is not there is an error in time, not a hang.
#[tokio::test(flavor = "multi_thread")]
async fn no_jetstream_is_an_error_in_time() {
    let server = nats_with("");
    let client = connect(&server).await;
    server.signal(Signal::SIGSTOP);
    let asked = Instant::now();
    let refused = JetStreamJournal::open(client, settings("one")).await.unwrap_err();
    assert!(matches!(refused, StreamOpenError::Unavailable { .. }), "{refused}");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    server.signal(Signal::SIGCONT);
    assert!(server.dir().join("js").exists());
}

/// A long history is read from any commit on, and broken off anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_breaks_off_where_it_is_told() {
    let server = nats();
    let journal = owner(&server, LogSettings { partitions: 1, ..settings("one") }).await;
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    for _ in 0..20 {
        work(&journal, &mut history, 2).await.unwrap();
    }
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let into = Arc::clone(&seen);
    let each = move |commit: Commit| {
        into.lock().push(commit.first_seq);
        ControlFlow::Break(())
    };
    let after = history.commits[10].last_seq();
    journal.read(&history.key, after, each).await.unwrap();
    assert_eq!(*seen.lock(), [after + 1]);
}

/// Mechanisms 3: one node takes a partition once at a time, and what was begun before it left the
/// partition does not count.
#[tokio::test(flavor = "multi_thread")]
async fn a_taking_that_was_overtaken_does_not_count() {
    let server = nats();
    let one = LogSettings { partitions: 1, timeout: Duration::from_secs(5), ..settings("one") };
    let journal =
        Arc::new(JetStreamJournal::open(connect(&server).await, one.clone()).await.unwrap());
    let takes = futures::future::join_all((0..4).map(|_| journal.take(0))).await;
    let epochs: Vec<u64> = takes.into_iter().map(Result::unwrap).collect();
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    assert_holds(&journal, &history).await;
    server.signal(Signal::SIGSTOP);
    let taking = Arc::clone(&journal);
    let slow = tokio::spawn(async move { taking.take(0).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    journal.leave(0);
    server.signal(Signal::SIGCONT);
    assert!(slow.await.unwrap().is_err(), "it was left meanwhile");
    assert_eq!(journal.owned().epoch(0), None);
}

/// Mechanisms 1 and 17: a store that lost what it acknowledged is not written over; a frame of a later
/// program is not passed over.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_cannot_be_known_is_not_taken() {
    let mut server = nats();
    let one = LogSettings { partitions: 1, ..settings("one") };
    let journal = owner(&server, one.clone()).await;
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    journal.leave(0);
    server.kill();
    std::fs::remove_dir_all(server.dir().join("js")).unwrap();
    server.restart();
    tokio::time::sleep(Duration::from_millis(500)).await;
    JetStreamJournal::open(connect(&server).await, one.clone()).await.unwrap();
    let begun = Instant::now();
    let lost = loop {
        let refused = journal.take(0).await.unwrap_err().to_string();
        if refused.contains("has lost data") || begun.elapsed() > Duration::from_secs(20) {
            break refused;
        }
    };
    assert!(lost.contains("has lost data"), "{lost}");

    let later = br#"\x85"#;
    let mut frame = b"TNF1".to_vec();
    frame.extend_from_slice(&u32::try_from(later.len()).unwrap().to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(later).to_le_bytes());
    frame.extend_from_slice(later);
    let context = async_nats::jetstream::new(connect(&server).await);
    context.publish("tenure.wal.0", frame.into()).await.unwrap().await.unwrap();
    let fresh = JetStreamJournal::open(connect(&server).await, one).await.unwrap();
    let refused = fresh.take(0).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be read"), "{refused}");
}
