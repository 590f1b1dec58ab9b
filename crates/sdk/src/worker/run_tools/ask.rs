//! The requests of a command and their answers: each is an object of JSON on one line.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tenure_core::command::StepReport;
use tenure_core::id::{StepId, TaskId};
use tenure_core::view::board::compose;
use tenure_core::view::{Look, Looked};
use tenure_core::{Code, Rejection};
use tenure_wire::bus::worker::{Looking, Word};
use tenure_wire::bus::{BadMessage, VERSION, decode_input, encode};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

use super::{LINE_MAX, RunToolsOf};
use crate::worker::context::StepContext;

/// The operations with which a worker reads (PERM-06).
const LOOKS: [&str; 4] = ["task_get", "task_list", "task_query_steps", "task_board_summary"];

/// What a command asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunRequest {
    /// The operation.
    pub(super) operation: String,
    /// The Task; none: that of the Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<String>,
    /// The input of the operation.
    #[serde(default)]
    pub(super) input: Map<String, Json>,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunReply {
    /// What the operation answers.
    Ok(Json),
    /// Why it is refused.
    Error(Rejection),
}

/// Reads a line of at most [`LINE_MAX`] bytes; nothing: there is none any more, or it is longer.
pub(super) async fn read_line<R: AsyncBufRead + Unpin>(from: &mut R) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let most = LINE_MAX as u64 + 1;
    from.take(most).read_until(b'\n', &mut line).await.ok()?;
    (line.pop() == Some(b'\n')).then_some(line)
}

/// A message as a line.
///
/// # Errors
/// `value_too_large`: it is longer than a line may be.
pub(super) fn to_line(message: &impl Serialize) -> Result<Vec<u8>, Rejection> {
    let mut line = serde_json::to_vec(message)
        .map_err(|error| Rejection::invalid("input", error.to_string()))?;
    if line.len() >= LINE_MAX {
        let message = format!("the message has {} bytes; at most {LINE_MAX}", line.len());
        return Err(Rejection::new(Code::ValueTooLarge, message));
    }
    line.push(b'\n');
    Ok(line)
}

/// Carries out a request of a command, as far as its Run may.
///
/// # Errors
/// The operation is none of a worker's, its input is wrong, or the scheduler refuses it.
pub(super) async fn answer(tools: &RunToolsOf, line: &[u8]) -> Result<Json, Rejection> {
    let asked: RunRequest = serde_json::from_slice(line)
        .map_err(|error| Rejection::invalid("operation", error.to_string()))?;
    let RunRequest { operation, task_id, input } = asked;
    let task = match task_id {
        Some(named) => TaskId::new(named)?,
        None => tools.task().clone(),
    };
    match operation.strip_prefix("agent.").unwrap_or(&operation) {
        "task_claim_step" => {
            let ClaimInput { step_id } = serde_json::from_value(Json::Object(input))
                .map_err(|error| Rejection::invalid("step_id", error.to_string()))?;
            to_json(&tools.claim(task, step_id).await?)
        }
        "task_update_step" => {
            let ctx = tools.held().ok_or_else(nothing_claimed)?;
            let report = read_report(&ctx, input)?;
            to_json(&ctx.relay(&task, report).await?)
        }
        name if LOOKS.contains(&name) => {
            let look = read_look(tools, name, input)?;
            let asked = match &look {
                Look::TaskBoardSummary(input) => Some(*input),
                _ => None,
            };
            match (tools.look(task, look).await?, asked) {
                (Looked::Board(lines), Some(input)) => {
                    let lines = [lines];
                    to_json(&compose(&lines, input.budget_of(&lines)))
                }
                (looked, _) => to_json(&looked),
            }
        }
        // PERM-08
        _ => {
            let short: String = operation.chars().take(80).collect();
            Err(Rejection::new(Code::ToolNotAvailable, format!("{short:?} is no tool of a worker")))
        }
    }
}

/// REPORT-03: a Run that holds no Step reports on none.
fn nothing_claimed() -> Rejection {
    Rejection::new(Code::PermissionDenied, "your run has claimed no step: claim one first")
}

/// The input of a claim.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimInput {
    step_id: StepId,
}

fn to_json(answer: &impl Serialize) -> Result<Json, Rejection> {
    serde_json::to_value(answer).map_err(|error| Rejection::invalid("answer", error.to_string()))
}

/// Reads a report, on the held Step if it names none. Content of a Step in it is noted for the scheduler, which
/// refuses it (REPORT-04).
fn read_report(ctx: &StepContext, mut input: Map<String, Json>) -> Result<StepReport, Rejection> {
    input.entry("step_id").or_insert_with(|| ctx.step_id().as_str().into());
    #[derive(Serialize)]
    struct SaidOf<'a> {
        operation: &'a str,
        input: &'a Map<String, Json>,
    }
    let said = encode(&SaidOf { operation: "task_update_step", input: &input })?;
    let word = decode_input::<Word>(&said).map_err(|bad| {
        let field = bad.field.map(|field| match field.strip_prefix("input.") {
            Some(inner) => inner.to_owned(),
            None => field,
        });
        Rejection::from(BadMessage { field, ..bad })
    })?;
    match word {
        Word::TaskUpdateStep(report) => Ok(report),
        _ => Err(Rejection::invalid("operation", "the report was read as another one")),
    }
}

/// Reads a query, as the bus does.
fn read_look(
    tools: &RunToolsOf,
    operation: &str,
    input: Map<String, Json>,
) -> Result<Look, Rejection> {
    let mut look = Map::from_iter([("operation".to_owned(), Json::from(operation))]);
    if !input.is_empty() {
        look.insert("input".into(), input.into());
    }
    let message = serde_json::json!({
        "v": VERSION, "session_id": tools.session(), "task_id": tools.task(),
        "run_id": tools.run_id().to_string(), "look": look,
    });
    Ok(Looking::read(&encode(&message)?)?.look)
}
