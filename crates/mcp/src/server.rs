//! The server: hands each request of MCP to the module that answers it.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, GetTaskParams, GetTaskResult,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer};
use tenure_core::{Code, Rejection};

use crate::offers::Offers;
use crate::tools::{self, ToolCall};
use crate::{McpCaller, McpCallers};

/// Which of the tools a server has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolFilter {
    /// All that the caller's role has.
    #[default]
    All,
    /// Those that change nothing.
    ReadOnly,
    /// Those of these names.
    Only(Vec<String>),
}

/// How a server answers.
#[derive(Debug, Clone)]
pub struct McpSettings {
    /// Which tools there are.
    pub tools: ToolFilter,
    /// The longest that a call waits for something.
    pub wait_max: Duration,
    /// The tools whose work is a Task.
    pub offers: Offers,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self { tools: ToolFilter::All, wait_max: WAIT_MAX, offers: Offers::none() }
    }
}

/// The longest that a call waits by default: hosts and proxies often give up after a minute.
const WAIT_MAX: Duration = Duration::from_secs(55);

/// A server of MCP. Cheap to clone; over HTTP there is one for each request, or for each session of an older
/// version.
#[derive(Debug, Clone)]
pub struct McpServer<C> {
    callers: C,
    settings: Arc<McpSettings>,
}

impl<C: McpCallers> McpServer<C> {
    /// A server for these callers.
    pub fn new(callers: C, settings: Arc<McpSettings>) -> Self {
        Self { callers, settings }
    }

    async fn caller(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<McpCaller<C::Port>, ErrorData> {
        self.callers.caller(&context.extensions).await.map_err(no_caller)
    }
}

/// The error of a request whose caller has no way to the scheduler.
fn no_caller(refused: Rejection) -> ErrorData {
    let data = serde_json::to_value(&refused).ok();
    match refused.code {
        Code::Unavailable | Code::NotOwner | Code::StorageError => {
            ErrorData::internal_error(refused.to_string(), data)
        }
        _ => ErrorData::invalid_request(refused.to_string(), data),
    }
}

impl<C: McpCallers> ServerHandler for McpServer<C> {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .build();
        if !self.settings.offers.is_empty() {
            capabilities.extensions =
                ServerCapabilities::builder().enable_tasks().build().extensions;
        }
        let about = Implementation::new("tenure", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(about)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.caller(&context).await?;
        let mut all = tools::listed(&caller, &self.settings.tools);
        all.extend(self.settings.offers.tools(&caller));
        Ok(ListToolsResult::with_all_items(all))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(&context).await?;
        if self.settings.offers.has(&request.name) {
            return self.settings.offers.call(&caller, request, &context).await;
        }
        let call = ToolCall { caller: &caller, context: &context, wait_max: self.settings.wait_max };
        Box::pin(tools::call(call, &self.settings.tools, request)).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::named(name)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.settings.offers.get(&self.caller(&context).await?, request, &context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.settings.offers.update(&self.caller(&context).await?, request, &context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.settings.offers.cancel(&self.caller(&context).await?, request, &context).await
    }
}
