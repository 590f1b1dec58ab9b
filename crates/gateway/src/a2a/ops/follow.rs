//! [`TaskFollower`]: folds the log of a Task as far as it goes, and on while it grows.

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use tenure_core::id::TaskId;
use tenure_core::view::gateway::A2aState;
use tenure_core::{Code, Commit, Rejection, RejectionKind};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, get_blob};

use crate::a2a::error::A2aError;
use crate::a2a::map::{BlobBytes, TaskFold};
use crate::a2a::wire::{A2aTask, A2aUpdate};

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

/// Follows a task from its first commit to its end.
pub(crate) struct TaskFollower<P> {
    client: Client<P>,
    task: TaskId,
    commits: BoxStream<'static, Result<Commit, Rejection>>,
    fold: Option<TaskFold>,
}

impl<P: ClientPort> TaskFollower<P> {
    /// From the first commit on.
    pub(crate) fn from_start(client: Client<P>, task: TaskId) -> Self {
        let commits = client.watch(&task, 0).boxed();
        Self { client, task, commits, fold: None }
    }

    /// From where a fold stands.
    pub(super) fn behind(client: Client<P>, task: TaskId, fold: TaskFold) -> Self {
        let commits = client.watch(&task, fold.version()).boxed();
        Self { client, task, commits, fold: Some(fold) }
    }

    /// From the first commit on, or from where a fold stands, and without delay: for somebody who looks on.
    pub(super) fn live(client: Client<P>, task: TaskId, fold: Option<TaskFold>) -> Self {
        let after = fold.as_ref().map_or(0, TaskFold::version);
        let commits = client.watch_live(&task, after).boxed();
        Self { client, task, commits, fold }
    }

    /// From the first commit on, of a task that is made after this: for somebody who waits for its end.
    pub(super) fn of_new(client: Client<P>, task: TaskId) -> Self {
        let mut commits = Box::pin(client.watch_new(&task).peekable());
        // This sends the request, which is to be there before the Task is. What comes of it is taken later.
        let _ = commits.as_mut().peek().now_or_never();
        Self { client, task, commits: commits.boxed(), fold: None }
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
        let updates = tell(&mut self.fold, &self.client, &self.task, &commit).await?;
        let shown = self.fold.as_ref().map(TaskFold::shown);
        let state = shown.map_or(A2aState::Submitted, |task| task.status.state);
        let begun = shown.filter(|_| is_first).cloned().map(Box::new);
        Ok(CommitUpdates { seq: commit.last_seq(), updates, state, begun })
    }

    /// The task so far; none before the first commit.
    pub(crate) const fn fold(&self) -> Option<&TaskFold> {
        self.fold.as_ref()
    }

    /// The task so far.
    pub(super) fn into_fold(self) -> Option<TaskFold> {
        self.fold
    }
}

/// The task as its log stands now.
///
/// # Errors
/// There is no such Task, or its log cannot be read.
pub(super) async fn load<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
) -> Result<TaskFold, A2aError> {
    read_on(client, task, None).await
}

/// The task as its log stands now, from what was known of it.
///
/// # Errors
/// As those of [`load`].
pub(super) async fn read_on<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    mut fold: Option<TaskFold>,
) -> Result<TaskFold, A2aError> {
    loop {
        let after = fold.as_ref().map_or(0, TaskFold::version);
        let page = client.port().log(task, after).await?;
        for commit in &page.commits {
            tell(&mut fold, client, task, commit).await?;
        }
        if !page.more || page.commits.is_empty() {
            return fold.ok_or_else(|| broken(task, "it is empty"));
        }
    }
}

/// Takes a commit, with the blobs that it names.
async fn tell<P: ClientPort>(
    fold: &mut Option<TaskFold>,
    client: &Client<P>,
    task: &TaskId,
    commit: &Commit,
) -> Result<Vec<A2aUpdate>, A2aError> {
    let unreadable = |error: crate::a2a::map::FoldError| broken(task, &error.to_string());
    let fold = match fold {
        Some(fold) => {
            fold.replay(commit).map_err(unreadable)?;
            fold
        }
        None => fold.insert(TaskFold::begin(commit).map_err(unreadable)?),
    };
    let mut blobs = BlobBytes::new();
    for hash in fold.wanted(commit) {
        match get_blob(client.port(), task, hash).await {
            Ok(bytes) => drop(blobs.insert(hash, bytes)),
            // What is lost is shown by its address.
            Err(refused) if refused.code == Code::BlobMissing => {}
            Err(refused) => return Err(refused.into()),
        }
    }
    Ok(fold.tell(commit, &blobs))
}

fn broken(task: &TaskId, why: &str) -> A2aError {
    let message = format!("the log of task {task} cannot be folded: {why}");
    Rejection::new(Code::StorageError, message).of_kind(RejectionKind::ReplayFailed).into()
}
