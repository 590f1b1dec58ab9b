//! Offered tools: each call of one is a Task, which the extension `io.modelcontextprotocol/tasks` shows.

use rmcp::ErrorData;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CancelTaskMethod,
    CancelTaskParams, GetTaskMethod, GetTaskParams, GetTaskResult, Tool, UpdateTaskMethod,
    UpdateTaskParams,
};
use rmcp::service::RequestContext;
use tenure_ports::ClientPort;

use crate::McpCaller;

/// The tools that a server offers beside its own. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Offers {}

impl Offers {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether there are none; then the server does not speak of the extension.
    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    /// The tools for a caller.
    pub(crate) fn tools<P: ClientPort>(&self, _: &McpCaller<P>) -> Vec<Tool> {
        Vec::new()
    }

    /// Whether a tool of this name is offered.
    pub(crate) fn has(&self, _name: &str) -> bool {
        false
    }

    /// Calls an offered tool.
    pub(crate) async fn call<P: ClientPort>(
        &self,
        _caller: &McpCaller<P>,
        _request: CallToolRequestParams,
        _context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Err(ErrorData::method_not_found::<CallToolRequestMethod>())
    }

    /// `tasks/get`.
    pub(crate) async fn get<P: ClientPort>(
        &self,
        _caller: &McpCaller<P>,
        _request: GetTaskParams,
        _context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Err(ErrorData::method_not_found::<GetTaskMethod>())
    }

    /// `tasks/update`.
    pub(crate) async fn update<P: ClientPort>(
        &self,
        _caller: &McpCaller<P>,
        _request: UpdateTaskParams,
        _context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Err(ErrorData::method_not_found::<UpdateTaskMethod>())
    }

    /// `tasks/cancel`.
    pub(crate) async fn cancel<P: ClientPort>(
        &self,
        _caller: &McpCaller<P>,
        _request: CancelTaskParams,
        _context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Err(ErrorData::method_not_found::<CancelTaskMethod>())
    }
}
