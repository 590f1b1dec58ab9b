//! [`Observer`], the port to whoever watches a scheduler at work, such as telemetry.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use smol_str::SmolStr;
use tenure_core::eligibility::Obstacle;
use tenure_core::id::{AgentId, AttemptId, PoolId};
use tenure_core::sessions::SessionPattern;
use tenure_core::view::{ClaimResult, View};
use tenure_core::{Code, Commit, Counts, Rejection, Task};
use tenure_wire::bus::operate::PoolFacts;
use tokio::sync::oneshot;

/// A call to the store of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseCall {
    /// Takes the leases of new Attempts.
    Acquire,
    /// Renews leases, for heartbeats.
    Renew,
    /// Makes sure of leases after a gap.
    Raise,
    /// Creates missing leases.
    Ensure,
    /// Drops the leases of ended Attempts.
    Release,
    /// Looks for ended leases.
    Scan,
    /// Renews, takes and gives away the leases of partitions.
    Own,
}

impl LeaseCall {
    /// Every call.
    pub const ALL: [Self; 7] = [
        Self::Acquire,
        Self::Renew,
        Self::Raise,
        Self::Ensure,
        Self::Release,
        Self::Scan,
        Self::Own,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Raise => "raise",
            Self::Ensure => "ensure",
            Self::Release => "release",
            Self::Scan => "scan",
            Self::Own => "own",
        }
    }
}

/// Why the link of a worker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The worker has said that it leaves.
    Left,
    /// The server says that nobody listens there.
    Gone,
    /// The worker has sent nothing for long.
    Silent,
    /// The worker does not acknowledge what the node sends.
    Unacknowledged,
}

impl LinkEnd {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Left, Self::Gone, Self::Silent, Self::Unacknowledged];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Gone => "gone",
            Self::Silent => "silent",
            Self::Unacknowledged => "unheard",
        }
    }
}

/// The outcome of a call to a port, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called {
    /// From the call to its answer.
    pub took: Duration,
    /// How many commits or leases the call was about.
    pub items: usize,
    /// Whether the call succeeded.
    pub is_ok: bool,
}

/// A scheduler at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Tasks that it holds in memory.
    pub tasks: u64,
    /// The partitions of its cluster; `None` without partitions.
    pub partitions: Option<PartitionSample>,
    /// Which servers it reaches; `None` if it needs none.
    pub servers: Option<ServerSample>,
    /// What has become durable since it started.
    pub counts: Counts,
    /// Steps that wait, by their greatest obstacle for a caller that is no particular Run.
    pub waits: Vec<(Obstacle, u64)>,
    /// Its pools.
    pub pools: Vec<PoolSample>,
    /// How much its live Tasks take, and how much they may.
    pub live: LiveSample,
    /// How much the logs take, and how much more they may; `None` while that is not known.
    pub log: Option<LogSample>,
}

/// How much the logs that a scheduler serves take at one moment, and how much more they may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogSample {
    /// The bytes of the logs.
    pub bytes: u64,
    /// Where it would first be full: how many bytes that place has, and how many of them are free. `None` where no
    /// bound is known.
    pub tightest: Option<LogCapacity>,
}

/// A place for logs that has a bound: a stream, an account of the server, or a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCapacity {
    /// How many bytes it has.
    pub limit: u64,
    /// How many of them are free.
    pub free: u64,
}

impl LogCapacity {
    /// The one of two that is filled to a higher share.
    #[must_use]
    pub fn tighter(self, other: Self) -> Self {
        let is_first = u128::from(self.free) * u128::from(other.limit)
            <= u128::from(other.free) * u128::from(self.limit);
        if is_first { self } else { other }
    }
}

/// A worker at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSample {
    /// Its pool.
    pub pool: PoolId,
    /// How many Steps it runs at a time at most.
    pub slots: u64,
    /// How many of these are in use.
    pub running: u64,
    /// Attempts and Runs in hand: those that run, and those that wait for a slot.
    pub held: u64,
    /// What is below the directory where its commands write; none: there is no such directory, or nobody has
    /// counted it yet.
    pub files: Option<FileTotals>,
}

/// How many files there are, and how long they are together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileTotals {
    /// How many there are.
    pub files: u64,
    /// The bytes of all of them.
    pub bytes: u64,
}

/// What the live Tasks of a scheduler take at one moment, and the most that they may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveSample {
    /// How many there are.
    pub tasks: u64,
    /// How many there may be.
    pub tasks_max: u64,
    /// The bytes of their logs.
    pub bytes: u64,
    /// How many these may be.
    pub bytes_max: u64,
    /// The bytes of the logs of all Tasks in memory, with a little for each.
    pub memory: u64,
    /// How many these may be.
    pub memory_max: u64,
    /// How many times a Task could not be read, as there was no place for it in memory.
    pub unplaced: u64,
    /// How many messages and reports were refused, as their principals had sent too many.
    pub over_rate: u64,
}

/// The partitions of a cluster at one moment, as one scheduler sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionSample {
    /// How many partitions the cluster has.
    pub total: u32,
    /// Those that this scheduler serves.
    pub served: BTreeSet<u32>,
}

/// Which servers a scheduler reaches at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSample {
    /// All its connections to NATS are up.
    pub nats: bool,
    /// The store of leases answered when it was last asked.
    pub redis: bool,
}

