//! The suite of the bus, with a client whose writes and reads are calls of tools: what comes of them is what comes of
//! the same requests without MCP. What no tool does goes past it.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod streams;

use std::sync::Arc;

use futures::channel::mpsc::UnboundedReceiver;
use futures::stream::BoxStream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};
use tenure_core::command::Write;
use tenure_core::id::{AgentId, PoolId, SessionId, TaskId};
use tenure_core::status::{Policy, Role};
use tenure_core::view::{ListInput, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary};
use tenure_core::{Code, Command, Context, Query, Rejection};
use tenure_local::MemoryLeases;
use tenure_mcp::{McpCaller, McpServer, McpSettings, OneCaller};
use tenure_ports::ClientPort;
use tenure_ports::bus::Delivery;
use tenure_ports::client::{Answers, Changed, Listing, LogPage};
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::client::Client;
use tenure_testkit::conformance::{Bus, bus_suite};
use tenure_testkit::{MemoryBlobs, MemoryJournal};
use tenure_wire::bus::event::Published;
use tenure_wire::bus::request::ReadLog;

use streams::Streams;

type Inner = ClientLink<MemoryJournal, MemoryLeases>;

/// A client that speaks with a server of MCP where that has a tool.
#[derive(Clone)]
struct ToolClient {
    inner: Inner,
    streams: Arc<tokio::sync::Mutex<Streams>>,
}

impl ToolClient {
    fn new(inner: Inner, agent: AgentId, role: Role) -> Self {
        let caller = OneCaller(McpCaller { client: Client::new(inner.clone()), agent, role });
        let server = McpServer::new(caller, Arc::new(McpSettings::default()));
        Self { inner, streams: Arc::new(tokio::sync::Mutex::new(Streams::of(server))) }
    }

    /// Calls a tool with an input as the bus has it.
    async fn call<T: DeserializeOwned>(
        &self,
        tool: &str,
        task: &TaskId,
        context: Option<&Context>,
        input: impl Serialize,
    ) -> Result<T, Rejection> {
        let mut arguments = serde_json::to_value(input).unwrap();
        arguments["task_id"] = json!(task);
        arguments["max_bytes"] = json!(256 << 10);
        if let Some(context) = context {
            arguments["command_id"] = json!(context.command_id);
            arguments["expected_version"] = json!(context.expected_version);
        }
        let (is_error, answer) = self.streams.lock().await.call(tool, arguments).await;
        match is_error {
            true => Err(refusal(&answer["error"])),
            false => Ok(serde_json::from_value(answer).unwrap()),
        }
    }
}

/// The refusal that a tool tells.
fn refusal(error: &Json) -> Rejection {
    let code = error["code"].as_str().unwrap();
    let code = Code::from_name(code).unwrap();
    let message = error["message"].as_str().unwrap();
    let details = error["details"].as_object().cloned().unwrap_or_default();
    Rejection { details, ..Rejection::new(code, message) }
}

macro_rules! answers {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($brings:ty))* }
        other { $($_other:ident($_query:ty))* }
    ) => {
        $(answers!($task($asks));)*
        $(answers!($history($reads));)*
        $(answers!($part($brings));)*
    };
    (Get($query:ty)) => {
        impl Answers<$query> for ToolClient {
            async fn answer(&self, task: &TaskId, query: $query) -> Result<<$query as Query>::Output, Rejection> {
                let told: Map<String, Json> = self.call("task_get", task, None, &query).await?;
                match told.contains_key("more") {
                    true => self.inner.answer(task, query).await, // It is too long for a model.
                    false => Ok(serde_json::from_value(told.into()).unwrap()),
                }
            }
        }
    };
    ($ask:ident($query:ty)) => {
        impl Answers<$query> for ToolClient {
            async fn answer(&self, task: &TaskId, query: $query) -> Result<<$query as Query>::Output, Rejection> {
                self.inner.answer(task, query).await
            }
        }
    };
}

tenure_wire::queries!(answers);

impl ClientPort for ToolClient {
    fn session(&self) -> &SessionId {
        self.inner.session()
    }

    fn within(&self, max_bytes: usize) -> Self {
        Self { inner: self.inner.within(max_bytes), ..self.clone() }
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        let context = &context;
        match what.into() {
            Write::Create(mut input) => {
                // A tool leaves to its caller what the bus has done by itself.
                input.dispatch.get_or_insert(Policy::Auto);
                input.completion.get_or_insert(Policy::Auto);
                self.call("task_create", task, Some(context), &*input).await
            }
            Write::Command(command) => match &*command {
                Command::TaskCancel(close) => {
                    self.call("task_cancel", task, Some(context), close).await
                }
                Command::TaskComplete(end) => {
                    self.call("task_complete", task, Some(context), end).await
                }
                _ => self.inner.write(task, context.clone(), *command).await,
            },
            other => self.inner.write(task, context.clone(), other).await,
        }
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        self.inner.tasks(input).await
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        self.inner.views(input).await
    }

    async fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        self.inner.log(task, which).await
    }

    async fn published(&self, task: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        self.inner.published(task).await
    }

    async fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        self.inner.runtime(task).await
    }

    async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        self.inner.list(include_terminal).await
    }

    async fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        self.inner.changes(task).await
    }
}

/// A scheduler whose callers speak MCP.
struct OverMcp(Scheduler<MemoryJournal, MemoryLeases>);

impl OverMcp {
    async fn start() -> Self {
        let mut config = Config::embedded(PoolId::new("default").unwrap());
        config.limits.lease_ms = 120_000;
        config.blobs = Some(Arc::new(MemoryBlobs::of_quota(1 << 30)));
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        Self(Scheduler::start(journal, leases, config).await.unwrap())
    }
}

impl Bus for OverMcp {
    type Worker = WorkerLink<MemoryJournal, MemoryLeases>;
    type Client = ToolClient;

    fn pool(&self) -> PoolId {
        PoolId::new("default").unwrap()
    }

    async fn worker(
        &self,
        principal: &str,
        boot: &str,
    ) -> (Self::Worker, UnboundedReceiver<Delivery>) {
        let id = AgentId::new(format!("{principal}.{boot}")).unwrap();
        self.0.join(id, self.pool(), None).unwrap()
    }

    async fn client(&self, role: Role, session: &str) -> Self::Client {
        let (agent, session) = (AgentId::new("bob").unwrap(), SessionId::new(session).unwrap());
        ToolClient::new(self.0.client(role, agent.clone(), session), agent, role)
    }

    async fn stop(&self) {
        self.0.stop().await;
    }
}

/// CTRL-01, CTRL-09, IDEM-01, PERM: a call of a tool has the result of the operation that it is, and is
/// refused with the same codes.
#[tokio::test]
async fn tools_are_the_operations_of_the_bus() {
    bus_suite(|| async { (OverMcp::start().await, ()) }).await;
}
