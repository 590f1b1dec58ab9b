//! What becomes of the Step when the tool has ended, its server asks, refuses or cannot be reached.

use serde_json::{Value as Json, json};
use tenure_core::Rejection;
use tenure_core::record::{Object, RemoteRef};

use super::call::{CallWork, ToolEnd, ToolFault};
use super::mark::ToolMark;
use crate::mcp::{ToolError, ToolResult};
use crate::worker::words::cut;

impl CallWork {
    /// Says the last word of the Attempt.
    pub(super) async fn finish(&mut self, end: ToolEnd) -> Result<(), Rejection> {
        match end {
            ToolEnd::Asks(prompt) => self.ctx.request_input(&prompt),
            ToolEnd::Result(result) if result.is_error => {
                self.begin_anew().await?;
                let text = result.text();
                let message = if text.is_empty() {
                    "the tool has failed, and does not say why"
                } else {
                    &text
                };
                self.ctx.fail("mcp_tool_failed", &cut(message), None)
            }
            ToolEnd::Result(result) => self.complete(&result).await,
            ToolEnd::Failed(error) => {
                self.begin_anew().await?;
                self.fail_for(&error)
            }
            ToolEnd::Canceled(why) => {
                self.begin_anew().await?;
                let why = why.as_deref().unwrap_or("the server has canceled its task");
                self.ctx.fail("mcp_canceled", &cut(why), None)
            }
        }
    }

    /// Fails the Step, for good if another try would fail alike.
    pub(super) async fn fail(&mut self, fault: ToolFault) -> Result<(), Rejection> {
        match fault {
            ToolFault::Local(refused) => Err(refused),
            ToolFault::TaskGone(error) => {
                self.begin_anew().await?;
                self.ctx.fail("mcp_task_gone", &cut(&error.to_string()), None)
            }
            ToolFault::Question(why) => {
                self.begin_anew().await?;
                self.ctx.fail_for_good("mcp_malformed", &cut(&why), None)
            }
            ToolFault::Server(error) => {
                // A server that refuses an answer would refuse it again; a task goes on whatever it says of a request.
                if matches!(error, ToolError::Refused { .. }) && self.prior.task.is_none() {
                    self.begin_anew().await?;
                }
                self.fail_for(&error)
            }
        }
    }

    fn fail_for(&self, error: &ToolError) -> Result<(), Rejection> {
        let message = cut(&error.to_string());
        let code = match error {
            ToolError::Unreachable { .. } | ToolError::SessionGone { .. } => "mcp_unreachable",
            ToolError::Access { .. } => "mcp_settings",
            ToolError::Lost { .. } => "mcp_lost",
            ToolError::Silent { .. } => "mcp_silent",
            ToolError::TooLong { .. } => "mcp_too_long",
            ToolError::Malformed { .. } => "mcp_malformed",
            ToolError::Status { status: 401, .. } => "mcp_refused",
            ToolError::Status { .. } if error.is_retryable() => "mcp_unreachable",
            ToolError::Refused { .. } if error.is_retryable() => "mcp_failed",
            ToolError::Status { .. } | ToolError::Refused { .. } => "mcp_refused",
        };
        let number =
            |name: &str, number: Json| Some(Object::from_iter([(name.to_owned(), number)]));
        let details = match error {
            ToolError::Refused { code, .. } => number("code", json!(code)),
            ToolError::Status { status, .. } => number("status", json!(status)),
            _ => None,
        };
        match code {
            // A token that has just changed is taken soon.
            "mcp_refused" if error.is_retryable() => self.ctx.fail(code, &message, details),
            "mcp_refused" | "mcp_too_long" => self.ctx.fail_for_good(code, &message, details),
            _ => self.ctx.fail(code, &message, details),
        }
    }

    /// Has another try call the tool anew.
    async fn begin_anew(&mut self) -> Result<(), Rejection> {
        if self.prior.goes_on() {
            self.mark(&ToolMark::Ended(self.prior.round)).await?;
        }
        Ok(())
    }

    /// REPORT-19: the Step is completed when what the task of the server has made is stored here, as the output.
    async fn complete(&mut self, result: &ToolResult) -> Result<(), Rejection> {
        if let Some(remote) = self.noted.clone() {
            let remote = RemoteRef { reconciled: true, ..remote };
            self.ctx.delegate(remote.clone()).await?;
            self.noted = Some(remote);
        }
        self.ctx.complete_json(&output(result))
    }
}

/// The output of the Step: what the tool has made as JSON, or all its content.
fn output(result: &ToolResult) -> Json {
    match &result.structured_content {
        Some(structured) if !result.has_more_than_text() => structured.clone(),
        structured => {
            let mut output = json!({"text": result.text(), "content": result.content});
            if let Some(structured) = structured {
                output["structuredContent"] = structured.clone();
            }
            output
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_content_is_the_output_if_nothing_is_lost_by_that() {
        let text = json!({"type": "text", "text": "{\"a\":1}"});
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        let of = |content: Vec<Json>, structured_content| {
            output(&ToolResult { content, structured_content, is_error: false })
        };
        assert_eq!(of(vec![text.clone()], Some(json!({"a": 1}))), json!({"a": 1}));
        let whole = of(vec![text.clone(), image.clone()], Some(json!({"a": 1})));
        assert_eq!((&whole["structuredContent"]["a"], &whole["content"][1]), (&json!(1), &image));
        assert_eq!(of(vec![text], None)["text"], "{\"a\":1}");
    }
}
