//! Whoever watches a scheduler at work: telemetry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;
use tenure_core::eligibility::Obstacle;
use tenure_core::id::{AttemptId, PoolId};
use tenure_core::view::{ClaimResult, View};
use tenure_core::{Code, Commit, Counts, Rejection, Task};
use tokio::sync::oneshot;

/// A call to the store of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseCall {
    /// Leases of new Attempts are taken.
    Acquire,
    /// Heartbeats.
    Renew,
    /// Leases are made sure of after a gap.
    Raise,
    /// Leases that are missing are made.
    Ensure,
    /// Leases of ended Attempts are dropped.
    Release,
    /// Ended leases are looked for.
    Scan,
    /// Leases of partitions: renewed, taken and given.
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
    /// It has said so.
    Left,
    /// The server says that nobody is there.
    Gone,
    /// It has said nothing for long.
    Silent,
    /// It does not get what it is sent.
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

/// What became of a call to a port, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called {
    /// From the call to its answer.
    pub took: Duration,
    /// Commits or leases it was about.
    pub items: usize,
    /// It did what it was asked.
    pub is_ok: bool,
}

/// A scheduler at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Tasks that it keeps in memory.
    pub tasks: u64,
    /// Partitions that it serves; none where there are none.
    pub partitions: Option<u64>,
    /// What has become durable since it started.
    pub counts: Counts,
    /// Steps that wait, by what stands most in their way, where nobody in particular asks.
    pub waits: Vec<(Obstacle, u64)>,
    /// Its pools.
    pub pools: Vec<PoolSample>,
}

/// A pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSample {
    /// Which.
    pub pool: PoolId,
    /// Workers that have joined.
    pub workers: u64,
    /// Those of them that were told to leave.
    pub leaving: u64,
    /// Those of them that are suspended, as they fail what others complete (DISP-19).
    pub suspended: u64,
    /// Steps that they would take now.
    pub free: u64,
    /// Steps and Runs that wait for capacity.
    pub waiting: u64,
    /// How many of them are Steps that any worker of the pool may be given.
    pub ready: u64,
    /// How many of those none can be given now, by what keeps them from it.
    pub waits: Vec<(Obstacle, u64)>,
    /// How long the Step has been ready that has waited longest of those next in line.
    pub oldest: Duration,
    /// Attempts of its Steps that are open.
    pub running: u64,
    /// Attempts of its workers that ended since the scheduler started.
    pub ended: u64,
}

/// Is told what a worker does: it never blocks, never fails and never asks back.
pub trait WorkerObserver: fmt::Debug + Send + Sync + 'static {
    /// An Attempt has come, maybe not for the first time.
    fn granted(&self, claim: &ClaimResult);

    /// A heartbeat for some Attempts, from its sending until all of them were spoken of or nobody was
    /// waited for any more. `is_ok`: all were.
    fn heartbeat(&self, called: Called);
}

/// Is told what a scheduler does, on the scheduler's own threads: it never blocks, never fails and
/// never asks back. Nothing depends on it.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Commits have become durable; `task` contains them, and nothing newer.
    fn appended(&self, task: &Task, commits: &[Arc<Commit>]);

    /// A command was refused, or not taken in.
    fn refused(&self, rejection: &Rejection);

    /// The log answered an append of one Task.
    fn wrote(&self, called: Called);

    /// The store of leases answered.
    fn leased(&self, call: LeaseCall, called: Called);

    /// An Attempt has ended because its lease was over, so long ago.
    fn expired(&self, late: Duration);

    /// Commits of several Tasks became durable together, as one message of a partition.
    fn framed(&self, called: Called);

    /// A partition was taken over: from knowing of it until its live Tasks were under way.
    fn took_over(&self, took: Duration);

    /// A request was answered or refused, so long after it had come. One whose answer waits for an
    /// end is not told of.
    fn answered(&self, operation: &'static str, took: Duration, refused: Option<Code>);

    /// The link of a worker has ended.
    fn parted(&self, why: LinkEnd);

    /// A live Task was read from its log: this scheduler has it from now on.
    fn opened(&self, task: &Task);

    /// A Task had ended when this scheduler took it over: whoever had it before may have died before
    /// its observer told of it.
    fn ended_before(&self, task: &Task);

    /// Answers when the traces of all Tasks told of so far were taken or given up: how often some were
    /// given up since the start. None: nobody takes any.
    fn taken(&self) -> Option<oneshot::Receiver<u64>>;

    /// The traceparent that spans of an Attempt's handler go below; none: whatever the Task's maker gave.
    fn trace_of(&self, task: &View<'_>, attempt: AttemptId) -> Option<SmolStr>;
}
