//! The index of a partition: checkpoints, and what an ended Task costs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::{Context, stream::Stream};
use futures::StreamExt as _;
use serde_json::Value;
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_core::status::{End, TaskStatus};
use tenure_core::view::snapshot::Ends;
use tenure_ports::Journal;
use tenure_ports::journal::{AppendError, Entry, Overview, ReadError};
use tenure_testkit::conformance::{History, journal_suite, read_all};

use crate::journal::{assert_holds, connect, create, owner, settings, work};
use crate::servers::{Server, nats};

/// One partition, in which no ended Task keeps its row.
fn small() -> LogSettings {
    LogSettings { partitions: 1, ended_rows: 0, ..settings("one") }
}

async fn complete(journal: &JetStreamJournal, history: &mut History) {
    history.epoch = journal.epoch(&history.key).unwrap();
    let (after, commit) = (history.last_seq(), history.complete());
    journal.append(&history.key, after, vec![commit]).await.unwrap();
}

/// Everything that lists say, by Task.
async fn listed(journal: &JetStreamJournal) -> BTreeMap<String, Entry> {
    let entries = journal.entries(None).await.unwrap();
    let listed: BTreeMap<String, Entry> =
        entries.iter().map(|entry| (entry.key.to_string(), entry.clone())).collect();
    assert_eq!(listed.len(), entries.len(), "each once");
    listed
}

/// Tasks of which every other has ended.
async fn tasks(journal: &JetStreamJournal, name: &str, count: usize) -> Vec<History> {
    let mut all = Vec::new();
    for n in 0..count {
        let mut history = History::of("s", &format!("{name}-{n}"));
        create(journal, &mut history).await;
        work(journal, &mut history, 1).await.unwrap();
        if n % 2 == 1 {
            complete(journal, &mut history).await;
        }
        all.push(history);
    }
    all
}

async fn assert_knows(journal: &JetStreamJournal, histories: &[History]) {
    let listed = listed(journal).await;
    assert_eq!(listed.len(), histories.len());
    let counted = journal.overview_in(0, &histories[0].key.session_id).unwrap();
    let whole = Overview::of(listed.values().cloned().collect());
    assert_eq!((counted.ends, counted.live.len()), (whole.ends, whole.live.len()));
    let mut live = 0;
    for history in histories {
        let entry = journal.entry(&history.key).await.unwrap().unwrap();
        assert_eq!(listed[&history.key.to_string()], entry, "one at a time as all together");
        assert_eq!((&entry.wal_name, entry.damaged), (&history.wal_name, false));
        assert_eq!(entry.updated_at, history.updated_at());
        live += usize::from(entry.ended.is_none());
        assert_holds(journal, history).await;
    }
    assert_eq!(journal.live().await.unwrap().len(), live);
}

async fn index_stream(server: &Server) -> (Context, Stream) {
    let context = async_nats::jetstream::new(connect(server).await);
    let stream = context.get_stream("TENURE_INDEX").await.unwrap();
    (context, stream)
}

async fn manifest(stream: &Stream, slot: u32) -> Option<Value> {
    let subject = format!("tenure.index.0.{slot}.manifest");
    let found = stream.get_last_raw_message_by_subject(&subject).await.ok()?;
    Some(serde_json::from_slice(&found.payload).unwrap())
}

async fn put(context: &Context, slot: u32, manifest: &Value) {
    let bytes = serde_json::to_vec(manifest).unwrap();
    let sent = context.publish(format!("tenure.index.0.{slot}.manifest"), bytes.into()).await;
    sent.unwrap().await.unwrap();
}

/// Mechanisms 5: an ended Task without a row is read from its frames, by every call.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_remembers_no_ended_task_is_one() {
    let server = Arc::new(nats());
    let number = AtomicU64::new(0);
    journal_suite(|| {
        let server = Arc::clone(&server);
        let name = format!("N{}", number.fetch_add(1, Ordering::SeqCst));
        async move {
            let settings = LogSettings { name, partitions: 2, ..small() };
            (owner(&server, settings).await, server)
        }
    })
    .await;
}

/// ID-03, WAL-05, mechanisms 5: what has ended and has no row can be neither created anew nor
/// written over, by nobody who took the partition later either.
#[tokio::test(flavor = "multi_thread")]
async fn an_ended_task_is_known_for_ever() {
    let server = nats();
    let first = owner(&server, small()).await;
    let mut histories = tasks(&first, "t", 6).await;
    first.checkpoint(0).await.unwrap();
    for journal in [&first, &owner(&server, small()).await] {
        for history in &mut histories {
            let mut second = History::of("s", history.key.task_id.as_str()).on(journal);
            let commit = second.create();
            let refused = journal.create(&second.key, &second.wal_name, vec![commit]).await;
            let fenced = matches!(refused, Err(AppendError::TaskExists | AppendError::NotOwner));
            assert!(fenced, "{refused:?}");
        }
    }
    let second = owner(&server, small()).await;
    for history in &mut histories {
        // A delivery is noted, say, after the end.
        work(&second, history, 1).await.unwrap();
    }
    assert_knows(&second, &histories).await;
    assert_knows(&owner(&server, small()).await, &histories).await;
}

