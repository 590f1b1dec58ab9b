//! Blobs in JetStream (VALUE-01).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_cluster::{JetStreamBlobs, LogSettings};
use tenure_core::id::{SessionId, TaskId};
use tenure_core::record::Blob;
use tenure_ports::BlobStore as _;
use tenure_ports::journal::TaskKey;
use tenure_testkit::conformance::{QUOTA, blobs_suite};

use crate::journal::{connect, settings};
use crate::servers::nats;

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
    let session_id = SessionId::new("s").unwrap();
    let task = TaskKey { session_id, task_id: TaskId::new("t").unwrap() };
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
