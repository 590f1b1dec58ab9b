//! Carries out an operation: from the request of the bus to the port, and from the answer to JSON.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Request as HttpRequest, State};
use axum::http::header::{CACHE_CONTROL, ETAG, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde::Serialize;
use tenure_core::command::check_tool;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{AgentId, CommandId, SessionId, TaskId};
use tenure_core::view::board::template;
use tenure_core::view::write::TaskHeader;
use tenure_core::view::{Snapshot, WriteSummary};
use tenure_core::{Caller, Context, Query, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::Answers;
use tenure_sdk::client::Client;
use tenure_wire::bus::request::{Ask, Request, RequestHead, TemplateInput};
use uuid::Uuid;

use super::etag::{self, ETag};
use super::header::of_keyed;
use super::page::{self, Filter};
use super::query::Parameters;
use super::read::{Inquiry, Place, ReadRequest, check_accept, read};
use super::reply::json_bytes;
use super::routes::{OperationRoute, ROUTES, make_catalog};
use super::{json_reply, plan};
use crate::guard::{AnswerShare, SHORT_ANSWER};
use crate::identity::Identity;
use crate::live::wait_for_change;
use crate::problem::HttpProblem;
use crate::{Backend, Gateway};

/// Said of an answer that repeats the first one.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A tag makes an answer worth keeping, for its caller alone, and each time with a question whether it is
/// still so.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("private, no-cache");

/// The parameter that asks what a patch would do.
const PLAN: &str = "plan";

/// The routes of the table.
pub(super) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    make_catalog(); // So that no request waits for it.
    ROUTES.iter().fold(Router::new(), |router, route| {
        let handler =
            move |State(gateway): State<Arc<Gateway<B>>>, request| handle(gateway, request, route);
        let filter = axum::routing::MethodFilter::try_from(route.method.clone());
        match filter {
            Ok(filter) => router.route(&route.whole_path(), axum::routing::on(filter, handler)),
            Err(_) => router, // The table has methods that axum knows.
        }
    })
}

async fn handle<B: Backend>(
    gateway: Arc<Gateway<B>>,
    request: HttpRequest,
    route: &'static OperationRoute,
) -> Result<Response, HttpProblem> {
    let (mut parts, body) = request.into_parts();
    let asked = Inquiry::from_request_parts(&mut parts, &()).await?;
    check_accept(&parts.headers)?;
    let place = Place::read(&asked.path)?;
    let Inquiry { who, mut query, answers, .. } = asked;
    let client = place.client(&gateway, &who).await?;
    let poll = match route.operation {
        "task_get" => LongPoll::take(&mut query, gateway.settings.wait_max)?,
        _ => None,
    };
    let is_plan = route.operation == "task_update" && takes_plan(&mut query)?;
    let ReadRequest { request, key, filter } = read(route, &place, &parts, query, body).await?;
    let call = OperationCall { client, who, session: place.session, key, filter, answers };
    let call = call.within(&request.head);
    let reply = if let Some(poll) = poll {
        call.changed(request.head, poll).await?
    } else if is_plan {
        let _turn = gateway.folds.take(call.who.principal.as_str()).await?;
        call.plan(request).await?
    } else {
        call.answer(request).await?
    };
    Ok(reply.respond(&parts))
}

/// A read that waits for a change.
#[derive(Debug, Clone, Copy)]
struct LongPoll {
    /// The version that the caller knows.
    since: u64,
    /// How long to wait for a later one.
    wait: Duration,
}

impl LongPoll {
    fn take(query: &mut Parameters, wait_max: Duration) -> Result<Option<Self>, HttpProblem> {
        let (wait, since) = (query.take_time("wait")?, query.take_number("since")?);
        match (wait, since) {
            (None, None) => Ok(None),
            // Without a time the answer comes at once.
            (wait, Some(since)) => {
                let wait = wait.unwrap_or_default().min(wait_max);
                Ok(Some(Self { since, wait }))
            }
            (Some(_), None) => {
                let message = "a wait needs the version that you know: ?wait=30s&since=VERSION";
                Err(Rejection::invalid("since", message).into())
            }
        }
    }
}

fn takes_plan(query: &mut Parameters) -> Result<bool, HttpProblem> {
    match query.take(PLAN)?.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Rejection::invalid(PLAN, "plan is true or false").into()),
    }
}