/// OWN-06, mechanisms 5: who takes a partition starts from its newest sound checkpoint; an unsound one
/// is passed over, and without any the stream is read whole. All of them know the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_taking_starts_from_the_newest_sound_checkpoint() {
    let server = nats();
    let first = owner(&server, small()).await;
    let mut histories = tasks(&first, "old", 10).await;
    first.checkpoint(0).await.unwrap();
    histories.extend(tasks(&first, "new", 10).await);
    first.checkpoint(0).await.unwrap();
    let (context, mut stream) = index_stream(&server).await;
    let (older, newer) = (manifest(&stream, 0).await.unwrap(), manifest(&stream, 1).await.unwrap());
    assert!(older["covered"].as_u64() < newer["covered"].as_u64());
    histories.extend(tasks(&first, "behind", 4).await);
    assert_knows(&owner(&server, small()).await, &histories).await;

    // One that says less shows that it is believed.
    let mut less = newer.clone();
    less["rows"] = Value::Array(Vec::new());
    let shifted = less["ended"].as_array().unwrap().len();
    assert_eq!(shifted, 1);
    less["ended"] = Value::Array(Vec::new());
    put(&context, 1, &less).await;
    let fooled = owner(&server, small()).await;
    assert_eq!(listed_rows(&fooled).await, 2, "the live ones behind it alone");

    // The older one is sound, and then neither is.
    let mut unsound = newer.clone();
    unsound["rows"][0] = 7.into();
    put(&context, 1, &unsound).await;
    assert_knows(&owner(&server, small()).await, &histories).await;
    let mut other = older.clone();
    other["checksum"] = 7.into();
    put(&context, 0, &other).await;
    assert_knows(&owner(&server, small()).await, &histories).await;

    // One that covers more than there is: the store has lost what was acknowledged.
    let mut beyond = newer;
    beyond["covered"] = 1_000_000.into();
    put(&context, 1, &beyond).await;
    let late = JetStreamJournal::open(connect(&server).await, small()).await.unwrap();
    let refused = late.take(0).await.unwrap_err().to_string();
    assert!(refused.contains("has lost data"), "{refused}");

    stream.info().await.unwrap();
    context.delete_stream("TENURE_INDEX").await.unwrap();
    let last = owner(&server, small()).await;
    assert_knows(&last, &histories).await;
    last.checkpoint(0).await.unwrap();
    assert_knows(&owner(&server, small()).await, &histories).await;
}

/// VIEW-01: how Tasks have ended, and which of them lately, is known without a look at the stream; by who
/// takes the partition from a checkpoint, too, and from the stream.
#[tokio::test(flavor = "multi_thread")]
async fn ends_are_counted_over_checkpoints_and_takings() {
    let server = nats();
    let kept = LogSettings { ended_rows: 100, ..small() };
    let first = owner(&server, kept.clone()).await;
    let mut histories = tasks(&first, "t", 9).await;
    let session = histories[0].key.session_id.clone();
    let after = histories[0].last_seq();
    let lost = histories[0].lose();
    first.append(&histories[0].key, after, vec![lost]).await.unwrap();
    let after = histories[1].last_seq();
    let archive = histories[1].archive();
    first.append(&histories[1].key, after, vec![archive]).await.unwrap();
    let mut ends = Ends::default();
    ends.add(End::Lost, false);
    ends.add(End::Completed, true);
    (0..3).for_each(|_| ends.add(End::Completed, false));
    let knows = |journal: &JetStreamJournal| {
        let known = journal.overview_in(0, &session).unwrap();
        assert_eq!((known.ends, known.live.len()), (ends, 4));
        let recent: Vec<String> =
            known.recent.iter().map(|it| it.key.task_id.to_string()).collect();
        assert_eq!(recent.len(), 5, "{recent:?}");
        let nobody = journal.overview_in(0, &"other".parse().unwrap()).unwrap();
        assert_eq!(nobody, Overview::default());
    };
    knows(&first);
    knows(&owner(&server, kept.clone()).await);
    let second = owner(&server, kept.clone()).await;
    second.checkpoint(0).await.unwrap();
    let third = owner(&server, kept.clone()).await;
    knows(&third);
    // Fewer rows are kept than the checkpoint has: they count all the same.
    let fourth = owner(&server, LogSettings { ended_rows: 2, ..kept }).await;
    work(&fourth, &mut histories[2], 1).await.unwrap();
    let known = fourth.overview_in(0, &session).unwrap();
    assert_eq!((known.ends, known.live.len(), known.recent.len()), (ends, 4, 2));
    assert_knows(&fourth, &histories).await;
}

