//! Offered tools: each call of one is a Task, which the extension `io.modelcontextprotocol/tasks` shows.
//!
//! ```text
//!  tools/call ─► schema ─► start ─► a Task ─┬─► its handle, for clients that know the extension
//!                                           ├─► follow ─► content: the result, for those that wait
//!                                           └─► question: what a Step asks, as an elicitation
//!  tasks/get, update, cancel ─► tasks, answer ─► commands and views of the Task
//!  subscriptions/listen ─► listen: what tasks/get would answer, at each change
//! ```
//!
//! Which tools there are is said by the file of agents, in its section `[[tools]]` ([`file`]). The log of the Task is
//! all that a call leaves: any gateway answers for it, also after a restart. Its id is random, and every request is
//! checked against its caller.

mod answer;
mod call;
mod content;
mod file;
mod follow;
mod listen;
mod load;
mod question;
mod resume;
mod schema;
mod start;
mod state;
mod tasks;
mod tool;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rmcp::ErrorData;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CustomRequest, CustomResult,
    GetTaskParams, GetTaskResult, Tool, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use tenure_core::Code;
use tenure_core::status::Role;
use tenure_core::view::TaskView;
use tenure_ports::ClientPort;
use tokio_util::sync::CancellationToken;

use self::answer::{AnswerError, reopen_answered, take_answers};
use self::call::{ClientMeans, OfferCall};
pub use self::file::OFFERS_MAX;
pub(crate) use self::listen::LISTEN;
use self::listen::ListenFilter;
pub use self::listen::listening_to_tasks;
use self::tasks::{detailed, find, no_task, trouble};
pub use self::tool::{OfferAnswers, OfferTable, OfferedTool};
use crate::{McpCaller, Shares};

/// How long a question waits for an answer, also if the time of its call is over.
const WAIT_SLACK: Duration = Duration::from_secs(1);

/// How many calls of a server wait for their results, of which one caller has three times as many as are free. Further
/// ones are told at once which Task has their work.
const WAITS_MAX: usize = 1_024;

/// What is said of a Task whose call is answered before its end.
const HOW_TO_GO_ON: &str = "\nnext: call wait with this task_id until it has ended, then task_get for its output; \
                            a step that asks goes on when you call answer";

/// Why a Task is cancelled.
const CANCELLED: &str = "cancelled by the caller";

/// How a call waits for its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallWait<'a> {
    /// At most so long.
    pub(crate) most: Duration,
    /// Cancelled when nobody is to wait any more.
    pub(crate) ending: &'a CancellationToken,
}

/// The tools that a server offers beside its own. Clones share them.
#[derive(Debug, Clone)]
pub struct Offers {
    table: Arc<RwLock<Arc<OfferTable>>>,
    waits: Shares,
}

impl Default for Offers {
    fn default() -> Self {
        Self::from(OfferTable::default())
    }
}

impl From<OfferTable> for Offers {
    fn from(table: OfferTable) -> Self {
        Self { table: Arc::new(RwLock::new(Arc::new(table))), waits: Shares::new(WAITS_MAX) }
    }
}

impl Offers {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// Offers others from now on. A request goes by those that were there when it came, and calls of a tool that is
    /// gone go on.
    pub fn replace(&self, table: OfferTable) {
        *self.table.write() = Arc::new(table);
    }

    /// The names of the tools.
    pub fn names(&self) -> Vec<String> {
        self.now().names().map(str::to_owned).collect()
    }

    fn now(&self) -> Arc<OfferTable> {
        Arc::clone(&self.table.read())
    }

