//! The conformance suite of stores of blobs.

use std::future::Future;
use std::sync::Arc;

use tenure_core::id::{SessionId, TaskId};
use tenure_core::record::Blob;
use tenure_core::{Code, Limits, Rejection};
use tenure_ports::blobs::{BlobError, BlobStore, QUOTA_BYTES_MIN, every_task};
use tenure_ports::journal::TaskKey;

/// How many bytes the blobs of a session may have in the stores of the suite.
pub const QUOTA: u64 = 3 << 20;

/// The contract of [`BlobStore`]. `make` gives an empty store with that [`QUOTA`], and what must outlive
/// it.
pub async fn blobs_suite<B, G, F>(make: impl Fn() -> F)
where
    B: BlobStore,
    F: Future<Output = (B, G)>,
{
    macro_rules! run {
        ($($check:ident),+ $(,)?) => {$({
            let (store, _guard) = make().await;
            $check(&store).await;
        })+};
    }
    run!(
        what_was_put_is_read,
        what_was_not_put_is_not_there,
        bytes_of_another_blob_are_refused,
        what_is_too_large_is_refused,
        a_blob_belongs_to_one_task,
        what_is_put_again_is_there_once,
        lists_are_of_all_or_of_a_session,
        lists_are_of_the_tasks_that_are_asked_for,
        a_deleted_blob_is_gone_and_may_be_put_again,
        a_session_has_its_quota,
        a_quota_bounds_how_many_blobs_there_are,
    );
}

fn key(session: &str, task: &str) -> TaskKey {
    let session_id = SessionId::new(session).unwrap();
    TaskKey { session_id, task_id: TaskId::new(task).unwrap() }
}

/// A blob of so many bytes.
fn made(byte: u8, bytes: usize) -> (Blob, Arc<[u8]>) {
    let bytes: Arc<[u8]> = vec![byte; bytes].into();
    (Blob::of(&bytes), bytes)
}

/// VALUE-01
async fn what_was_put_is_read<B: BlobStore>(store: &B) {
    // Of a few bytes, of none, and of more than a message of any bus carries.
    for (byte, bytes) in [(1, 70_000), (2, 0), (3, (2 << 20) + 1)] {
        let (blob, bytes) = made(byte, bytes);
        let task = key("s", "t");
        store.put(&task, blob, Arc::clone(&bytes)).await.unwrap();
        assert_eq!(store.stat(&task, blob.hash).await.unwrap(), Some(blob.size_bytes));
        assert_eq!(store.get(&task, blob.hash).await.unwrap(), Some(bytes));
    }
}

/// VALUE-01
async fn what_was_not_put_is_not_there<B: BlobStore>(store: &B) {
    let (blob, _) = made(1, 10);
    assert_eq!(store.stat(&key("s", "t"), blob.hash).await, Ok(None));
    assert_eq!(store.get(&key("s", "t"), blob.hash).await, Ok(None));
    assert_eq!(store.list(None, every_task()).await, Ok(vec![]));
    assert_eq!(store.delete(&key("s", "t"), blob.hash).await, Ok(()));
}

/// VALUE-01: hash and size are checked.
async fn bytes_of_another_blob_are_refused<B: BlobStore>(store: &B) {
    let (blob, bytes) = made(1, 10);
    let (other, _) = made(2, 10);
    let longer = Blob { size_bytes: 11, ..blob };
    for wrong in [other, longer] {
        let put = store.put(&key("s", "t"), wrong, Arc::clone(&bytes)).await;
        assert_eq!(put, Err(BlobError::OtherBytes(wrong)));
        assert_eq!(store.stat(&key("s", "t"), wrong.hash).await, Ok(None));
    }
}

/// VALUE-02: nobody could read it again.
async fn what_is_too_large_is_refused<B: BlobStore>(store: &B) {
    let most = usize::try_from(Limits::default().blob_bytes_max).unwrap();
    let (blob, bytes) = made(1, most + 1);
    let refused = store.put(&key("s", "t"), blob, bytes).await.unwrap_err();
    assert!(matches!(refused, BlobError::TooLarge(_)), "{refused:?}");
    assert_eq!(Rejection::from(refused).code, Code::ValueTooLarge);
    assert_eq!(store.stat(&key("s", "t"), blob.hash).await, Ok(None));
}

/// VALUE-01: another Task does not have it, nor has a Task of that name in another session.
async fn a_blob_belongs_to_one_task<B: BlobStore>(store: &B) {
    let (blob, bytes) = made(1, 10);
    store.put(&key("s", "t"), blob, bytes).await.unwrap();
    for other in [key("s", "u"), key("r", "t")] {
        assert_eq!(store.stat(&other, blob.hash).await, Ok(None));
        assert_eq!(store.get(&other, blob.hash).await, Ok(None));
        store.delete(&other, blob.hash).await.unwrap();
    }
    assert_eq!(store.stat(&key("s", "t"), blob.hash).await, Ok(Some(10)));
}

/// VALUE-01
async fn what_is_put_again_is_there_once<B: BlobStore>(store: &B) {
    let (blob, bytes) = made(1, 1 << 20);
    for _ in 0..5 {
        store.put(&key("s", "t"), blob, Arc::clone(&bytes)).await.unwrap();
    }
    assert_eq!(store.list(None, every_task()).await.unwrap().len(), 1);
}

