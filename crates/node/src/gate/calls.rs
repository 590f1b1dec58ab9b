//! Answers the requests of orchestrators and observers. Step 3 of the walk in docs/architecture.md.

mod lane;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use async_nats::{HeaderMap, Message};
use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::command::Write;
use tenure_core::command::create::Parent;
use tenure_core::id::{CommandId, TaskId};
use tenure_core::status::Role;
use tenure_core::view::{Board, TaskPage, WriteSummary};
use tenure_core::{Context, Query, Rejection, TraceParent};
use tenure_ports::client::ClientPort as _;
use tenure_ports::journal::TaskKey;
use tenure_ports::placement::PLACEMENT;
use tenure_scheduler::ClientLink;
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};
use tenure_wire::bus::event::{EventPage, ReadEvents};
use tenure_wire::bus::operate::{LeasePage, ListLeases};
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::request::{
    Ask, Entries, Hello, List, ListInput, LogPage, ReadLog, ReadParent, Request, RequestHead,
    TemplateInput, ViewPage, Views, Welcome,
};
use tenure_wire::bus::subject::ClientName;
use tenure_wire::bus::{Answer, MESSAGE_MAX, decode, encode};
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

pub(super) use self::lane::lane_of;
use self::lane::reads_whole;
use super::{
    Gate, PartitionCall, READ_MAX, SETTLES, in_time, read_in_time, read_in_turn, say_answer,
    while_asked,
};
use crate::lanes::ReadTurn;
use crate::rates::tasks_of;

/// About how many bytes of commits, views or other parts an answer has.
const LOG_BYTES: usize = 512 << 10;

/// How many bytes the views of one Task may have. A Task with more is listed as unreadable, and the
/// others are shown.
const VIEW_BYTES_MAX: usize = MESSAGE_MAX - (16 << 10);

/// For how many Tasks at most one answer reads logs.
pub(super) const READ_LOGS_MAX: usize = 256;

pub(super) type CallLink =
    ClientLink<tenure_cluster::JetStreamJournal, tenure_cluster::RedisLeases>;

impl Gate {
    /// Answers a hello with the layout of the cluster.
    pub(super) async fn welcome(&self, bytes: &[u8], reply: &str) {
        let node = self.node.as_str().into();
        let welcome = Welcome {
            node,
            partitions: self.partitions,
            placement: PLACEMENT,
            features: self.features.clone(),
        };
        let answer = decode::<Hello>(bytes).map(|_| welcome).map_err(Rejection::from);
        say_answer(&self.intake, reply, &Answer::from(answer)).await;
    }

    /// Reads a request, carries it out and answers it.
    pub(super) fn call(
        self: &Arc<Self>,
        name: ClientName,
        partition: u32,
        message: &Message,
        reply: String,
    ) {
        let since = Instant::now();
        let (request, link) = match self.admitted(&name, message) {
            Ok(admitted) => admitted,
            Err(refused) => return self.refuse_caller(reply, refused),
        };
        let may_wait = match &request.ask {
            Ask::Command(command) => command.may_wait(),
            Ask::ReadLog(which) => which.wait_ms > 0,
            _ => false,
        };
        let (gate, operation) = (Arc::clone(self), request.ask.operation());
        let came = CallInput { gate, link, reply, partition, operation, may_wait, since };
        // Boxed: a runtime moves a future several times, and this one is large.
        tokio::spawn(Box::pin(async move {
            let Some(query) = came.call().run(request).await else { return };
            match came.link.caller().role {
                // What other nodes read is needed for what is being written.
                Role::System => Box::pin(came.call().query(query)).await,
                _ => {
                    let gate = Arc::clone(&came.gate);
                    gate.read_threads.spawn(async move { came.call().query(query).await });
                }
            }
        }));
    }

