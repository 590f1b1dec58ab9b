//! What commands wrote, on the bus (ART-09): its bytes stay in files of the worker, which reads a page of them for
//! whoever asks the owner of the Task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::command::Operator;
use tenure_core::id::{AttemptId, SessionId, StepId, TaskId};
use tenure_core::{Code, Query};

use super::V;
use super::request::RawBytes;

/// The most bytes of an output that a message carries.
pub const OUTPUT_PAGE_MAX: usize = 256 << 10;

/// Reads a page of what the command of an Attempt wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadOutput {
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Which of its two outputs.
    pub stream: OutputStream,
    /// The page begins at this byte.
    #[serde(default)]
    pub from: u64,
}

/// An output of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// A page of an output, of at most 256 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputPage {
    /// The bytes; none behind the end.
    pub data: RawBytes,
    /// How many bytes the file has now; absent: the worker has no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

/// Asks a worker for a page of what the command of one of its Attempts wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputRequest {
    /// The number of the request, which the answer repeats.
    pub request: u64,
    /// The node that asks, to which the worker sends an [`OutputAnswer`].
    pub node: SmolStr,
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Step.
    pub step_id: StepId,
    /// The number of the Attempt among those of the Step.
    pub ordinal: u32,
    /// Which of its two outputs.
    pub stream: OutputStream,
    /// The page begins at this byte.
    pub from: u64,
}

/// A worker answers an [`OutputRequest`] (`output.<node>`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputAnswer {
    /// The version.
    pub v: V,
    /// The number of the request.
    pub request: u64,
    /// The page.
    pub page: OutputPage,
}

impl Query for ReadOutput {
    const NAME: &'static str = "read_output";
    const TOOL: Operator = Operator::InspectTask;
    const REFUSALS: &'static [Code] = &[Code::WorkerGone];
    type Output = OutputPage;
}
