//! What a server answers to a call: a result, a question, or a task that goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::error::ToolError;

/// The pause between two looks at a task: what servers may ask for, and the usual one.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
const POLL_USUAL_MS: u64 = 1_000;

/// The longest id of a task.
const TASK_ID_MAX: usize = 1_024;

/// The most questions at a time.
const QUESTIONS_MAX: usize = 32;

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerAnswer {
    /// The tool has ended.
    Result(ToolResult),
    /// The call is to be repeated with answers.
    Asks(ToolQuestions),
    /// The tool goes on, and is asked for.
    Task(ToolTask),
}

/// What a tool has made.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// Texts, images and other content.
    #[serde(default)]
    pub content: Vec<Json>,
    /// The same as JSON.
    #[serde(default)]
    pub structured_content: Option<Json>,
    /// Whether the tool has failed.
    #[serde(default)]
    pub is_error: bool,
}

impl ToolResult {
    /// The texts, a line for each.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter(|it| it["type"] == "text");
        texts.filter_map(|it| it["text"].as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Whether it has content that is no text.
    pub fn has_more_than_text(&self) -> bool {
        self.content.iter().any(|it| it["type"] != "text")
    }
}

/// What a server asks for, by the names of the questions, and what goes back to it with the answers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolQuestions {
    /// The questions.
    pub input_requests: BTreeMap<String, Json>,
    /// What the server wants to see again, as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolTaskState {
    /// It goes on.
    Working,
    /// It waits for answers.
    Asks(BTreeMap<String, Json>),
    /// The tool has ended.
    Completed(ToolResult),
    /// The call has failed, with an error of JSON-RPC.
    Failed(ToolError),
    /// It was canceled.
    Cancelled,
}

impl ToolTaskState {
    /// The word of the protocol for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Asks(_) => "input_required",
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A task of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTask {
    /// Its id.
    pub id: String,
    /// How it stands.
    pub state: ToolTaskState,
    /// What the server says about that.
    pub message: Option<String>,
    /// How long to wait until it is asked for again.
    pub poll: Duration,
}

/// A task as a server writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolTaskFields {
    task_id: String,
    status: String,
    #[serde(default)]
    status_message: Option<String>,
    #[serde(default)]
    poll_interval_ms: Option<u64>,
    #[serde(default)]
    input_requests: BTreeMap<String, Json>,
    #[serde(default)]
    result: Option<ToolResult>,
    #[serde(default)]
    error: Option<Json>,
}

impl ServerAnswer {
    /// Reads the result of a call.
    ///
    /// # Errors
    /// It is none: the text says why.
    pub(super) fn read(result: Json) -> Result<Self, String> {
        match result.get("resultType").and_then(Json::as_str).unwrap_or("complete") {
            "complete" => Ok(Self::Result(of(result)?)),
            "input_required" => Ok(Self::Asks(bounded(of(result)?)?)),
            "task" => Ok(Self::Task(ToolTask::read(result)?)),
            other => Err(format!("the resultType {other:?} is not known")),
        }
    }
}

impl ToolTask {
    /// Reads a task.
    ///
    /// # Errors
    /// It is none: the text says why.
    pub(super) fn read(result: Json) -> Result<Self, String> {
        let fields: ToolTaskFields = of(result)?;
        if fields.task_id.is_empty() || fields.task_id.len() > TASK_ID_MAX {
            return Err(format!("the id of a task has 1 to {TASK_ID_MAX} bytes"));
        }
        let state = match fields.status.as_str() {
            "working" => ToolTaskState::Working,
            "input_required" => {
                let questions =
                    ToolQuestions { input_requests: fields.input_requests, request_state: None };
                ToolTaskState::Asks(bounded(questions)?.input_requests)
            }
            "completed" => {
                let result = fields.result.ok_or("a completed task has a result")?;
                ToolTaskState::Completed(result)
            }
            "failed" => {
                ToolTaskState::Failed(ToolError::refused(&fields.error.unwrap_or(json!({}))))
            }
            "cancelled" => ToolTaskState::Cancelled,
            other => return Err(format!("the status {other:?} of a task is not known")),
        };
        let poll = Duration::from_millis(fields.poll_interval_ms.unwrap_or(POLL_USUAL_MS));
        let poll = poll.clamp(POLL.0, POLL.1);
        Ok(Self { id: fields.task_id, state, message: fields.status_message, poll })
    }
}

fn of<T: for<'de> Deserialize<'de>>(result: Json) -> Result<T, String> {
    serde_json::from_value(result).map_err(|error| error.to_string())
}

fn bounded(asks: ToolQuestions) -> Result<ToolQuestions, String> {
    if asks.input_requests.len() > QUESTIONS_MAX {
        return Err(format!("a server asks at most {QUESTIONS_MAX} questions at a time"));
    }
    if asks.input_requests.is_empty() && asks.request_state.is_none() {
        return Err("a question has inputRequests or a requestState".to_owned());
    }
    Ok(asks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_answers_are_told_apart() {
        let content = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let ServerAnswer::Result(result) = ServerAnswer::read(json!({"content": content})).unwrap()
        else {
            panic!("a result")
        };
        assert_eq!(
            (result.text().as_str(), result.is_error, result.has_more_than_text()),
            ("a\nb", false, false)
        );
        let asks = json!({"resultType": "input_required", "inputRequests": {"k": {}}, "requestState": "s"});
        let ServerAnswer::Asks(asks) = ServerAnswer::read(asks).unwrap() else {
            panic!("a question")
        };
        assert_eq!(asks.request_state.as_deref(), Some("s"));
        let task =
            json!({"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 1});
        let ServerAnswer::Task(task) = ServerAnswer::read(task).unwrap() else { panic!("a task") };
        assert_eq!(
            (task.state.as_str(), task.poll),
            ("working", POLL.0),
            "no server is asked without a pause"
        );
        for wrong in [
            json!({"resultType": "other"}),
            json!({"resultType": "input_required"}),
            json!({"resultType": "task", "taskId": "", "status": "working"}),
            json!({"resultType": "task", "taskId": "t", "status": "resting"}),
            json!({"content": "text"}),
        ] {
            assert!(ServerAnswer::read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
