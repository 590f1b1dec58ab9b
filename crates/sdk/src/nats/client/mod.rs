//! A client's end of the bus over NATS: an orchestrator or an observer in its session.
//!
//! The client sends every request to the owner of its partition and repeats it, with the same
//! `command_id`, until there is a final answer or its patience runs out (IDEM-01). It creates a
//! Task that is too long for one message in parts.
//!
//! Step 2 of the walk in docs/architecture.md.

mod draft;
mod gathered;
mod operate;
mod page;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use bytes::Bytes;
use futures::future::ready;
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use serde::de::DeserializeOwned;
use tenure_core::command::Write;
use tenure_core::command::create::CreateTask;
use tenure_core::features::Features;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::status::Role;
use tenure_core::view::{ListInput, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary};
use tenure_core::{Code, Context, Query, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::{Answers, Changed, Listing, LogPage};
use tenure_ports::erased::ErasedClient;
use tenure_ports::journal::{Entry, TaskKey};
use tenure_ports::placement;
use tenure_wire::bus::event::{Published, Runtime};
use tenure_wire::bus::request::{
    Ask, Committed, Entries, Hello, List, ReadLog, Request, ViewPage, Views, Welcome,
};
use tenure_wire::bus::subject::{ClientName, event, is_inbox_of, public, runtime};
use tenure_wire::bus::{V, decode, encode};
use tokio::sync::Semaphore;

use self::draft::CreateParts;
pub use self::gathered::TakenCapacity;
use self::gathered::{GatheredPages, GatheringCapacity, too_long_views};
pub use self::operate::Gather;
use super::connect::Connection;
use crate::pages;
use crate::patience::{Patience, unavailable};

/// Unanswered requests; more wait for their turn (mechanisms 16).
const UNANSWERED_MAX: usize = 256;

/// How many hellos wait for a short time only, and for how long. Some node gets each, also one that hangs: then another
/// is asked soon. Later hellos leave a slow node the time that all requests have.
const SHORT_HELLOS: u32 = 8;
const SHORT: Duration = Duration::from_secs(1);

/// A create that is longer goes in parts (mechanisms 10).
const PART: usize = 512 << 10;

/// How many partitions the client asks for their Tasks at a time.
const LISTED_AT_ONCE: usize = 16;

/// A client that is connected over NATS. Cheap to clone.
#[derive(Clone)]
pub struct NatsClient(Arc<ClientShared>);

#[derive(Clone)]
struct ClientShared {
    connection: Connection,
    session: SessionId,
    /// The principal of this client, as it is in logs.
    /// The beginning of all subjects of this client.
    root: String,
    partitions: u32,
    permits: Arc<Semaphore>,
    /// Longest answer that is wanted (CTRL-06).
    max_bytes: Option<usize>,
    /// That for the pages of many partitions.
    capacity: GatheringCapacity,
}

impl fmt::Debug for NatsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsClient").field("root", &self.0.root).finish_non_exhaustive()
    }
}

impl NatsClient {
    /// Joins the cluster: asks a node for the number of partitions and their placement. The
    /// connection's inbox must be this client's ([`inbox`](tenure_wire::bus::subject::inbox)).
    ///
    /// # Errors
    /// `unavailable` if no node answers before the patience runs out; `unauthenticated` if the
    /// server does not let this login act as this client; `validation_error` for another role than
    /// orchestrator or observer, the inbox of another principal, or a cluster of another placement
    /// (OWN-01).
    pub async fn join(connection: Connection, name: &ClientName) -> Result<Self, Rejection> {
        if !matches!(name.role, Role::Orchestrator | Role::Observer) {
            return Err(Rejection::invalid("role", "a client is an orchestrator or an observer"));
        }
        let reply = format!("{}.r.0", connection.inbox());
        if !is_inbox_of(&reply, name.role, &name.principal) {
            let message = "the connection was opened with the inbox of somebody else";
            return Err(Rejection::invalid("inbox", message));
        }
        let permits = Arc::new(Semaphore::new(UNANSWERED_MAX));
        let (session, root) = (name.session.clone(), name.root(connection.cluster()));
        let (partitions, max_bytes, capacity) = (0, None, GatheringCapacity::default());
        let mut shared =
            ClientShared { connection, session, root, partitions, permits, max_bytes, capacity };
        let hello = Bytes::from(encode(&Hello { v: V, features: Features::of_program() })?);
        let (usual, patience) = (shared.connection.request_timeout(), shared.connection.patience());
        let within = |number| if number < SHORT_HELLOS { usual.min(SHORT) } else { usual };
        let welcome: Welcome = shared.ask_by_turns(within, "hello".into(), hello, patience).await?;
        placement::check(welcome.placement)?;
        shared.partitions = welcome.partitions;
        Ok(Self(Arc::new(shared)))
    }

