//! What callers and workers say, and what they are answered.
//!
//! Who speaks is read from the subject, never from the message (law 7), and an answer goes nowhere
//! but to an inbox of whoever asked. Reading and sending on happens in the order of the messages;
//! answers are awaited apart.

mod calls;
mod import;
mod list;
mod operate;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, Message};
use parking_lot::Mutex;
use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::status::Role;
use tenure_ports::journal::TaskKey;
use tenure_ports::observer::LinkEnd;
use tenure_ports::placement::PLACEMENT;
use tenure_wire::bus::subject::{ClientVerb, ParsedSubject, Token, WorkerVerb, is_inbox_of};
use tenure_wire::bus::{Answer, BadMessage, encode};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

pub(crate) use self::import::Imports;
pub(crate) use self::list::Lists;
use crate::ClusterScheduler;
use crate::bus::send;
use crate::events::Followed;
use crate::fence::Fence;
use crate::links::Links;
use crate::published::PublishedMarks;
use crate::refused::RefusedWorkers;

/// What serves everybody who speaks to a node.
pub(crate) struct Gate {
    pub(crate) scheduler: ClusterScheduler,
    pub(crate) links: Arc<Links>,
    /// Workers that have none, as what they say cannot be taken.
    pub(crate) refused: RefusedWorkers,
    pub(crate) fence: Fence,
    pub(crate) control: Client,
    pub(crate) intake: Client,
    pub(crate) node: Token,
    pub(crate) partitions: u32,
    /// Partitions that are owned and listened to.
    pub(crate) served: Mutex<BTreeSet<u32>>,
    /// Logs that are on their way here.
    pub(crate) imports: Imports,
    /// Lists that are read on.
    pub(crate) lists: Lists,
    /// Tasks whose public events are published.
    pub(crate) followed: Followed,
    /// Partitions whose past is out.
    pub(crate) out: PublishedMarks,
    /// Logs that are read for those who ask for what was, at a time: each is in memory as a whole.
    pub(crate) event_reads: Semaphore,
    /// Those who wait for that.
    pub(crate) event_queue: Semaphore,
    /// What may be read at a time. Commands and reports have permits of their own.
    pub(crate) reads: Arc<Semaphore>,
    /// How much that is.
    pub(crate) reads_max: usize,
    /// Heartbeats at a time: whoever reads must not cost workers their leases (mechanisms 16).
    pub(crate) heartbeats: Arc<Semaphore>,
    /// Requests whose answer was to go elsewhere than to their sender.
    pub(crate) crafted: AtomicU64,
    /// That this node is there is to be said soon.
    pub(crate) announces: Notify,
}

impl Gate {
    /// Takes a message. What nobody could have meant is passed over.
    pub(crate) async fn hear(self: &Arc<Self>, message: Message) {
        let Some(heard) = ParsedSubject::read(&message.subject) else {
            return self.answer_misnamed(&message.subject).await;
        };
        if !self.answers_its_sender(&message, &heard) {
            return;
        }
        let reply = message.reply.as_ref().map(|reply| reply.to_string());
        let bytes = &message.payload;
        match heard {
            ParsedSubject::Worker(name, verb) => match verb {
                WorkerVerb::Hello => self.hello(&name, bytes).await,
                WorkerVerb::Bye => self.links.close(&name, LinkEnd::Left),
                WorkerVerb::Room => self.room(&name, bytes).await,
                WorkerVerb::Heartbeat => self.heartbeat(&name, bytes, reply),
                WorkerVerb::Report(partition) => self.report(&name, partition, bytes, reply),
                WorkerVerb::Query(partition) => self.query(&name, partition, bytes, reply),
                WorkerVerb::Claim(partition) => self.claim(&name, partition, bytes, reply),
                WorkerVerb::Look(partition) => self.look(&name, partition, bytes, reply),
            },
            ParsedSubject::Client(name, verb) => match (verb, reply) {
                (_, None) => {} // Nobody could be answered.
                (ClientVerb::Hello, Some(reply)) => self.welcome(bytes, &reply).await,
                (ClientVerb::Nodes, Some(reply)) => self.nodes(&name, bytes, &reply).await,
                (ClientVerb::Drain, Some(reply)) => self.drain(&name, bytes, &reply).await,
                (ClientVerb::Command(partition), Some(reply)) => {
                    self.call(name, partition, &message, reply);
                }
                (ClientVerb::Import(partition), Some(reply)) => {
                    self.import(name, partition, bytes, reply);
                }
            },
        }
    }

    /// Whether an answer, if one is wanted, would go to whoever asked (mechanisms 15): with any
    /// other subject the sender would have the scheduler write for it.
    fn answers_its_sender(&self, message: &Message, heard: &ParsedSubject) -> bool {
        let Some(reply) = &message.reply else { return true };
        let (role, principal) = match heard {
            ParsedSubject::Worker(name, _) => (Role::Worker, &name.principal),
            ParsedSubject::Client(name, _) => (name.role, &name.principal),
        };
        if is_inbox_of(reply, role, principal) {
            return true;
        }
        let crafted = self.crafted.fetch_add(1, Ordering::Relaxed) + 1;
        if crafted.is_power_of_two() {
            let (subject, reply) = (message.subject.as_str(), reply.as_str());
            tracing::warn!(subject, reply, crafted, "the answer was to go to somebody else");
        }
        false
    }