/// The answer of a long poll in which nothing changed.
fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An operation for a client.
struct OperationCall<P> {
    client: Client<P>,
    who: Identity,
    session: SessionId,
    key: Option<CommandId>,
    filter: Filter,
    /// Where the answer takes its bytes.
    answers: AnswerShare,
}

/// An answer.
struct OperationReply {
    response: Response,
    tag: Option<ETag>,
    location: Option<String>,
    is_replayed: bool,
}

/// A page with the token of the next one.
#[derive(Serialize)]
struct Paged<'a, T> {
    #[serde(flatten)]
    page: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

/// Views of a session (`task_views`).
#[derive(Serialize)]
struct SessionViews {
    snapshot: Snapshot,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

macro_rules! answered {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($part_asks:ty))* }
        other { $($other:ident($other_asks:ty))* }
    ) => {
        impl<P: ClientPort> OperationCall<P> {
            /// Asks the port, each query as its kind asks for.
            async fn answer(self, Request { head, ask }: Request) -> Result<OperationReply, HttpProblem> {
                match ask {
                    $(Ask::$task(query) => self.ask(head, query).await,)*
                    $(Ask::$history(query) => self.ask(head, query).await,)*
                    $(Ask::$part(_) => self.other(ask).await,)*
                    $(Ask::$other(_) => self.other(ask).await,)*
                    Ask::Create(_) | Ask::RetryEnded(_) | Ask::Command(_) => {
                        Box::pin(self.write(head, ask)).await // It is large, and reads are many.
                    }
                }
            }
        }
    };
}

tenure_wire::queries!(answered);

impl<P: ClientPort> OperationCall<P> {
    fn within(self, head: &RequestHead) -> Self {
        match head.max_bytes {
            Some(max_bytes) => Self { client: self.client.within(max_bytes), ..self },
            None => self,
        }
    }

    /// Asks about a Task.
    async fn ask<Q: Query>(
        &self,
        head: RequestHead,
        query: Q,
    ) -> Result<OperationReply, HttpProblem>
    where
        P: Answers<Q>,
    {
        self.show(&self.client.ask(&named(head.task_id)?, query).await?)
    }

    /// Asks what is of no single Task, each of these in its own way.
    async fn other(&self, ask: Ask) -> Result<OperationReply, HttpProblem> {
        match ask {
            Ask::Tasks(input) => self.show(&self.client.port().tasks(input).await?),
            Ask::Views(views) => {
                let (input, after) = views.into_input();
                if after.is_some() {
                    let message = "all views come at once here; a list of tasks comes in pages";
                    return Err(Rejection::invalid("after", message).into());
                }
                let (snapshot, missing_partitions) = self.client.views_of(input).await?;
                let views = SessionViews { snapshot, missing_partitions };
                let response = long_json_reply(&self.answers, StatusCode::OK, &views)?;
                Ok(OperationReply::of(response))
            }
            Ask::Template(TemplateInput {}) => {
                check_tool(&self.caller()?, TemplateInput::TOOL)?;
                self.show(&template())
            }
            _ => Err(elsewhere()),
        }
    }

    /// The reply that shows an answer.
    fn show<T: Serialize + Any>(&self, answer: &T) -> Result<OperationReply, HttpProblem> {
        let next_page_token = page::next(answer).map(|position| self.filter.token(position));
        let response = match next_page_token {
            None => json_reply(StatusCode::OK, answer),
            next_page_token => json_reply(StatusCode::OK, &Paged { page: answer, next_page_token }),
        };
        Ok(OperationReply { tag: ETag::of_answer(answer), ..OperationReply::of(response) })
    }

    async fn write(self, head: RequestHead, ask: Ask) -> Result<OperationReply, HttpProblem> {
        let task = head.task_id.clone();
        let context = context(head)?;
        let makes_task = matches!(ask, Ask::Create(_) | Ask::RetryEnded(_));
        let is_known_by_header = self.is_known_by_header(&ask);
        let summary = match ask {
            Ask::Create(input) => {
                let input = keyed(*input, self.key.as_ref());
                self.client.create_under(context, input).await
            }
            Ask::RetryEnded(input) => {
                self.client.retry_ended_as(named(task)?, context, *input).await
            }
            Ask::Command(command) => self.client.command_as(&named(task)?, context, *command).await,
            _ => return Err(elsewhere()),
        };
        let summary = summary.map_err(|no| if is_known_by_header { of_keyed(no) } else { no })?;
        let status = if makes_task { StatusCode::CREATED } else { StatusCode::OK };
        let location = makes_task.then(|| location(&self.session, &summary));
        let is_replayed = summary.spec_version.is_none(); // A write knows it, a repetition does not.
        let (tag, response) = (ETag::of_answer(&summary), json_reply(status, &summary));
        Ok(OperationReply { response, tag, location, is_replayed })
    }