/// VALUE-01
async fn lists_are_of_all_or_of_a_session<B: BlobStore>(store: &B) {
    for (session, task, byte) in [("s", "t", 1), ("s", "t", 2), ("s", "u", 1), ("r", "t", 1)] {
        let (blob, bytes) = made(byte, 10);
        store.put(&key(session, task), blob, bytes).await.unwrap();
    }
    assert_eq!(store.list(None, every_task()).await.unwrap().len(), 4);
    let session = SessionId::new("s").unwrap();
    let mut listed = store.list(Some(&session), every_task()).await.unwrap();
    listed.sort_by_key(|one| (one.task.clone(), one.blob));
    let named = |one: &tenure_ports::blobs::StoredBlob| (one.task.to_string(), one.blob);
    let mut expected = vec![("s/t".to_owned(), made(1, 10).0), ("s/t".to_owned(), made(2, 10).0)];
    expected.push(("s/u".to_owned(), made(1, 10).0));
    expected.sort();
    assert_eq!(listed.iter().map(named).collect::<Vec<_>>(), expected);
    assert!(listed.iter().all(|one| one.put_at > 1_600_000_000_000), "{listed:?}");
    let none = SessionId::new("q").unwrap();
    assert_eq!(store.list(Some(&none), every_task()).await, Ok(vec![]));
}

/// VALUE-01
async fn lists_are_of_the_tasks_that_are_asked_for<B: BlobStore>(store: &B) {
    for (session, task) in [("s", "t"), ("s", "u"), ("r", "t"), ("r", "u")] {
        let (blob, bytes) = made(1, 10);
        store.put(&key(session, task), blob, bytes).await.unwrap();
    }
    let of_t = || Box::new(|task: &TaskKey| task.task_id.as_str() == "t");
    let mut listed = store.list(None, of_t()).await.unwrap();
    listed.sort_by_key(|one| one.task.clone());
    let tasks: Vec<TaskKey> = listed.into_iter().map(|one| one.task).collect();
    assert_eq!(tasks, [key("r", "t"), key("s", "t")]);
    let listed = store.list(Some(&key("s", "t").session_id), of_t()).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].task, key("s", "t"));
}

/// VALUE-01
async fn a_deleted_blob_is_gone_and_may_be_put_again<B: BlobStore>(store: &B) {
    let (blob, bytes) = made(1, 700_000);
    let task = key("s", "t");
    for _ in 0..2 {
        store.put(&task, blob, Arc::clone(&bytes)).await.unwrap();
        store.delete(&task, blob.hash).await.unwrap();
        assert_eq!(store.stat(&task, blob.hash).await, Ok(None));
        assert_eq!(store.get(&task, blob.hash).await, Ok(None));
        assert_eq!(store.list(None, every_task()).await, Ok(vec![]));
    }
    store.put(&task, blob, Arc::clone(&bytes)).await.unwrap();
    assert_eq!(store.get(&task, blob.hash).await, Ok(Some(bytes)));
}

/// VALUE-01: the blobs of a session have at most so many bytes; those of other sessions do not count,
/// and what was deleted does not.
async fn a_session_has_its_quota<B: BlobStore>(store: &B) {
    let (task, other) = (key("s", "t"), key("r", "t"));
    for byte in 1..=3 {
        let (blob, bytes) = made(byte, 1 << 20);
        store.put(&task, blob, bytes).await.unwrap();
    }
    let (one_more, bytes) = made(4, 1);
    match store.put(&task, one_more, Arc::clone(&bytes)).await {
        Err(BlobError::Quota { session, used: QUOTA, most: QUOTA }) => {
            assert_eq!(session, task.session_id);
        }
        put => panic!("over the quota: {put:?}"),
    }
    assert_eq!(store.stat(&task, one_more.hash).await, Ok(None));
    let (again, same) = made(1, 1 << 20);
    store.put(&task, again, same).await.unwrap();
    store.put(&other, one_more, Arc::clone(&bytes)).await.unwrap();
    store.delete(&task, again.hash).await.unwrap();
    store.put(&task, one_more, bytes).await.unwrap();
}

/// VALUE-01: each blob counts as 64 KiB at least, also one that is empty; once, however often it is put, and not when
/// it was deleted.
async fn a_quota_bounds_how_many_blobs_there_are<B: BlobStore>(store: &B) {
    let task = key("s", "t");
    let most = usize::try_from(QUOTA / QUOTA_BYTES_MIN).unwrap();
    for length in 0..most {
        let (blob, bytes) = made(7, length);
        store.put(&task, blob, bytes).await.unwrap();
    }
    assert_eq!(store.list(None, every_task()).await.unwrap().len(), most);
    let (one_more, bytes) = made(8, 1);
    let session = task.session_id.clone();
    let full = Err(BlobError::Quota { session, used: QUOTA, most: QUOTA });
    assert_eq!(store.put(&task, one_more, Arc::clone(&bytes)).await, full);
    assert_eq!(store.stat(&task, one_more.hash).await, Ok(None));
    for length in 0..3 {
        let (again, same) = made(7, length);
        store.put(&task, again, same).await.unwrap();
    }
    store.delete(&task, made(7, 0).0.hash).await.unwrap();
    store.put(&task, one_more, bytes).await.unwrap();
    let (empty, none) = made(7, 0);
    assert_eq!(store.put(&task, empty, none).await, full);
}