    /// The same client, which takes the bytes that it gathers of many partitions, for views and lists, of a
    /// capacity that it shares with others.
    #[must_use]
    pub fn within_capacity(
        self,
        take: impl Fn(usize) -> Result<TakenCapacity, Rejection> + Send + Sync + 'static,
    ) -> Self {
        let capacity = GatheringCapacity::new(take);
        Self(Arc::new(ClientShared { capacity, ..ClientShared::clone(&self.0) }))
    }
}

impl ClientShared {
    /// Repeats a request until there is a final answer, or patience runs out.
    async fn ask<T: DeserializeOwned>(
        &self,
        verb: String,
        body: Bytes,
        patience: Duration,
    ) -> Result<T, Rejection> {
        self.ask_within(self.connection.request_timeout(), verb, body, patience).await
    }

    /// The same, for a request whose answer may take longer.
    async fn ask_within<T: DeserializeOwned>(
        &self,
        within: Duration,
        verb: String,
        body: Bytes,
        patience: Duration,
    ) -> Result<T, Rejection> {
        self.ask_by_turns(|_| within, verb, body, patience).await
    }

    /// The same, with a time for each request, by its number from 0.
    async fn ask_by_turns<T: DeserializeOwned>(
        &self,
        within: impl Fn(u32) -> Duration,
        verb: String,
        body: Bytes,
        patience: Duration,
    ) -> Result<T, Rejection> {
        let subject = format!("{}.{verb}", self.root);
        let closed = |_| unavailable("the connection is closed");
        let _permit = self.permits.acquire().await.map_err(closed)?;
        let (mut patience, mut number) = (Patience::of(patience), 0);
        loop {
            let within = patience.for_a_try(within(number));
            match self.connection.request(subject.clone(), body.clone(), within).await {
                Err(refused) if patience.outlasts(&refused).await => number += 1,
                answer => return patience.conclude(answer),
            }
        }
    }

    async fn ask_on<Q: Query + Into<Ask>>(
        &self,
        task: &TaskId,
        query: Q,
    ) -> Result<Q::Output, Rejection> {
        let request = self.within(self.limited(Request::new(Some(task.clone()), None, query)));
        self.ask_owner(task, request.write()?.into()).await
    }

    /// The request with this client's limit for the length of the answer.
    fn limited(&self, mut request: Request) -> Request {
        request.head.max_bytes = self.max_bytes;
        request
    }

    /// The request, which says for how long this client waits for its answer.
    fn within(&self, mut request: Request) -> Request {
        let within = self.connection.request_timeout().as_millis();
        request.head.within_ms = Some(u64::try_from(within).unwrap_or(u64::MAX));
        request
    }

    async fn ask_owner<T: DeserializeOwned>(
        &self,
        task: &TaskId,
        body: Bytes,
    ) -> Result<T, Rejection> {
        let key = TaskKey { session_id: self.session.clone(), task_id: task.clone() };
        let verb = format!("cmd.{}", key.partition(self.partitions));
        self.ask(verb, body, self.connection.patience()).await
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write>,
    ) -> Result<WriteSummary, Rejection> {
        let request = self.limited(Request::command(task, context, what.into()));
        self.ask_owner(task, request.write()?.into()).await
    }

    /// Creates a long Task in parts (IDEM-07). The ids of their commands follow from the content,
    /// so a repeated create continues where an earlier one was broken off. A refused part leaves an
    /// unfinished creation, and the error says so.
    async fn create_in_parts(
        &self,
        task: &TaskId,
        context: Context,
        input: CreateTask,
    ) -> Result<WriteSummary, Rejection> {
        let CreateParts { first, rest } = draft::cut(input, PART)?;
        let mut last = self.write(task, context.clone(), first).await?;
        for (command_id, command) in rest {
            let trace = context.trace.clone();
            let context = Context { trace, ..Context::new(command_id) };
            let sent = self.write(task, context, command).await;
            last = sent.map_err(|refused| match refused.code {
                Code::TaskTerminal => refused, // Somebody has ended the Task meanwhile.
                _ => refused.with("unfinished_creation", true),
            })?;
        }
        Ok(last)
    }

