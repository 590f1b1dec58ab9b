//! The plan that a task file becomes: everything that its create command needs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

/// Handler of a Step with `run` or `command`: a process.
pub const HANDLER_EXEC: &str = "exec";
/// Handler of a Step with `sleep`.
pub const HANDLER_SLEEP: &str = "sleep";
/// Handler of a Step with `noop`: completes at once.
pub const HANDLER_NOOP: &str = "noop";

/// What a task file asks for, checked and with nothing left to look up: ids are valid and unique,
/// every dependency exists, there is no cycle, variables and `repeat` are written out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Absent if the file leaves the id to the program that submits it.
    pub task_id: Option<String>,
    /// Falls back to the id, then to the name of the file.
    pub title: String,
    /// Falls back to the title.
    pub summary: String,
    /// Who gives out ready Steps.
    pub dispatch: Mode,
    /// Who ends the Task.
    pub completion: Mode,
    /// Pool of Steps that name no pool.
    pub pool: Option<String>,
    /// The only principal whose workers may claim Steps that name none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_only_by: Option<String>,
    /// Higher first; a hint.
    pub priority: Option<i32>,
    /// When the Task should be over.
    pub deadline: Option<Deadline>,
    /// What the Task does when a Step that it needs has failed; absent: the scheduler's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<WhenFailing>,
    /// How long the Task waits for optional Steps, in milliseconds; absent: the scheduler's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional_wait_ms: Option<u64>,
    /// Policy of Steps that have none; absent: [`RetryPlan::standard`].
    pub retry: Option<RetryPlan>,
    /// Names and values by which listings find the Task.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The Step whose output is the Task's; absent: the only one on which nothing depends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_from: Option<String>,
    /// Opaque to the scheduler.
    pub metadata: Map<String, Value>,
    /// In the order of the file, never empty.
    pub steps: Vec<PlanStep>,
}

/// One Step of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanStep {
    /// Unique in the plan.
    pub id: String,
    /// Falls back to the id.
    pub title: String,
    /// Falls back to the id.
    pub summary: String,
    /// Ids of other Steps of the plan, each once, in the order of the file.
    pub depends_on: Vec<String>,
    /// Ids of Steps for which it waits, directly or through others, and whose results it gets; absent:
    /// those of `depends_on`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs_from: Option<Vec<String>>,
    /// Which of the worker's handlers runs it.
    pub handler: String,
    /// JSON for that handler.
    pub input: Option<Value>,
    /// Whether the Task needs it to complete.
    pub required: bool,
    /// Absent: the plan's.
    pub pool: Option<String>,
    /// The only principal whose workers may claim it. Absent: the plan's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_only_by: Option<String>,
    /// Absent: the plan's. A policy here is complete: nothing is merged into it.
    pub retry: Option<RetryPlan>,
}

/// Whether the scheduler acts by itself or waits for commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By itself.
    Auto,
    /// On command.
    Manual,
}

/// What a Task does when a Step that it needs has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFailing {
    /// It stops what runs.
    Stop,
    /// It starts nothing more.
    Drain,
    /// It runs all that can run.
    Finish,
}

/// When a Task should be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// This many milliseconds after its creation.
    AfterMs(u64),
    /// At this time, in milliseconds since 1970 UTC.
    AtMs(i64),
}

/// A retry policy with all fields filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RetryPlan {
    /// Attempts that may fail; `None`: no limit.
    pub max_attempts: Option<u32>,
    /// Attempts that may be lost with their worker; `None`: no limit.
    pub max_lost: Option<u32>,
    /// The wait before each further Attempt.
    pub backoff: BackoffPlan,
    /// Error codes that end the Step at once.
    pub non_retryable: Vec<String>,
    /// How long a ready Step may wait for a worker, in milliseconds.
    pub schedule_to_start_ms: Option<u64>,
    /// How long an Attempt may take from its claim, in milliseconds.
    pub start_to_close_ms: Option<u64>,
    /// How long all Attempts together may take from the first ready on, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_to_close_ms: Option<u64>,
    /// How long the Step may be blocked, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_ms: Option<u64>,
    /// How long its worker may take to stop, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_grace_ms: Option<u64>,
    /// The lease duration, in milliseconds: the worker must renew the lease within it.
    pub heartbeat_ms: Option<u64>,
    /// What a worker does that cannot renew the lease; `None`: it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lease_doubt: Option<DoubtMode>,
    /// Whether a result counts that comes after the loss; `None`: with automatic completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_late: Option<bool>,
}

/// What a worker does that cannot renew the lease of a Step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtMode {
    /// It stops the Step.
    Stop,
    /// It finishes the Step.
    Finish,
}

/// `min(max, initial * factor^(n-1))` before retry `n`, give or take `jitter`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BackoffPlan {
    /// Wait before the first retry, in milliseconds.
    pub initial_ms: u64,
    /// Growth from one retry to the next, at least 1.
    pub factor: f64,
    /// Longest wait, in milliseconds.
    pub max_ms: u64,
    /// Share of the wait that is random, 0 to 1.
    pub jitter: f64,
}

impl Default for BackoffPlan {
    fn default() -> Self {
        BackoffPlan { initial_ms: 1_000, factor: 2.0, max_ms: 60_000, jitter: 0.1 }
    }
}

impl RetryPlan {
    /// The policy of a file that names none: with automatic completion three Attempts may fail
    /// and three may be lost; otherwise one may fail, and lost ones are given out again without limit.
    pub fn standard(completion: Mode) -> Self {
        let (max_attempts, max_lost) = match completion {
            Mode::Auto => (Some(3), Some(3)),
            Mode::Manual => (Some(1), None),
        };
        RetryPlan {
            max_attempts,
            max_lost,
            backoff: BackoffPlan::default(),
            non_retryable: Vec::new(),
            schedule_to_start_ms: None,
            start_to_close_ms: None,
            schedule_to_close_ms: None,
            blocked_ms: None,
            cancel_grace_ms: None,
            heartbeat_ms: None,
            on_lease_doubt: None,
            accept_late: None,
        }
    }
}
