//! What the conformance kit of MCP wants a server to have and a scheduler has no use for: tools that return images,
//! prompts, resources and questions of fixed names. It is served as Tenure serves its own tools, so that what is
//! judged is the transport of Tenure. `./check mcp-kit` runs it; `tests/mcp/kit.py` says with which scenarios.
//!
//! `cargo run -p tenure-gateway --example mcp_fixtures` prints the address at which it listens.
#![allow(clippy::print_stdout, clippy::print_stderr)]
#![allow(deprecated)] // Older versions of the protocol have subscriptions and logging that the newest has not.

mod data;
mod rounds;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use http_body_util::{BodyExt as _, Collected};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tenure_core::id::SessionId;
use tenure_gateway::identity::Identity;
use tenure_gateway::{HttpProblem, McpEndpoint};
use tenure_mcp::rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities,
    CompleteRequestParams, CompleteResult, ContentBlock, CreateMessageRequestParams,
    ElicitRequestParams, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    Implementation, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, RequestStateCodec, SamplingMessage,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use tenure_mcp::rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use tenure_mcp::rmcp::{ErrorData, RoleServer, ServerHandler};

use data::Fixtures;
use rounds::Given;

/// How long a client may keep what it read.
const TTL_MS: u64 = 60_000;
/// Between two messages of one tool, so that a client gets each while the tool still runs.
const BETWEEN_MESSAGES: Duration = Duration::from_millis(50);
/// No secret: nothing is behind it.
const STATE_KEY: &[u8; 32] = b"the fixtures hide nothing at all";

#[derive(Clone)]
struct Server {
    fixtures: Arc<Fixtures>,
    codec: RequestStateCodec,
    subscribers: Arc<Mutex<BTreeMap<u64, SubscriptionSink>>>,
    next: Arc<AtomicU64>,
    watched: Arc<Mutex<BTreeSet<String>>>,
}

type Context = RequestContext<RoleServer>;

impl Server {
    fn new() -> Result<Server, Box<dyn Error>> {
        Ok(Server {
            fixtures: Arc::new(Fixtures::load()?),
            codec: RequestStateCodec::try_new(STATE_KEY.to_vec())?,
            subscribers: Arc::default(),
            next: Arc::default(),
            watched: Arc::default(),
        })
    }

    fn subscribers(&self) -> Vec<SubscriptionSink> {
        held(&self.subscribers).values().cloned().collect()
    }

    /// What a tool does besides answering.
    async fn act(&self, name: &str, context: &Context) -> Result<(), ErrorData> {
        match name {
            "test_tool_with_logging" => log(context, LoggingLevel::Info, 3).await,
            "test_logging_tool" => {
                if let Some(level) = context.meta.log_level() {
                    log(context, level, 1).await;
                }
            }
            "test_tool_with_progress" => progress(context).await,
            "test_trigger_tool_change" => {
                for subscriber in self.subscribers() {
                    let _ = subscriber.notify_tool_list_changed().await;
                }
            }
            "test_trigger_prompt_change" => {
                for subscriber in self.subscribers() {
                    let _ = subscriber.notify_prompt_list_changed().await;
                }
            }
            "test_missing_capability" if client(context).sampling.is_none() => {
                let needed = ClientCapabilities::builder().enable_sampling().build();
                return Err(ErrorData::missing_required_client_capability(needed));
            }
            _ => {}
        }
        Ok(())
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn client(context: &Context) -> ClientCapabilities {
    context.client_capabilities().unwrap_or_default()
}

async fn log(context: &Context, level: LoggingLevel, times: usize) {
    for time in 1..=times {
        let message = LoggingMessageNotificationParam::new(level, json!(format!("message {time}")));
        let _ = context.peer.notify_logging_message(message).await;
        tokio::time::sleep(BETWEEN_MESSAGES).await;
    }
}

async fn progress(context: &Context) {
    let Some(token) = context.meta.get_progress_token() else { return };
    for percent in [0.0, 50.0, 100.0] {
        let said = ProgressNotificationParam::new(token.clone(), percent).with_total(100.0);
        let _ = context.peer.notify_progress(said).await;
        tokio::time::sleep(BETWEEN_MESSAGES).await;
    }
}

async fn sample(context: &Context, arguments: &JsonObject) -> CallToolResult {
    let prompt = arguments.get("prompt").and_then(|it| it.as_str()).unwrap_or_default();
    let asked = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
    match context.peer.create_message(asked).await {
        Ok(answer) => said(format!("LLM response: {}", json!(answer.message.content))),
        Err(why) => failed(&why),
    }
}

/// Asks by a request to the client, as the versions of the protocol before 2026-07-28 do.
async fn elicit(
    context: &Context,
    mut asks: ElicitRequestParams,
    arguments: &JsonObject,
) -> CallToolResult {
    if let (ElicitRequestParams::FormElicitationParams { message, .. }, Some(given)) =
        (&mut asks, arguments.get("message").and_then(|it| it.as_str()))
    {
        *message = given.into();
    }
    match context.peer.create_elicitation(asks).await {
        Ok(answer) => said(format!("User response: {}", json!(answer))),
        Err(why) => failed(&why),
    }
}

fn said(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn failed(why: &dyn Error) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why.to_string())])
}

