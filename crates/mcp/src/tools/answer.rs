//! `answer`: a text for a Step that asked for input.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_core::id::StepId;
use tenure_core::{Command, Rejection};
use tenure_ports::ClientPort;
use tenure_sdk::client::answering;
use tenure_wire::bus::request::{Ask, Request};

use super::ToolCall;
use super::arguments::Arguments;
use super::perform::perform;
use super::set::{MadeTool, OF_WRITES, TASK_ID};
use crate::result::ToolAnswer;

/// The input of `answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerInput {
    /// The step that asked.
    step_id: StepId,
    /// The answer, at most some 3 KB. For a longer one put it somewhere and answer with its address.
    #[schemars(length(max = 4096))]
    text: String,
}

/// Reopens the Step with the answer.
pub(super) async fn call<P: ClientPort>(
    call: &ToolCall<'_, P>,
    tool: &MadeTool,
    arguments: Arguments,
) -> Result<ToolAnswer, Rejection> {
    let max_bytes = arguments.max_bytes;
    let (around, input) = arguments.split(&[TASK_ID, OF_WRITES[0], OF_WRITES[1], OF_WRITES[2]]);
    let AnswerInput { step_id, text } = input.input()?;
    let operations = vec![answering(step_id, &text)?];
    let mut around = around;
    around.add("operations", json!([]));
    let Request { head, .. } = around.request(tool, tool.entry.operation)?;
    let ask = Ask::Command(Box::new(Command::TaskUpdate { operations }));
    perform(call, Request { head, ask }, max_bytes).await
}
