//! Blobs in files (VALUE-01).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use tenure_core::id::{SessionId, TaskId};
use tenure_core::record::Blob;
use tenure_local::FileBlobs;
use tenure_ports::blobs::BlobStore as _;
use tenure_ports::journal::TaskKey;
use tenure_testkit::conformance::{QUOTA, blobs_suite};

fn key() -> TaskKey {
    let session_id = SessionId::new("main").unwrap();
    TaskKey { session_id, task_id: TaskId::new("t").unwrap() }
}

#[tokio::test]
async fn files_keep_to_the_contract() {
    blobs_suite(async || {
        let data = tempfile::tempdir().unwrap();
        (FileBlobs::open(data.path(), QUOTA), data)
    })
    .await;
}

/// VALUE-01: blobs are beside the logs, never among those of a session, and are for their user alone, as logs are.
#[tokio::test]
async fn a_blob_is_a_file_of_its_own() {
    let data = tempfile::tempdir().unwrap();
    let store = FileBlobs::open(data.path(), QUOTA);
    let bytes: Arc<[u8]> = vec![7; 70_000].into();
    let blob = Blob::of(&bytes);
    store.put(&key(), blob, Arc::clone(&bytes)).await.unwrap();
    let path = data.path().join("blobs/main/t").join(blob.hash.to_string());
    assert_eq!(fs::read(&path).unwrap(), *bytes);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path) & 0o777, 0o600);
    assert_eq!(mode(path.parent().unwrap()) & 0o777, 0o700);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
}

/// VALUE-01: a damaged blob is as good as none, until somebody puts it again. It was counted once.
#[tokio::test]
async fn a_damaged_blob_is_not_read_and_is_put_again() {
    let data = tempfile::tempdir().unwrap();
    let store = FileBlobs::open(data.path(), QUOTA);
    let bytes: Arc<[u8]> = vec![7; usize::try_from(QUOTA).unwrap()].into();
    let blob = Blob::of(&bytes);
    store.put(&key(), blob, Arc::clone(&bytes)).await.unwrap();
    let path = data.path().join("blobs/main/t").join(blob.hash.to_string());
    let mut damaged = bytes.to_vec();
    damaged[100] ^= 1;
    fs::write(&path, damaged).unwrap();
    assert_eq!(store.get(&key(), blob.hash).await, Ok(None));
    store.put(&key(), blob, Arc::clone(&bytes)).await.unwrap();
    assert_eq!(store.get(&key(), blob.hash).await, Ok(Some(bytes)));
}

/// VALUE-01: another process finds how much a session has, and takes no draft for a blob.
#[tokio::test]
async fn a_quota_counts_what_is_there() {
    let data = tempfile::tempdir().unwrap();
    let bytes: Arc<[u8]> = vec![7; usize::try_from(QUOTA).unwrap()].into();
    let blob = Blob::of(&bytes);
    FileBlobs::open(data.path(), QUOTA).put(&key(), blob, bytes).await.unwrap();
    fs::write(data.path().join("blobs/main/t").join(format!("{}.1-0.new", blob.hash)), "x")
        .unwrap();
    let store = FileBlobs::open(data.path(), QUOTA);
    assert_eq!(store.list(None).await.unwrap().len(), 1);
    let more: Arc<[u8]> = vec![1].into();
    assert!(store.put(&key(), Blob::of(&more), more).await.is_err());
}
