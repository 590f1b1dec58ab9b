//! Follows the public events of a Task (EVENT): the client reads those after a given event, then
//! receives new ones as the owner publishes them.
//!
//! An owner publishes the events of a Task only for a while after somebody has asked for it. Of all
//! clients that follow a Task, the one whose timer ends first asks again. The node announces this
//! to all, and the others postpone their own request.

use std::collections::VecDeque;
use std::mem;

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
    /// come included, until the Task has ended. With 0 the stream begins with the first event; to
    /// continue, give the `wal_seq` of the last event that you have handled. Up to three events
    /// share a `wal_seq`: if you were interrupted between them, give the one before, and recognise
    /// events that come again by their `event_id`. The stream waits while no scheduler answers,
    /// however long that takes. An error is the last item; an `after` behind the end of the log is one.
    pub fn events(
        &self,
        task: &TaskId,
        after: u64,
    ) -> impl Stream<Item = Result<TaskEvent, Rejection>> + Send + use<P> {
        let following = Following {
            port: self.port().clone(),
            task: task.clone(),
            through: after,
            is_checked: false,
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
    /// The runtime events of one Task or of the whole session, from the moment when this returns: a
    /// worker took a Run, a Run gave a result, and the like. They change no Task, and some may get
    /// lost (EVENT-07).
    ///
    /// # Errors
    /// The caller may not read them, or the connection is closed.
    pub async fn runtime_events(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        self.port().runtime(task).await
    }
}

/// Refuses an event behind the end of the log: nobody has seen it, so the caller means another log.
///
/// # Errors
/// `validation_error` with the version of the Task.
pub fn check_after(after: u64, version: u64) -> Result<(), Rejection> {
    if after <= version {
        return Ok(());
    }
    let message = format!("after is {after}, and the log of the task ends with event {version}");
    Err(Rejection::invalid("after", message).with("version", version))
}

/// What to do when the caller has taken all events that were read.
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
    /// Whether the caller's `after` was compared with the end of the log.
    is_checked: bool,
    live: Option<P::Events>,
    /// When to ask for the Task again, if no other client does before: the owner then publishes its
    /// events for a while longer.
    ask_at: Instant,
    /// Whether the owner has published anything since the last request.
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
            // Subscribe before the first read, so that no event falls between them.
            self.live = Some(patiently(&self.port, || self.port.published(&self.task)).await?);
        }
        self.put_off();
        self.has_heard = false;
        let page = patiently(&self.port, || self.port.events(&self.task, self.through)).await?;
        if !mem::replace(&mut self.is_checked, true) {
            check_after(self.through, page.version)?;
        }
        self.read.extend(page.events);
        self.through = self.through.max(page.through);
        self.next = self.after_that(page.version, page.status);
        Ok(())
    }

    /// Sets the latest time of the next request, as perhaps no other client makes one. The times
    /// are random, so that one client is first.
    fn put_off(&mut self) {
        self.ask_at = Instant::now() + jittered(2 * LOOK);
    }

    /// Waits for the next published events, and reads from time to time, because published events
    /// may get lost.
    async fn wait(&mut self) {
        if self.has_heard && Instant::now() >= self.ask_at {
            self.put_off();
            self.has_heard = false;
            // This asks for no events, only that the owner goes on. The answer does not matter: a
            // gap in later events shows what is missing.
            let _ = self.port.events(&self.task, u64::MAX).await;
        }
        let Some(live) = &mut self.live else {
            self.next = Next::Read;
            return;
        };
        match timeout_at(self.ask_at, live.next()).await {
            Ok(Some(published)) => self.take(published),
            Ok(None) => (self.live, self.next) = (None, Next::Read),
            Err(_) if self.has_heard => {} // The request above is due.
            Err(_) => self.next = Next::Read,
        }
    }

    fn take(&mut self, published: Published) {
        let Published { after, page, .. } = published;
        self.has_heard = true;
        if after == page.through {
            self.put_off(); // Another client has asked.
        }
        if page.through <= self.through {
            return; // These events are known.
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