    /// Reads a request, and counts the Tasks that it makes or changes. Answers with it and the link that carries it
    /// out.
    fn admitted(
        &self,
        name: &ClientName,
        message: &Message,
    ) -> Result<(Request, CallLink), Rejection> {
        let agent = name.agent()?;
        let mut request = Request::read(&message.payload)?;
        let said = || traceparent(message.headers.as_ref()?);
        let given = request.head.trace.filter(|it| TraceParent::parse(it).is_some());
        request.head.trace = given.or_else(said);
        let tasks = match &request.ask {
            Ask::Create(_) | Ask::RetryEnded(_) => tasks_of(message.payload.len(), true),
            Ask::Command(_) => tasks_of(message.payload.len(), false),
            _ => 0,
        };
        if tasks > 0 {
            self.rates.create(name.role, &name.principal, tasks)?;
        }
        let link = self.scheduler.client(name.role, agent, name.session.clone());
        let link = request.head.max_bytes.map(|most| link.within(most)).unwrap_or(link);
        Ok((request, link.sent_in(MESSAGE_MAX)))
    }

    fn refuse_caller(self: &Arc<Self>, reply: String, refused: Rejection) {
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            let answer = Answer::<()>::from(Err(refused));
            say_answer(&gate.intake, &reply, &answer).await;
        });
    }
}

/// One request of a caller as it came, with the link that carries it out.
struct CallInput {
    gate: Arc<Gate>,
    link: CallLink,
    reply: String,
    partition: u32,
    operation: &'static str,
    may_wait: bool,
    since: Instant,
}

impl CallInput {
    fn call(&self) -> Call<'_> {
        let Self { gate, link, reply, partition, operation, may_wait, since } = self;
        let is_of_node = link.caller().role == Role::System;
        let client = if is_of_node { &gate.control } else { &gate.intake };
        let (partition, operation, may_wait, since) = (*partition, *operation, *may_wait, *since);
        let sent = AtomicUsize::new(0);
        let asked = PartitionCall { client, reply, partition, operation, may_wait, since, sent };
        Call { gate, link, is_of_node, asked }
    }
}

/// One request of a caller.
struct Call<'a> {
    gate: &'a Arc<Gate>,
    link: &'a CallLink,
    /// Whether the caller is another node.
    is_of_node: bool,
    asked: PartitionCall<'a>,
}

