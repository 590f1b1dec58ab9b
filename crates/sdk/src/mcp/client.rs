//! A client of one server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::sleep;

use super::answer::{ServerAnswer, ToolTask};
use super::error::ToolError;
use super::link::{ToolLink, within};
use super::message::{ProgressSender, ToolRequest};
use super::settings::ToolServerSettings;

/// A call of a tool.
#[derive(Debug, Clone, Default)]
pub struct ServerCall {
    /// The tool.
    pub tool: String,
    /// What it gets.
    pub arguments: Map<String, Json>,
    /// Answers to questions, by their names, and what the server wanted to see again.
    pub answers: Option<(Map<String, Json>, Option<String>)>,
    /// The W3C `traceparent` below which the server's work goes.
    pub traceparent: Option<String>,
}

impl ServerCall {
    fn request(&self) -> ToolRequest {
        let mut params = json!({"name": self.tool, "arguments": self.arguments});
        if let Some((answers, state)) = &self.answers {
            if !answers.is_empty() {
                params["inputResponses"] = json!(answers);
            }
            if let Some(state) = state {
                params["requestState"] = json!(state);
            }
        }
        if let Some(trace) = &self.traceparent {
            params["_meta"] = json!({"traceparent": trace});
        }
        ToolRequest::new("tools/call", params)
    }
}

/// A client of one server. It has one connection, which it makes when it is needed, and anew when it broke.
#[derive(Debug)]
pub struct ToolClient {
    server: String,
    settings: ToolServerSettings,
    link: Mutex<Option<Arc<ToolLink>>>,
    calls: Semaphore,
}

impl ToolClient {
    /// A client of this server. Nothing is started yet.
    pub fn new(server: impl Into<String>, settings: ToolServerSettings) -> Self {
        let calls = Semaphore::new(settings.calls_max);
        Self { server: server.into(), settings, link: Mutex::default(), calls }
    }

    /// How the server is reached, and what may be asked of it.
    pub const fn settings(&self) -> &ToolServerSettings {
        &self.settings
    }

    /// Calls a tool. Whoever drops the future cancels the call.
    ///
    /// # Errors
    /// The server cannot be reached, its answer is lost or is none, or it refuses.
    pub async fn call(
        &self,
        call: &ServerCall,
        progress: &ProgressSender,
    ) -> Result<ServerAnswer, ToolError> {
        let Ok(_permit) = self.calls.acquire().await else {
            let why = "its client is closed".to_owned();
            return Err(ToolError::Unreachable { server: self.server.clone(), why });
        };
        let request = call.request();
        let answered = self.ask(|link| {
            let request = &request;
            async move {
                tokio::select! {
                    answered = link.ask(request, Some(progress)) => answered,
                    silent = self.silence(progress) => Err(silent),
                }
            }
        });
        ServerAnswer::read(answered.await?).map_err(|why| self.malformed(why))
    }

    /// A task as it is now.
    ///
    /// # Errors
    /// As [`call`](Self::call); the server does not know it.
    pub async fn task(&self, id: &str) -> Result<ToolTask, ToolError> {
        let found = self.simple("tasks/get", json!({"taskId": id})).await?;
        ToolTask::read(found).map_err(|why| self.malformed(why))
    }

    /// Gives a task answers, by the names of its questions.
    ///
    /// # Errors
    /// As [`task`](Self::task).
    pub async fn answer_task(
        &self,
        id: &str,
        answers: &Map<String, Json>,
    ) -> Result<(), ToolError> {
        let params = json!({"taskId": id, "inputResponses": answers});
        self.simple("tasks/update", params).await.map(|_| ())
    }

    /// Asks that a task be canceled. The server decides what becomes of that.
    ///
    /// # Errors
    /// As [`task`](Self::task).
    pub async fn cancel_task(&self, id: &str) -> Result<(), ToolError> {
        self.simple("tasks/cancel", json!({"taskId": id})).await.map(|_| ())
    }

    async fn simple(&self, method: &'static str, params: Json) -> Result<Json, ToolError> {
        let request = ToolRequest::new(method, params);
        let most = self.settings.start_timeout;
        self.ask(|link| {
            let request = &request;
            async move { within(&self.server, most, link.ask(request, None)).await }
        })
        .await
    }

    /// Asks over the connection that there is, and once more over another one if the server has ended the session, or
    /// does not take the token, also as the connection is made: another connection reads it anew.
    async fn ask<F>(&self, ask: impl Fn(Arc<ToolLink>) -> F) -> Result<Json, ToolError>
    where
        F: Future<Output = Result<Json, ToolError>>,
    {
        let mut is_again = false;
        loop {
            let error = match self.link().await {
                Err(error) => error,
                Ok(link) => match ask(Arc::clone(&link)).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => {
                        if error.ends_link() {
                            self.retire(&link).await;
                        }
                        error
                    }
                },
            };
            let is_outdated = matches!(
                error,
                ToolError::SessionGone { .. } | ToolError::Status { status: 401, .. }
            );
            if !is_outdated || std::mem::replace(&mut is_again, true) {
                return Err(error);
            }
        }
    }

    /// The connection, which is made if there is none that can be used.
    async fn link(&self) -> Result<Arc<ToolLink>, ToolError> {
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_ref().filter(|it| !it.is_broken()) {
            return Ok(Arc::clone(link));
        }
        *link = None;
        let opened = Arc::new(ToolLink::open(&self.server, &self.settings).await?);
        Ok(Arc::clone(link.insert(opened)))
    }

    /// Uses a connection no more. It ends with the calls that go on over it.
    async fn retire(&self, used: &Arc<ToolLink>) {
        let mut link = self.link.lock().await;
        if link.as_ref().is_some_and(|it| Arc::ptr_eq(it, used)) {
            *link = None;
        }
    }

    /// Waits until a call has given no sign of life for too long.
    async fn silence(&self, progress: &ProgressSender) -> ToolError {
        let mut told = progress.subscribe();
        let most = self.settings.call_timeout;
        loop {
            tokio::select! {
                Ok(()) = told.changed() => {}
                () = sleep(most) => return self.silent(most),
            }
        }
    }

    fn silent(&self, most: Duration) -> ToolError {
        ToolError::Silent { server: self.server.clone(), seconds: most.as_secs() }
    }

    fn malformed(&self, why: String) -> ToolError {
        ToolError::Malformed { server: self.server.clone(), why }
    }
}
