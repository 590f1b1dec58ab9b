//! The extension Tasks (SEP-2663): a Task of an offered tool, as its caller sees it.

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, DetailedTask, ErrorCode, JsonObject, TaskPayload};
use serde_json::{Value as Json, json};
use tenure_core::id::TaskId;
use tenure_core::record::{Reason, Value};
use tenure_core::view::TaskView;
use tenure_core::{Code, Rejection, RejectionKind};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, get_blob};

use super::content;
use super::load::load;
use super::question::AskingModes;
use super::start::{CALLER, TOOL, caller_label};
use super::state::{CallState, requests, shown, way_to_answer};
use super::tool::{OfferTable, OfferedTool};
use crate::McpCaller;

/// The Task of this id, if it is one of an offered tool, and the caller began it or may see those of others.
///
/// # Errors
/// There is no way to the scheduler now.
pub(super) async fn find<P: ClientPort>(
    table: &OfferTable,
    caller: &McpCaller<P>,
    id: &str,
) -> Result<Option<TaskView>, ErrorData> {
    let Ok(task) = TaskId::new(id) else { return Ok(None) };
    let view = match load(&caller.client, &task).await {
        Ok(view) => view,
        Err(refused) if refused.code == Code::TaskNotFound => return Ok(None),
        Err(refused) => return Err(trouble(refused)),
    };
    let labels = &view.task.labels;
    let Some(tool) = labels.get(TOOL) else { return Ok(None) };
    let is_own = labels.get(CALLER) == Some(&caller_label(&caller.agent));
    let is_shared = table.find(tool).is_some_and(|tool| tool.shared);
    Ok((is_own || is_shared).then_some(view))
}

/// The tool of a Task, if it is still offered.
pub(super) fn tool_of<'a>(table: &'a OfferTable, view: &TaskView) -> Option<&'a OfferedTool> {
    table.find(view.task.labels.get(TOOL)?)
}

/// The error for a Task that is not there, as far as the caller may know.
pub(super) fn no_task(id: &str) -> ErrorData {
    let short: String = id.chars().take(80).collect();
    ErrorData::invalid_params(format!("there is no task {short:?}"), Some(json!({"taskId": short})))
}

/// The error for what Tenure refuses.
pub(super) fn trouble(refused: Rejection) -> ErrorData {
    let data = json!({"code": refused.code.as_str(), "details": refused.details});
    match refused.code {
        Code::ValidationError => ErrorData::invalid_params(refused.message, Some(data)),
        Code::PermissionDenied | Code::ToolNotAvailable | Code::Unauthenticated => {
            ErrorData::invalid_request(refused.message, Some(data))
        }
        _ => ErrorData::internal_error(refused.message, Some(data)),
    }
}

/// A Task with what belongs to its state. What it has made, and cannot be read any more, is an error for good: the
/// task has failed for its client.
///
/// # Errors
/// It cannot be read now.
pub(super) async fn detailed<P: ClientPort>(
    table: &OfferTable,
    client: &Client<P>,
    view: &TaskView,
    modes: AskingModes,
) -> Result<DetailedTask, ErrorData> {
    let state = CallState::of(view);
    let payload = match &state {
        CallState::Working => TaskPayload::Working,
        CallState::Asking(asked) => {
            let no_form = |why| ErrorData::internal_error(why, None);
            let input_requests = requests(asked, modes).map_err(no_form)?;
            TaskPayload::InputRequired { input_requests }
        }
        CallState::Cancelled(_) => TaskPayload::Cancelled,
        CallState::Failed(reason) if protocol_error(reason).is_some() => {
            TaskPayload::Failed { error: object(&json!(protocol_error(reason))) }
        }
        CallState::Completed | CallState::Failed(_) => {
            match outcome(tool_of(table, view), client, view, &state).await {
                Ok(result) => TaskPayload::Completed { result: object(&json!(result)) },
                Err(lost) if is_for_good(&lost) => {
                    TaskPayload::Failed { error: object(&json!(trouble(lost))) }
                }
                Err(refused) => return Err(trouble(refused)),
            }
        }
    };
    let mut about = shown(view, &state);
    if let CallState::Asking(asked) = &state
        && let Some(way) = way_to_answer(asked, modes)
    {
        about.status_message.get_or_insert_default().push_str(&way);
    }
    Ok(DetailedTask::new(about, payload))
}

/// The code of a worker's failure that is an error of the protocol: the details have its `code`, and perhaps `data`.
const PROTOCOL_ERROR: &str = "jsonrpc_error";

/// The error of the protocol for which a worker has failed, if it says that it is one.
pub(super) fn protocol_error(reason: &Reason) -> Option<ErrorData> {
    let details = reason.details.as_ref().filter(|_| reason.code == PROTOCOL_ERROR)?;
    let code = i32::try_from(details.get("code")?.as_i64()?).ok()?;
    Some(ErrorData::new(ErrorCode(code), reason.message.clone(), details.get("data").cloned()))
}

/// The result of a Task that has ended; none if it has not.
///
/// # Errors
/// Its output cannot be read.
pub(super) async fn outcome<P: ClientPort>(
    tool: Option<&OfferedTool>,
    client: &Client<P>,
    view: &TaskView,
    state: &CallState,
) -> Result<Option<CallToolResult>, Rejection> {
    Ok(match state {
        CallState::Working | CallState::Asking(_) => None,
        CallState::Failed(reason) => Some(content::failed(tool, reason)),
        CallState::Cancelled(reason) => Some(content::cancelled(tool, reason.as_ref())),
        CallState::Completed => {
            let blob = view.output.as_ref().and_then(Value::blob);
            let blob = blob.filter(|blob| blob.size_bytes <= content::OUTPUT_BYTES_MAX);
            let bytes = match blob {
                Some(blob) => Some(get_blob(client.port(), &view.task.task_id, blob.hash).await?),
                None => None,
            };
            Some(content::completed(tool, view, bytes.as_deref()))
        }
    })
}

/// Whether what could not be read will never be there again.
fn is_for_good(refused: &Rejection) -> bool {
    refused.code == Code::BlobMissing || refused.kind() == Some(RejectionKind::ReplayFailed)
}

fn object(json: &Json) -> JsonObject {
    json.as_object().cloned().unwrap_or_default()
}