    /// Whether a Task is of the partition in whose name a message came.
    fn check_partition(&self, key: &TaskKey, partition: u32) -> Result<(), Rejection> {
        let right = key.partition(self.partitions);
        if right == partition {
            return Ok(());
        }
        let message = format!(
            "task {} is of partition {right}, not {partition}: whoever asks knows another number of \
             partitions, or another placement than {PLACEMENT}; ask how the cluster is made, or use the \
             version that its nodes have",
            key.task_id
        );
        Err(Rejection::new(tenure_core::Code::NotOwner, message).with("partition", right))
    }

    /// The turn to read a whole log; none while too many wait for theirs: they hold leave to read
    /// meanwhile, which others need.
    async fn turn_to_read_log(&self) -> Result<SemaphorePermit<'_>, Rejection> {
        let overloaded = |_| tenure_scheduler::overloaded();
        let _place = self.event_queue.try_acquire().map_err(overloaded)?;
        self.event_reads.acquire().await.map_err(|_| tenure_scheduler::overloaded())
    }

    /// Leave to read; none while too many do.
    fn leave_to_read(&self) -> Result<OwnedSemaphorePermit, Rejection> {
        let permit = Arc::clone(&self.reads).try_acquire_owned();
        permit.map_err(|_| tenure_scheduler::overloaded())
    }

    /// Answers. A refusal, and what was only read, is held back where this node cannot be sure that
    /// it still owns the partition: an append is fenced by itself, a word is not.
    async fn answer<T: Serialize>(
        &self,
        asked: &PartitionCall<'_>,
        is_written: bool,
        result: Result<T, Rejection>,
    ) {
        self.answer_in_short(asked, is_written, result, |_| false).await;
    }

    /// The same, of which as much is given up as is too long for a message (CTRL-06).
    async fn answer_in_short<T: Serialize>(
        &self,
        asked: &PartitionCall<'_>,
        is_written: bool,
        result: Result<T, Rejection>,
        mut shorten: impl FnMut(&mut T) -> bool,
    ) {
        // That nobody knows what became of a command says nothing of the Task.
        let is_in_doubt = result.as_ref().is_err_and(Rejection::is_ambiguous);
        let is_sure = is_written || is_in_doubt || self.fence.holds(asked.partition).await;
        let mut answer = if is_sure { Answer::from(result) } else { Answer::from(Err(not_sure())) };
        let refused = answer.error.as_ref().map(|refused| refused.code);
        let mut bytes = encode(&answer);
        while bytes.is_err() && answer.ok.as_mut().is_some_and(&mut shorten) {
            bytes = encode(&answer);
        }
        say_bytes(asked.client, asked.reply, bytes).await;
        if let Some(observer) = self.scheduler.observer().filter(|_| !asked.may_wait) {
            observer.answered(asked.operation, asked.since.elapsed(), refused);
        }
    }
}

/// How long a caller hears nothing of what is being recorded: less than callers wait.
const SETTLES: Duration = Duration::from_secs(4);

/// What becomes of a command, or that nobody knows yet: it is on its way to the log, and the log does
/// not answer (WAL-09).
async fn in_time<T>(done: impl Future<Output = Result<T, Rejection>>) -> Result<T, Rejection> {
    timeout(SETTLES, done).await.unwrap_or_else(|_| {
        Err(Rejection::in_doubt("what becomes of it is not known yet; repeat it with the same id"))
    })
}

/// What a Task looks like, or that its log is long and still being read: whoever hears that may ask on for as
/// long as it takes, and is answered when it is read.
async fn read_in_time<T>(look: impl Future<Output = Result<T, Rejection>>) -> Result<T, Rejection> {
    timeout(SETTLES, look).await.unwrap_or_else(|_| {
        let message = "the log of the task is long, and still being read; ask again";
        Err(Rejection::new(tenure_core::Code::Unavailable, message)
            .with("reading", true)
            .with("retry_after_ms", 200))
    })
}

/// A request to the owner of a partition.
struct PartitionCall<'a> {
    /// Over what it is answered, and where.
    client: &'a Client,
    reply: &'a str,
    partition: u32,
    operation: &'static str,
    /// Its answer may wait for an end, as long as that takes.
    may_wait: bool,
    /// When it came.
    since: Instant,
}

/// Says an answer; one that is too long is refused in its place.
async fn say_answer<T: Serialize>(client: &Client, reply: &str, answer: &Answer<T>) {
    say_bytes(client, reply, encode(answer)).await;
}

async fn say_bytes(client: &Client, reply: &str, bytes: Result<Vec<u8>, BadMessage>) {
    let bytes = bytes.or_else(|BadMessage { why, .. }| {
        let refused = Rejection::new(tenure_core::Code::ValidationError, why);
        encode(&Answer::<()>::from(Err(refused.with("field", "answer"))))
    });
    if let Ok(bytes) = bytes {
        send(client, reply, bytes.into()).await;
    }
}

fn not_sure() -> Rejection {
    let message = "this node cannot be sure to own the partition";
    Rejection::new(tenure_core::Code::NotOwner, message).with("retry_after_ms", 200)
}