    /// Whether the header alone says what repeats this command.
    fn is_known_by_header(&self, ask: &Ask) -> bool {
        let has_key = matches!(ask, Ask::Create(input) if input.idempotency_key.is_some());
        self.key.is_some() && !has_key
    }

    /// What a patch would do.
    async fn plan(self, request: Request) -> Result<OperationReply, HttpProblem> {
        let Request { head, ask: Ask::Command(patch) } = request else { return Err(elsewhere()) };
        let plan = plan::of(&self.client, &self.caller()?, &head, *patch).await?;
        Ok(OperationReply::of(json_reply(StatusCode::OK, &plan)))
    }

    /// The Task, once it has changed; without a change, nothing.
    async fn changed(
        self,
        head: RequestHead,
        poll: LongPoll,
    ) -> Result<OperationReply, HttpProblem> {
        let LongPoll { since, wait } = poll;
        let changed = wait_for_change(&self.client, &named(head.task_id)?, since, wait).await?;
        match changed {
            Some(task) => self.show(&task),
            None => Ok(OperationReply::of(no_content())),
        }
    }

    /// The caller as the core knows it.
    fn caller(&self) -> Result<Caller, Rejection> {
        let (agent, role) = (AgentId::new(self.who.principal.as_str())?, self.who.role);
        let session_id = self.session.clone();
        Ok(Caller { agent, role, session_id, run_id: None, worker_pool_id: None, origin: None })
    }
}

impl OperationReply {
    fn of(response: Response) -> Self {
        Self { response, tag: None, location: None, is_replayed: false }
    }

    /// The response to a request: 304 if its caller has this answer already.
    fn respond(self, asked: &Parts) -> Response {
        let Self { mut response, tag, location, is_replayed } = self;
        let is_read = asked.method == Method::GET || asked.method == Method::HEAD;
        if is_read && tag.is_some_and(|tag| etag::is_known(&asked.headers, tag)) {
            response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        if let Some(tag) = tag.and_then(ETag::to_value) {
            headers.insert(ETAG, tag);
            headers.insert(CACHE_CONTROL, ASK_AGAIN);
        }
        if let Some(location) = location.and_then(|it| HeaderValue::try_from(it).ok()) {
            headers.insert(LOCATION, location);
        }
        if is_replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

/// An answer in JSON that may be long. It takes its bytes before it is written.
///
/// # Errors
/// `unavailable`: there is no room for it.
fn long_json_reply(
    answers: &AnswerShare,
    status: StatusCode,
    body: &impl Serialize,
) -> Result<Response, Rejection> {
    let bytes = json_bytes(body);
    if bytes <= SHORT_ANSWER {
        return Ok(json_reply(status, body));
    }
    let taken = answers.take(bytes)?;
    let mut response = json_reply(status, body);
    response.extensions_mut().insert(taken);
    Ok(response)
}

/// The context of a write, under a new id if its caller gave none.
fn context(head: RequestHead) -> Result<Context, Rejection> {
    head.context(|| Ok(CommandId::new(Uuid::now_v7().to_string())?))
}

/// The Task of a request.
fn named(task: Option<TaskId>) -> Result<TaskId, HttpProblem> {
    task.ok_or_else(|| HttpProblem::not_found("the path names no task"))
}

/// An input that takes over the key of its request, unless it names its Task itself: the id of the Task is
/// made from the key (IDEM-03), so whoever repeats the request gets this Task.
fn keyed(mut input: CreateTask, key: Option<&CommandId>) -> CreateTask {
    if input.task_id.is_none() && input.idempotency_key.is_none() {
        input.idempotency_key = key.map(|key| key.as_str().into());
    }
    input
}

/// Where the Task is that a write has made.
fn location(session: &SessionId, summary: &WriteSummary) -> String {
    let task = match &summary.task {
        TaskHeader::Summary(task) => &task.task_id,
        TaskHeader::Worker(task) => &task.task_id,
        TaskHeader::Reference(task) => &task.task_id,
    };
    format!("/v1/sessions/{session}/tasks/{task}")
}

/// For an operation that the table has by mistake: another route serves it.
fn elsewhere() -> HttpProblem {
    HttpProblem::not_found("this operation has no answer here")
}
