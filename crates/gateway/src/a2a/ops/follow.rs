//! [`TurnReader`]: folds the log of a Task as far as it goes, when it is the turn of its caller. [`TaskFollower`]:
//! folds on while the log grows.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use smol_str::SmolStr;
use tenure_core::id::TaskId;
use tenure_core::view::gateway::A2aState;
use tenure_core::{Code, Commit, Rejection, RejectionKind};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, get_blob};

use crate::a2a::error::A2aError;
use crate::a2a::map::{BlobBytes, FoldError, KEPT_MAX, KEPT_WHILE_FOLLOWED, TaskFold};
use crate::a2a::wire::{A2aTask, A2aUpdate};
use crate::api::{FoldTurn, FoldTurns};

/// About how many bytes of blobs are read for one commit. The newest are read first; what is not read is shown by its
/// address, and a message is left out.
const BLOB_BYTES_MAX: usize = 64 << 20;

/// What a commit tells.
#[derive(Debug)]
pub(crate) struct CommitUpdates {
    /// The last event of the commit.
    pub(crate) seq: u64,
    /// In order.
    pub(crate) updates: Vec<A2aUpdate>,
    /// The state of the task behind it.
    pub(super) state: A2aState,
    /// The task behind it, if it is the first commit of the log.
    pub(super) begun: Option<Box<A2aTask>>,
}

/// Reads tasks for a caller. What takes much memory waits for the turn of the caller, as all long Tasks do.
#[derive(Debug, Clone)]
pub(crate) struct TurnReader<P> {
    client: Client<P>,
    turns: Arc<FoldTurns>,
    caller: SmolStr,
}

impl<P: ClientPort> TurnReader<P> {
    /// Reads as this client, in the turns of this caller.
    pub(crate) fn new(client: Client<P>, turns: &Arc<FoldTurns>, caller: &str) -> Self {
        Self { client, turns: Arc::clone(turns), caller: caller.into() }
    }

    #[cfg(test)]
    pub(super) fn of_test(client: &Client<P>) -> Self {
        Self::new(client.clone(), &Arc::default(), "ann")
    }

    /// The task as its log stands now.
    ///
    /// # Errors
    /// There is no such Task, its log cannot be read, or the turn of the caller does not come.
    pub(super) async fn load(&self, task: &TaskId) -> Result<TaskFold, A2aError> {
        self.read_on(task, None).await
    }

    /// The task as its log stands now, from what was known of it.
    ///
    /// # Errors
    /// As those of [`load`](Self::load).
    pub(super) async fn read_on(
        &self,
        task: &TaskId,
        mut fold: Option<TaskFold>,
    ) -> Result<TaskFold, A2aError> {
        let mut turn = None;
        loop {
            let after = fold.as_ref().map_or(0, TaskFold::version);
            let page = self.client.port().log(task, after).await?;
            if page.more {
                self.wait(&mut turn).await?;
            }
            for commit in &page.commits {
                self.tell(&mut fold, task, commit, &mut turn).await?;
                fold.iter_mut().for_each(|fold| fold.trim(KEPT_MAX));
            }
            if !page.more || page.commits.is_empty() {
                return fold.ok_or_else(|| broken(task, "it is empty"));
            }
        }
    }

