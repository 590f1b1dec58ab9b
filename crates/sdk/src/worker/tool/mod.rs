//! The handler `mcp`: calls a tool of a server that speaks MCP.
//!
//! A Step names a server and a tool; the settings of the worker say what is behind that name, so that no Step can have
//! a program run or an address called that its worker does not know. If the server answers with a task of its own, a
//! checkpoint of the Attempt names it, and another Attempt goes on with the same task when the worker dies, is
//! restarted, or the Step was blocked by a question of the server.

mod ask;
mod call;
mod mark;
mod outcome;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use tenure_core::id::BadId;

use self::call::CallWork;
use super::builtin::said_if_long;
use super::context::StepContext;
use super::exec::withhold_for_servers;
use super::handler::{HandlerError, Handlers};
use crate::mcp::{ToolClient, ToolServers};

/// Name of the handler that calls a tool.
pub const MCP: &str = "mcp";

/// What the handler is to do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolOrder {
    /// The name of the server in the settings of the worker.
    pub(super) server: String,
    /// The tool.
    pub(super) tool: String,
    /// What it gets.
    #[serde(default)]
    pub(super) arguments: Map<String, Json>,
}

/// The clients of the servers that a worker knows.
type ToolClients = BTreeMap<String, Arc<ToolClient>>;

impl Handlers {
    /// Adds `mcp`, for these servers. Their programs run as long as the handlers are there, each from its first call.
    /// The commands of this process do not inherit the variables that these servers get by name.
    ///
    /// # Errors
    /// Never, as the name is valid.
    pub fn with_mcp(self, servers: ToolServers) -> Result<Self, BadId> {
        withhold_for_servers(servers.variables());
        let client = |(name, settings): (String, _)| {
            let client = ToolClient::new(name.clone(), settings);
            (name, Arc::new(client))
        };
        let clients: Arc<ToolClients> = Arc::new(servers.servers.into_iter().map(client).collect());
        self.on(MCP, move |ctx| run(ctx, Arc::clone(&clients)))
    }
}

async fn run(ctx: StepContext, clients: Arc<ToolClients>) -> Result<(), HandlerError> {
    let order: ToolOrder = match ctx.input_json() {
        Ok(order) => order,
        Err(error) => {
            let takes = "mcp takes {\"server\": NAME, \"tool\": NAME, \"arguments\": {…}}";
            return Ok(ctx.reject(&format!("{takes}: {error}"))?);
        }
    };
    let client = match known(&order, &clients) {
        Ok(client) => client,
        Err(why) => return Ok(ctx.fail_for_good("mcp_not_allowed", &why, None)?),
    };
    let mut work = CallWork::new(ctx.clone(), order, client);
    let ended = tokio::select! {
        ended = said_if_long(&ctx, work.run()) => Some(ended),
        () = ctx.cancellation().cancelled() => None,
    };
    match ended {
        Some(Ok(end)) => work.finish(end).await?,
        Some(Err(fault)) => work.fail(fault).await?,
        None => work.stop().await,
    }
    Ok(())
}

/// The client of the server that a Step names, if it may call the tool there.
fn known(order: &ToolOrder, clients: &ToolClients) -> Result<Arc<ToolClient>, String> {
    let ToolOrder { server, tool, .. } = order;
    let Some(client) = clients.get(server) else {
        return Err(format!(
            "server: this worker knows no server {server:?}; its file of servers can name it"
        ));
    };
    match client.settings().allows(tool) {
        true => Ok(Arc::clone(client)),
        false => Err(format!(
            "tool: {tool:?} is not in the list `allow` of the server {server:?} at this worker"
        )),
    }
}
