//! The client port in process: the scheduler's side of an orchestrator or observer. A node uses it
//! too, for callers over NATS.
//!
//! Step 4 of the walk in docs/architecture.md.

mod budget;
pub(crate) mod reads;

use std::sync::Arc;

use futures::future::ready;
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use tenure_core::command::{Write, check_tool};
use tenure_core::id::{AgentId, AttemptId, SessionId, TaskId};
use tenure_core::status::{Policy, Role, TaskStatus};
use tenure_core::view::board::template;
use tenure_core::view::{
    Board, Known, ListInput, RuntimeEvent, Snapshot, TaskPage, View, ViewsInput, WriteSummary,
};
use tenure_core::{Caller, Code, Context, Query as _, Rejection};
use tenure_ports::client::{Changed, ClientPort, Listing, LogPage};
use tenure_ports::journal::{Entry, Overview, TaskKey};
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::event::{EventPage, Published, ReadEvents};
use tenure_wire::bus::request::{ReadLog, TemplateInput, Views};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::reads::{LOOKS, in_time};
use crate::ask::{Done, Envelope};
use crate::follow::{self, Follower};
use crate::handle::Scheduler;
use crate::task::open::unreadable;

/// How many events a page of a log has at most, and about how many bytes of commits: what a reader
/// holds in memory at a time.
const PAGE_EVENTS: u64 = 4_096;
const PAGE_BYTES: usize = 512 << 10;

/// How many hints wait for a reader. A slower reader loses some, which hints allow.
const HINTS_MAX: usize = 1_024;

/// The state of a Task that a page of its log carries.
struct Stands {
    version: u64,
    status: TaskStatus,
    /// Milliseconds that are left of the leases of its open Attempts.
    leases: Vec<(AttemptId, u64)>,
    wal_path: Option<String>,
}

/// A caller's end in the process of the scheduler: an orchestrator or observer of one session.
#[derive(Debug)]
pub struct ClientLink<J: Journal, L: Leases> {
    scheduler: Scheduler<J, L>,
    caller: Caller,
    max_bytes: Option<usize>,
    /// How many bytes an answer may have on its way to the caller.
    sent_max: usize,
}

impl<J: Journal, L: Leases> Clone for ClientLink<J, L> {
    fn clone(&self) -> Self {
        let (scheduler, caller) = (self.scheduler.clone(), self.caller.clone());
        Self { scheduler, caller, max_bytes: self.max_bytes, sent_max: self.sent_max }
    }
}

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// A link for a caller whom the transport has authenticated.
    pub fn client(&self, role: Role, agent: AgentId, session_id: SessionId) -> ClientLink<J, L> {
        let caller =
            Caller { agent, role, session_id, run_id: None, worker_pool_id: None, origin: None };
        ClientLink { scheduler: self.clone(), caller, max_bytes: None, sent_max: usize::MAX }
    }
}

impl<J: Journal, L: Leases> ClientLink<J, L> {
    /// The same link, for a caller to whom no answer of more bytes can be sent.
    #[must_use]
    pub fn sent_in(mut self, bytes: usize) -> Self {
        self.sent_max = bytes;
        self
    }