    /// Takes a commit, with the blobs that it names.
    async fn tell(
        &self,
        fold: &mut Option<TaskFold>,
        task: &TaskId,
        commit: &Commit,
        turn: &mut Option<FoldTurn>,
    ) -> Result<Vec<A2aUpdate>, A2aError> {
        let unreadable = |error: FoldError| broken(task, &error.to_string());
        let fold = match fold {
            Some(fold) => {
                fold.replay(commit).map_err(unreadable)?;
                fold
            }
            None => fold.insert(TaskFold::begin(commit).map_err(unreadable)?),
        };
        let (mut blobs, mut bytes_read) = (BlobBytes::new(), 0);
        for hash in fold.wanted(commit) {
            if bytes_read >= BLOB_BYTES_MAX {
                break;
            }
            self.wait(turn).await?;
            match get_blob(self.client.port(), task, hash).await {
                Ok(bytes) => {
                    bytes_read += bytes.len();
                    blobs.insert(hash, bytes);
                }
                // What is lost is shown by its address.
                Err(refused) if refused.code == Code::BlobMissing => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        Ok(fold.tell(commit, &blobs))
    }

    /// In whose turns it reads.
    pub(super) fn caller(&self) -> &str {
        &self.caller
    }

    /// Waits for the turn of the caller, unless it has come already.
    async fn wait(&self, turn: &mut Option<FoldTurn>) -> Result<(), Rejection> {
        if turn.is_none() {
            *turn = Some(self.turns.take(&self.caller).await?);
        }
        Ok(())
    }
}

/// Follows a task from its first commit to its end. Of what was said and made it keeps little.
pub(crate) struct TaskFollower<P> {
    reader: TurnReader<P>,
    task: TaskId,
    commits: BoxStream<'static, Result<Commit, Rejection>>,
    fold: Option<TaskFold>,
    /// How many bytes of it.
    keeps: usize,
}

impl<P: ClientPort> TaskFollower<P> {
    /// From the first commit on.
    pub(crate) fn from_start(reader: TurnReader<P>, task: TaskId) -> Self {
        let commits = reader.client.watch(&task, 0).boxed();
        Self { reader, task, commits, fold: None, keeps: KEPT_WHILE_FOLLOWED }
    }

    /// From where a fold stands.
    pub(super) fn behind(reader: TurnReader<P>, task: TaskId, mut fold: TaskFold) -> Self {
        fold.trim(KEPT_WHILE_FOLLOWED);
        let commits = reader.client.watch(&task, fold.version()).boxed();
        Self { reader, task, commits, fold: Some(fold), keeps: KEPT_WHILE_FOLLOWED }
    }

    /// From the first commit on, or from where a fold stands, and without delay: for somebody who looks on, and needs
    /// the updates alone.
    pub(super) fn live(reader: TurnReader<P>, task: TaskId, mut fold: Option<TaskFold>) -> Self {
        fold.iter_mut().for_each(|fold| fold.trim(0));
        let after = fold.as_ref().map_or(0, TaskFold::version);
        let commits = reader.client.watch_live(&task, after).boxed();
        Self { reader, task, commits, fold, keeps: 0 }
    }

    /// From the first commit on, of a task that is made after this: for somebody who waits for its end.
    pub(super) fn of_new(reader: TurnReader<P>, task: TaskId) -> Self {
        let mut commits = Box::pin(reader.client.watch_new(&task).peekable());
        // This sends the request, which is to be there before the Task is. What comes of it is taken later.
        let _ = commits.as_mut().peek().now_or_never();
        let (commits, keeps) = (commits.boxed(), KEPT_WHILE_FOLLOWED);
        Self { reader, task, commits, fold: None, keeps }
    }

    /// Waits for the next commit. None after the end of the task.
    ///
    /// # Errors
    /// The log cannot be read any more.
    pub(crate) async fn next(&mut self) -> Option<Result<CommitUpdates, A2aError>> {
        let commit = self.commit().await?;
        Some(self.take(commit).await)
    }

    /// Waits for the next commit, which is to be [taken](Self::take). Nothing is lost if the returned future is
    /// dropped.
    pub(super) async fn commit(&mut self) -> Option<Result<Commit, Rejection>> {
        self.commits.next().await
    }

    /// Takes the next commit.
    ///
    /// # Errors
    /// The log cannot be read any more.
    pub(super) async fn take(
        &mut self,
        commit: Result<Commit, Rejection>,
    ) -> Result<CommitUpdates, A2aError> {
        let (commit, is_first) = (commit?, self.fold.is_none());
        let updates = self.reader.tell(&mut self.fold, &self.task, &commit, &mut None).await?;
        let shown = self.fold.as_ref().map(TaskFold::shown);
        let state = shown.map_or(A2aState::Submitted, |task| task.status.state);
        let begun = shown.filter(|_| is_first).cloned().map(Box::new);
        self.fold.iter_mut().for_each(|fold| fold.trim(self.keeps));
        Ok(CommitUpdates { seq: commit.last_seq(), updates, state, begun })
    }

    /// The task so far, with the newest of what was said and made; none before the first commit.
    pub(crate) const fn fold(&self) -> Option<&TaskFold> {
        self.fold.as_ref()
    }

    /// The same.
    pub(super) fn into_fold(self) -> Option<TaskFold> {
        self.fold
    }
}

fn broken(task: &TaskId, why: &str) -> A2aError {
    let message = format!("the log of task {task} cannot be folded: {why}");
    Rejection::new(Code::StorageError, message).of_kind(RejectionKind::ReplayFailed).into()
}

#[cfg(test)]
mod tests {
    use tenure_core::command::AppendProgress;
    use tenure_core::record::Blob;

    use super::*;
    use crate::a2a::error::A2aReason;
    use crate::live::double::waiting_task;

    /// Mechanisms 15: what takes no memory is read at once, and blobs in the turns of the caller alone, also by those
    /// who follow a task.
    #[tokio::test]
    async fn blobs_are_read_when_it_is_the_turn_of_the_caller() {
        let (client, task, version) = waiting_task().await;
        let turns = Arc::default();
        let reader = TurnReader::new(client.clone(), &turns, "ann");
        let held = [turns.take("ann").await.unwrap(), turns.take("ann").await.unwrap()];
        assert_eq!(reader.load(&task).await.unwrap().version(), version);
        let input_refs = vec![Blob::of(b"lost").reference()];
        let note = AppendProgress { input_refs, ..AppendProgress::default() };
        client.note(&task, note).await.unwrap();
        tokio::time::pause();
        assert_eq!(reader.load(&task).await.unwrap_err().reason, A2aReason::Unavailable);
        let mut follower = TaskFollower::live(reader.clone(), task.clone(), None);
        let refused = loop {
            if let Err(refused) = follower.next().await.unwrap() {
                break refused;
            }
        };
        assert_eq!(refused.reason, A2aReason::Unavailable);
        drop(held);
        let refused = reader.load(&task).await.unwrap_err();
        assert_eq!(refused.reason, A2aReason::Denied, "it is asked for, where there are no blobs");
    }
}
