//! What it costs to read a log: about its own bytes, in few requests, whoever else writes there.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_nats::{Client, Subscriber};
use futures::StreamExt as _;
use parking_lot::Mutex;
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_core::Commit;
use tenure_ports::Journal as _;
use tenure_testkit::conformance::{History, read_all};

use crate::journal::{assert_holds, connect, create, settings, work};
use crate::servers::{Server, nats};

/// A node whose requests for messages are counted.
struct Node {
    journal: JetStreamJournal,
    client: Client,
    spy: Client,
    asked: Subscriber,
}

impl Node {
    async fn start(server: &Server, settings: LogSettings) -> Self {
        let client = connect(server).await;
        let journal = JetStreamJournal::open(client.clone(), settings).await.unwrap();
        journal.take(0).await.unwrap();
        let spy = connect(server).await;
        let asked = spy.subscribe("$JS.API.DIRECT.GET.>").await.unwrap();
        spy.flush().await.unwrap();
        Self { journal, client, spy, asked }
    }

    fn bytes(&self) -> u64 {
        self.client.statistics().in_bytes.load(Ordering::Relaxed)
    }

    /// Requests since it was asked last.
    async fn requests(&mut self) -> usize {
        self.spy.publish("$JS.API.DIRECT.GET.so.far", "".into()).await.unwrap();
        let mut count = 0;
        while !self.asked.next().await.unwrap().subject.ends_with(".so.far") {
            count += 1;
        }
        count
    }

    /// Commits that have some of these events.
    async fn part(&self, of: &History, events: RangeInclusive<u64>) -> Vec<Commit> {
        let page = Arc::<Mutex<Vec<Commit>>>::default();
        let into = Arc::clone(&page);
        let each = move |commit| {
            into.lock().push(commit);
            ControlFlow::Continue(())
        };
        self.journal.read_part(&of.key, events, each).await.unwrap();
        std::mem::take(&mut page.lock())
    }
}

async fn stream_bytes(server: &Server) -> u64 {
    let context = async_nats::jetstream::new(connect(server).await);
    let stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    stream.get_info().await.unwrap().state.bytes
}

fn one() -> LogSettings {
    LogSettings { partitions: 1, ..settings("one") }
}

/// GET-01, VIEW-12: a log is read once from its first part to its last, in few requests. One that an owner
/// knows by its newest frame alone is gone through once more, from its end back, and once for all.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_costs_about_its_bytes() {
    const FRAMES: usize = 600;
    let server = nats();
    let mut node = Node::start(&server, LogSettings { ended_rows: 1, ..one() }).await;
    let mut history = History::of("s", "t");
    create(&node.journal, &mut history).await;
    for _ in 0..FRAMES {
        work(&node.journal, &mut history, 20).await.unwrap(); // A frame each.
    }
    let log = stream_bytes(&server).await;
    assert_cost(&mut node, &history, log).await;
    end(&node.journal, &mut history).await;
    let mut other = History::of("s", "other");
    create(&node.journal, &mut other).await;
    end(&node.journal, &mut other).await; // It alone has a row.
    let mut next = Node::start(&server, LogSettings { ended_rows: 1, ..one() }).await;
    assert_cost(&mut next, &history, log * 2).await;
}

async fn assert_cost(node: &mut Node, history: &History, most: u64) {
    node.requests().await;
    let before = node.bytes();
    let read = read_all(&node.journal, &history.key).await.unwrap();
    assert!(read.iter().eq(history.commits.iter().map(|commit| &**commit)));
    let (bytes, requests) = (node.bytes() - before, node.requests().await);
    assert!(bytes <= most * 6 / 5, "{bytes} bytes instead of {most}");
    assert!(requests <= history.commits.len() / 10, "{requests} requests");
}

async fn end(journal: &JetStreamJournal, history: &mut History) {
    let after = history.last_seq();
    let end = history.complete();
    journal.append(&history.key, after, vec![end]).await.unwrap();
}

/// Reads a log page by page. Answers with the bytes that came and the requests that were sent.
async fn paged(node: &mut Node, history: &History) -> (u64, usize) {
    const PAGE: u64 = 1_000;
    let before = node.bytes();
    node.requests().await;
    let mut read: Vec<Commit> = Vec::new();
    while read.len() < history.commits.len() {
        let first = read.last().map_or(1, |commit| commit.last_seq() + 1);
        read.extend(node.part(history, first..=first + PAGE - 1).await);
    }
    assert!(read.iter().eq(history.commits.iter().map(|commit| &**commit)));
    (node.bytes() - before, node.requests().await)
}

/// VIEW-12: page by page a long log costs little more than as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_costs_no_more_page_by_page() {
    let server = nats();
    let mut node = Node::start(&server, one()).await;
    let mut history = History::of("s", "t");
    create(&node.journal, &mut history).await;
    for _ in 0..600 {
        work(&node.journal, &mut history, 20).await.unwrap();
    }
    let log = stream_bytes(&server).await;
    let (bytes, requests) = paged(&mut node, &history).await;
    assert!(bytes <= log * 6 / 5, "{bytes} bytes of {log}");
    assert!(requests <= 80, "{requests} requests");
}

/// VIEW-12: a long log that was taken in with one append costs no more page by page, and neither for the next
/// owner. It goes on behind its last frame.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_taken_in_costs_no_more_page_by_page() {
    let server = nats();
    let settings = LogSettings { message_bytes: 256 << 10, ..one() };
    let mut node = Node::start(&server, settings.clone()).await;
    let mut history = History::of("s", "t").on(&node.journal);
    history.create();
    while history.commits.len() < 3_000 {
        history.work(20);
    }
    let commits = history.commits.clone();
    node.journal.import(&history.key, &history.wal_name, commits).await.unwrap();
    work(&node.journal, &mut history, 2).await.unwrap();
    let log = stream_bytes(&server).await;
    for is_next in [false, true] {
        if is_next {
            node = Node::start(&server, settings.clone()).await;
        }
        let (bytes, requests) = paged(&mut node, &history).await;
        assert!(bytes <= log * 6 / 5, "{bytes} bytes of {log}");
        assert!(requests <= 80, "{requests} requests for {log} bytes");
    }
    work(&node.journal, &mut history, 2).await.unwrap();
    assert_holds(&node.journal, &history).await;
}

/// VIEW-12: of a log whose frames stand far apart, among those of many others, few others are read.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_is_not_read_for_a_task() {
    const FRAMES: usize = 60;
    let server = nats();
    let mut node = Node::start(&server, one()).await;
    let (mut history, mut other) = (History::of("s", "t"), History::of("s", "other"));
    create(&node.journal, &mut history).await;
    create(&node.journal, &mut other).await;
    for _ in 0..FRAMES {
        work(&node.journal, &mut history, 20).await.unwrap();
        for _ in 0..9 {
            work(&node.journal, &mut other, 20).await.unwrap();
        }
    }
    let (log, before) = (stream_bytes(&server).await / 10, node.bytes());
    node.requests().await;
    let read = read_all(&node.journal, &history.key).await.unwrap();
    assert!(read.iter().eq(history.commits.iter().map(|commit| &**commit)));
    let (bytes, requests) = (node.bytes() - before, node.requests().await);
    assert!(bytes <= log * 9 / 4, "{bytes} bytes, of which {log} are its own");
    assert!(requests <= FRAMES + 5, "{requests} requests for {FRAMES} frames");
}
