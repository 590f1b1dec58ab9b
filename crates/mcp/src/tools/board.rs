//! `board`: Tasks in lines, for the context of a model (PROMPT).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_core::view::{BoardInput, ListInput};
use tenure_ports::ClientPort;

use super::ToolCall;
use super::arguments::Arguments;
use crate::result::ToolAnswer;

/// The most Tasks of one board: each is a question of its own.
const TASKS_MAX: usize = 20;

/// The input of `board`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BoardToolInput {
    /// The tasks; left out: the live tasks of the session, 20 at most.
    #[schemars(length(max = 20))]
    task_ids: Option<Vec<TaskId>>,
    /// The longest text, in tokens.
    token_budget: Option<usize>,
}

/// Reads each Task and puts the lines together.
pub(super) async fn call<P: ClientPort>(
    call: &ToolCall<'_, P>,
    arguments: Arguments,
) -> Result<ToolAnswer, Rejection> {
    let BoardToolInput { task_ids, token_budget } = arguments.input()?;
    let client = &call.caller.client;
    let (tasks, are_all) = match task_ids {
        Some(tasks) if tasks.len() > TASKS_MAX => {
            let message = format!("task_ids has at most {TASKS_MAX} tasks");
            return Err(Rejection::invalid("task_ids", message));
        }
        Some(tasks) => (tasks, true),
        None => {
            let page = client
                .port()
                .tasks(ListInput { limit: Some(TASKS_MAX), ..ListInput::default() })
                .await?;
            (page.tasks.into_iter().map(|task| task.task_id).collect(), !page.truncated)
        }
    };
    let board = client.board(&tasks, BoardInput { token_budget }).await?;
    let text = match tasks.is_empty() {
        true => format!("no task of session {} is live", call.caller.session()),
        false => board.text.clone(),
    };
    let answer = ToolAnswer::of(&board).told(text);
    Ok(match are_all {
        true => answer,
        false => answer.with_more("there are more tasks: task_list lists them"),
    })
}
