//! What is asked of JetStream and not answered by whoever has it, as by a server that is frozen: it is asked
//! again, or asked of another, long before all patience is over.

use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Config;
use async_nats::{Client, Subscriber};
use futures::StreamExt as _;
use tenure_cluster::LogSettings;
use tenure_testkit::conformance::History;

use crate::journal::{assert_holds, connect, create, owner, settings, work};
use crate::servers::{Server, nats};

/// More than a node waits for one that says nothing, and much less than its patience.
const SOON: Duration = Duration::from_secs(8);

fn patient() -> LogSettings {
    LogSettings { partitions: 1, timeout: Duration::from_secs(30), ..settings("one") }
}

/// Has what is said to a subject come to somebody who never answers, and not to the stream.
async fn silence(client: &Client, subject: &'static str, change: fn(&mut Config)) -> Subscriber {
    let heard = client.subscribe(subject).await.unwrap();
    client.flush().await.unwrap();
    update(client, change).await;
    heard
}

async fn update(client: &Client, change: fn(&mut Config)) {
    let context = async_nats::jetstream::new(client.clone());
    let stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    let mut config = stream.get_info().await.unwrap().config;
    change(&mut config);
    context.update_stream(config).await.unwrap();
}

async fn begun(server: &Server) -> (tenure_cluster::JetStreamJournal, History) {
    let journal = owner(server, patient()).await;
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    for _ in 0..2 {
        work(&journal, &mut history, 2).await.unwrap();
    }
    (journal, history)
}

/// Mechanisms 1: an append that nobody acknowledges is sent again after a second, the same at the same place: by
/// then another may lead.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_nobody_acknowledges_is_sent_again_soon() {
    let server = nats();
    let (journal, mut history) = begun(&server).await;
    let client = connect(&server).await;
    let mut heard =
        silence(&client, "tenure.wal.0", |to| to.subjects = vec!["tenure.nowhere".into()]).await;
    let again = async {
        let first = heard.next().await.unwrap();
        let sent = Instant::now();
        let second = heard.next().await.unwrap();
        let place = |message: &async_nats::Message| {
            message.headers.as_ref().unwrap().get("Nats-Expected-Last-Sequence").cloned()
        };
        assert_eq!((&first.payload, place(&first)), (&second.payload, place(&second)));
        assert!(sent.elapsed() < SOON, "{:?}", sent.elapsed());
        update(&client, |to| to.subjects = vec!["tenure.wal.0".into()]).await;
    };
    let (written, ()) = tokio::join!(work(&journal, &mut history, 1), again);
    written.unwrap();
    assert_holds(&journal, &history).await;
}

/// GET-01: where the server that is asked for a log says nothing, the leader is asked after a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_although_a_follower_says_nothing() {
    let server = nats();
    let (journal, history) = begun(&server).await;
    let client = connect(&server).await;
    let _heard =
        silence(&client, "$JS.API.DIRECT.GET.TENURE_WAL_0", |to| to.allow_direct = false).await;
    let asked = Instant::now();
    assert_holds(&journal, &history).await;
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}
