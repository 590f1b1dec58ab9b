//! [`SharedFolds`]: all streams of a task share one fold of its log.
//!
//! A fold follows its task for as long as it has readers, and tells each what a commit tells. Nothing is queued for a
//! reader: one that is too slow learns that, and reads the log by itself. Rights are not looked at here: whoever joins
//! has found the task as its caller may see it. A stream that has to begin at an earlier place has a fold of its own
//! until it has caught up, of which there are few.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::{Code, Rejection, RejectionKind};
use tenure_mcp::{Share, Shares};
use tenure_ports::ClientPort;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::AbortHandle;

use super::follow::{CommitUpdates, TaskFollower};
use crate::a2a::map::TaskFold;

/// How many commits wait for a reader. A reader that is further behind reads the log.
const COMMITS_MAX: usize = 32;

/// How many streams have a fold of their own, of all callers.
const OWN_MAX: usize = 64;

/// How long a reader is told to stay away for which there is no fold.
const COME_BACK_MS: u64 = 2_000;

/// How many readers wait to be let in; more wait for their turn.
const JOINS_MAX: usize = 32;

/// Which Task is followed.
pub(super) type FoldKey = (SessionId, TaskId);

/// What a reader gets that joins: all commits behind a version.
type JoinAnswer = (broadcast::Receiver<Arc<CommitUpdates>>, u64);

/// Somebody who wants to join.
type JoinRequest = oneshot::Sender<JoinAnswer>;

/// The tasks that streams follow now.
#[derive(Debug)]
pub(crate) struct SharedFolds {
    all: Mutex<HashMap<FoldKey, Weak<SharedFold>>>,
    /// The streams with a fold of their own.
    own: Shares,
}

impl Default for SharedFolds {
    fn default() -> Self {
        Self { all: Mutex::default(), own: Shares::new(OWN_MAX) }
    }
}

impl SharedFolds {
    /// The right of this caller to a fold for one stream alone.
    ///
    /// # Errors
    /// The caller has its share of them.
    pub(super) fn place(&self, caller: &str) -> Result<Share, Rejection> {
        self.own.take(caller).ok_or_else(|| {
            let message = "too many streams of this caller catch up with their tasks: subscribe again later, or \
                           without a place to go on from";
            let refused = Rejection::new(Code::Unavailable, message);
            refused.of_kind(RejectionKind::Overloaded).with("retry_after_ms", COME_BACK_MS)
        })
    }

    /// Joins those who follow a task; none if nobody does. The reader gets all commits behind the version.
    pub(super) async fn find(&self, key: &FoldKey) -> Option<(FoldReader, u64)> {
        let known = self.all.lock().get(key).cloned();
        let fold = known?.upgrade()?;
        let (request, answer) = oneshot::channel();
        fold.joins.send(request).await.ok()?;
        let (told, version) = answer.await.ok()?;
        Some((FoldReader { told, _fold: fold }, version))
    }

    /// Follows a task for this reader and those who join.
    pub(super) fn begin<P: ClientPort>(
        self: &Arc<Self>,
        key: FoldKey,
        follower: TaskFollower<P>,
    ) -> FoldReader {
        let (joins, requests) = mpsc::channel(JOINS_MAX);
        let (to, told) = broadcast::channel(COMMITS_MAX);
        let task = tokio::spawn(follow(follower, requests, to)).abort_handle();
        let all = Arc::downgrade(self);
        let fold = Arc::new(SharedFold { key: key.clone(), joins, task, all });
        // Two readers may begin at once: then the first follows the task alone.
        self.all.lock().insert(key, Arc::downgrade(&fold));
        FoldReader { told, _fold: fold }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.all.lock().len()
    }
}

/// A fold, which its readers hold together.
#[derive(Debug)]
struct SharedFold {
    key: FoldKey,
    joins: mpsc::Sender<JoinRequest>,
    task: AbortHandle,
    all: Weak<SharedFolds>,
}