    async fn list_partition(
        &self,
        partition: u32,
        include_terminal: bool,
    ) -> Result<Vec<Entry>, Rejection> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.key.task_id.clone());
            let list = List { after, include_terminal, ..List::default() };
            let request = self.within(Request::new(None, None, list));
            let (verb, body) = (format!("cmd.{partition}"), request.write()?.into());
            let page: Entries = self.ask(verb, body, self.connection.request_timeout()).await?;
            let is_last = !page.more || page.entries.is_empty();
            all.extend(page.entries.into_iter().map(Entry::from));
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The answers of all partitions, and which partitions gave none.
    async fn everywhere<T, F: Future<Output = Result<T, Rejection>>>(
        &self,
        ask: impl Fn(u32) -> F,
    ) -> Result<(Vec<T>, Vec<u32>), Rejection> {
        let asked = (0..self.partitions).map(|partition| {
            let answer = ask(partition);
            async move { (partition, answer.await) }
        });
        let asked = stream::iter(asked);
        let mut asked = std::pin::pin!(asked.buffer_unordered(LISTED_AT_ONCE));
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        while let Some((partition, answer)) = asked.next().await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(refused) if refused.code.is_retryable() => missing.push(partition),
                Err(refused) => return Err(refused),
            }
        }
        missing.sort_unstable();
        Ok((answers, missing))
    }

    async fn listing<F: Future<Output = Result<Vec<Entry>, Rejection>>>(
        &self,
        ask: impl Fn(u32) -> F,
    ) -> Result<Listing, Rejection> {
        let (entries, missing_partitions) = self.everywhere(ask).await?;
        Ok(Listing { entries: entries.concat(), missing_partitions })
    }

    /// The messages that come under a subject, from the return of this call on. A message that cannot be decoded
    /// counts as lost.
    async fn heard<T: Send + 'static>(
        &self,
        subject: String,
        read: fn(&Message) -> Option<T>,
    ) -> Result<BoxStream<'static, T>, Rejection> {
        let messages = self.connection.subscribe(subject).await?;
        Ok(messages.filter_map(move |message| ready(read(&message))).boxed())
    }

    async fn views_of(
        &self,
        partition: u32,
        input: &ViewsInput,
        gathered: &GatheredPages,
    ) -> Result<Snapshot, Rejection> {
        let (mut all, mut after) = (input.begin(), None);
        loop {
            let request = self.within(Request::new(None, None, Views::page(input.clone(), after)));
            let (verb, body) = (format!("cmd.{partition}"), request.write()?.into());
            let page: ViewPage = self.ask(verb, body, self.connection.request_timeout()).await?;
            gathered.add(&page.snapshot)?;
            all.merge(page.snapshot);
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }
}

/// A hint of a change; its subject names the Task.
fn changed(message: &Message) -> Option<Changed> {
    let task_id = TaskId::new(message.subject.rsplit('.').next()?).ok()?;
    let Committed { version, ended, .. } = decode(&message.payload).ok()?;
    Some(Changed { task_id, version, ended })
}

macro_rules! answers {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($brings:ty))* }
        other { $($other:ident($_query:ty))* }
    ) => {
        $(answers!($asks);)*
        $(answers!($reads);)*
        $(answers!($brings);)*
    };
    ($query:ty) => {
        impl Answers<$query> for NatsClient {
            async fn answer(
                &self,
                task: &TaskId,
                query: $query,
            ) -> Result<<$query as Query>::Output, Rejection> {
                self.0.ask_on(task, query).await
            }
        }
    };
}

tenure_wire::queries!(answers);

impl ClientPort for NatsClient {
    fn session(&self) -> &SessionId {
        &self.0.session
    }

    fn erased(self) -> ErasedClient {
        ErasedClient::new(self)
    }

    fn within(&self, max_bytes: usize) -> Self {
        Self(Arc::new(ClientShared { max_bytes: Some(max_bytes), ..ClientShared::clone(&self.0) }))
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        let whole = self.0.limited(Request::command(task, context.clone(), what.into()));
        match (whole.write(), whole.ask) {
            (Ok(body), _) if body.len() <= PART => self.0.ask_owner(task, body.into()).await,
            (_, Ask::Create(input)) => self.0.create_in_parts(task, context, *input).await,
            (body, _) => self.0.ask_owner(task, body?.into()).await,
        }
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        self.0.page_of_tasks(input).await
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        let gathered = GatheredPages::new(&self.0.capacity, too_long_views);
        let ask = |partition| self.0.views_of(partition, &input, &gathered);
        let (parts, missing) = self.0.everywhere(ask).await?;
        gathered.check()?;
        let mut all = input.begin();
        parts.into_iter().for_each(|part| all.merge(part));
        Ok((all.finish(), missing))
    }

    async fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        pages::read(&self.0.session, task, which.into(), |which| self.0.ask_on(task, which)).await
    }

    async fn published(&self, task: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        let subject = public(self.0.connection.cluster(), &self.0.session, task);
        // A lost event leaves a gap, at which a reader reads the log.
        self.0.heard(subject, |message| decode(&message.payload).ok()).await
    }

    async fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        let subject = runtime(self.0.connection.cluster(), &self.0.session, task);
        let event = |message: &Message| Some(decode::<Runtime>(&message.payload).ok()?.event);
        self.0.heard(subject, event).await
    }

    async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        let ask = |partition| self.0.list_partition(partition, include_terminal);
        let mut listing = self.0.listing(ask).await?;
        listing.entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(listing)
    }

    async fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        let subject = event(self.0.connection.cluster(), &self.0.session, task);
        self.0.heard(subject, changed).await
    }
}
