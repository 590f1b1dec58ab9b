//! Public events of a Task: read from where somebody stopped, then as they happen (EVENT).
//!
//! Of all who follow a Task one asks for it from time to time: whoever is first. A node that was asked
//! says so to all, and they put their own question off.

use std::collections::VecDeque;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_core::status::TaskStatus;
use tenure_core::view::RuntimeEvent;
use tenure_ports::ClientPort;
use tenure_wire::bus::event::{Published, TaskEvent};
use tokio::time::{Instant, timeout_at};

use super::Client;
use super::patience::patiently;
use super::watch::LOOK;
use crate::jitter::jittered;

impl<P: ClientPort> Client<P> {
    /// The public events of a Task behind event `after` of its log: all of them, in order, those to
    /// come included, until the Task has ended. 0 begins with its first; the `wal_seq` of the last
    /// event that was dealt with goes on behind it. Up to three events share a `wal_seq`: whoever was
    /// interrupted between them goes on with the one before, and knows events again by their
    /// `event_id`. They go on when a scheduler answers again, however long none did. An error is the last
    /// item.
    pub fn events(
        &self,
        task: &TaskId,
        after: u64,
    ) -> impl Stream<Item = Result<TaskEvent, Rejection>> + Send + use<P> {
        let following = Following {
            port: self.port().clone(),
            task: task.clone(),
            through: after,
            live: None,
            ask_at: Instant::now(),
            has_heard: false,
            read: VecDeque::new(),
            next: Next::Read,
        };
        stream::unfold(following, async |mut f| Some((f.next().await?, f)))
    }
}

impl<P: ClientPort> Client<P> {
    /// What happens around Runs and changes no Task, of one Task or of all of the session, from when
    /// this has returned: who took a Run, what it said in the end, and the like. Hints, of which some may
    /// get lost (EVENT-07).
    ///
    /// # Errors
    /// Not for this caller, or the connection is closed.
    pub async fn runtime_events(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        self.port().runtime(task).await
    }
}

/// What to do when everything that was read is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Read,
    Wait,
    End,
}

struct Following<P: ClientPort> {
    port: P,
    task: TaskId,
    /// The last event of the log whose public events are known.
    through: u64,
    live: Option<P::Events>,
    /// When the Task is to be asked for again, if nobody else does: it is followed for a while after.
    ask_at: Instant,
    /// Whether anything came since it was asked for.
    has_heard: bool,
    read: VecDeque<TaskEvent>,
    next: Next,
}

impl<P: ClientPort> Following<P> {
    async fn next(&mut self) -> Option<Result<TaskEvent, Rejection>> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Some(Ok(event));
            }
            match self.next {
                Next::End => return None,
                Next::Wait => self.wait().await,
                Next::Read => {
                    if let Err(refused) = self.read().await {
                        self.next = Next::End;
                        return Some(Err(refused));
                    }
                }
            }
        }
    }

    async fn read(&mut self) -> Result<(), Rejection> {
        if self.live.is_none() {
            // Before the first look.
            self.live = Some(patiently(&self.port, || self.port.published(&self.task)).await?);
        }
        self.put_off();
        self.has_heard = false;
        let page = patiently(&self.port, || self.port.events(&self.task, self.through)).await?;
        self.read.extend(page.events);
        self.through = self.through.max(page.through);
        self.next = self.after_that(page.version, page.status);
        Ok(())
    }

    /// The next question, at the latest: nobody else may have one. They are spread, so that one comes
    /// first.
    fn put_off(&mut self) {
        self.ask_at = Instant::now() + jittered(2 * LOOK);
    }

    /// Waits for what happens, and looks from time to time: what is published may get lost.
    async fn wait(&mut self) {
        if self.has_heard && Instant::now() >= self.ask_at {
            self.put_off();
            self.has_heard = false;
            // Nothing is to be read, and what is missing is noticed whatever this is answered.
            let _ = self.port.events(&self.task, u64::MAX).await;
        }
        let Some(live) = &mut self.live else {
            self.next = Next::Read;
            return;
        };
        match timeout_at(self.ask_at, live.next()).await {
            Ok(Some(published)) => self.take(published),
            Ok(None) => (self.live, self.next) = (None, Next::Read),
            Err(_) if self.has_heard => {} // It is asked for.
            Err(_) => self.next = Next::Read,
        }
    }

    fn take(&mut self, published: Published) {
        let Published { after, page, .. } = published;
        self.has_heard = true;
        if after == page.through {
            self.put_off(); // Somebody has asked.
        }
        if page.through <= self.through {
            return; // It was read.
        }
        if after > self.through {
            self.next = Next::Read; // Something got lost.
            return;
        }
        let known = self.through;
        self.read.extend(page.events.into_iter().filter(|event| event.wal_seq > known));
        self.through = page.through;
        self.next = self.after_that(page.version, page.status);
    }

    const fn after_that(&self, version: u64, status: TaskStatus) -> Next {
        if self.through < version {
            Next::Read
        } else if status.is_terminal() {
            Next::End
        } else {
            Next::Wait
        }
    }
}

#[cfg(test)]
mod tests;
