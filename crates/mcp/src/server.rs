//! The server: hands each request of MCP to the module that answers it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CustomRequest, CustomResult,
    ErrorCode, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use tenure_core::{Code, Rejection};
use tenure_ports::erased::ErasedClient;
use tokio_util::sync::CancellationToken;

use crate::caller::ErasedCallers;
use crate::follow::{self, Subscriptions};
use crate::offers::{CallWait, LISTEN, Offers};
use crate::tools::{self, ToolCall, ToolFilter};
use crate::{McpCaller, McpCallers, prompt, resource};

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

/// The versions of the protocol, oldest first.
pub(crate) const VERSIONS: [ProtocolVersion; 3] =
    [ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// What a model is told of the server as a whole.
const INSTRUCTIONS: &str = "Tenure runs tasks: durable graphs of steps that workers do. Read task_template once, \
create a task with task_create, follow it with wait and board, see inbox for what needs somebody, and explain for \
what does not run. A refused call says in `next` what to do. A task goes on when a call or this conversation ends; \
only task_cancel stops it.";

/// A server of MCP. Cheap to clone; over HTTP there is one for each request, or for each session of an older
/// version.
#[derive(Debug, Clone)]
pub struct McpServer {
    callers: ErasedCallers,
    settings: Arc<McpSettings>,
    /// What a session of an older version has subscribed to.
    subscriptions: Subscriptions,
    /// Cancelled when nobody is to wait any more.
    ending: CancellationToken,
}

impl McpServer {
    /// A server for these callers.
    pub fn new(callers: impl McpCallers, settings: Arc<McpSettings>) -> Self {
        let settings = match settings.tools {
            // Each call of an offered tool begins something.
            ToolFilter::ReadOnly => {
                Arc::new(McpSettings { offers: Offers::none(), ..(*settings).clone() })
            }
            ToolFilter::All | ToolFilter::Only(_) => settings,
        };
        Self {
            callers: ErasedCallers::new(callers),
            settings,
            subscriptions: Subscriptions::default(),
            ending: CancellationToken::new(),
        }
    }

    /// The same, on which nobody waits any more once this is cancelled.
    #[must_use]
    pub fn ending_with(self, ending: CancellationToken) -> Self {
        Self { ending, ..self }
    }

    async fn caller(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<McpCaller<ErasedClient>, ErrorData> {
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

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .build();
        if !self.settings.offers.is_empty() {
            capabilities.extensions =
                ServerCapabilities::builder().enable_tasks().build().extensions;
        }
        let about = Implementation::new("tenure", env!("CARGO_PKG_VERSION"));
        let about = about.with_title("Tenure");
        ServerConfig::new(capabilities).with_server_info(about).with_instructions(INSTRUCTIONS)
    }

    /// Those that this server is tried with.
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&VERSIONS)
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
            let wait = CallWait { most: self.settings.wait_max, ending: &self.ending };
            return self.settings.offers.call(&caller, request, &context, wait).await;
        }
        let call = ToolCall {
            caller: &caller,
            context: &context,
            wait_max: self.settings.wait_max,
            ending: &self.ending,
        };
        Box::pin(tools::call(call, &self.settings.tools, request)).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::named(name).or_else(|| self.settings.offers.named(name))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let caller = self.caller(&context).await?;
        resource::listed(&caller, request.and_then(|it| it.cursor)).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resource::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.caller(&context).await?;
        Ok(resource::read(&caller, &request.uri).await?.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let caller = self.caller(&context).await?;
        Ok(ListPromptsResult::with_all_items(prompt::listed(&caller)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let caller = self.caller(&context).await?;
        Ok(prompt::read(&caller, request).await?.into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = self.caller(&context).await?;
        self.subscriptions.add(caller, request.uri, context.peer).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(follow::accepted(requested))
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let caller = self.caller(subscription.request_context()).await?;
        follow::listen(caller, &subscription, &self.ending).await;
        Ok(())
    }

    /// What a client listens to with ids of tasks ([`listening_to_tasks`](crate::offers::listening_to_tasks)).
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != LISTEN {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        let caller = self.caller(&context).await?;
        self.settings.offers.listen(&caller, request, &context, &self.ending).await
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
