//! Follows a Task: hints tell the client when to read, and the Task's log says what happened.

mod live;

use std::collections::VecDeque;
use std::time::Duration;

use futures::{Stream, StreamExt as _, future, stream};
use tenure_core::id::TaskId;
use tenure_core::status::TaskStatus;
use tenure_core::{Commit, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::Changed;
use tokio::time::timeout;

use self::live::LiveEvents;
use super::Client;
use super::patience::patiently;

/// A hint may get lost: without one the client reads the log so often (mechanisms 11).
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// How long a watch that [gathers](Client::watch_new) waits for the end of a Task once it has changed.
const GATHERED: Duration = Duration::from_millis(10);

/// Asks for no commits, only for the Task's status and version.
const NO_COMMITS: u64 = u64::MAX;

/// How a Task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskEnded {
    /// Completed, failed or cancelled.
    pub status: TaskStatus,
    /// Version of the Task when that was seen.
    pub version: u64,
}

impl<P: ClientPort> Client<P> {
    /// Waits until a Task has ended, however long that takes, and however long no scheduler answers.
    ///
    /// # Errors
    /// There is no such Task, or the caller may not read it.
    pub async fn wait_for_end(&self, task: &TaskId) -> Result<TaskEnded, Rejection> {
        let mut hints = Hints::of(self.port(), task).await?;
        loop {
            let page = patiently(self.port(), || self.port().log(task, NO_COMMITS)).await?;
            if page.status.is_terminal() {
                return Ok(TaskEnded { status: page.status, version: page.version });
            }
            let ended = |changed: &Changed| changed.ended.is_some();
            if let Some(Changed { version, ended: Some(status), .. }) = hints.next(ended).await {
                return Ok(TaskEnded { status, version });
            }
        }
    }

    /// The commits of a Task behind event `after`, which is 0 or the last of a commit: all of them,
    /// in order, those to come included, until the Task has ended. The stream waits while no
    /// scheduler answers, however long that takes. An error is the last item.
    pub fn watch(
        &self,
        task: &TaskId,
        after: u64,
    ) -> impl Stream<Item = Result<Commit, Rejection>> + Send + use<P> {
        Watch::new(self.port().clone(), task.clone(), after).commits()
    }

    /// The same commits, each as soon as its owner can tell of it. On a cluster, [`watch`](Self::watch) gives those
    /// before the end of the Task up to a tenth of a second later, and costs the owner less.
    pub fn watch_live(
        &self,
        task: &TaskId,
        after: u64,
    ) -> impl Stream<Item = Result<Commit, Rejection>> + Send + use<P> {
        let watch = Watch::new(self.port().clone(), task.clone(), after);
        Watch { is_live: true, ..watch }.commits()
    }

    /// The commits of a Task that the caller makes after this call, for a caller that waits for its end: changes are
    /// heard from now on, so nothing is read before there is one, and those that closely follow each other are read
    /// together.
    ///
    /// # Errors
    /// The caller may not read the Tasks of the session, or there is no connection now.
    pub async fn watch_new(
        &self,
        task: &TaskId,
    ) -> Result<impl Stream<Item = Result<Commit, Rejection>> + Send + use<P>, Rejection> {
        let hints = Some(Hints(Some(self.port().changes(Some(task)).await?)));
        let watch = Watch::new(self.port().clone(), task.clone(), 0);
        Ok(Watch { hints, gathers: true, next: Next::Wait, ..watch }.commits())
    }
}

/// What to do when the caller has taken all commits that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// There is more, or there may be.
    Read,
    /// Everything was read: wait for news.
    Wait,
    /// There will be no more.
    End,
}

struct Watch<P: ClientPort> {
    port: P,
    task: TaskId,
    /// The last event that was read.
    after: u64,
    hints: Option<Hints<P::Changes>>,
    /// Whether published events are heard as well.
    is_live: bool,
    live: Option<LiveEvents<P::Events>>,
    /// Whether changes that closely follow each other are read together.
    gathers: bool,
    read: VecDeque<Commit>,
    next: Next,
}

impl<P: ClientPort> Watch<P> {
    fn new(port: P, task: TaskId, after: u64) -> Self {
        let (hints, live, read) = (None, None, VecDeque::new());
        let (is_live, gathers, next) = (false, false, Next::Read);
        Self { port, task, after, hints, is_live, live, gathers, read, next }
    }

    fn commits(self) -> impl Stream<Item = Result<Commit, Rejection>> + Send + use<P> {
        stream::unfold(self, async |mut watch| Some((watch.next().await?, watch)))
    }

    async fn next(&mut self) -> Option<Result<Commit, Rejection>> {
        loop {
            if let Some(commit) = self.read.pop_front() {
                return Some(Ok(commit));
            }
            let done = match self.next {
                Next::End => return None,
                Next::Wait => self.wait().await,
                Next::Read => self.read().await,
            };
            if let Err(refused) = done {
                self.next = Next::End;
                return Some(Err(refused));
            }
        }
    }

    async fn wait(&mut self) -> Result<(), Rejection> {
        let after = self.after;
        if let Some(hints) = &mut self.hints {
            let hint = hints.next(|changed| changed.version > after);
            let hint = match &mut self.live {
                None => hint.await,
                Some(live) => tokio::select! {
                    hint = hint => hint,
                    () = live.news(after) => None,
                },
            };
            if self.gathers && hint.is_some_and(|changed| changed.ended.is_none()) {
                let end = hints.next(|changed| changed.ended.is_some());
                let _ = timeout(GATHERED, end).await; // Without an end there is a change to read.
            }
        }
        self.next = Next::Read;
        Ok(())
    }

    async fn read(&mut self) -> Result<(), Rejection> {
        self.listen().await?;
        let log = patiently(&self.port, || self.port.log(&self.task, self.after));
        let (page, told) = match &mut self.live {
            None => (log.await?, None),
            Some(live) => future::try_join(log, live.ask(&self.port, &self.task)).await?,
        };
        self.after = page.commits.last().map_or(self.after, Commit::last_seq);
        // The log may have grown between this read and the answer behind which all is published.
        let more = page.more || told.is_some_and(|version| version > self.after);
        self.next = match (more, page.status.is_terminal()) {
            (true, _) => Next::Read,
            (false, true) => Next::End,
            (false, false) => Next::Wait,
        };
        self.read.extend(page.commits);
        Ok(())
    }

    /// Subscribes before the first read.
    async fn listen(&mut self) -> Result<(), Rejection> {
        if self.hints.is_none() {
            self.hints = Some(Hints::of(&self.port, &self.task).await?);
        }
        if self.is_live && self.live.is_none() {
            self.live = Some(LiveEvents::of(&self.port, &self.task).await?);
        }
        Ok(())
    }
}

/// Hints of one Task.
struct Hints<S>(Option<S>);

impl<S: Stream<Item = Changed> + Unpin> Hints<S> {
    async fn of<P: ClientPort<Changes = S>>(port: &P, task: &TaskId) -> Result<Self, Rejection> {
        Ok(Self(Some(patiently(port, || port.changes(Some(task))).await?)))
    }

    /// The next hint that is news; none when it is time to read without one.
    async fn next(&mut self, says_something: impl Fn(&Changed) -> bool) -> Option<Changed> {
        let hint = async {
            while let Some(hints) = &mut self.0 {
                match hints.next().await {
                    Some(changed) if says_something(&changed) => return changed,
                    Some(_) => {}
                    None => self.0 = None,
                }
            }
            std::future::pending().await
        };
        timeout(LOOK, hint).await.ok()
    }
}

#[cfg(test)]
mod tests;