impl Call<'_> {
    /// Carries out a command, or waits as the reader of a log asks for it. Answers with the query that is left to be
    /// answered, if it is one. What carries out the request is boxed, as otherwise the future of every request would
    /// be as large as the largest.
    async fn run(self, request: Request) -> Option<Request> {
        let Request { head, ask } = request;
        match ask {
            Ask::Create(input) => self.write(head, Write::Create(input)).await,
            Ask::RetryEnded(input) => self.write(head, Write::RetryEnded(input)).await,
            Ask::Command(command) => self.write(head, Write::Command(command)).await,
            Ask::ReadLog(which) if which.wait_ms > 0 => return self.hold(head, which).await,
            ask => return Some(Request { head, ask }),
        }
        None
    }

    /// Answers a query, when it is the caller's turn.
    async fn query(&self, Request { head, ask }: Request) {
        if self.is_of_node {
            return Box::pin(self.read(&head, ask)).await;
        }
        if matches!(ask, Ask::ReadOutput(_)) {
            // A read of output waits for a worker, has limits of its own, and reads next to nothing here.
            return match self.gate.leave_to_read() {
                Ok(_leave) => Box::pin(self.read(&head, ask)).await,
                Err(refused) => self.answer(true, Err::<(), _>(refused)).await,
            };
        }
        let within = head.within_ms.map_or(READ_MAX, Duration::from_millis).min(READ_MAX);
        let is_late = match self.turn(&ask, within.min(SETTLES)).await {
            Ok((_leave, turn)) => {
                let read = Box::pin(self.read(&head, ask));
                read_in_turn(turn, &self.asked, within, read).await.is_none()
            }
            // This refusal says nothing of any Task.
            Err(refused) => return self.answer(true, Err::<(), _>(refused)).await,
        };
        if is_late {
            self.answer(true, Err::<(), _>(tenure_scheduler::overloaded())).await;
        }
    }

    /// A permit to read, and the turn of the caller.
    async fn turn(
        &self,
        query: &Ask,
        most: Duration,
    ) -> Result<(OwnedSemaphorePermit, ReadTurn), Rejection> {
        let leave = self.gate.leave_to_read()?;
        let lanes = match reads_whole(query) {
            true => &self.gate.whole,
            false => &self.gate.parts,
        };
        Ok((leave, lanes.turn(lane_of(self.link), most).await?))
    }

    /// Answers a reader of a log when there is something to read. It has a permit to read while it looks at the
    /// Task, and none while it waits. Answers what is left to read.
    async fn hold(&self, head: RequestHead, which: ReadLog) -> Option<Request> {
        let leave = || (!self.is_of_node).then(|| self.gate.leave_to_read()).transpose();
        let held = match self.task(&head) {
            Ok(task) => Box::pin(self.link.held_page(&task, which, LOG_BYTES, leave)).await,
            Err(refused) => Err(refused),
        };
        match held.transpose() {
            Some(answer) => self.answer(false, answer).await,
            None => return Some(Request { head, ask: Ask::ReadLog(which.at_once()) }),
        }
        None
    }

    async fn write(&self, head: RequestHead, what: Write) {
        let task = match &what {
            Write::Create(input) => input.task_id().cloned().and_then(|task| self.placed(task)),
            Write::RetryEnded(_) | Write::Command(_) => self.task(&head),
        };
        let done = match task.and_then(|task| Ok((task, context(head)?))) {
            Ok((task, context)) if !self.is_of_node && matches!(what, Write::RetryEnded(_)) => {
                Box::pin(self.make_again(task, context, what)).await
            }
            Ok((task, context)) => {
                let done = Box::pin(self.link.carry_out(&task, context, what));
                if self.asked.may_wait { while_asked(done).await } else { in_time(done).await }
            }
            Err(refused) => Err(refused),
        };
        let is_written = done.as_ref().is_ok_and(|done| done.is_written);
        let (summary, shorten) = (done.map(|done| done.summary), WriteSummary::shorten);
        self.gate.answer_in_short(&self.asked, is_written, summary, shorten).await;
    }

    /// Answers a query.
    async fn serve<Q: Query>(&self, head: &RequestHead, query: Q)
    where
        Self: ServeQuery<Q>,
    {
        let answer = Box::pin(self.served(head, query.clone())).await;
        let shorten = |answer: &mut Q::Output| query.shorten(answer);
        self.gate.answer_in_short(&self.asked, false, answer, shorten).await;
    }

    /// The Task of a request. It must lie in the partition that was asked.
    fn task(&self, head: &RequestHead) -> Result<TaskId, Rejection> {
        let task = head.task_id.clone();
        self.placed(task.ok_or_else(|| Rejection::invalid("task_id", "task_id is missing"))?)
    }

    fn placed(&self, task: TaskId) -> Result<TaskId, Rejection> {
        let key = self.key(task);
        self.gate.check_partition(&key, self.asked.partition)?;
        Ok(key.task_id)
    }

    fn key(&self, task_id: TaskId) -> TaskKey {
        TaskKey { session_id: self.link.session().clone(), task_id }
    }

    async fn answer<T: Serialize>(&self, is_written: bool, result: Result<T, Rejection>) {
        self.gate.answer(&self.asked, is_written, result).await;
    }
}

/// How a node answers one kind of query.
trait ServeQuery<Q: Query> {
    async fn served(&self, head: &RequestHead, query: Q) -> Result<Q::Output, Rejection>;
}

