//! The server for the host of a model that the command of a Run starts: it has the tools of a worker, and no other.
//!
//! It passes requests on to the worker's socket ([`RunToolsClient`]) and holds no rule: the scheduler judges what the
//! Run may see and do.

mod table;

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value as Json};
use tenure_core::{Code, Rejection};
use tenure_sdk::worker::RunToolsClient;

use self::table::{MADE_FOR_RUN, RunTool};
use crate::ToolFilter;
use crate::result::{ToolAnswer, refused};
use crate::server::VERSIONS;
use crate::tools::Arguments;

/// What a model is told of the server as a whole.
const INSTRUCTIONS: &str = "You work on one step of a task of Tenure, under a run. task_get shows the task as far as \
the run may see it. The step in your hands is the one that names this run; if there is none, read the ready steps with \
task_query_steps and claim one with task_claim_step. Report progress with task_update_step; end the step with it once, \
with status completed and an output, failed and a reason, or blocked and a question, and then end your work: it is \
recorded when this process ends. Without a last word the exit code of the process decides.";

/// A server of MCP for a Run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RunServer {
    client: Arc<RunToolsClient>,
    filter: ToolFilter,
}

/// The names of all tools that there are under a Run.
pub fn run_tool_names() -> impl Iterator<Item = &'static str> {
    table::names()
}

impl RunServer {
    /// A server that asks this worker, with those of its tools that the filter lets through.
    pub fn new(client: RunToolsClient, filter: ToolFilter) -> Self {
        Self { client: Arc::new(client), filter }
    }

    fn tools(&self) -> impl Iterator<Item = &'static RunTool> {
        MADE_FOR_RUN.iter().filter(|it| match &self.filter {
            ToolFilter::All => true,
            ToolFilter::ReadOnly => !it.writes,
            ToolFilter::Only(names) => names.iter().any(|name| *name == it.name),
        })
    }

    async fn called(&self, tool: &RunTool, given: Option<Map<String, Json>>) -> CallToolResult {
        let arguments = match Arguments::read(given) {
            Ok(arguments) => arguments,
            Err(no) => return refused(&no, None),
        };
        let max_bytes = arguments.max_bytes;
        match self.asked(tool, arguments).await {
            Ok(answer) => answer.within(max_bytes),
            Err(no) => refused(&no, None),
        }
    }

    async fn asked(&self, tool: &RunTool, arguments: Arguments) -> Result<ToolAnswer, Rejection> {
        let (task, input) = arguments.of_run()?;
        let answer = self.client.ask(tool.operation, task, input).await?;
        let text = answer.get("text").and_then(Json::as_str).map(str::to_owned);
        let shown = ToolAnswer::of(&answer);
        Ok(match text {
            Some(text) if tool.operation == table::BOARD => shown.told(text),
            _ => shown,
        })
    }
}

impl ServerHandler for RunServer {
    fn get_info(&self) -> ServerConfig {
        let about = Implementation::new("tenure", env!("CARGO_PKG_VERSION"));
        let about = about.with_title("Tenure, for the step of a run");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&VERSIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools().map(|it| it.tool.clone()).collect()))
    }

    /// PERM-08: whatever is no tool of a worker is not there, also if an orchestrator has it.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let result = match self.tools().find(|it| it.name == request.name) {
            Some(tool) => self.called(tool, request.arguments).await,
            None => {
                let short: String = request.name.chars().take(80).collect();
                let message = format!("{short:?} is no tool of a worker");
                refused(&Rejection::new(Code::ToolNotAvailable, message), None)
            }
        };
        Ok(result.into())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().find(|it| it.name == name).map(|it| it.tool.clone())
    }
}