    /// Whether there are none; then the server does not speak of the extension.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.read().all.is_empty()
    }

    /// The tools for a caller, in the order of their names.
    pub(crate) fn tools<P: ClientPort>(&self, caller: &McpCaller<P>) -> Vec<Tool> {
        match caller.role {
            Role::Orchestrator => self.now().all.values().map(|tool| tool.shown()).collect(),
            _ => Vec::new(), // Whoever may not make a Task can call none.
        }
    }

    /// The tool of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Tool> {
        self.now().find(name).map(|tool| tool.shown())
    }

    /// Whether a tool of this name is offered.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.table.read().find(name).is_some()
    }

    /// Calls an offered tool. A client that cannot take a task waits for the result.
    ///
    /// # Errors
    /// There is no such tool, the call brings what it was never answered with, or there is no way to the scheduler now.
    /// What its caller can mend is a result.
    pub(crate) async fn call<P: ClientPort>(
        &self,
        caller: &McpCaller<P>,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        wait: CallWait<'_>,
    ) -> Result<CallToolResponse, ErrorData> {
        let table = self.now();
        let Some(tool) = table.find(&request.name) else {
            let short: String = request.name.chars().take(80).collect();
            return Err(ErrorData::invalid_params(format!("there is no tool {short:?}"), None));
        };
        let can = ClientMeans::of(context);
        let call = OfferCall { offers: self, tool, caller, context, can, wait };
        Box::pin(call.answer(request)).await
    }

    /// `tasks/get`.
    ///
    /// # Errors
    /// There is no such task for the caller, or it cannot be read now.
    pub(crate) async fn get<P: ClientPort>(
        &self,
        caller: &McpCaller<P>,
        request: GetTaskParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let table = self.now();
        let view = self.found(caller, &request.task_id).await?;
        match reopen_answered(&caller.client, &view).await {
            // An observer looks on, and whoever answers next lets it go on.
            Err(refused) if refused.code != Code::PermissionDenied => return Err(trouble(refused)),
            _ => {}
        }
        let modes = ClientMeans::of(context).modes();
        detailed(&table, &caller.client, &view, modes).await.map(GetTaskResult::new)
    }

    /// `tasks/update`: answers to what the task asks for.
    ///
    /// # Errors
    /// There is no such task for the caller, an answer is not what was asked for, or Tenure does not take it.
    pub(crate) async fn update<P: ClientPort>(
        &self,
        caller: &McpCaller<P>,
        request: UpdateTaskParams,
        _: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let task = self.found(caller, &request.task_id).await?.task.task_id;
        match take_answers(&caller.client, &task, &request.input_responses).await {
            Ok(_) => Ok(()),
            Err(AnswerError::Invalid(why)) => Err(ErrorData::invalid_params(why, None)),
            Err(AnswerError::Refused(refused)) => Err(trouble(refused)),
        }
    }

    /// `tasks/cancel`: asks that a task be cancelled. It may go on for a while, and one that has ended stays as it is.
    ///
    /// # Errors
    /// There is no such task for the caller, or Tenure does not take it now.
    pub(crate) async fn cancel<P: ClientPort>(
        &self,
        caller: &McpCaller<P>,
        request: CancelTaskParams,
        _: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let about = self.found(caller, &request.task_id).await?.task;
        if about.native_status.is_terminal() {
            return Ok(());
        }
        match caller.client.cancel(&about.task_id, CANCELLED).await {
            // Somebody has asked before, or it has ended.
            Err(no) if matches!(no.code, Code::TaskCancelling | Code::TaskTerminal) => Ok(()),
            asked => asked.map(drop).map_err(trouble),
        }
    }

    /// `subscriptions/listen` with ids of tasks: tells the client what each of them shows, whenever that changes, until
    /// it goes away or the server ends.
    ///
    /// # Errors
    /// The client does not know the extension Tasks, or what it wants is no filter.
    pub(crate) async fn listen<P: ClientPort>(
        &self,
        caller: &McpCaller<P>,
        request: CustomRequest,
        context: &RequestContext<RoleServer>,
        ending: &CancellationToken,
    ) -> Result<CustomResult, ErrorData> {
        let filter = ListenFilter::read(request, context)?;
        let modes = ClientMeans::of(context).modes();
        Box::pin(listen::serve(self, caller, filter, (context, modes, ending))).await
    }

    async fn found<P: ClientPort>(
        &self,
        caller: &McpCaller<P>,
        id: &str,
    ) -> Result<TaskView, ErrorData> {
        find(&self.now(), caller, id).await?.ok_or_else(|| no_task(id))
    }
}
