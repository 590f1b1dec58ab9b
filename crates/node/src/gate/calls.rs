//! What orchestrators and observers ask.

use std::sync::Arc;
use std::time::Instant;

use async_nats::{HeaderMap, Message};
use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::command::create::Parent;
use tenure_core::id::{CommandId, TaskId};
use tenure_core::status::Role;
use tenure_core::view::{
    InspectInput, Inspection, ReplayInput, TaskExplanation, TaskView, WriteSummary,
};
use tenure_core::{Rejection, TraceParent};
use tenure_ports::client::{Around, ClientPort as _};
use tenure_ports::journal::TaskKey;
use tenure_ports::placement::PLACEMENT;
use tenure_scheduler::{ClientLink, Done};
use tenure_wire::bus::event::EventPage;
use tenure_wire::bus::request::{Ask, Head, Hello, ReadParent, Request, ViewPage, Views, Welcome};
use tenure_wire::bus::subject::ClientName;
use tenure_wire::bus::{Answer, MESSAGE_MAX, decode, encode};
use uuid::Uuid;

use super::{Asked, Gate, in_time, read_in_time, say_answer};

/// Bytes of commits, of views, or of what else comes in parts, in an answer.
const LOG_BYTES: usize = 512 << 10;

/// Bytes of the views of one Task: of more it is named as one that cannot be shown, and others are.
const VIEW_BYTES_MAX: usize = MESSAGE_MAX - (16 << 10);

/// Tasks of which an answer tells what each says itself.
pub(super) const FOLDED_MAX: usize = 256;

pub(super) type Link = ClientLink<tenure_cluster::JetStreamJournal, tenure_cluster::RedisLeases>;

impl Gate {
    /// Says how the cluster is made.
    pub(super) async fn welcome(&self, bytes: &[u8], reply: &str) {
        let node = self.node.as_str().into();
        let welcome = Welcome { node, partitions: self.partitions, placement: PLACEMENT };
        let answer = decode::<Hello>(bytes).map(|_| welcome).map_err(Rejection::from);
        say_answer(&self.intake, reply, &Answer::from(answer)).await;
    }

    /// Carries out a request.
    pub(super) fn call(
        self: &Arc<Self>,
        name: ClientName,
        partition: u32,
        message: &Message,
        reply: String,
    ) {
        let since = Instant::now();
        let request = Request::read(&message.payload).map(|mut request| {
            let said = || traceparent(message.headers.as_ref()?);
            let given = request.head.trace.filter(|it| TraceParent::parse(it).is_some());
            request.head.trace = given.or_else(said);
            request
        });
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            let agent = name.agent().map_err(Rejection::from);
            let prepared = agent.and_then(|agent| Ok((agent, request?)));
            let (agent, request) = match prepared {
                Ok(prepared) => prepared,
                Err(refused) => {
                    let answer = Answer::<()>::from(Err(refused));
                    return say_answer(&gate.intake, &reply, &answer).await;
                }
            };
            let link = gate.scheduler.client(name.role, agent, name.session.clone());
            let link = request.head.max_bytes.map(|most| link.within(most)).unwrap_or(link);
            let is_node = name.role == Role::System;
            let client = if is_node { &gate.control } else { &gate.intake };
            let (reply, operation) = (&reply, request.ask.operation());
            let may_wait = matches!(&request.ask, Ask::Command(command) if command.may_wait());
            let asked = Asked { client, reply, partition, operation, may_wait, since };
            Call { gate: &gate, link, is_of_node: is_node, asked }.run(request).await;
        });
    }
}

/// One request of a caller.
struct Call<'a> {
    gate: &'a Gate,
    link: Link,
    /// Whether another node asks.
    is_of_node: bool,
    asked: Asked<'a>,
}

