//! The plan that a task file becomes: everything that its create command needs.

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
    /// Higher first; a hint.
    pub priority: Option<i32>,
    /// When the Task should be over.
    pub deadline: Option<Deadline>,
    /// Policy of Steps that have none; absent: the scheduler's default.
    pub retry: Option<RetryPlan>,
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
    /// Which of the worker's handlers runs it.
    pub handler: String,
    /// JSON for that handler.
    pub input: Option<Value>,
    /// Whether the Task needs it to complete.
    pub required: bool,
    /// Absent: the plan's.
    pub pool: Option<String>,
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
    /// The lease duration, in milliseconds: the worker must renew the lease within it.
    pub heartbeat_ms: Option<u64>,
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
    /// The scheduler's policy for a Task that names none: with automatic completion three Attempts may fail
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
            heartbeat_ms: None,
        }
    }
}
