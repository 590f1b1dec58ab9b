//! Blobs in files (VALUE-01).

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure_core::Limits;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::record::Blob;
use tenure_local::FileBlobs;
use tenure_ports::blobs::{BlobError, BlobStore as _, QUOTA_BYTES_MIN, SESSION_QUOTA, every_task};
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

/// VALUE-02: a file that is longer than a blob may be is none, whatever its hash, and is not read: a sparse one could
/// be longer than the memory. The blob can be put again.
#[tokio::test]
async fn what_is_longer_than_a_blob_is_not_read() {
    let data = tempfile::tempdir().unwrap();
    let store = FileBlobs::open(data.path(), SESSION_QUOTA);
    let most = usize::try_from(Limits::default().blob_bytes_max).unwrap();
    let bytes: Arc<[u8]> = vec![0; most].into();
    let longest = Blob::of(&bytes);
    store.put(&key(), longest, Arc::clone(&bytes)).await.unwrap();
    let read = async |blob: Blob| store.get(&key(), blob.hash).await.unwrap().map(|it| it.len());
    assert_eq!(read(longest).await, Some(most));

    let dir = data.path().join("blobs/main/t");
    let longer = Blob::of(&vec![0; most + 1]);
    let sparse = File::create(dir.join(longer.hash.to_string())).unwrap();
    sparse.set_len(longer.size_bytes).unwrap();
    assert_eq!(read(longer).await, None);

    let sparse = File::options().write(true).open(dir.join(longest.hash.to_string())).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert_eq!(read(longest).await, None);
    store.put(&key(), longest, bytes).await.unwrap();
    assert_eq!(read(longest).await, Some(most));
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
    assert_eq!(store.list(None, every_task()).await.unwrap().len(), 1);
    let more: Arc<[u8]> = vec![1].into();
    assert!(store.put(&key(), Blob::of(&more), more).await.is_err());
}

/// VALUE-01: another process counts short blobs as the one that put them.
#[tokio::test]
async fn a_quota_counts_short_blobs_that_are_there() {
    let data = tempfile::tempdir().unwrap();
    let put = async |store: &FileBlobs, length: u64| {
        let bytes: Arc<[u8]> = vec![7; usize::try_from(length).unwrap()].into();
        store.put(&key(), Blob::of(&bytes), bytes).await
    };
    let one = FileBlobs::open(data.path(), QUOTA);
    for length in 0..QUOTA / QUOTA_BYTES_MIN {
        put(&one, length).await.unwrap();
    }
    let refused = put(&FileBlobs::open(data.path(), QUOTA), 1_000).await;
    let session = key().session_id;
    assert_eq!(refused, Err(BlobError::Quota { session, used: QUOTA, most: QUOTA }));
}

/// A list looks into the directories of those Tasks alone that are asked for, also for drafts that were left.
#[tokio::test]
async fn a_list_looks_at_no_other_tasks() {
    let data = tempfile::tempdir().unwrap();
    let drafts = ["t", "u"].map(|task| data.path().join("blobs/main").join(task).join("x.new"));
    for draft in &drafts {
        fs::create_dir_all(draft.parent().unwrap()).unwrap();
        let draft = File::create(draft).unwrap();
        draft.set_modified(SystemTime::now() - Duration::from_secs(48 * 60 * 60)).unwrap();
    }
    let store = FileBlobs::open(data.path(), QUOTA);
    let listed = store.list(None, Box::new(|task| *task == key())).await;
    assert_eq!(listed, Ok(vec![]));
    assert_eq!(drafts.map(|draft| draft.exists()), [false, true]);
}

/// VALUE-01: a data directory may come from elsewhere. Where it has a link in place of a directory, nothing is read,
/// written or deleted behind that, neither the blobs nor what looks like a draft that was left.
#[tokio::test]
async fn no_link_leads_to_blobs() {
    let bytes: Arc<[u8]> = vec![7; 10].into();
    let (blob, more): (_, Arc<[u8]>) = (Blob::of(&bytes), vec![8; 10].into());
    for level in ["blobs", "blobs/main", "blobs/main/t"] {
        let (data, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // All of it is elsewhere, and only from the level on it seems to be here.
        let theirs = elsewhere.path().join("blobs/main/t");
        fs::create_dir_all(&theirs).unwrap();
        fs::write(theirs.join(blob.hash.to_string()), &bytes).unwrap();
        let draft = File::create(theirs.join("precious.new")).unwrap();
        draft.set_modified(SystemTime::now() - Duration::from_secs(48 * 60 * 60)).unwrap();
        let link = data.path().join(level);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(elsewhere.path().join(level), &link).unwrap();

        let store = FileBlobs::open(data.path(), QUOTA);
        for session in [None, Some(&key().session_id)] {
            let listed = store.list(session, every_task()).await;
            match level {
                "blobs" => refused(level, listed),
                _ => assert_eq!(listed, Ok(vec![]), "{level}"),
            }
        }
        refused(level, store.get(&key(), blob.hash).await);
        refused(level, store.stat(&key(), blob.hash).await);
        refused(level, store.delete(&key(), blob.hash).await);
        refused(level, store.put(&key(), blob, Arc::clone(&bytes)).await);
        refused(level, store.put(&key(), Blob::of(&more), Arc::clone(&more)).await);
        let left = fs::read_dir(&theirs).unwrap().count();
        assert_eq!(left, 2, "{level}: the blob and the old file are there, and nothing else");
    }
}

fn refused<T: std::fmt::Debug>(level: &str, result: Result<T, BlobError>) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(&format!("{level} is no regular directory")), "{level}: {error}");
}

/// A list leaves out links and what else is no directory, and has what is beside them.
#[tokio::test]
async fn a_list_has_what_is_beside_links() {
    let data = tempfile::tempdir().unwrap();
    let store = FileBlobs::open(data.path(), QUOTA);
    let bytes: Arc<[u8]> = vec![7; 10].into();
    store.put(&key(), Blob::of(&bytes), bytes).await.unwrap();
    let blobs = data.path().join("blobs");
    symlink(blobs.join("main"), blobs.join("other")).unwrap();
    symlink(blobs.join("main/t"), blobs.join("main/u")).unwrap();
    symlink(data.path().join("nowhere"), blobs.join("main/v")).unwrap();
    fs::write(blobs.join("file"), "x").unwrap();
    let tasks: Vec<_> =
        store.list(None, every_task()).await.unwrap().into_iter().map(|it| it.task).collect();
    assert_eq!(tasks, [key()]);
}
