//! `inbox`: what waits for somebody, each with the call that answers it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::id::{AgentId, StepId, TaskId};
use tenure_core::record::Reason;
use tenure_core::status::WaitKind;
use tenure_core::view::snapshot::{BlockedTask, Blocker};
use tenure_core::view::{ViewName, ViewsInput};
use tenure_ports::ClientPort;

use super::ToolCall;
use super::arguments::Arguments;
use crate::result::{ToolAnswer, length};

/// The input of `inbox`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct InboxInput {
    /// Only of this task.
    task_id: Option<TaskId>,
    /// Only what waits for this one: the owner of the task, who requested it, or the assignee of the step.
    whom: Option<AgentId>,
    /// How many entries to skip.
    offset: usize,
}

/// The answer of `inbox`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct InboxAnswer {
    /// What waits: the task, the step if it is one, for what, why, and the call that answers it.
    waiting: Vec<WaitingItem>,
    /// Where to go on, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
    /// Partitions that did not answer: what waits there is not listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

/// A Task or a Step that waits.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
struct WaitingItem {
    task_id: TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<StepId>,
    /// What it waits for: `input`, `permission` and so on, `decision` for a Step that failed, else the operation.
    waits_for: SmolStr,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_by: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// The tool to call.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'static str>,
    /// Its arguments; of those in angle brackets the value is yours.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Json>,
    /// For a person, where no tool does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// How something is answered.
enum WaitingAnswer {
    Tool(&'static str, Json),
    Command(String),
}

impl WaitingItem {
    fn is_for(&self, whom: &AgentId) -> bool {
        [&self.owner, &self.requested_by, &self.assignee].into_iter().flatten().any(|it| it == whom)
    }
}

/// Reads the view of what waits.
pub(super) async fn call<P: ClientPort>(
    call: &ToolCall<'_, P>,
    arguments: Arguments,
) -> Result<ToolAnswer, Rejection> {
    let max_bytes = arguments.max_bytes;
    let InboxInput { task_id, whom, offset } = arguments.input()?;
    let views = ViewsInput::of(&[ViewName::BlockedTasks]);
    let (snapshot, missing_partitions) = call.caller.client.views_of(views).await?;
    let blocked = snapshot.blocked_tasks.unwrap_or_default().into_iter();
    let blocked = blocked.filter(|task| task_id.as_ref().is_none_or(|only| *only == task.task_id));
    let all =
        blocked.flat_map(waiting).filter(|one| whom.as_ref().is_none_or(|whom| one.is_for(whom)));
    let mut waiting: Vec<WaitingItem> = all.skip(offset).collect();
    let mut next_offset = None;
    while length(&waiting) > max_bytes && waiting.len() > 1 {
        waiting.truncate(waiting.len() / 2);
        next_offset = Some(offset + waiting.len());
    }
    let answer = ToolAnswer::of(&InboxAnswer { waiting, next_offset, missing_partitions });
    Ok(match next_offset {
        Some(next) => answer.with_more(format!("call inbox again with offset {next}")),
        None => answer,
    })
}

/// What waits in a Task: the Task itself, and each of its Steps that waits.
fn waiting(task: BlockedTask) -> Vec<WaitingItem> {
    let id = task.task_id.as_str();
    let mut all = Vec::new();
    for action in &task.required_action_ids {
        let (operation, on) = action.split_once(':').unwrap_or((action, ""));
        let Some(answering) = of_task(operation, id, on) else { continue };
        all.push(item(&task, operation.trim_start_matches("agent.").into(), answering));
    }
    for blocker in &task.blockers {
        let waits_for = blocker.wait_kind.map_or("decision", WaitKind::as_str);
        let base = item(&task, waits_for.into(), of_step(blocker, id));
        all.push(WaitingItem {
            step_id: Some(blocker.step_id.clone()),
            assignee: blocker.assignee.clone(),
            reason: blocker.reason.clone(),
            ..base
        });
    }
    all
}

fn item(task: &BlockedTask, waits_for: SmolStr, answering: WaitingAnswer) -> WaitingItem {
    let (tool, arguments, command) = match answering {
        WaitingAnswer::Tool(name, arguments) => (Some(name), Some(arguments), None),
        WaitingAnswer::Command(command) => (None, None, Some(command)),
    };
    WaitingItem {
        task_id: task.task_id.clone(),
        step_id: None,
        waits_for,
        owner: task.owner.clone(),
        requested_by: task.requested_by.clone(),
        assignee: None,
        reason: task.reason.clone(),
        tool,
        arguments,
        command,
    }
}

/// What a Task waits for; `None` if one of its Steps is what waits.
fn of_task(operation: &str, task: &str, on: &str) -> Option<WaitingAnswer> {
    Some(match operation {
        // The rest of it comes with the create that began it.
        "task_create" => WaitingAnswer::Tool("task_cancel", json!({ "task_id": task })),
        "reopen_task" => WaitingAnswer::Tool(
            "task_update",
            json!({ "task_id": task, "operations": [{ "op": "reopen_task" }] }),
        ),
        "resume_task" => WaitingAnswer::Command(format!("tenure task resume {task}")),
        "submit_task" => WaitingAnswer::Command(format!("tenure task submit {task}")),
        "agent.task_complete" => WaitingAnswer::Tool("task_complete", json!({ "task_id": task })),
        "append_task_progress" => WaitingAnswer::Tool(
            "task_complete",
            json!({ "task_id": task, "artifacts": ["<the record of the artifact>"] }),
        ),
        "agent.task_update_step" => {
            WaitingAnswer::Command(format!("tenure step settle {task} {on} --peer"))
        }
        _ => return None,
    })
}

fn of_step(blocker: &Blocker, task: &str) -> WaitingAnswer {
    let step = blocker.step_id.as_str();
    let operation = blocker.required_action_id.split(':').next().unwrap_or_default();
    match (blocker.wait_kind, operation) {
        (Some(WaitKind::Input | WaitKind::Permission), _) => WaitingAnswer::Tool(
            "answer",
            json!({ "task_id": task, "step_id": step, "text": "<the answer>" }),
        ),
        (_, "reopen_step") => {
            let reopen = json!([{ "op": "reopen_step", "step_id": step }]);
            WaitingAnswer::Tool("task_update", json!({ "task_id": task, "operations": reopen }))
        }
        (_, "agent.task_fail") => {
            let reason = json!({ "message": "<why>" });
            WaitingAnswer::Tool("task_fail", json!({ "task_id": task, "reason": reason }))
        }
        // It becomes optional, or is removed.
        _ => {
            let update =
                json!([{ "op": "update_step", "step_id": step, "fields": { "required": false } }]);
            WaitingAnswer::Tool("task_update", json!({ "task_id": task, "operations": update }))
        }
    }
}
