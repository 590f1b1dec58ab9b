//! Blobs in JetStream (VALUE-01).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use tenure_cluster::{JetStreamBlobs, LogSettings};
use tenure_core::id::{SessionId, TaskId};
use tenure_core::record::Blob;
use tenure_ports::BlobStore as _;
use tenure_ports::blobs::{BlobError, QUOTA_BYTES_MIN, every_task};
use tenure_ports::journal::TaskKey;
use tenure_testkit::conformance::{QUOTA, blobs_suite};
use tokio::time::timeout;

use crate::journal::{connect, settings};
use crate::servers::nats;

fn key(task: &str) -> TaskKey {
    let session_id = SessionId::new("s").unwrap();
    TaskKey { session_id, task_id: TaskId::new(task).unwrap() }
}

/// Puts a blob of so many bytes.
async fn put(store: &JetStreamBlobs, task: &TaskKey, length: u64) -> Result<(), BlobError> {
    let bytes: Arc<[u8]> = vec![7; usize::try_from(length).unwrap()].into();
    store.put(task, Blob::of(&bytes), bytes).await
}

#[tokio::test(flavor = "multi_thread")]
async fn jetstream_is_a_store_of_blobs() {
    let server = Arc::new(nats());
    let number = AtomicU64::new(0);
    blobs_suite(|| {
        let server = Arc::clone(&server);
        let name = format!("N{}", number.fetch_add(1, Ordering::SeqCst));
        async move {
            let settings = LogSettings { name, ..settings("one") };
            (JetStreamBlobs::new(connect(&server).await, settings, QUOTA), server)
        }
    })
    .await;
}

/// VALUE-01: what one node has put another one finds at once; a blob whose parts do not have its hash is as
/// good as none, until somebody puts it again.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_blobs_and_take_no_damaged_one() {
    let server = nats();
    let one = JetStreamBlobs::new(connect(&server).await, settings("one"), QUOTA);
    let two = JetStreamBlobs::new(connect(&server).await, settings("two"), QUOTA);
    let task = key("t");
    let bytes: Arc<[u8]> = vec![7; 1_200_000].into();
    let blob = Blob::of(&bytes);
    assert_eq!(two.stat(&task, blob.hash).await, Ok(None), "there is no stream yet");
    one.put(&task, blob, Arc::clone(&bytes)).await.unwrap();
    assert_eq!(two.get(&task, blob.hash).await, Ok(Some(Arc::clone(&bytes))));
    let context = async_nats::jetstream::new(connect(&server).await);
    let subject = format!("tenure.blob.s.t.{}.2", blob.hash);
    context.publish(subject, vec![8; 10].into()).await.unwrap().await.unwrap();
    assert_eq!(two.get(&task, blob.hash).await, Ok(None));
    two.put(&task, blob, Arc::clone(&bytes)).await.unwrap();
    assert_eq!(one.get(&task, blob.hash).await, Ok(Some(bytes)));
}

/// VALUE-01: another node counts short blobs as the one that put them.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_counts_short_blobs_of_other_nodes() {
    let server = nats();
    let one = JetStreamBlobs::new(connect(&server).await, settings("one"), QUOTA);
    let two = JetStreamBlobs::new(connect(&server).await, settings("two"), QUOTA);
    for length in 0..QUOTA / QUOTA_BYTES_MIN {
        put(&one, &key("t"), length).await.unwrap();
    }
    let session = key("t").session_id;
    let full = Err(BlobError::Quota { session, used: QUOTA, most: QUOTA });
    assert_eq!(put(&two, &key("t"), 1_000).await, full);
}

/// A list reads the heads of those Tasks alone that are asked for: one that is no head hinders no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_reads_no_heads_of_other_tasks() {
    let server = nats();
    let store = JetStreamBlobs::new(connect(&server).await, settings("one"), QUOTA);
    put(&store, &key("t"), 10).await.unwrap();
    let context = async_nats::jetstream::new(connect(&server).await);
    let subject = format!("tenure.blob.s.other.{}.0", Blob::of(&[7; 10]).hash);
    context.publish(subject, "no head".into()).await.unwrap().await.unwrap();
    assert!(store.list(None, every_task()).await.is_err());
    let listed = store.list(None, Box::new(|task| *task == key("t"))).await.unwrap();
    assert_eq!(listed.into_iter().map(|one| one.task).collect::<Vec<_>>(), [key("t")]);
}

/// A list waits for several heads at a time, and never for many.
#[tokio::test(flavor = "multi_thread")]
async fn heads_are_read_a_few_at_a_time() {
    let server = nats();
    let store = JetStreamBlobs::new(connect(&server).await, settings("one"), QUOTA);
    for task in 0..40 {
        put(&store, &key(&format!("t{task}")), 10).await.unwrap();
    }
    let watching = connect(&server).await;
    let mut seen = watching.subscribe(">").await.unwrap();
    watching.flush().await.unwrap();
    assert_eq!(store.list(None, every_task()).await.unwrap().len(), 40);
    let (mut in_flight, mut answered) = (HashSet::new(), HashSet::new());
    let (mut asked, mut most) = (0, 0);
    while asked < 40 || !in_flight.is_empty() {
        let message = timeout(Duration::from_secs(10), seen.next()).await.unwrap().unwrap();
        if message.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
            let inbox = message.reply.unwrap().to_string();
            asked += 1;
            // The server may pass on an answer before its question.
            if !answered.contains(&inbox) {
                in_flight.insert(inbox);
            }
            most = most.max(in_flight.len());
        } else {
            in_flight.remove(message.subject.as_str());
            answered.insert(message.subject.to_string());
        }
    }
    // Eight; this connection may learn of questions and answers a little later than the one that asked.
    assert!((2..=30).contains(&most), "{most} at a time");
}