macro_rules! serves {
    (
        task { $($task:ident($query:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($_part:ty))* }
        other { $($other:ident($_other:ty))* }
    ) => {
        impl Call<'_> {
            async fn read(&self, head: &RequestHead, ask: Ask) {
                match ask {
                    Ask::Create(_) | Ask::RetryEnded(_) | Ask::Command(_) => {}
                    $(Ask::$task(query) => self.serve(head, query).await,)*
                    $(Ask::$history(query) => self.serve(head, query).await,)*
                    $(Ask::$part(query) => self.serve(head, query).await,)*
                    $(Ask::$other(query) => self.serve(head, query).await,)*
                }
            }
        }

        $(
            impl ServeQuery<$query> for Call<'_> {
                async fn served(
                    &self,
                    head: &RequestHead,
                    query: $query,
                ) -> Result<<$query as Query>::Output, Rejection> {
                    read_in_time(self.link.ask(&self.task(head)?, query)).await
                }
            }
        )*

        $(
            impl ServeQuery<$reads> for Call<'_> {
                async fn served(
                    &self,
                    head: &RequestHead,
                    query: $reads,
                ) -> Result<<$reads as Query>::Output, Rejection> {
                    let task = self.task(head)?;
                    let _turn = self.gate.turn_to_read_log().await?;
                    let mut answer = self.link.ask(&task, query).await?;
                    while <$reads>::IN_PARTS && is_long(&answer) && query.shorten(&mut answer) {}
                    Ok(answer)
                }
            }
        )*
    };
}

tenure_wire::queries!(serves);

impl ServeQuery<BlobGet> for Call<'_> {
    async fn served(&self, head: &RequestHead, asked: BlobGet) -> Result<BlobPart, Rejection> {
        self.link.ask(&self.task(head)?, asked).await
    }
}

impl ServeQuery<BlobPut> for Call<'_> {
    async fn served(&self, head: &RequestHead, part: BlobPut) -> Result<BlobTaken, Rejection> {
        self.link.ask(&self.task(head)?, part).await
    }
}

impl ServeQuery<ReadOutput> for Call<'_> {
    async fn served(&self, head: &RequestHead, asked: ReadOutput) -> Result<OutputPage, Rejection> {
        let task = self.task(head)?;
        let turn = self.gate.parts.turn(lane_of(self.link), SETTLES).await?;
        let look = Box::pin(self.link.attempt(&task, asked.attempt_id));
        let attempt = read_in_turn(turn, &self.asked, SETTLES, read_in_time(look)).await;
        let attempt = attempt.ok_or_else(tenure_scheduler::overloaded)??;
        self.gate.read_output(self.key(task), &attempt, asked).await
    }
}

impl ServeQuery<ListInput> for Call<'_> {
    async fn served(&self, _: &RequestHead, input: ListInput) -> Result<TaskPage, Rejection> {
        self.gate.tasks(self.link, self.asked.partition, input).await
    }
}

impl ServeQuery<TemplateInput> for Call<'_> {
    async fn served(&self, _: &RequestHead, _: TemplateInput) -> Result<Board, Rejection> {
        self.link.template()
    }
}

impl ServeQuery<List> for Call<'_> {
    async fn served(&self, _: &RequestHead, which: List) -> Result<Entries, Rejection> {
        self.gate.list(self.link, self.asked.partition, which).await
    }
}

impl ServeQuery<ListLeases> for Call<'_> {
    async fn served(&self, _: &RequestHead, which: ListLeases) -> Result<LeasePage, Rejection> {
        self.gate.leases(self.link.session(), self.asked.partition, which).await
    }
}

impl ServeQuery<ReadLog> for Call<'_> {
    async fn served(&self, head: &RequestHead, which: ReadLog) -> Result<LogPage, Rejection> {
        self.link.log_page(&self.task(head)?, which, LOG_BYTES).await
    }
}

