//! Prompts: texts with which a person begins a conversation about Tasks.

use rmcp::ErrorData;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage,
    Role,
};
use tenure_core::command::Operator;
use tenure_core::id::TaskId;
use tenure_core::view::BoardInput;
use tenure_core::view::board::template;
use tenure_ports::ClientPort;

use crate::McpCaller;

/// The guide to writing a Task.
const WRITE: &str = "task_template";

/// Where a Task stands.
const REVIEW: &str = "task_review";

/// The longest answer that is asked for: the Task in short.
const HEADER_BYTES: usize = 4 << 10;

/// The longest argument.
const ARGUMENT_MAX: usize = 8 << 10;

/// The prompts of a caller.
pub(crate) fn listed<P: ClientPort>(caller: &McpCaller<P>) -> Vec<Prompt> {
    let goal = PromptArgument::new("goal")
        .with_description("What the task shall reach")
        .with_required(false);
    let task =
        PromptArgument::new("task_id").with_description("The id of the task").with_required(true);
    let write =
        Prompt::new(WRITE, Some("How to write a task, and a task for a goal"), Some(vec![goal]));
    let review =
        Prompt::new(REVIEW, Some("Where a task stands, and what it waits for"), Some(vec![task]));
    let all = [
        (write.with_title("Write a task"), Operator::TaskTemplate),
        (review.with_title("Review a task"), Operator::TaskGet),
    ];
    all.into_iter()
        .filter(|(_, tool)| tool.is_open_to(caller.role))
        .map(|(prompt, _)| prompt)
        .collect()
}

/// A prompt with its texts.
///
/// # Errors
/// There is no such prompt, an argument is wrong, or the Task cannot be read.
pub(crate) async fn read<P: ClientPort>(
    caller: &McpCaller<P>,
    request: GetPromptRequestParams,
) -> Result<GetPromptResult, ErrorData> {
    let is_open = listed(caller).iter().any(|prompt| prompt.name == request.name);
    let arguments = request.arguments.unwrap_or_default();
    match request.name.as_str() {
        WRITE if is_open => Ok(write(text_of(&arguments, "goal")?)),
        REVIEW if is_open => review(caller, text_of(&arguments, "task_id")?).await,
        name => {
            let short: String = name.chars().take(80).collect();
            Err(ErrorData::invalid_params(format!("there is no prompt {short:?}"), None))
        }
    }
}

fn text_of<'a>(arguments: &'a JsonObject, name: &str) -> Result<Option<&'a str>, ErrorData> {
    match arguments.get(name) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) if text.len() <= ARGUMENT_MAX => Ok(Some(text)),
            _ => {
                let message = format!("{name} is a text of at most {ARGUMENT_MAX} bytes");
                Err(ErrorData::invalid_params(message, None))
            }
        },
    }
}

fn write(goal: Option<&str>) -> GetPromptResult {
    let mut messages = vec![PromptMessage::new_text(Role::User, template().text)];
    if let Some(goal) = goal.filter(|goal| !goal.is_empty()) {
        let ask = format!(
            "Write a task that reaches this goal, show it to me, and create it with task_create once I agree.\n\n\
             Goal: {goal}"
        );
        messages.push(PromptMessage::new_text(Role::User, ask));
    }
    GetPromptResult::new(messages).with_description("How to write a task")
}

async fn review<P: ClientPort>(
    caller: &McpCaller<P>,
    task: Option<&str>,
) -> Result<GetPromptResult, ErrorData> {
    let Some(task) = task else {
        return Err(ErrorData::invalid_params("the argument task_id is missing", None));
    };
    let id =
        TaskId::new(task).map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
    let text = match Operator::TaskBoardSummary.is_open_to(caller.role) {
        true => caller
            .client
            .board(std::slice::from_ref(&id), BoardInput::default())
            .await
            .map(|board| board.text),
        false => {
            let task = caller.client.within(HEADER_BYTES).get(&id).await;
            task.map(|view| serde_json::to_string(&view.task).unwrap_or_default())
        }
    };
    let text = text
        .map_err(|no| ErrorData::invalid_params(no.to_string(), serde_json::to_value(&no).ok()))?;
    let ask = format!(
        "Say in a few sentences where this task stands, what it waits for and what I have to decide. Use the tools \
         explain and inbox for what the summary does not say.\n\n{text}"
    );
    let messages = vec![PromptMessage::new_text(Role::User, ask)];
    Ok(GetPromptResult::new(messages).with_description(format!("Where task {id} stands")))
}
