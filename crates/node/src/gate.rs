//! Receives every message of callers and workers, and answers it.
//!
//! The gate reads from the subject who speaks, never from the message (law 7), and sends an answer
//! only to an inbox of the caller. It reads messages and passes them on in their order; it awaits
//! the answers separately.
//!
//! Step 3 of the walk in docs/architecture.md.

mod calls;
mod import;
mod list;
mod operate;
mod outputs;
mod waits;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, Message};
use parking_lot::Mutex;
use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::features::Features;
use tenure_core::status::Role;
use tenure_ports::journal::TaskKey;
use tenure_ports::observer::LinkEnd;
use tenure_ports::placement::PLACEMENT;
use tenure_scheduler::read_holding;
use tenure_wire::bus::subject::{
    ClientVerb, ClusterName, ParsedSubject, Token, WorkerVerb, is_inbox_of,
};
use tenure_wire::bus::{Answer, BadMessage, encode};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

pub(crate) use self::import::Imports;
pub(crate) use self::list::Lists;
pub(crate) use self::outputs::OutputRequests;
pub(crate) use self::waits::LastWaits;
use crate::ClusterScheduler;
use crate::bus::send;
use crate::events::Followed;
use crate::fence::Fence;
use crate::heartbeats::HeartbeatPermits;
use crate::intake::WaitingBytes;
use crate::lanes::{ReadBudgets, ReadLanes, ReadTurn};
use crate::links::Links;
use crate::published::PublishedMarks;
use crate::rates::{OverRate, RateTable};
use crate::read_threads::ReadThreads;
use crate::refused::RefusedWorkers;

/// What a node needs to handle messages.
pub(crate) struct Gate {
    pub(crate) scheduler: ClusterScheduler,
    pub(crate) links: Arc<Links>,
    /// Workers without a link, as their messages cannot be accepted.
    pub(crate) refused: RefusedWorkers,
    pub(crate) fence: Fence,
    pub(crate) control: Client,
    /// Receives what workers send to partitions, so that however much that is, the server cuts no connection over
    /// which workers renew their leases.
    pub(crate) reports: Client,
    pub(crate) intake: Client,
    /// The connection over which workers read.
    pub(crate) lookups: Client,
    /// The threads on which reads are answered.
    pub(crate) read_threads: ReadThreads,
    /// Decides whose read is next.
    pub(crate) parts: Arc<ReadLanes>,
    /// Decides whose read of a whole log, or of all Tasks, is next.
    pub(crate) whole: Arc<ReadLanes>,
    /// How much each principal may read.
    pub(crate) budgets: Arc<ReadBudgets>,
    pub(crate) cluster: ClusterName,
    pub(crate) node: Token,
    pub(crate) partitions: u32,
    /// Partitions that this node owns and whose requests it receives.
    pub(crate) served: Mutex<BTreeSet<u32>>,
    /// Logs of which parts have come.
    pub(crate) imports: Imports,
    /// Cached lists, for their next pages.
    pub(crate) lists: Lists,
    /// What waits here, for those who ask for all nodes.
    pub(crate) waits: LastWaits,
    /// What workers were asked for and have not answered.
    pub(crate) outputs: OutputRequests,
    /// Tasks whose public events are published.
    pub(crate) followed: Followed,
    /// Partitions whose past is published.
    pub(crate) out: PublishedMarks,
    /// Permits to read a whole log for callers that ask for what was: each such log is in memory as
    /// a whole.
    pub(crate) event_reads: Semaphore,
    /// Permits to wait for one of these.
    pub(crate) event_queue: Semaphore,
    /// Permits to read. Commands and reports have permits of their own.
    pub(crate) reads: Arc<Semaphore>,
    /// How many permits to read there are.
    pub(crate) reads_max: usize,
    /// Permits for heartbeats: reads must not cost workers their leases (mechanisms 16).
    pub(crate) heartbeats: HeartbeatPermits,
    /// What each principal has sent lately.
    pub(crate) rates: RateTable,
    /// How many requests wanted their answer sent to somebody else than their sender.
    pub(crate) crafted: AtomicU64,
    /// The bytes of messages that wait to be handled.
    pub(crate) waiting: Arc<WaitingBytes>,
    /// What the node can do that an older one cannot (EVOLVE-02).
    pub(crate) features: Features,
    /// Wakes the loop that announces this node.
    pub(crate) announces: Notify,
}