    /// Who asks.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    fn key(&self, task: &TaskId) -> TaskKey {
        TaskKey { session_id: self.caller.session_id.clone(), task_id: task.clone() }
    }

    fn envelope(&self, context: Context) -> Envelope {
        Envelope { caller: self.caller.clone(), context: Some(context) }
    }

    /// CTRL-10: how to write a Task.
    ///
    /// # Errors
    /// `tool_not_available`.
    pub fn template(&self) -> Result<Board, Rejection> {
        check_tool(&self.caller, TemplateInput::TOOL)?;
        Ok(template())
    }

    /// Whether this caller may list Tasks.
    ///
    /// # Errors
    /// `permission_denied`.
    pub fn may_list(&self) -> Result<(), Rejection> {
        check_tool(&self.caller, ListInput::TOOL)
    }

    /// Whether this caller may have views.
    ///
    /// # Errors
    /// `tool_not_available`.
    pub fn may_view(&self) -> Result<(), Rejection> {
        check_tool(&self.caller, Views::TOOL)
    }

    /// A page of views of these Tasks of the session. At most `most` logs are read for it, of Tasks
    /// behind `after` in the order of their ids. Answers the last Task of the page if there are
    /// more. What the index alone says is in the first page.
    ///
    /// # Errors
    /// Not for this caller.
    pub async fn views_page(
        &self,
        asked: &ViewsInput,
        overview: &Overview,
        after: Option<&TaskId>,
        most: usize,
    ) -> Result<(Snapshot, Option<TaskId>), Rejection> {
        self.may_view()?;
        asked.check()?;
        let mut all = match after {
            None => overview.begin(asked),
            Some(_) => asked.begin(),
        };
        let mut page = viewed(asked, overview, after);
        let has_more = page.len() > most;
        page.truncate(most);
        let (until, mut shown) = (Instant::now() + LOOKS, 0);
        for entry in &page {
            if shown > 0 && Instant::now() >= until {
                break;
            }
            shown += 1;
            let (asked, is_counted) = (asked.clone(), entry.ended.is_some());
            let look = move |task: &View<'_>, _: &Caller, known: &Known<'_>| {
                asked.of_task(task, known, is_counted)
            };
            match in_time(until, self.look(&entry.key.task_id, look)).await {
                Ok(one) => all.merge(one),
                Err(gone) if gone.code == Code::TaskNotFound => {}
                Err(broken) if broken.code == Code::StorageError => {
                    all.note_unreadable(&entry.key.task_id);
                }
                Err(refused) => return Err(refused),
            }
        }
        let last = page[..shown].last().filter(|_| has_more || shown < page.len());
        Ok((all, last.map(|entry| entry.key.task_id.clone())))
    }

    /// The first Task of such a page.
    pub fn first_viewed(
        &self,
        asked: &ViewsInput,
        overview: &Overview,
        after: Option<&TaskId>,
    ) -> Option<TaskId> {
        viewed(asked, overview, after).first().map(|entry| entry.key.task_id.clone())
    }
}

impl<J: Journal, L: Leases> ClientPort for ClientLink<J, L> {
    fn session(&self) -> &SessionId {
        &self.caller.session_id
    }

    fn is_over(&self) -> bool {
        self.scheduler.has_stopped()
    }

    fn within(&self, max_bytes: usize) -> Self {
        Self { max_bytes: Some(max_bytes), ..self.clone() }
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        Ok(self.carry_out(task, context, what.into()).await?.summary)
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        let entries = self.list(input.include_terminal).await?.entries;
        self.tasks_page(entries, &input, usize::MAX).await
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        let needs_ended = input.shows_ended() || input.begin().counts_ended();
        let entries = self.list(needs_ended).await?.entries;
        let overview = Overview::of(entries);
        let (mut all, mut next) = self.views_page(&input, &overview, None, usize::MAX).await?;
        while let Some(after) = next {
            let page;
            (page, next) = self.views_page(&input, &overview, Some(&after), usize::MAX).await?;
            all.merge(page);
        }
        Ok((all.finish(), Vec::new()))
    }

