//! Taking partitions with much in them: neither the server nor the connection is asked for more than it
//! can bear.

use std::sync::atomic::Ordering;

use async_nats::Client;
use bytes::Bytes;
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_ports::Journal;
use tenure_testkit::conformance::History;
use tenure_wire::stored::frame::{CommitHead, FRAME_VERSION, Header, encode_header};

use crate::journal::{assert_holds, connect, create, owner, settings};
use crate::servers::{nats, nats_with};

async fn take_all(client: Client, settings: LogSettings) -> JetStreamJournal {
    let partitions = settings.partitions;
    let journal = JetStreamJournal::open(client, settings).await.unwrap();
    let taken = futures::future::join_all((0..partitions).map(|at| journal.take(at))).await;
    taken.into_iter().for_each(|taken| assert!(taken.is_ok(), "{taken:?}"));
    journal
}

/// Mechanisms 5: thousands of live Tasks are read at once, and each message that they share is fetched
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn live_tasks_share_what_is_read_of_them() {
    const TASKS: usize = 2_000;
    let server = nats();
    let two = LogSettings { partitions: 2, ..settings("one") };
    let journal = owner(&server, two.clone()).await;
    let mut histories: Vec<History> =
        (0..TASKS).map(|n| History::of("s", &format!("t{n}"))).collect();
    futures::future::join_all(histories.iter_mut().map(|history| create(&journal, history))).await;
    let context = async_nats::jetstream::new(connect(&server).await);
    let mut stored = 0;
    for name in ["TENURE_WAL_0", "TENURE_WAL_1"] {
        stored += context.get_stream(name).await.unwrap().cached_info().state.messages;
    }
    assert!(stored < (TASKS / 4) as u64, "{stored} messages: they share few");
    let client = connect(&server).await;
    let heir = take_all(client.clone(), two).await;
    assert_eq!(heir.live().await.unwrap().len(), TASKS);
    let before = client.statistics().in_messages.load(Ordering::Relaxed);
    futures::future::join_all(histories.iter().map(|history| assert_holds(&heir, history))).await;
    let fetched = client.statistics().in_messages.load(Ordering::Relaxed) - before;
    assert!(fetched <= stored, "{fetched} messages came for {stored} that there are");
}

/// The server cuts off who is asked to take more than it waits to send: partitions are read in turns.
/// Without them, 32 MiB are asked for at once, and with them 8.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_read_without_losing_the_connection() {
    const LINES: usize = 500 << 10;
    let server = nats_with("max_pending: 24MB");
    let many = LogSettings { partitions: 16, ..settings("one") };
    drop(JetStreamJournal::open(connect(&server).await, many.clone()).await.unwrap());
    let context = async_nats::jetstream::new(connect(&server).await);
    for number in 0..12 * many.partitions {
        let history = History::of("s", &format!("t{number}"));
        let head = CommitHead {
            session_id: history.key.session_id.clone(),
            task_id: history.key.task_id.clone(),
            first_seq: 1,
            last_seq: 1,
            created_at: 0,
            prev: 0,
            len: u32::try_from(LINES).unwrap(),
            named: None,
            ended: None,
            failed_as: None,
            archived: false,
        };
        let header = Header::Commits { version: FRAME_VERSION, epoch: 1, commits: vec![head] };
        let mut frame = encode_header(&header, LINES).unwrap();
        frame.resize(frame.len() + LINES, 0); // Nobody looks at them to take a partition.
        let subject = format!("tenure.wal.{}", number % many.partitions);
        context.publish(subject, Bytes::from(frame)).await.unwrap().await.unwrap();
    }
    let client = connect(&server).await;
    let journal = take_all(client.clone(), many).await;
    assert_eq!(journal.live().await.unwrap().len(), 192);
    assert_eq!(client.statistics().connects.load(Ordering::Relaxed), 1);
}