impl Call<'_> {
    /// Whatever is asked is boxed: the future of every request would be as large as the largest.
    async fn run(self, request: Request) {
        let Request { head, ask } = request;
        let is_write = matches!(ask, Ask::Create(_) | Ask::RetryEnded(_) | Ask::Command(_));
        let needs_leave = !is_write && !self.is_of_node;
        let leave = needs_leave.then(|| self.gate.leave_to_read()).transpose();
        let _leave = match leave {
            Ok(leave) => leave,
            // It says nothing of any Task.
            Err(refused) => return self.answer(true, Err::<(), _>(refused)).await,
        };
        match ask {
            Ask::Create(input) => {
                let task = input.task_id().cloned();
                let asked = task.and_then(|task| self.placed(&task)).and_then(|()| around(head));
                let made = match asked {
                    Ok(around) => in_time(Box::pin(self.link.write_new(around, *input))).await,
                    Err(refused) => Err(refused),
                };
                self.answer_write(made).await;
            }
            Ask::RetryEnded(input) => {
                let asked = self.task(&head).and_then(|task| Ok((task, around(head)?)));
                let made = match asked {
                    Ok((task, around)) => {
                        in_time(Box::pin(self.link.write_again(task, around, *input))).await
                    }
                    Err(refused) => Err(refused),
                };
                self.answer_write(made).await;
            }
            Ask::Command(command) => {
                let asked = self.task(&head).and_then(|task| Ok((task, around(head)?)));
                let done = match asked {
                    Ok((task, around)) => {
                        let done = Box::pin(self.link.write(&task, around, *command));
                        if self.asked.may_wait { done.await } else { in_time(done).await }
                    }
                    Err(refused) => Err(refused),
                };
                self.answer_write(done).await;
            }
            Ask::Get => {
                let view = match self.task(&head) {
                    Ok(task) => read_in_time(Box::pin(self.link.get(&task))).await,
                    Err(refused) => Err(refused),
                };
                self.answer_read(view, TaskView::shorten).await;
            }
            Ask::Query(input) => {
                let offset = input.offset;
                let page = match self.task(&head) {
                    Ok(task) => read_in_time(Box::pin(self.link.query(&task, input))).await,
                    Err(refused) => Err(refused),
                };
                self.answer_read(page, |page| page.halve(offset)).await;
            }
            Ask::Tasks(input) => {
                let page = Box::pin(self.gate.tasks(&self.link, self.asked.partition, input)).await;
                self.answer(false, page).await;
            }
            Ask::Explain(input) => {
                let why = match self.task(&head) {
                    Ok(task) => read_in_time(Box::pin(self.link.explain(&task, input))).await,
                    Err(refused) => Err(refused),
                };
                self.answer(false, why).await;
            }
            Ask::ExplainTask(input) => {
                let why = match self.task(&head) {
                    Ok(task) => read_in_time(Box::pin(self.link.explain_task(&task, input))).await,
                    Err(refused) => Err(refused),
                };
                self.answer_read(why, TaskExplanation::shorten).await;
            }
            Ask::Inspect(input) => {
                let history = match self.task(&head) {
                    Ok(task) => Box::pin(self.inspect(&task, input)).await,
                    Err(refused) => Err(refused),
                };
                self.answer(false, history).await;
            }
            Ask::Replay(input) => {
                let view = match self.task(&head) {
                    Ok(task) => Box::pin(self.replay(&task, input)).await,
                    Err(refused) => Err(refused),
                };
                self.answer_read(view, TaskView::shorten_as_it_was).await;
            }
            Ask::Board(input) => {
                let lines = match self.task(&head) {
                    Ok(task) => read_in_time(Box::pin(self.link.board(&task, input))).await,
                    Err(refused) => Err(refused),
                };
                self.answer(false, lines).await;
            }
            Ask::Template => {
                let guide = self.link.template();
                self.answer(false, guide).await;
            }
            Ask::Views(which) => {
                let page = Box::pin(self.views(which)).await;
                self.answer(false, page).await;
            }
            Ask::ReadLog(which) => {
                let page = match self.task(&head) {
                    Ok(task) => Box::pin(self.link.log_page(&task, which, LOG_BYTES)).await,
                    Err(refused) => Err(refused),
                };
                self.answer(false, page).await;
            }
            Ask::ReadParent(which) => {
                let parent = match self.task(&head) {
                    Ok(task) => Box::pin(self.parent(task, which)).await,
                    Err(refused) => Err(refused),
                };
                self.answer(false, parent).await;
            }
            Ask::ReadEvents(which) => {
                let page = match self.task(&head) {
                    Ok(task) => Box::pin(self.events(&task, which.after)).await,
                    Err(refused) => Err(refused),
                };
                self.answer(false, page).await;
            }
            Ask::Leases(which) => {
                let session = self.link.session().clone();
                let leases =
                    Box::pin(self.gate.leases(&session, self.asked.partition, which)).await;
                self.answer(false, leases).await;
            }
            Ask::List(which) => {
                let entries =
                    Box::pin(self.gate.list(&self.link, self.asked.partition, which)).await;
                self.answer(false, entries).await;
            }
        }
    }

    /// The Task of a request, which is of the partition asked.
    fn task(&self, head: &Head) -> Result<TaskId, Rejection> {
        let task = head.task_id.clone();
        let task = task.ok_or_else(|| Rejection::invalid("task_id", "task_id is missing"))?;
        self.placed(&task)?;
        Ok(task)
    }

    fn placed(&self, task: &TaskId) -> Result<(), Rejection> {
        let session_id = self.link.session().clone();
        let key = TaskKey { session_id, task_id: task.clone() };
        self.gate.check_partition(&key, self.asked.partition)
    }

    async fn answer<T: Serialize>(&self, is_written: bool, result: Result<T, Rejection>) {
        self.gate.answer(&self.asked, is_written, result).await;
    }

    async fn answer_write(&self, result: Result<Done, Rejection>) {
        let is_written = result.as_ref().is_ok_and(|done| done.is_written);
        let (result, shorten) = (result.map(|done| done.summary), WriteSummary::shorten);
        self.gate.answer_in_short(&self.asked, is_written, result, shorten).await;
    }

    async fn answer_read<T: Serialize>(
        &self,
        result: Result<T, Rejection>,
        shorten: impl FnMut(&mut T) -> bool,
    ) {
        self.gate.answer_in_short(&self.asked, false, result, shorten).await;
    }

    /// Views of as many Tasks of the partition as an answer holds: each time of half as many.
    async fn views(&self, which: Views) -> Result<ViewPage, Rejection> {
        self.link.may_view()?;
        let overview =
            self.gate.fence.journal.overview_in(self.asked.partition, self.link.session());
        let overview = overview.map_err(|error| tenure_scheduler::unreadable(&error))?;
        let (asked, after) = which.into_input();
        let mut most = FOLDED_MAX;
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

    /// As much of the history of a Task as an answer holds.
    async fn inspect(&self, task: &TaskId, input: InspectInput) -> Result<Inspection, Rejection> {
        let _turn = self.gate.turn_to_read_log().await?;
        let mut history = self.link.inspect(task, input).await?;
        while is_long(&history) && history.halve() {}
        Ok(history)
    }

    async fn replay(&self, task: &TaskId, input: ReplayInput) -> Result<TaskView, Rejection> {
        let _turn = self.gate.turn_to_read_log().await?;
        self.link.replay(task, input).await
    }

    /// What another node needs to know of the parent of one of its Tasks.
    async fn parent(&self, task_id: TaskId, which: ReadParent) -> Result<Parent, Rejection> {
        if !self.is_of_node {
            let message = "nodes ask each other this";
            return Err(Rejection::new(tenure_core::Code::ToolNotAvailable, message));
        }
        let key = TaskKey { session_id: self.link.session().clone(), task_id };
        match which.record {
            true => self.gate.scheduler.record(&key, &which.child).await,
            false => self.gate.scheduler.parent(&key, &which.child).await,
        }
    }

    /// As many public events as an answer holds. Those to come are published for a while.
    async fn events(&self, task: &TaskId, after: u64) -> Result<EventPage, Rejection> {
        let session_id = self.link.session().clone();
        let key = TaskKey { session_id, task_id: task.clone() };
        let stands = self.link.log(task, u64::MAX).await?; // It is there.
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
        let (page, follower) = self.link.follow(task, after, is_known).await?;
        if let Some(follower) = follower {
            self.gate.followed.know(&key, follower);
        }
        page.within(LOG_BYTES)
    }
}

