//! `explain`: why a Step does not run, or why the Steps of a Task do not.

use tenure_core::Rejection;
use tenure_ports::ClientPort;

use super::ToolCall;
use super::arguments::Arguments;
use super::perform::perform;
use super::set::MadeTool;
use crate::result::ToolAnswer;

/// Asks about the Step that is named, or about all.
pub(super) async fn call<P: ClientPort>(
    call: &ToolCall<'_, P>,
    tool: &MadeTool,
    arguments: Arguments,
) -> Result<ToolAnswer, Rejection> {
    let max_bytes = arguments.max_bytes;
    let operation = if arguments.has("step_id") { "explain" } else { "explain_task" };
    perform(call, arguments.request(tool, operation)?, max_bytes).await
}