/// A pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSample {
    /// Its name.
    pub pool: PoolId,
    /// Workers that have joined.
    pub workers: u64,
    /// Those of them that an operator told to leave.
    pub leaving: u64,
    /// Those of them that are suspended, as they fail Steps that others complete (DISP-19).
    pub suspended: u64,
    /// Steps that its workers would take now.
    pub free: u64,
    /// Steps and Runs that wait for capacity.
    pub waiting: u64,
    /// How many of them are Steps that the pool may give to any of its workers.
    pub ready: u64,
    /// How many of those no worker can be given now, by their obstacle.
    pub waits: Vec<(Obstacle, u64)>,
    /// How long that Step has been ready which has waited longest of those next in line.
    pub oldest: Duration,
    /// Attempts of its Steps that are open.
    pub running: u64,
    /// Attempts of its workers that ended since the scheduler started.
    pub ended: u64,
    /// The sessions that its workers serve (DISP-20); none: all, or there is no worker.
    pub sessions: Option<Vec<SessionPattern>>,
}

impl From<PoolSample> for PoolFacts {
    fn from(pool: PoolSample) -> Self {
        let oldest = u64::try_from(pool.oldest.as_millis()).unwrap_or(u64::MAX);
        Self {
            pool: pool.pool,
            workers: pool.workers,
            free: pool.free,
            waiting: pool.waiting,
            oldest_ms: Some(oldest).filter(|ms| *ms > 0),
            running: Some(pool.running),
            ended: Some(pool.ended),
            longest: None,
            sessions: pool.sessions,
        }
    }
}

/// What a handler has done in a worker.
#[derive(Debug, Clone, Copy)]
pub struct HandlerRun<'a> {
    /// The worker.
    pub worker: &'a AgentId,
    /// The claim.
    pub claim: &'a ClaimResult,
    /// When it began.
    pub begun: SystemTime,
    /// How long it ran.
    pub took: Duration,
    /// How it ended.
    pub end: HandlerEnd,
    /// The code of its error, if it failed or was stopped.
    pub code: Option<&'a str>,
}

/// How a handler ended, as its worker saw it. Only the log says whether that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerEnd {
    /// It completed its Step.
    Completed,
    /// It failed its Step.
    Failed,
    /// Its Step waits for something from outside.
    Blocked,
    /// The Step goes back to other workers.
    GivenBack,
    /// It was asked to stop, or was ended by force.
    Stopped,
    /// It ended without a word on its Step.
    Silent,
}

impl HandlerEnd {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::GivenBack => "given_back",
            Self::Stopped => "stopped",
            Self::Silent => "silent",
        }
    }
}

/// Receives what a worker does. Its methods never block, never fail and never call back.
pub trait WorkerObserver: fmt::Debug + Send + Sync + 'static {
    /// An Attempt was granted to the worker, maybe not for the first time.
    fn granted(&self, claim: &ClaimResult);

    /// A handler has ended. Its report may not be recorded yet.
    fn ran(&self, run: HandlerRun<'_>);

    /// A heartbeat for some Attempts is over: the answers named all of them, or the worker stopped
    /// waiting. The time runs from its sending. `is_ok`: the answers named all.
    fn heartbeat(&self, called: Called);
}

/// Receives what a scheduler does, on the scheduler's own threads. Its methods never block, never
/// fail and never call back. Nothing depends on an observer.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Commits have become durable; `task` contains them, and nothing newer.
    fn appended(&self, task: &Task, commits: &[Arc<Commit>]);

    /// A command was refused, or was not accepted for a decision.
    fn refused(&self, rejection: &Rejection);

    /// The log answered an append of one Task.
    fn wrote(&self, called: Called);

    /// An append of one Task has had no answer for so long. This is called again and again, until there is an answer.
    fn held_up(&self, _waited: Duration) {}

    /// The store of leases answered.
    fn leased(&self, call: LeaseCall, called: Called);

    /// An Attempt ends because its lease ran out, `late` ago. The commit that says so is durable; this comes before
    /// [`appended`](Self::appended) with it.
    fn expired(&self, attempt: AttemptId, late: Duration);

    /// Commits of several Tasks became durable together, as one message of a partition.
    fn framed(&self, called: Called);

    /// The scheduler took over a partition. `took` lasts from learning of it until its live Tasks
    /// were running.
    fn took_over(&self, took: Duration);

    /// A request was answered or refused, `took` after it had come. Requests whose answer waits for
    /// the end of a Task are left out.
    fn answered(&self, operation: &'static str, took: Duration, refused: Option<Code>);

    /// The link of a worker has ended.
    fn parted(&self, why: LinkEnd);

    /// A live Task was read from its log: this scheduler has it from now on.
    fn opened(&self, task: &Task);

    /// A Task had already ended when this scheduler took it over: the scheduler before may have
    /// died before its observer reported it.
    fn ended_before(&self, task: &Task);

    /// Ends when the observer has sent or given up the traces of all Tasks so far, with the number
    /// of times that it gave some up since the start. `None` if it sends no traces.
    fn taken(&self) -> Option<oneshot::Receiver<u64>>;

    /// The traceparent for spans of an Attempt's handler; `None`: the one that the Task's creator gave.
    fn trace_of(&self, task: &View<'_>, attempt: AttemptId) -> Option<SmolStr>;
}
