//! Tools: the operations of the contract (5.2) for models, and some that are made of them.
//!
//! [`table`] has what models are told, [`set`] makes the tools of it and of the catalog, [`arguments`] reads a call
//! as the request of the bus, [`perform`] carries that out. The tools that are no operation have a file each.

mod answer;
mod arguments;
mod board;
mod explain;
mod inbox;
mod perform;
mod set;
mod table;
mod wait;

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, Tool};
use rmcp::service::{RequestContext, RoleServer};
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;
use tokio_util::sync::CancellationToken;

pub(crate) use self::arguments::Arguments;
use self::set::MadeTool;
pub use self::set::ToolFilter;
pub(crate) use self::set::{MAX_BYTES, TASK_ID};
use self::table::ToolWork;
use crate::McpCaller;
use crate::result::{ToolAnswer, refused};

/// What a call needs beside its arguments.
pub(crate) struct ToolCall<'a, P> {
    /// Who calls.
    pub(crate) caller: &'a McpCaller<P>,
    /// The request, to which progress is told.
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// The longest that a call may wait for something.
    pub(crate) wait_max: Duration,
    /// Cancelled when nobody is to wait any more.
    pub(crate) ending: &'a CancellationToken,
}

impl<P> ToolCall<'_, P> {
    /// Whether nobody waits for the answer any more, or it has to come now.
    fn is_over(&self) -> bool {
        self.context.ct.is_cancelled() || self.ending.is_cancelled()
    }

    /// Ends when that is so.
    async fn over(&self) {
        tokio::select! {
            () = self.context.ct.cancelled() => {}
            () = self.ending.cancelled() => {}
        }
    }
}

/// The names of all tools.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    table::TOOLS.iter().map(|entry| entry.name)
}

/// The tools of a caller.
pub(crate) fn listed<P: ClientPort>(caller: &McpCaller<P>, filter: &ToolFilter) -> Vec<Tool> {
    let open = set::MADE.iter().filter(|it| it.is_open_to(caller.role, filter));
    open.map(|it| it.tool.clone()).collect()
}

/// The tool of this name, whoever has it.
pub(crate) fn named(name: &str) -> Option<Tool> {
    set::find(name).map(|it| it.tool.clone())
}

/// Calls a tool. Whatever the domain refuses is an error of the tool, which the model reads.
///
/// # Errors
/// There is no such tool at all.
pub(crate) async fn call<P: ClientPort>(
    call: ToolCall<'_, P>,
    filter: &ToolFilter,
    request: CallToolRequestParams,
) -> Result<CallToolResponse, ErrorData> {
    let Some(tool) = set::find(&request.name) else {
        let short: String = request.name.chars().take(80).collect();
        return Err(ErrorData::invalid_params(format!("there is no tool {short:?}"), None));
    };
    let result = match tool.is_open_to(call.caller.role, filter) {
        true => called(&call, tool, request.arguments).await,
        false => {
            let name = tool.entry.name;
            let message = format!("{name} is not a tool of this server for a {}", call.caller.role);
            refused(&Rejection::new(Code::ToolNotAvailable, message), None)
        }
    };
    Ok(result.into())
}

async fn called<P: ClientPort>(
    call: &ToolCall<'_, P>,
    tool: &MadeTool,
    given: Option<serde_json::Map<String, serde_json::Value>>,
) -> CallToolResult {
    let arguments = match Arguments::read(given) {
        Ok(arguments) => arguments,
        Err(no) => return refused(&no, None),
    };
    let max_bytes = arguments.max_bytes;
    let (arguments, command_id) = match tool.writes {
        false => (arguments, None),
        true => match arguments.with_command_id() {
            Ok((arguments, id)) => (arguments, Some(id)),
            Err(no) => return refused(&no, None),
        },
    };
    match carried_out(call, tool, arguments).await {
        Ok(answer) => answer.within(max_bytes),
        Err(no) => refused(&no, command_id.as_ref()),
    }
}

async fn carried_out<P: ClientPort>(
    call: &ToolCall<'_, P>,
    tool: &MadeTool,
    arguments: Arguments,
) -> Result<ToolAnswer, Rejection> {
    match tool.entry.does {
        ToolWork::Operation => {
            let max_bytes = arguments.max_bytes;
            let request = arguments.request(tool, operation_of(tool))?;
            perform::perform(call, request, max_bytes).await
        }
        ToolWork::Explain => explain::call(call, tool, arguments).await,
        ToolWork::Answer => answer::call(call, tool, arguments).await,
        ToolWork::Inbox => inbox::call(call, arguments).await,
        ToolWork::Board => board::call(call, arguments).await,
        ToolWork::Wait => wait::call(call, arguments).await,
    }
}

/// The name by which the operation is asked for: that of an agent's tool, as a Task that it makes has the policies
/// of one (POL-01).
fn operation_of(tool: &MadeTool) -> &'static str {
    match tool.entry.operation {
        "task_create" => "agent.task_create",
        other => other,
    }
}