    async fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        check_tool(&self.caller, ReadLog::TOOL)?;
        let (key, which) = (self.key(task), which.into());
        if let Some(news) = self.news(&key, which, || Ok(())).await? {
            return Ok(self.page_of_news(news));
        }
        let after = which.after;
        let Stands { version, status, leases, wal_path } = self.stands(&key).await?;
        let now = self.scheduler.now();
        let commits = if after < version {
            self.commits_within(&key, after + 1..=u64::MAX, PAGE_BYTES).await?
        } else {
            vec![]
        };
        let more = commits.last().is_some_and(|last| last.last_seq() < version);
        let steps_max = Some(self.scheduler.node.config.limits.steps_max);
        Ok(LogPage { commits, more, version, status, now, leases, wal_path, steps_max })
    }

    async fn published(&self, task: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        check_tool(&self.caller, ReadEvents::TOOL)?;
        let (to, mut published) = mpsc::channel(HINTS_MAX);
        let commits = self.scheduler.subscribe();
        let (journal, key) = (Arc::clone(self.scheduler.journal()), self.key(task));
        tokio::spawn(follow::publish_to(to, journal, key, commits));
        Ok(stream::poll_fn(move |cx| published.poll_recv(cx)).boxed())
    }

    async fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        check_tool(&self.caller, ReadEvents::TOOL)?;
        let (session, task) = (self.caller.session_id.clone(), task.cloned());
        let heard = stream::unfold(self.scheduler.runtime_events(), |mut events| async move {
            loop {
                match events.recv().await {
                    Ok(event) => return Some((event, events)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        let is_asked_for = move |event: &RuntimeEvent| {
            event.session_id == session && task.as_ref().is_none_or(|id| *id == event.task_id)
        };
        Ok(heard.filter(move |event| ready(is_asked_for(event))).boxed())
    }

    async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        self.may_list()?;
        let journal = self.scheduler.journal();
        let session = &self.caller.session_id;
        let unreadable = |error| unreadable(&error);
        let mut entries = if include_terminal {
            journal.entries(Some(session)).await.map_err(unreadable)?
        } else {
            // The journal holds live Tasks in memory; those that have ended may have to be read.
            let mut live = Vec::new();
            for key in journal.live().await.map_err(unreadable)? {
                if key.session_id == *session {
                    live.extend(journal.entry(&key).await.map_err(unreadable)?);
                }
            }
            live.retain(|entry| entry.ended.is_none());
            live
        };
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Listing { entries, missing_partitions: Vec::new() })
    }

    async fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        let (session, task) = (self.caller.session_id.clone(), task.cloned());
        let mut commits = self.scheduler.subscribe();
        let (hints, mut changes) = mpsc::channel(HINTS_MAX);
        tokio::spawn(async move {
            loop {
                let appended = tokio::select! {
                    appended = commits.recv() => appended,
                    () = hints.closed() => return,
                };
                let appended = match appended {
                    Ok(appended) => appended,
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                };
                let key = &appended.task;
                if key.session_id == session && task.as_ref().is_none_or(|id| *id == key.task_id) {
                    let _ = hints.try_send(Changed::of(&key.task_id, &appended.commit)); // A hint.
                }
            }
        });
        Ok(stream::poll_fn(move |cx| changes.poll_recv(cx)).boxed())
    }
}

impl<J: Journal, L: Leases> ClientLink<J, L> {
    /// [`write`](ClientPort::write), and whether it wrote.
    ///
    /// # Errors
    /// The same.
    pub async fn carry_out(
        &self,
        task: &TaskId,
        context: Context,
        what: Write,
    ) -> Result<Done, Rejection> {
        let (scheduler, envelope) = (&self.scheduler, self.envelope(context));
        let done = match what {
            Write::Create(input) => {
                debug_assert_eq!(input.task_id().ok(), Some(task), "a create names its task");
                scheduler.create(envelope, input, Policy::Auto).await?
            }
            Write::RetryEnded(input) => {
                // It is rare, and would make the future of every request larger.
                Box::pin(scheduler.retry(envelope, task.clone(), *input)).await?
            }
            Write::Command(command) => {
                scheduler.command(&self.key(task), envelope, command).await?
            }
        };
        self.answered(done)
    }

    /// Public events of a Task behind event `after`. If they are all there are, also the Task's
    /// state as folded from its log for them: from it the caller can make the events that follow.
    /// If the caller has that state already (`is_known`), the log is not read for it alone.
    ///
    /// # Errors
    /// Not for this caller, there is no such Task, or its log cannot be read.
    pub async fn follow(
        &self,
        task: &TaskId,
        after: u64,
        is_known: bool,
    ) -> Result<(EventPage, Option<Follower>), Rejection> {
        check_tool(&self.caller, ReadEvents::TOOL)?;
        let key = self.key(task);
        let stands = |task: &View<'_>| (task.version(), task.status());
        let (version, status) = self.scheduler.read(&key, stands).await?;
        if is_known && after >= version {
            let page = EventPage { events: Vec::new(), through: after, version, status };
            return Ok((page, None));
        }
        let read = follow::read(&self.scheduler.node, &key, after, version).await?;
        let page = EventPage { events: read.events, through: read.through, version, status };
        Ok((page, read.follower))
    }
}

/// The Tasks that the views cover, behind `after` in the order of their ids.
fn viewed<'a>(
    asked: &ViewsInput,
    overview: &'a Overview,
    after: Option<&TaskId>,
) -> Vec<&'a Entry> {
    let mut all = overview.to_read(asked.shows_ended());
    all.retain(|entry| after.is_none_or(|after| entry.key.task_id > *after));
    all
}