impl Drop for SharedFold {
    /// Ends the fold when its last reader has gone. This takes the lock of all folds: nobody who holds that lock may
    /// drop a fold.
    fn drop(&mut self) {
        self.task.abort();
        let Some(all) = self.all.upgrade() else { return };
        let mut all = all.all.lock();
        if all.get(&self.key).is_some_and(|known| std::ptr::eq(known.as_ptr(), self)) {
            all.remove(&self.key); // Another fold may have taken its place.
        }
    }
}

/// A reader of what a fold tells.
#[derive(Debug)]
pub(super) struct FoldReader {
    told: broadcast::Receiver<Arc<CommitUpdates>>,
    _fold: Arc<SharedFold>,
}

impl FoldReader {
    /// The next commit; none if the reader was too slow, or if there is nothing more to tell. Nothing is lost if the
    /// returned future is dropped.
    pub(super) async fn next(&mut self) -> Option<Arc<CommitUpdates>> {
        self.told.recv().await.ok()
    }
}

/// Follows a task to its end, or until its log cannot be read: its readers then learn why by reading it themselves.
async fn follow<P: ClientPort>(
    mut follower: TaskFollower<P>,
    mut requests: mpsc::Receiver<JoinRequest>,
    to: broadcast::Sender<Arc<CommitUpdates>>,
) {
    loop {
        let commit = tokio::select! {
            request = requests.recv() => {
                let Some(request) = request else { return };
                let version = follower.fold().map_or(0, TaskFold::version);
                let _ = request.send((to.subscribe(), version)); // It may not want to join any more.
                continue;
            }
            commit = follower.commit() => commit,
        };
        let Some(commit) = commit else { return };
        match follower.take(commit).await {
            Ok(told) => drop(to.send(Arc::new(told))), // The last reader may just have gone.
            Err(error) => {
                tracing::debug!(message = %error.message, "a task is not followed any more");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TurnReader;
    use super::*;
    use crate::live::double::{TestClient, waiting_task};

    fn key(client: &TestClient, task: &TaskId) -> FoldKey {
        (client.port().session().clone(), task.clone())
    }

    /// Readers of a task are told the same, and a later one learns behind which version.
    #[tokio::test]
    async fn readers_share_one_fold() {
        let (client, task, version) = waiting_task().await;
        let (folds, key) = (Arc::new(SharedFolds::default()), key(&client, &task));
        assert!(folds.find(&key).await.is_none());
        let follower = TaskFollower::live(TurnReader::of_test(&client), task.clone(), None);
        let mut first = folds.begin(key.clone(), follower);
        let begun = first.next().await.unwrap();
        assert_eq!(begun.begun.as_ref().unwrap().id, task.as_str());
        let mut seq = begun.seq;
        while seq < version {
            seq = first.next().await.unwrap().seq;
        }
        let (mut second, behind) = folds.find(&key).await.unwrap();
        assert_eq!(behind, version);
        client.cancel(&task, "test").await.unwrap();
        let (one, two) = (first.next().await.unwrap(), second.next().await.unwrap());
        assert!(Arc::ptr_eq(&one, &two) && one.seq > version);
        assert_eq!(folds.count(), 1);
        drop(first);
        assert_eq!(folds.count(), 1);
        drop(second);
        assert_eq!(folds.count(), 0);
    }

    /// A fold that has come to the end of its task takes no more readers.
    #[tokio::test]
    async fn a_fold_is_over_with_its_task() {
        let (client, task, _) = waiting_task().await;
        let (folds, key) = (Arc::new(SharedFolds::default()), key(&client, &task));
        client.cancel(&task, "test").await.unwrap();
        client.wait_for_end(&task).await.unwrap();
        let follower = TaskFollower::live(TurnReader::of_test(&client), task, None);
        let mut reader = folds.begin(key.clone(), follower);
        while reader.next().await.is_some() {}
        assert!(folds.find(&key).await.is_none());
    }
}