/// As many of the first of these as an answer of several should hold, one at least, and no more than so
/// many: what users write into them has no length that one could count on.
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

/// Whether an answer is longer than one of several should be.
pub(super) fn is_long(answer: &impl Serialize) -> bool {
    encode(answer).map_or(true, |bytes| bytes.len() > LOG_BYTES)
}

/// What goes with a command. One that brings no id is given one: it cannot be repeated then.
fn around(head: Head) -> Result<Around, Rejection> {
    let made = || CommandId::new(Uuid::now_v7().to_string());
    let command_id = head.command_id.map_or_else(made, Ok)?;
    let (expected_version, trace) = (head.expected_version, head.trace);
    Ok(Around { command_id, expected_version, trace })
}

/// The span that headers name, as tools of tracing write it: in letters of any case. Of several names,
/// as of one that is none, nothing is taken.
fn traceparent(headers: &HeaderMap) -> Option<SmolStr> {
    let is_it = |name: &str| name.eq_ignore_ascii_case("traceparent");
    let mut said = headers.iter().filter(|(name, _)| is_it(name.as_ref())).flat_map(|it| it.1);
    let text = said.next().filter(|_| said.next().is_none())?.as_str();
    TraceParent::parse(text)?;
    Some(text[..TraceParent::LENGTH].into()) // What later versions say behind it has no bound.
}
