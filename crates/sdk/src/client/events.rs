//! Follows the public events of a Task (EVENT): the client reads those after a given event, then
//! receives new ones as the owner publishes them. Both come as pages, which also say how the Task stands.
//!
//! An owner publishes the events of a Task only for a while after somebody has asked for it. Of all
//! clients that follow a Task, the one whose timer ends first asks again. The node announces this
//! to all, and the others postpone their own request.

use std::mem;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_core::view::RuntimeEvent;
use tenure_ports::ClientPort;
use tenure_wire::bus::event::{EventPage, Published, ReadEvents, TaskEvent};
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
        let events = |page: EventPage| stream::iter(page.events.into_iter().map(Ok));
        self.event_pages(task, after).map_ok(events).try_flatten()
    }

    /// The same events as pages. The last page says how the Task has ended.
    pub fn event_pages(
        &self,
        task: &TaskId,
        after: u64,
    ) -> impl Stream<Item = Result<EventPage, Rejection>> + Send + use<P> {
        Following::new(self.port().clone(), task.clone(), after).pages()
    }

    /// The first page of the events behind event `after`, and the pages that follow it. A caller that wants to
    /// know at once how the Task stands gets it this way in one request, and misses nothing. Nothing is
    /// awaited for long: the request fails if no scheduler answers. The caller compares `after` with the
    /// version of the Task.
    ///
    /// # Errors
    /// There is no such Task, the caller may not read it, or no scheduler answers.
    pub async fn follow(
        &self,
        task: &TaskId,
        after: u64,
    ) -> Result<
        (EventPage, impl Stream<Item = Result<EventPage, Rejection>> + Send + use<P>),
        Rejection,
    > {
        let live = self.port().published(task).await?;
        let page = self.port().ask(task, ReadEvents { after }).await?;
        let mut following = Following::new(self.port().clone(), task.clone(), after);
        (following.live, following.is_checked) = (Some(live), true);
        following.put_off();
        following.note(&page);
        Ok((page, following.pages()))
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
    live: Option<BoxStream<'static, Published>>,
    /// When to ask for the Task again, if no other client does before: the owner then publishes its
    /// events for a while longer.
    ask_at: Instant,
    /// Whether the owner has published anything since the last request.
    has_heard: bool,
    next: Next,
}

impl<P: ClientPort> Following<P> {
    fn new(port: P, task: TaskId, after: u64) -> Self {
        Self {
            port,
            task,
            through: after,
            is_checked: false,
            live: None,
            ask_at: Instant::now(),
            has_heard: false,
            next: Next::Read,
        }
    }

    fn pages(self) -> impl Stream<Item = Result<EventPage, Rejection>> + Send + use<P> {
        stream::unfold(self, async |mut f| Some((f.next().await?, f)))
    }

    /// The next page that has events, or is the last.
    async fn next(&mut self) -> Option<Result<EventPage, Rejection>> {
        loop {
            let page = match self.next {
                Next::End => return None,
                Next::Wait => self.wait().await,
                Next::Read => match self.read().await {
                    Ok(page) => Some(page),
                    Err(refused) => {
                        self.next = Next::End;
                        return Some(Err(refused));
                    }
                },
            };
            let Some(page) = page else { continue };
            self.note(&page);
            if !page.events.is_empty() || self.next == Next::End {
                return Some(Ok(page));
            }
        }
    }

    async fn read(&mut self) -> Result<EventPage, Rejection> {
        if self.live.is_none() {
            // Subscribe before the first read, so that no event falls between them.
            self.live = Some(patiently(&self.port, || self.port.published(&self.task)).await?);
        }
        self.put_off();
        self.has_heard = false;
        let asked = ReadEvents { after: self.through };
        let page = patiently(&self.port, || self.port.ask(&self.task, asked)).await?;
        if !mem::replace(&mut self.is_checked, true) {
            check_after(self.through, page.version)?;
        }
        Ok(page)
    }

    /// Notes up to where the events are known, and what to do when the caller has taken these.
    fn note(&mut self, page: &EventPage) {
        self.through = self.through.max(page.through);
        self.next = if self.through < page.version {
            Next::Read
        } else if page.status.is_terminal() {
            Next::End
        } else {
            Next::Wait
        };
    }

    /// Sets the latest time of the next request, as perhaps no other client makes one. The times
    /// are random, so that one client is first.
    fn put_off(&mut self) {
        self.ask_at = Instant::now() + jittered(2 * LOOK);
    }

    /// Waits for the next published events, and reads from time to time, because published events
    /// may get lost.
    async fn wait(&mut self) -> Option<EventPage> {
        if self.has_heard && Instant::now() >= self.ask_at {
            self.put_off();
            self.has_heard = false;
            // This asks for no events, only that the owner goes on. The answer does not matter: a
            // gap in later events shows what is missing.
            let _ = self.port.ask(&self.task, ReadEvents { after: u64::MAX }).await;
        }
        let Some(live) = &mut self.live else {
            self.next = Next::Read;
            return None;
        };
        match timeout_at(self.ask_at, live.next()).await {
            Ok(Some(published)) => return self.take(published),
            Ok(None) => (self.live, self.next) = (None, Next::Read),
            Err(_) if self.has_heard => {} // The request above is due.
            Err(_) => self.next = Next::Read,
        }
        None
    }

    /// What a published page has that is not known.
    fn take(&mut self, published: Published) -> Option<EventPage> {
        let Published { after, mut page, .. } = published;
        self.has_heard = true;
        if after == page.through {
            self.put_off(); // Another client has asked.
        }
        if page.through <= self.through {
            return None; // These events are known.
        }
        if after > self.through {
            self.next = Next::Read; // Something got lost.
            return None;
        }
        page.events.retain(|event| event.wal_seq > self.through);
        Some(page)
    }
}

#[cfg(test)]
mod tests;
