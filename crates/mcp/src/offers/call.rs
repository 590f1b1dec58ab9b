//! A call of an offered tool: it begins a Task, or goes on with one, and answers as its client can take it.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, CreateTaskResult,
    InputRequiredResult, InputResponses, ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value as Json, json};
use tenure_core::id::{CommandId, TaskId};
use tenure_core::record::{Blob, Value};
use tenure_core::view::write::TaskHeader;
use tenure_core::view::{TaskView, WriteSummary};
use tenure_core::{Code, Context, Rejection};
use tenure_ports::ClientPort;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::answer::{AnswerError, take_answers};
use super::content;
use super::follow::{CallProgress, SeenCall, look, settle};
use super::load::load;
use super::question::{AskingModes, Question, StepQuestions, in_words};
use super::resume::RequestState;
use super::start::NewCall;
use super::state::{CallState, requests, seed, shown};
use super::tasks::{find, outcome, protocol_error, trouble};
use super::tool::{OfferAnswers, OfferedTool};
use super::{CallWait, Offers, WAIT_SLACK};
use crate::McpCaller;
use crate::file::EntryWork;

/// What a client names a call with, so that its repetition is the same call.
const COMMAND_ID: &str = "dev.tenure/command_id";

/// A call of a tool by a caller.
pub(super) struct OfferCall<'a, P> {
    pub(super) offers: &'a Offers,
    pub(super) tool: &'a OfferedTool,
    pub(super) caller: &'a McpCaller<P>,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) can: ClientMeans,
    /// How the client waits for its result.
    pub(super) wait: CallWait<'a>,
}

/// What the client of a request can do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClientMeans {
    /// It knows the extension Tasks.
    tasks: bool,
    /// It shows forms to its user, and how it is asked to.
    forms: Option<AskedBy>,
    /// It opens addresses for its user.
    urls: bool,
}

/// How a client is asked for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskedBy {
    /// By the result of its call, which it then repeats.
    Result,
    /// By a request, which it answers while its call waits.
    Request,
}

impl ClientMeans {
    /// What the client of a request says that it can do.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let Some(declared) = context.client_capabilities() else { return Self::default() };
        let since = ProtocolVersion::V_2026_07_28;
        let is_new = context.protocol_version().is_some_and(|it| it.as_str() >= since.as_str());
        let how = if is_new { AskedBy::Result } else { AskedBy::Request };
        let (forms, urls) = shows(&declared);
        Self { tasks: declared.supports_tasks(), forms: forms.then_some(how), urls }
    }

    /// How the client can be asked.
    pub(super) const fn modes(self) -> AskingModes {
        AskingModes { forms: self.forms.is_some(), urls: self.urls }
    }

    /// Whether the client knows the extension Tasks.
    pub(super) const fn knows_tasks(self) -> bool {
        self.tasks
    }
}

/// Whether a client shows forms, and whether it opens addresses. One that says no more than that it asks its user shows
/// forms.
fn shows(declared: &ClientCapabilities) -> (bool, bool) {
    let Some(asks) = &declared.elicitation else { return (false, false) };
    (asks.form.is_some() || asks.url.is_none(), asks.url.is_some())
}

