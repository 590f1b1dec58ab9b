//! [`MemoryBlobs`], the simplest possible store of blobs, which fails when a test tells it to.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tenure_core::id::{BlobHash, Millis, SessionId};
use tenure_core::record::Blob;
use tenure_ports::blobs::{BlobError, BlobStore, StoredBlob, TaskFilter, quota_bytes};
use tenure_ports::journal::TaskKey;

/// Blobs in memory. Cheap to clone: clones share what is stored.
#[derive(Debug, Clone)]
pub struct MemoryBlobs(Arc<Mutex<BlobsInMemory>>);

/// The bytes of a blob, and when it was last brought.
type BlobEntry = (Arc<[u8]>, Millis);

#[derive(Debug)]
struct BlobsInMemory {
    stored: BTreeMap<(TaskKey, BlobHash), BlobEntry>,
    quota: u64,
    now: Millis,
    is_away: bool,
    /// How many blobs lists have read.
    listed: usize,
}

impl MemoryBlobs {
    /// A store in which the blobs of a session may have so many bytes.
    pub fn of_quota(quota: u64) -> Self {
        let (stored, now, is_away, listed) = (BTreeMap::new(), 1_700_000_000_000, false, 0);
        Self(Arc::new(Mutex::new(BlobsInMemory { stored, quota, now, is_away, listed })))
    }

    /// From now on every call fails, or none does.
    pub fn set_away(&self, is_away: bool) {
        self.0.lock().is_away = is_away;
    }

    /// The time at which blobs are put from now on.
    pub fn set_now(&self, now: Millis) {
        self.0.lock().now = now;
    }

    /// Loses all blobs.
    pub fn lose_all(&self) {
        self.0.lock().stored.clear();
    }

    /// How many blobs lists have read since this was asked last.
    pub fn take_listed(&self) -> usize {
        std::mem::take(&mut self.0.lock().listed)
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&mut BlobsInMemory) -> Result<T, BlobError>,
    ) -> BoxFuture<'a, Result<T, BlobError>> {
        let mut all = self.0.lock();
        let answer = match all.is_away {
            true => Err(BlobError::Failed("it is away".into())),
            false => call(&mut all),
        };
        ready(answer).boxed()
    }
}

impl BlobStore for MemoryBlobs {
    fn put(
        &self,
        task: &TaskKey,
        blob: Blob,
        bytes: Arc<[u8]>,
    ) -> BoxFuture<'_, Result<(), BlobError>> {
        self.answer(|all| {
            BlobError::check(blob, &bytes)?;
            let key = (task.clone(), blob.hash);
            let session = &task.session_id;
            let of_session = all.stored.iter().filter(|(key, _)| key.0.session_id == *session);
            let used: u64 = of_session.map(|(_, (bytes, _))| quota_bytes(bytes.len() as u64)).sum();
            let would_be = used + quota_bytes(blob.size_bytes);
            if !all.stored.contains_key(&key) && would_be > all.quota {
                let (session, most) = (session.clone(), all.quota);
                return Err(BlobError::Quota { session, used, most });
            }
            all.stored.insert(key, (bytes, all.now));
            Ok(())
        })
    }

    fn get(
        &self,
        task: &TaskKey,
        hash: BlobHash,
    ) -> BoxFuture<'_, Result<Option<Arc<[u8]>>, BlobError>> {
        let key = (task.clone(), hash);
        self.answer(|all| Ok(all.stored.get(&key).map(|(bytes, _)| Arc::clone(bytes))))
    }

    fn stat(
        &self,
        task: &TaskKey,
        hash: BlobHash,
    ) -> BoxFuture<'_, Result<Option<u64>, BlobError>> {
        let key = (task.clone(), hash);
        self.answer(|all| Ok(all.stored.get(&key).map(|(bytes, _)| bytes.len() as u64)))
    }

    fn list(
        &self,
        session: Option<&SessionId>,
        is_asked: TaskFilter,
    ) -> BoxFuture<'_, Result<Vec<StoredBlob>, BlobError>> {
        self.answer(|all| {
            let is_of = |id: &SessionId| session.is_none_or(|session| session == id);
            let of_session = all.stored.iter().filter(|((task, _), _)| is_of(&task.session_id));
            let asked = of_session.filter(|((task, _), _)| is_asked(task));
            let stored = asked.map(|((task, hash), (bytes, put_at))| {
                let blob = Blob { hash: *hash, size_bytes: bytes.len() as u64 };
                StoredBlob { task: task.clone(), blob, put_at: *put_at }
            });
            let stored: Vec<StoredBlob> = stored.collect();
            all.listed += stored.len();
            Ok(stored)
        })
    }

    fn delete(&self, task: &TaskKey, hash: BlobHash) -> BoxFuture<'_, Result<(), BlobError>> {
        let key = (task.clone(), hash);
        self.answer(|all| {
            all.stored.remove(&key);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{QUOTA, blobs_suite};

    #[tokio::test]
    async fn memory_keeps_to_the_contract() {
        blobs_suite(async || (MemoryBlobs::of_quota(QUOTA), ())).await;
    }
}