/// Puts the arguments of a prompt into what it says.
fn filled(result: &GetPromptResult, arguments: &JsonObject) -> Result<GetPromptResult, ErrorData> {
    let mut text = json!(result).to_string();
    for (name, value) in arguments {
        let quoted = json!(value.as_str().unwrap_or_default()).to_string();
        text = text.replace(&format!("{{{name}}}"), quoted.trim_matches('"'));
    }
    serde_json::from_str(&text).map_err(|why| ErrorData::internal_error(why.to_string(), None))
}

fn unknown(what: &str, name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("unknown {what}: {name}"), None)
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_logging()
            .enable_completions()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("fixtures", "1"))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.fixtures.tool(name).map(|it| it.tool.clone())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        held(&self.subscribers).insert(key, context.sink().clone());
        context.cancelled().await;
        held(&self.subscribers).remove(&key);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.fixtures.tools.iter().map(|it| it.tool.clone()).collect();
        Ok(ListToolsResult::with_all_items(tools)
            .with_ttl_ms(TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let fixture =
            self.fixtures.tool(&request.name).ok_or_else(|| unknown("tool", &request.name))?;
        let given = Given {
            responses: request.input_responses.as_ref(),
            state: request.request_state.as_deref(),
            client: client(&context),
        };
        if let Some(asked) = rounds::next(&self.codec, &fixture.rounds, &given)? {
            return Ok(asked.into());
        }
        let arguments = request.arguments.unwrap_or_default();
        self.act(&request.name, &context).await?;
        if let Some(asks) = &fixture.asks {
            return Ok(elicit(&context, asks.clone(), &arguments).await.into());
        }
        if request.name == "test_sampling" {
            return Ok(sample(&context, &arguments).await.into());
        }
        Ok(fixture.result.clone().into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.fixtures.resources.iter().map(|it| it.resource.clone()).collect();
        Ok(ListResourcesResult::with_all_items(resources)
            .with_ttl_ms(TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates =
            ListResourceTemplatesResult::with_all_items(self.fixtures.templates.clone());
        Ok(templates.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let missing = || {
            ErrorData::resource_not_found("no such resource", Some(json!({ "uri": request.uri })))
        };
        let content = self.fixtures.content(&request.uri).ok_or_else(missing)?;
        let result = ReadResourceResult::new(vec![content]);
        Ok(result.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: Context,
    ) -> Result<(), ErrorData> {
        held(&self.watched).insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: Context,
    ) -> Result<(), ErrorData> {
        held(&self.watched).remove(&request.uri);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = self.fixtures.prompts.iter().map(|it| it.prompt.clone()).collect();
        Ok(ListPromptsResult::with_all_items(prompts)
            .with_ttl_ms(TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let fixture =
            self.fixtures.prompt(&request.name).ok_or_else(|| unknown("prompt", &request.name))?;
        let given = Given {
            responses: request.input_responses.as_ref(),
            state: request.request_state.as_deref(),
            client: client(&context),
        };
        if let Some(asked) = rounds::next(&self.codec, &fixture.rounds, &given)? {
            return Ok(asked.into());
        }
        Ok(filled(&fixture.result, &request.arguments.unwrap_or_default())?.into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }
}

async fn answer(
    State(endpoint): State<Arc<McpEndpoint<Server>>>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let (parts, body) = request.into_parts();
    let session = SessionId::new("default")?;
    let text = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    endpoint.answer(&Identity::local(), session, parts, text).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::new()?;
    let endpoint = Arc::new(McpEndpoint::new(move || server.clone()));
    let routes = Router::new().route("/mcp", any(answer)).with_state(endpoint);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("listens at http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let routes = TowerToHyperService::new(routes.clone());
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), routes);
        tokio::spawn(async {
            connection.await.unwrap_or_else(|why| eprintln!("a connection: {why}"));
        });
    }
}