impl<P: ClientPort> OfferCall<'_, P> {
    /// Answers the call.
    ///
    /// # Errors
    /// It brings a state that is none, its client cannot take a task where it has to, or there is no way to the
    /// scheduler now.
    pub(super) async fn answer(
        &self,
        request: CallToolRequestParams,
    ) -> Result<CallToolResponse, ErrorData> {
        let CallToolRequestParams { arguments, input_responses, request_state, .. } = request;
        let arguments = arguments.unwrap_or_default();
        if let Some(state) = request_state {
            let responses = input_responses.unwrap_or_default();
            return self.go_on(&state, arguments, responses).await;
        }
        if self.tool.answers == OfferAnswers::Task && !self.can.tasks {
            let needed = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        if let Err(wrong) = self.tool.input.check(&Json::Object(arguments.clone())) {
            return Ok(content::misfit(self.tool, &wrong).into());
        }
        let made = match self.begin(arguments.clone()).await {
            Ok(made) => made,
            Err(refused) => return Ok(content::refused(Some(self.tool), &refused).into()),
        };
        let (task, summary) = made;
        if self.can.tasks && matches!(self.tool.answers, OfferAnswers::Either | OfferAnswers::Task)
        {
            return self.handle(&task, summary.as_ref()).await;
        }
        self.result_of(&task, &arguments).await
    }

    /// Begins the Task: when this returns, it is durable.
    async fn begin(
        &self,
        arguments: Map<String, Json>,
    ) -> Result<(TaskId, Option<WriteSummary>), Rejection> {
        let named = self.context.meta.get(COMMAND_ID);
        let not_text = || Rejection::invalid(COMMAND_ID, "the id of a command is a text");
        let named = named.map(|named| named.as_str().ok_or_else(not_text)).transpose()?;
        let new = NewCall {
            tool: self.tool,
            caller: &self.caller.agent,
            session: self.caller.session(),
            arguments,
            command_id: named,
        };
        let input = new.input()?;
        let new = new.into_create()?;
        let task = new.task_id()?.clone();
        let command = CommandId::new(Uuid::now_v7().to_string())?;
        let trace = self.context.meta.get_traceparent().map(Into::into);
        let context = Context { trace, ..Context::new(command) };
        match self.caller.client.create_under(context, new).await {
            Ok(made) => Ok((task, Some(made))),
            // The Task may have been made all the same.
            Err(no) if no.code.is_retryable() => Err(no.with("task_id", task.as_str())),
            Err(no) if no.code == Code::IdempotencyConflict => {
                self.begun_before(&task, &input).await?;
                Ok((task, None))
            }
            Err(no) => Err(no),
        }
    }

    /// IDEM-03: a call under this id has begun another Task than it would begin now. With the same arguments it is the
    /// same call all the same: the file of agents has changed since, and the call goes on as it began.
    async fn begun_before(&self, task: &TaskId, input: &[u8]) -> Result<(), Rejection> {
        let view = load(&self.caller.client, task).await?;
        let step = match &self.tool.work {
            EntryWork::Handler { .. } => None,
            EntryWork::Template { input_to, .. } => Some(input_to),
        };
        let mut inputs =
            view.steps.iter().filter(|it| step.is_none_or(|id| it.spec.step_id == *id));
        let is_same = |value: &Value| match value.blob() {
            Some(blob) => blob == Blob::of(input),
            None => value.data() == Some(input),
        };
        match inputs.any(|it| it.spec.input.as_ref().is_some_and(is_same)) {
            true => Ok(()),
            false => {
                let message = format!(
                    "the id in {COMMAND_ID} was used for a call with other arguments, or of another template: give \
                     this call another id, or look at task {task}"
                );
                Err(Rejection::new(Code::IdempotencyConflict, message).with("field", COMMAND_ID))
            }
        }
    }

    /// The answer for a client that knows the extension Tasks.
    async fn handle(
        &self,
        task: &TaskId,
        made: Option<&WriteSummary>,
    ) -> Result<CallToolResponse, ErrorData> {
        let about = match made.map(|made| &made.task) {
            Some(TaskHeader::Summary(summary)) => seed(summary),
            _ => match look(&self.caller.client, task).await {
                Ok((view, state)) => shown(&view, &state),
                Err(refused) => return self.unseen(task, refused),
            },
        };
        Ok(CreateTaskResult::new(about).into())
    }

    /// A client repeats its call, with answers.
    async fn go_on(
        &self,
        state: &str,
        arguments: Map<String, Json>,
        responses: InputResponses,
    ) -> Result<CallToolResponse, ErrorData> {
        let no_state = || {
            let why = "requestState is none that this call was answered with, or it is too old";
            ErrorData::invalid_params(why, None)
        };
        let named = RequestState::named(state).ok_or_else(no_state)?;
        let table = self.offers.now();
        let found = find(&table, self.caller, named.as_str()).await?;
        let view = found.ok_or_else(no_state)?;
        if !self.state(&arguments).open(state, &view) {
            return Err(no_state());
        }
        match self.take(&named, &responses).await? || self.is_late_task() {
            true => Ok(self.unfinished(&look(&self.caller.client, &named).await.map_err(trouble)?)),
            false => self.result_of(&named, &arguments).await,
        }
    }

    fn state<'b>(&'b self, arguments: &'b Map<String, Json>) -> RequestState<'b> {
        RequestState { caller: &self.caller.agent, tool: &self.tool.name, arguments }
    }

    /// Takes answers, and says whether one was dismissed.
    async fn take(&self, task: &TaskId, responses: &InputResponses) -> Result<bool, ErrorData> {
        let taken = take_answers(&self.caller.client, task, responses).await;
        taken.map_err(|why| match why {
            AnswerError::Invalid(why) => ErrorData::invalid_params(why, None),
            AnswerError::Refused(refused) => trouble(refused),
        })
    }

    /// The answer for a client that waits: the result, a question, or where to go on.
    async fn result_of(
        &self,
        task: &TaskId,
        arguments: &Map<String, Json>,
    ) -> Result<CallToolResponse, ErrorData> {
        let until = Instant::now() + self.wait.most;
        let Some(_place) = self.offers.waits.take(self.caller.agent.as_str()) else {
            return self.left(task).await;
        };
        let mut progress = self.progress();
        loop {
            let wait = until.saturating_duration_since(Instant::now());
            let seen = tokio::select! {
                biased; // A server that ends cancels its requests, too: then the answer names the Task.
                seen = settle(&self.caller.client, task, wait, progress.as_mut()) => seen,
                () = self.wait.ending.cancelled() => return self.left(task).await,
                // Whoever called has gone, and the Task goes on.
                () = self.context.ct.cancelled() => {
                    return Err(ErrorData::internal_error("the request was cancelled", None));
                }
            };
            let seen = match seen {
                Ok(seen) => seen,
                Err(refused) => return self.unseen(task, refused),
            };
            let CallState::Asking(asked) = &seen.1 else {
                return self.ended(&seen).await;
            };
            match self.can.forms {
                None => return Ok(self.unfinished(&seen)),
                Some(AskedBy::Result) => return self.ask(&seen.0, asked, arguments),
                Some(AskedBy::Request) => {
                    let answers = self.ask_now(asked, until).await;
                    let is_over = answers.is_empty() || self.take(task, &answers).await?;
                    if is_over {
                        return Ok(self.unfinished(&seen));
                    }
                }
            }
        }
    }

    /// To whom progress is told, if the client wants that.
    fn progress(&self) -> Option<CallProgress> {
        let token = self.context.meta.get_progress_token()?;
        Some(CallProgress::new(self.context.peer.clone(), token))
    }

    /// The result of a Task that asks for nothing, if it has ended.
    async fn ended(&self, seen: &SeenCall) -> Result<CallToolResponse, ErrorData> {
        let (view, state) = seen;
        if let CallState::Failed(reason) = state
            && let Some(error) = protocol_error(reason)
        {
            return Err(error);
        }
        let result = outcome(Some(self.tool), &self.caller.client, view, state).await;
        match result {
            Ok(Some(result)) => Ok(result.into()),
            Ok(None) => Ok(self.unfinished(seen)),
            Err(refused) => self.unseen(&view.task.task_id, refused),
        }
    }

    /// The questions as a result, with which the client repeats its call.
    fn ask(
        &self,
        view: &TaskView,
        asked: &[StepQuestions],
        arguments: &Map<String, Json>,
    ) -> Result<CallToolResponse, ErrorData> {
        let no_form = |why| ErrorData::internal_error(why, None);
        let requests = requests(asked, self.can.modes()).map_err(no_form)?;
        let state = self.state(arguments).seal(view);
        Ok(InputRequiredResult::new(Some(requests), state).into())
    }

    /// Asks the client one question after the other, and returns what it answered in time.
    async fn ask_now(&self, asked: &[StepQuestions], until: Instant) -> InputResponses {
        let mut answers = InputResponses::new();
        for question in asked.iter().flat_map(StepQuestions::open) {
            let Ok(params) = question.params(self.can.urls) else { continue };
            let left = until.saturating_duration_since(Instant::now()).max(WAIT_SLACK);
            let answer = self.context.peer.create_elicitation(params);
            let Ok(Ok(answer)) = timeout(left, answer).await else { return answers };
            if let Ok(answer) = serde_json::to_value(answer) {
                answers.insert(question.key.clone(), answer);
            }
        }
        answers
    }

    /// The answer to a call that nobody waits for here.
    async fn left(&self, task: &TaskId) -> Result<CallToolResponse, ErrorData> {
        match look(&self.caller.client, task).await {
            Ok(seen) => Ok(self.unfinished(&seen)),
            Err(refused) => self.unseen(task, refused),
        }
    }

    /// The answer to a call whose Task is there, and cannot be read. If that passes, the answer names the Task: a call
    /// that is repeated does the work twice.
    fn unseen(&self, task: &TaskId, refused: Rejection) -> Result<CallToolResponse, ErrorData> {
        if !refused.code.is_retryable() {
            return Err(trouble(refused));
        }
        let mut said = format!("task {task} has the work, and cannot be read now: {refused}");
        said.push_str(super::HOW_TO_GO_ON);
        let facts = json!({"task_id": task, "session_id": self.caller.session()});
        Ok(content::goes_on(Some(self.tool), said, facts).into())
    }

    /// Whether what is left of the call is a task for its client.
    fn is_late_task(&self) -> bool {
        self.can.tasks && self.tool.answers == OfferAnswers::Late
    }

    /// The answer to a call whose work goes on: it names the Task, and says how to go on.
    fn unfinished(&self, seen: &SeenCall) -> CallToolResponse {
        if self.is_late_task() {
            return CreateTaskResult::new(shown(&seen.0, &seen.1)).into();
        }
        unfinished(self.tool, seen).into()
    }
}

fn unfinished(tool: &OfferedTool, (view, state): &SeenCall) -> CallToolResult {
    let about = &view.task;
    let task = &about.task_id;
    let mut facts = json!({
        "task_id": task,
        "session_id": about.session_id,
        "status": about.status,
    });
    let mut said = match state {
        CallState::Asking(_) => format!("the work waits for an answer, as task {task}"),
        _ => format!("the work goes on as task {task}"),
    };
    if let CallState::Asking(asked) = state {
        let questions: Vec<&Question> = asked.iter().flat_map(StepQuestions::open).collect();
        for question in &questions {
            said.push_str(&format!("\n{}", question.prompt()));
        }
        facts["questions"] = questions.into_iter().map(in_words).collect();
        facts["steps"] = asked.iter().map(|step| json!(step.step_id)).collect();
    }
    said.push_str(super::HOW_TO_GO_ON);
    content::goes_on(Some(tool), said, facts)
}
