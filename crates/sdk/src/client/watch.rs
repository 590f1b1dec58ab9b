//! Follows a Task: the Task's log says what happened. Hints tell the client when to read it, or the owner holds its
//! answer until there is something to read.
//!
//! Step 11 of the walk in docs/architecture.md.

use std::collections::VecDeque;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use tenure_core::id::TaskId;
use tenure_core::status::TaskStatus;
use tenure_core::{Code, Commit, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::Changed;
use tenure_wire::bus::request::{ReadLog, ReadUntil};
use tokio::time::{Instant, sleep, timeout};

use super::Client;
use super::patience::patiently;

/// A hint may get lost: without one the client reads the log so often (mechanisms 11).
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// How long a watch pauses whose answer should have been held, and was not.
const NOT_HELD: Duration = Duration::from_millis(100);

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
        Watch { held: Some(ReadUntil::More), ..watch }.commits()
    }

    /// The commits of a Task that the caller makes once it has polled the stream, for a caller that waits for its end:
    /// all commits up to the end, or to a Step that waits for something from outside, come together. The stream waits
    /// for the Task for ever: drop it if the Task is not made.
    pub fn watch_new(
        &self,
        task: &TaskId,
    ) -> impl Stream<Item = Result<Commit, Rejection>> + Send + use<P> {
        let watch = Watch::new(self.port().clone(), task.clone(), 0);
        Watch { held: Some(ReadUntil::Settled), next: Next::Wait, ..watch }.commits()
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
    /// Until when the client asks the owner to hold its answers. None: it listens to hints.
    held: Option<ReadUntil>,
    hints: Option<Hints>,
    read: VecDeque<Commit>,
    next: Next,
}

impl<P: ClientPort> Watch<P> {
    fn new(port: P, task: TaskId, after: u64) -> Self {
        let (held, hints, read) = (None, None, VecDeque::new());
        Self { port, task, after, held, hints, read, next: Next::Read }
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
        if let Some(until) = self.held {
            return self.wait_for_answer(until).await;
        }
        let after = self.after;
        if let Some(hints) = &mut self.hints {
            hints.next(|changed| changed.version > after).await;
        }
        self.next = Next::Read;
        Ok(())
    }

    /// Asks for what comes next.
    async fn wait_for_answer(&mut self, until: ReadUntil) -> Result<(), Rejection> {
        let asked = Instant::now();
        match self.take(ReadLog::from(self.after).waiting(until)).await {
            // An older owner holds no answers.
            Err(refused) if refused.code == Code::ValidationError => {
                (self.held, self.next) = (None, Next::Read);
                return Ok(());
            }
            // It takes long to make the Task.
            Err(refused) if refused.code == Code::TaskNotFound && self.is_new(until) => {}
            taken => taken?,
        }
        if self.next == Next::Wait && self.read.is_empty() && asked.elapsed() < NOT_HELD {
            sleep(NOT_HELD).await; // The owner holds as many answers as it can.
        }
        Ok(())
    }

    /// Whether the Task may still be about to be made.
    fn is_new(&self, until: ReadUntil) -> bool {
        self.after == 0 && until == ReadUntil::Settled
    }

    async fn read(&mut self) -> Result<(), Rejection> {
        if self.hints.is_none() && self.held.is_none() {
            // Subscribes before the first read.
            self.hints = Some(Hints::of(&self.port, &self.task).await?);
        }
        self.take(self.after.into()).await
    }

    async fn take(&mut self, which: ReadLog) -> Result<(), Rejection> {
        let page = patiently(&self.port, || self.port.log(&self.task, which)).await?;
        self.after = page.commits.last().map_or(self.after, Commit::last_seq);
        self.next = match (page.more, page.status.is_terminal()) {
            (true, _) => Next::Read,
            (false, true) => Next::End,
            (false, false) => Next::Wait,
        };
        self.read.extend(page.commits);
        Ok(())
    }
}

/// Hints of one Task.
struct Hints(Option<BoxStream<'static, Changed>>);

impl Hints {
    async fn of<P: ClientPort>(port: &P, task: &TaskId) -> Result<Self, Rejection> {
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