impl Gate {
    /// Handles a message. Ignores a message whose subject nobody could have meant.
    pub(crate) async fn hear(self: &Arc<Self>, message: Message) {
        let Some(heard) = ParsedSubject::read(&self.cluster, &message.subject) else {
            return self.answer_misnamed(&message.subject).await;
        };
        if !self.answers_its_sender(&message, &heard) {
            return;
        }
        let reply = message.reply.as_ref().map(|reply| reply.to_string());
        let bytes = &message.payload;
        if let Err(over) = self.count(&heard, bytes.len()) {
            return self.refuse_over_rate(&heard, reply, over);
        }
        match heard {
            ParsedSubject::Worker(name, verb) => match verb {
                WorkerVerb::Hello => self.hello(&name, bytes).await,
                WorkerVerb::Bye => self.links.close(&name, LinkEnd::Left),
                WorkerVerb::Room => self.room(&name, bytes).await,
                WorkerVerb::Output => self.output(&name, bytes),
                WorkerVerb::Heartbeat => self.heartbeat(&name, bytes, reply),
                WorkerVerb::Report(partition) => self.report(&name, partition, bytes, reply),
                WorkerVerb::Query(partition) => self.query(&name, partition, bytes, reply),
                WorkerVerb::Claim(partition) => self.claim(&name, partition, bytes, reply),
                WorkerVerb::Look(partition) => self.look(&name, partition, bytes, reply),
                WorkerVerb::Blob(partition) => self.blob(&name, partition, bytes, reply),
            },
            ParsedSubject::Client(name, verb) => match (verb, reply) {
                (_, None) => {} // There is nowhere to send the answer.
                (ClientVerb::Hello, Some(reply)) => self.welcome(bytes, &reply).await,
                (ClientVerb::Nodes, Some(reply)) => self.nodes(name, bytes, reply),
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

    /// Counts a message among what its principal has sent.
    fn count(&self, heard: &ParsedSubject, bytes: usize) -> Result<(), OverRate> {
        let bytes = bytes + BYTES_AROUND;
        match heard {
            ParsedSubject::Worker(name, verb) => {
                let is_heartbeat = matches!(verb, WorkerVerb::Heartbeat | WorkerVerb::Bye);
                self.rates.message(Role::Worker, &name.principal, bytes, is_heartbeat)
            }
            ParsedSubject::Client(name, _) => {
                self.rates.message(name.role, &name.principal, bytes, false)
            }
        }
    }

    /// How many messages were refused or dropped, as their principals had sent too many.
    pub(crate) fn over_rate(&self) -> u64 {
        self.rates.refused() + self.waiting.dropped()
    }

    /// Refuses a message without decoding it. The sender repeats it, even if it gets no answer.
    fn refuse_over_rate(
        self: &Arc<Self>,
        heard: &ParsedSubject,
        reply: Option<String>,
        over: OverRate,
    ) {
        let Some(reply) = reply.filter(|_| over.is_told) else { return };
        let gate = Arc::clone(self);
        let is_worker = matches!(heard, ParsedSubject::Worker(..));
        tokio::spawn(async move {
            let client = if is_worker { &gate.control } else { &gate.intake };
            say_answer(client, &reply, &Answer::<()>::from(Err(over.into()))).await;
        });
    }

    /// Whether the answer, if one is wanted, would go to the sender (mechanisms 15). With any other
    /// subject the sender would have the scheduler write there on its behalf.
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

    /// Tells a sender that its message is not handled, as it sends more than its part. It gets as many such answers at
    /// most as refusals over its rates.
    pub(crate) async fn turn_back(&self, message: &Message) {
        let Some(heard) = ParsedSubject::read(&self.cluster, &message.subject) else { return };
        let (role, principal) = match &heard {
            ParsedSubject::Worker(name, _) => (Role::Worker, &name.principal),
            ParsedSubject::Client(name, _) => (name.role, &name.principal),
        };
        if !self.rates.may_tell(role, principal) || !self.answers_its_sender(message, &heard) {
            return;
        }
        let refused = tenure_scheduler::overloaded();
        let client = match &heard {
            ParsedSubject::Client(name, _) if name.role != Role::System => &self.intake,
            ParsedSubject::Client(..) | ParsedSubject::Worker(..) => &self.control,
        };
        match (heard, &message.reply) {
            (ParsedSubject::Worker(name, WorkerVerb::Hello | WorkerVerb::Room), _) => {
                self.turn_away((&name).into(), refused).await;
            }
            (_, Some(reply)) => {
                say_answer(client, reply, &Answer::<()>::from(Err(refused))).await;
            }
            (_, None) => {}
        }
    }

    /// Refuses a Task that is not of the partition that the message names.
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

    /// Waits for a permit to read a whole log. Refuses if too many wait: they hold a permit to read
    /// meanwhile, which others need.
    async fn turn_to_read_log(&self) -> Result<SemaphorePermit<'_>, Rejection> {
        let overloaded = |_| tenure_scheduler::overloaded();
        let _place = self.event_queue.try_acquire().map_err(overloaded)?;
        self.event_reads.acquire().await.map_err(|_| tenure_scheduler::overloaded())
    }

    /// Takes a permit to read; refuses if there is none.
    fn leave_to_read(&self) -> Result<OwnedSemaphorePermit, Rejection> {
        let permit = Arc::clone(&self.reads).try_acquire_owned();
        permit.map_err(|_| tenure_scheduler::overloaded())
    }

    /// Answers. An append is fenced by the log; a refusal and a read are not. So this node sends
    /// them only if it is sure that it still owns the partition.
    async fn answer<T: Serialize>(
        &self,
        asked: &PartitionCall<'_>,
        is_written: bool,
        result: Result<T, Rejection>,
    ) {
        self.answer_in_short(asked, is_written, result, |_| false).await;
    }

    /// The same, but shortens an answer that is too long for a message (CTRL-06).
    async fn answer_in_short<T: Serialize>(
        &self,
        asked: &PartitionCall<'_>,
        is_written: bool,
        result: Result<T, Rejection>,
        mut shorten: impl FnMut(&mut T) -> bool,
    ) {
        // An answer that the outcome of a command is not known says nothing of the Task.
        let is_in_doubt = result.as_ref().is_err_and(Rejection::is_ambiguous);
        let is_sure = is_written || is_in_doubt || self.fence.holds(asked.partition).await;
        let mut answer = if is_sure { Answer::from(result) } else { Answer::from(Err(not_sure())) };
        let refused = answer.error.as_ref().map(|refused| refused.code);
        let mut bytes = encode(&answer);
        while bytes.is_err() && answer.ok.as_mut().is_some_and(&mut shorten) {
            bytes = encode(&answer);
        }
        asked.sent.fetch_add(bytes.as_ref().map_or(0, Vec::len), Ordering::Relaxed);
        say_bytes(asked.client, asked.reply, bytes).await;
        if let Some(observer) = self.scheduler.observer().filter(|_| !asked.may_wait) {
            observer.answered(asked.operation, asked.since.elapsed(), refused);
        }
    }
}

/// How many bytes each message counts as besides its own: an empty message costs something, too.
const BYTES_AROUND: usize = 256;

/// How long a caller may wait while its request is recorded: less than callers wait for an answer.
const SETTLES: Duration = Duration::from_secs(4);

/// How long a read may take whose caller does not say for how long it waits.
const READ_MAX: Duration = Duration::from_secs(30);

/// Carries out a read whose turn it is, for as long as its caller waits for the answer; none if that time is over. If
/// the actor of a Task has begun to read its log by then, it goes on, and the turn ends when it has read it.
async fn read_in_turn<T>(
    turn: ReadTurn,
    asked: &PartitionCall<'_>,
    within: Duration,
    read: impl Future<Output = T>,
) -> Option<T> {
    let left = within.saturating_sub(asked.since.elapsed());
    let turn = Arc::new(turn);
    let read = read_holding(Arc::clone(&turn) as _, turn.metered(read));
    let read = timeout(left, read).await.ok();
    turn.note_sent(asked.sent.load(Ordering::Relaxed));
    read
}

/// What becomes of a command. If the log does not answer in time, the answer is that nobody knows
/// yet (WAL-09).
async fn in_time<T>(done: impl Future<Output = Result<T, Rejection>>) -> Result<T, Rejection> {
    within(SETTLES, done).await
}

/// As [`in_time`], for so long.
async fn within<T>(
    most: Duration,
    done: impl Future<Output = Result<T, Rejection>>,
) -> Result<T, Rejection> {
    timeout(most, done).await.unwrap_or_else(|_| {
        Err(Rejection::in_doubt("what becomes of it is not known yet; repeat it with the same id"))
    })
}

/// How long a node waits with an answer for the end of a Task or of a Run. Callers ask again long before that, and a
/// node does not learn that one has gone: after this time it holds nothing for those that do not ask again.
const WAITS: Duration = Duration::from_secs(30);

/// What becomes of a command that waits for an end.
async fn while_asked<T>(done: impl Future<Output = Result<T, Rejection>>) -> Result<T, Rejection> {
    timeout(WAITS, done).await.unwrap_or_else(|_| {
        Err(Rejection::in_doubt(
            "what it waits for has not happened yet; repeat it with the same id",
        ))
    })
}

/// What a Task looks like. If its log is long and still being read, the answer says so; the caller
/// may ask again for as long as that takes.
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
    /// The connection for the answer, and its subject.
    client: &'a Client,
    reply: &'a str,
    partition: u32,
    operation: &'static str,
    /// The answer may have to wait for the end of something, for as long as that takes.
    may_wait: bool,
    /// When the request came.
    since: Instant,
    /// How many bytes were sent in answer to it.
    sent: AtomicUsize,
}

/// Sends an answer; if it is too long, sends a refusal instead.
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