impl ServeQuery<Views> for Call<'_> {
    /// Views of as many Tasks of the partition as an answer holds: if they are too long, it tries
    /// again with half as many.
    async fn served(&self, _: &RequestHead, which: Views) -> Result<ViewPage, Rejection> {
        self.link.may_view()?;
        let overview =
            self.gate.fence.journal.overview_in(self.asked.partition, self.link.session());
        let overview = overview.map_err(|error| tenure_scheduler::unreadable(&error))?;
        let (asked, after) = which.into_input();
        let mut most = READ_LOGS_MAX;
        loop {
            let page = self.link.views_page(&asked, &overview, after.as_ref(), most).await;
            let (mut snapshot, next) = page?;
            if most > 1 && is_long(&snapshot) {
                most /= 2;
                continue;
            }
            if encode(&snapshot).map_or(true, |bytes| bytes.len() > VIEW_BYTES_MAX) {
                let first = self.link.first_viewed(&asked, &overview, after.as_ref());
                (snapshot, _) = self.link.views_page(&asked, &overview, after.as_ref(), 0).await?;
                first.iter().for_each(|task| snapshot.note_unreadable(task));
            }
            return Ok(ViewPage { snapshot, next });
        }
    }
}

impl ServeQuery<ReadParent> for Call<'_> {
    /// What another node needs to know of the parent of one of its Tasks.
    async fn served(&self, head: &RequestHead, which: ReadParent) -> Result<Parent, Rejection> {
        let key = self.key(self.task(head)?);
        if !self.is_of_node {
            let message = "nodes ask each other this";
            return Err(Rejection::new(tenure_core::Code::ToolNotAvailable, message));
        }
        match which.record {
            true => self.gate.scheduler.record(&key, &which.child).await,
            false => self.gate.scheduler.parent(&key, &which.child).await,
        }
    }
}

impl ServeQuery<ReadEvents> for Call<'_> {
    /// As many public events as an answer holds. The node publishes those to come for a while.
    async fn served(&self, head: &RequestHead, which: ReadEvents) -> Result<EventPage, Rejection> {
        let (task, after) = (self.task(head)?, which.after);
        let key = self.key(task.clone());
        let stands = self.link.log(&task, u64::MAX).await?; // Refused if there is no such Task.
        if after >= stands.version && stands.status.is_terminal() {
            let (version, status) = (stands.version, stands.status);
            return Ok(EventPage { events: Vec::new(), through: after, version, status });
        }
        let is_known = self.gate.followed.ask(&key);
        let is_read = !is_known || after < stands.version;
        let _turn = match is_read {
            true => Some(self.gate.turn_to_read_log().await?),
            false => None,
        };
        let (page, follower) = self.link.follow(&task, after, is_known).await?;
        if let Some(follower) = follower {
            self.gate.followed.know(&key, follower);
        }
        page.within(LOG_BYTES)
    }
}

/// The first of these that fit into one answer: at least one and at most `most`, as the texts of
/// users may have any length.
pub(super) fn first_of<T: Serialize>(all: impl Iterator<Item = T>, most: usize) -> Vec<T> {
    let (mut first, mut bytes) = (Vec::new(), 0);
    for one in all.take(most) {
        bytes += encode(&one).map_or(LOG_BYTES, |written| written.len());
        if bytes > LOG_BYTES && !first.is_empty() {
            break;
        }
        first.push(one);
    }
    first
}

/// Whether an answer is longer than it should be.
pub(super) fn is_long(answer: &impl Serialize) -> bool {
    encode(answer).map_or(true, |bytes| bytes.len() > LOG_BYTES)
}

/// What goes with a command. A command without an id gets one, and so cannot be repeated.
fn context(head: RequestHead) -> Result<Context, Rejection> {
    Ok(head.context(|| CommandId::new(Uuid::now_v7().to_string()))?)
}

/// The span that a header names as tracing tools write it, in letters of any case. If there are
/// several such headers, or an invalid one, it takes none.
fn traceparent(headers: &HeaderMap) -> Option<SmolStr> {
    let is_it = |name: &str| name.eq_ignore_ascii_case("traceparent");
    let mut said = headers.iter().filter(|(name, _)| is_it(name.as_ref())).flat_map(|it| it.1);
    let text = said.next().filter(|_| said.next().is_none())?.as_str();
    TraceParent::parse(text)?;
    Some(text[..TraceParent::LENGTH].into()) // What later versions of the header add has no bound.
}