/// RECOVER-08, mechanisms 5: who takes a partition finds what is not known to be out, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_behind_the_mark_is_found_by_the_next_owner() {
    let server = nats();
    let first = owner(&server, small()).await;
    let mut history = History::of("s", "t");
    create(&first, &mut history).await;
    let (out, created) = (first.reached()[0], history.last_seq());
    first.note_published(0, out.epoch, out.last).await.unwrap();
    work(&first, &mut history, 1).await.unwrap();
    let worked = history.last_seq();
    complete(&first, &mut history).await;

    let second = owner(&server, small()).await;
    let taken = second.reached()[0];
    assert_eq!((taken.partition, taken.last), (0, taken.epoch));
    assert_eq!(second.out(0, taken.epoch).await, Ok(out.last));
    let mut behind = Vec::new();
    for at in out.last + 1..=taken.epoch {
        behind.extend(second.stored_at(0, taken.epoch, at).await.unwrap());
    }
    let behind: Vec<_> =
        behind.into_iter().map(|it| (it.key, it.after, it.last, it.ended)).collect();
    let key = || history.key.clone();
    let end = (key(), worked, history.last_seq(), Some(TaskStatus::Completed));
    assert_eq!(behind, [(key(), created, worked, None), end]);

    // Of an epoch that has passed nothing is said.
    assert_eq!(second.note_published(0, out.epoch, 1).await, Err(ReadError::NotOwner));
    assert_eq!(second.out(0, taken.epoch).await, Ok(out.last));
    let (context, _) = index_stream(&server).await;
    context.delete_stream("TENURE_INDEX").await.unwrap();
    assert_eq!(second.out(0, taken.epoch).await, Ok(0), "nothing is known, and all is near");
    second.note_published(0, taken.epoch, taken.last).await.unwrap();
    assert_eq!(second.out(0, taken.epoch).await, Ok(taken.last));
}

async fn listed_rows(journal: &JetStreamJournal) -> usize {
    journal.live().await.unwrap().len()
}

/// Mechanisms 5: a checkpoint is written when there are many commits or some time has passed, and no
/// commit waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_written_beside_the_commits() {
    let (commits, every) = (10, Duration::from_millis(300));
    let never = Duration::from_secs(3_600);
    for settings in [
        LogSettings { checkpoint_commits: commits, checkpoint_every: never, ..small() },
        LogSettings { checkpoint_commits: u64::MAX, checkpoint_every: every, ..small() },
    ] {
        let server = nats();
        let journal = owner(&server, settings).await;
        tasks(&journal, "t", 6).await;
        let begun = Instant::now();
        loop {
            let context = async_nats::jetstream::new(connect(&server).await);
            if let Ok(stream) = context.get_stream("TENURE_INDEX").await
                && manifest(&stream, 0).await.is_some()
            {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "there is no checkpoint");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// How long a partition with many ended Tasks takes to be taken: `TENURE_TASKS` of them, with 10,000
/// live ones. Run with `--ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr)]
async fn measure_takings() {
    let server = nats();
    let count = std::env::var("TENURE_TASKS").map_or(100_000, |count| count.parse().unwrap());
    let measured = LogSettings {
        partitions: 1,
        checkpoint_commits: u64::MAX,
        checkpoint_every: Duration::from_secs(36_000),
        timeout: Duration::from_secs(30),
        ..settings("one")
    };
    let journal = owner(&server, measured.clone()).await;
    let begun = Instant::now();
    let writes = futures::stream::iter(0..count + 10_000).map(|n| {
        let journal = &journal;
        async move {
            let mut history = History::of("s", &format!("t{n}")).on(journal);
            let mut commits = vec![history.create()];
            if n < count {
                commits.push(history.complete());
            }
            journal.create(&history.key, &history.wal_name, commits).await.unwrap();
        }
    });
    writes.buffer_unordered(2_000).collect::<Vec<()>>().await;
    eprintln!("written: {:?}", begun.elapsed());
    let begun = Instant::now();
    let whole = owner(&server, measured.clone()).await;
    eprintln!("taken, without a checkpoint: {:?}", begun.elapsed());
    let begun = Instant::now();
    whole.checkpoint(0).await.unwrap();
    eprintln!("checkpoint written: {:?}", begun.elapsed());
    let begun = Instant::now();
    let next = owner(&server, measured).await;
    eprintln!("taken, from the checkpoint: {:?}", begun.elapsed());
    assert_eq!(next.live().await.unwrap().len(), 10_000);
    let begun = Instant::now();
    let old = History::of("s", "t5");
    let entry = next.entry(&old.key).await.unwrap().unwrap();
    eprintln!("one ended task looked up: {:?}", begun.elapsed());
    assert_eq!(entry.ended, Some(End::Completed));
    assert_eq!(read_all(&next, &old.key).await.unwrap().len(), 2);
    let begun = Instant::now();
    assert_eq!(next.entries(None).await.unwrap().len(), count + 10_000);
    eprintln!("all tasks listed: {:?}", begun.elapsed());
}
