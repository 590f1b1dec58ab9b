//! What goes into one append, and what becomes of one that is stored in part, or not where it should be.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use nix::sys::signal::Signal;
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_ports::Journal;
use tenure_ports::journal::AppendError;
use tenure_testkit::conformance::History;
use tenure_wire::stored::frame::{Chunk, decode};

use crate::capacity::{ask, len};
use crate::damage::frame;
use crate::journal::{assert_holds, connect, create, owner, settings, work};
use crate::servers::{Server, nats, nats_with};

type Write<'a> = Pin<Box<dyn Future<Output = Result<(), AppendError>> + Send + 'a>>;

fn creation<'a>(journal: &'a JetStreamJournal, of: &'a History) -> Write<'a> {
    Box::pin(journal.create(&of.key, &of.wal_name, of.commits.clone()))
}

/// How many commits each frame has that is written when Tasks are created, one behind whose append the
/// others wait.
async fn frames_of_waiting(
    server: &Server,
    settings: LogSettings,
    histories: &mut [History],
) -> Vec<usize> {
    let stream = format!("{}_WAL_0", settings.name);
    let client = connect(server).await;
    let journal = JetStreamJournal::open(client.clone(), settings).await.unwrap();
    let epoch = journal.take(0).await.unwrap();
    for history in histories.iter_mut() {
        history.epoch = epoch;
        history.create();
    }
    server.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(100)).await; // It may be answering still.
    let said = || client.statistics().out_messages.load(Ordering::Relaxed);
    let before = said();
    let creation = |history| creation(&journal, history);
    let mut writes: Vec<Write<'_>> = histories.iter().map(creation).collect();
    for (at, write) in writes.iter_mut().enumerate() {
        assert!(ask(write.as_mut()).await.is_pending());
        while at == 0 && said() == before {
            tokio::time::sleep(Duration::from_millis(1)).await; // It is not on its way yet.
        }
    }
    server.signal(Signal::SIGCONT);
    let written = futures::future::join_all(writes).await;
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    for history in [histories.first(), histories.last()].into_iter().flatten() {
        assert_holds(&journal, history).await;
    }
    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream(stream).await.unwrap();
    let mut frames = Vec::new();
    for at in epoch + 1..=last_seq(&stream).await {
        let message = stream.get_raw_message(at).await.unwrap();
        frames.push(decode(&message.payload).unwrap().commits().count());
    }
    frames
}

async fn last_seq(stream: &Stream) -> u64 {
    stream.get_info().await.unwrap().state.last_sequence
}

/// WAL-10, mechanisms 1: a frame has 1,000 commits of the Tasks that wait, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_cut_into_frames_by_commits() {
    let server = nats_with("max_payload: 8MB");
    for (name, waiting, frames) in [("AT", 1_000, &[1, 1_000][..]), ("OVER", 1_001, &[1, 1_000, 1])]
    {
        let (name, message_bytes) = (name.to_owned(), 4 << 20);
        let one = LogSettings { name, message_bytes, partitions: 1, ..settings("one") };
        let mut histories: Vec<History> =
            (0..=waiting).map(|n| History::of("s", &format!("t{n}"))).collect();
        assert_eq!(frames_of_waiting(&server, one, &mut histories).await, frames, "{waiting}");
    }
}

/// WAL-10, mechanisms 1: a frame has commits of as many bytes as leave it half of a message for what it
/// says of them, and no more; a message has 512 KiB, unless told otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_cut_into_frames_by_bytes() {
    assert_eq!(LogSettings::default().message_bytes, 512 << 10);
    let server = nats();
    let tasks = || ["a", "b", "c", "d"].map(|task| History::of("s", task));
    let [_, b, c, d] = tasks().map(|mut history| {
        history.epoch = 1;
        len(&history.create())
    });
    let (at, over) = (2 * (b + c), 2 * (b + c).min(c + d) - 2);
    let cases = [("AT", at, &[1, 2, 1][..]), ("OVER", over, &[1, 1, 1, 1])];
    for (name, message_bytes, frames) in cases {
        let name = name.to_owned();
        let one = LogSettings { name, message_bytes, partitions: 1, ..settings("one") };
        let written = frames_of_waiting(&server, one, &mut tasks()).await;
        assert_eq!(written, frames, "{message_bytes}");
    }
}

/// Mechanisms 1: a store that says that it ends before what it acknowledged has lost data: the partition
/// stops, whoever asked is told why, and nothing is written over what may come back.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_to_a_store_that_lost_data_stops_the_partition() {
    let mut server = nats();
    let one = LogSettings { partitions: 1, ..settings("one") };
    let journal = owner(&server, one.clone()).await;
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    server.kill();
    std::fs::remove_dir_all(server.dir().join("js")).unwrap();
    server.restart();
    tokio::time::sleep(Duration::from_millis(500)).await;
    JetStreamJournal::open(connect(&server).await, one).await.unwrap();
    let lost = work(&journal, &mut history, 1).await.unwrap_err();
    let is_told = matches!(&lost, AppendError::MustReread(why) if why.contains("has lost data"));
    assert!(is_told, "{lost}");
    assert_eq!(journal.owned().epoch(0), None);
    let refused = work(&journal, &mut history, 1).await.unwrap_err();
    assert!(matches!(refused, AppendError::NotOwner), "{refused}");
    let context = async_nats::jetstream::new(connect(&server).await);
    let stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    assert_eq!(last_seq(&stream).await, 0, "nothing was written");
}

/// Mechanisms 10: a batch of which a part is stored, as by a server that died, is void. Who wrote it
/// cannot say more and stops; readers pass over it, and its wal_seqs are used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_stored_in_part_is_void() {
    let server = nats();
    let small = LogSettings { message_bytes: 300, partitions: 1, ..settings("one") };
    let journal = owner(&server, small.clone()).await;
    let mut history = History::of("s", "t").on(&journal);
    create(&journal, &mut history).await;
    let context = async_nats::jetstream::new(connect(&server).await);
    let stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    let (after, last) = (history.last_seq(), last_seq(&stream).await);
    let void = history.work(20);
    history.commits.pop();
    let whole = frame(&history, &void, last);
    let of = u32::try_from(whole.len().div_ceil(small.message_bytes)).unwrap();
    let first = Chunk { index: 0, of, part: &whole[..small.message_bytes] }.encode();
    for _ in 0..of {
        // The first is where the batch begins; what is behind it is of others that broke off, too.
        let stored = context.publish("tenure.wal.0", Bytes::from(first.clone())).await.unwrap();
        stored.await.unwrap();
    }
    let unknown = journal.append(&history.key, after, vec![void.clone()]).await.unwrap_err();
    let AppendError::Unsettled(why) = &unknown else { panic!("{unknown}") };
    assert!(why.contains("part of a batch"), "{why}");
    assert_eq!(journal.owned().epoch(0), None, "another owner's record will settle it");
    assert_eq!(last_seq(&stream).await, last + u64::from(of), "nothing was written");

    let next = owner(&server, small.clone()).await;
    assert_holds(&next, &history).await;
    work(&next, &mut history, 20).await.unwrap();
    assert_eq!(history.commits[1].first_seq, void.first_seq);
    assert_holds(&next, &history).await;
    assert_holds(&owner(&server, small).await, &history).await;
}
