//! The HTTP+JSON binding: addresses for tasks, and methods of HTTP. 0.3 has two forms of objects there
//! ([`RestForm`]): that of the official SDKs below `/v1`, and that of its JSON-RPC without it.

mod form;

use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use self::form::RestForm;
use super::agents::Agent;
use super::dialect::{A2aMethod, check_v1};
use super::error::{A2aError, A2aReason};
use super::ops::{AgentCall, StreamShape, last_event_id};
use super::wire::{A2aCancel, A2aGet, A2aList, A2aPushList, A2aPushName, A2aSubscribe, A2aUpdate};
use super::{BASE, BASE_V03, agent_of, body_text};
use crate::api::{Parameters, bytes_reply};
use crate::live::stream_reply;
use crate::problem::HttpProblem;
use crate::{Backend, Gateway};

/// The media types of answers: that of A2A for those who name it, and JSON for all others.
const A2A_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The routes of both versions.
pub(super) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    let of = |base: &str, card: &str, form| routes_of(base, card).layer(Extension(form));
    of(BASE, "/extendedAgentCard", RestForm::V1)
        .merge(of(&format!("{BASE_V03}/v1"), "/card", RestForm::V03Proto))
        .merge(of(BASE_V03, "/card", RestForm::V03))
}

fn routes_of<B: Backend>(base: &str, card: &str) -> Router<Arc<Gateway<B>>> {
    let at = |path: &str| format!("{base}{path}");
    Router::new()
        .route(&at("/message:send"), post(send))
        .route(&at("/message:stream"), post(stream))
        .route(&at("/tasks"), get(list))
        .route(&at("/tasks/{task}"), get(read_task).post(act_on_task))
        .route(&at("/tasks/{task}/pushNotificationConfigs"), get(list_pushes).post(create_push))
        .route(
            &at("/tasks/{task}/pushNotificationConfigs/{config}"),
            get(read_push).delete(delete_push),
        )
        .route(&at(card), get(extended_card))
}

/// A request of a caller that was let in.
struct RestRequest<B: Backend> {
    call: AgentCall<B>,
    parts: Parts,
    form: RestForm,
}

impl<B: Backend> RestRequest<B> {
    async fn open(
        gateway: Arc<Gateway<B>>,
        agent: Arc<Agent>,
        parts: Parts,
    ) -> Result<Self, A2aError> {
        let form = form_of(&parts);
        if form == RestForm::V1 {
            check_v1(&parts)?;
        }
        let call = AgentCall::open(gateway, agent, &parts, form.dialect()).await?;
        Ok(Self { call, parts, form })
    }

    /// The parameters of a method that come as a body.
    async fn read<T: DeserializeOwned>(
        &self,
        method: A2aMethod,
        body: Body,
    ) -> Result<T, A2aError> {
        self.form.params(method, read_body(&self.parts, body).await?)
    }

    fn query(&self) -> Result<Parameters, A2aError> {
        Ok(Parameters::read(self.parts.uri.query())?)
    }

    /// The answer to a request that was carried out.
    fn reply(&self, answer: &Json) -> Response {
        written(&self.parts.headers, StatusCode::OK, answer)
    }

    async fn subscribe(&self, id: &str) -> Result<Response, A2aError> {
        let (permit, since) = (self.call.permit()?, last_event_id(&self.parts)?);
        let asked = A2aSubscribe { id: id.to_owned() };
        let stream = self.call.subscribe(&asked, since).await?;
        Ok(stream_reply(stream.frames(RestShape(self.form)), permit))
    }
}

/// The form that objects have at the address of a request.
fn form_of(parts: &Parts) -> RestForm {
    parts.extensions.get().copied().unwrap_or_default()
}

/// The body of a request, read.
async fn read_body(parts: &Parts, body: Body) -> Result<Json, A2aError> {
    let text = body_text(parts, body).await?;
    serde_json::from_slice(&text)
        .map_err(|_| A2aError::new(A2aReason::Parse, "the body is no JSON"))
}

type Answer = Result<Response, HttpProblem>;

/// Answers a request with what `does` makes of it, or with why it makes nothing of it.
async fn answer<B: Backend, F>(
    State(gateway): State<Arc<Gateway<B>>>,
    agent: &str,
    request: Request,
    does: impl FnOnce(RestRequest<B>, Body) -> F + Send,
) -> Answer
where
    F: Future<Output = Result<Response, A2aError>> + Send,
{
    let agent = agent_of(&gateway, agent)?;
    let (parts, body) = request.into_parts();
    let asked = parts.headers.clone();
    let form = form_of(&parts);
    let answered = match RestRequest::open(gateway, agent, parts).await {
        Ok(open) => does(open, body).await,
        Err(error) => Err(error),
    };
    Ok(answered.unwrap_or_else(|error| refuse(&asked, form, &error)))
}

async fn send<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path(agent): Path<String>,
    request: Request,
) -> Answer {
    let send = |open: RestRequest<B>, body: Body| async move {
        let asked = open.read(A2aMethod::Send, body).await?;
        Ok(open.reply(&open.form.reply(&open.call.send(asked).await?)))
    };
    answer(state, &agent, request, send).await
}

async fn stream<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path(agent): Path<String>,
    request: Request,
) -> Answer {
    let stream = |open: RestRequest<B>, body: Body| async move {
        let permit = open.call.permit()?;
        let asked = open.read(A2aMethod::Stream, body).await?;
        let stream = open.call.stream(asked).await?;
        Ok(stream_reply(stream.frames(RestShape(open.form)), permit))
    };
    answer(state, &agent, request, stream).await
}

async fn list<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path(agent): Path<String>,
    request: Request,
) -> Answer {
    let list = |open: RestRequest<B>, _| async move {
        let asked = open.form.list(list_of(open.query()?)?);
        Ok(open.reply(&open.form.page(&open.call.list(&asked).await?)))
    };
    answer(state, &agent, request, list).await
}

/// `GET /tasks/{id}`, and `GET /tasks/{id}:subscribe`, as the definition of the service has it.
async fn read_task<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path((agent, task)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let read = |open: RestRequest<B>, _| async move {
        if let Some(id) = task.strip_suffix(":subscribe") {
            return open.subscribe(id).await;
        }
        let history_length = number(&mut open.query()?, "historyLength")?;
        let asked = A2aGet { id: task, history_length };
        Ok(open.reply(&open.form.task(&open.call.get(&asked).await?)))
    };
    answer(state, &agent, request, read).await
}

/// `POST /tasks/{id}:cancel` and `POST /tasks/{id}:subscribe`.
async fn act_on_task<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path((agent, task)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let act = |open: RestRequest<B>, _| async move {
        if let Some(id) = task.strip_suffix(":subscribe") {
            return open.subscribe(id).await;
        }
        let Some(id) = task.strip_suffix(":cancel") else {
            let message = "a task can be canceled or subscribed to: `:cancel`, `:subscribe`";
            return Err(A2aError::new(A2aReason::MethodNotFound, message));
        };
        let asked = A2aCancel { id: id.to_owned() };
        Ok(open.reply(&open.form.task(&open.call.cancel(&asked).await?)))
    };
    answer(state, &agent, request, act).await
}

async fn create_push<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path((agent, task_id)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let create = |open: RestRequest<B>, body: Body| async move {
        let mut body = read_body(&open.parts, body).await?;
        if let Some(fields) = body.as_object_mut() {
            fields.remove("task_id"); // The same field by its other name.
            fields.insert("taskId".into(), task_id.into());
        }
        let config = open.form.params(A2aMethod::PushCreate, body)?;
        Ok(open.reply(&open.form.push(&open.call.push_create(config).await?)))
    };
    answer(state, &agent, request, create).await
}

async fn list_pushes<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path((agent, task_id)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let list = |open: RestRequest<B>, _| async move {
        let page = open.call.push_list(&A2aPushList { task_id }).await?;
        Ok(open.reply(&open.form.pushes(&page)))
    };
    answer(state, &agent, request, list).await
}

async fn read_push<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path((agent, task_id, id)): Path<(String, String, String)>,
    request: Request,
) -> Answer {
    let read = |open: RestRequest<B>, _| async move {
        let config = open.call.push_get(&A2aPushName { task_id, id }).await?;
        Ok(open.reply(&open.form.push(&config)))
    };
    answer(state, &agent, request, read).await
}

async fn delete_push<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path((agent, task_id, id)): Path<(String, String, String)>,
    request: Request,
) -> Answer {
    let delete = |open: RestRequest<B>, _| async move {
        open.call.push_delete(&A2aPushName { task_id, id }).await?;
        Ok(open.reply(&json!({})))
    };
    answer(state, &agent, request, delete).await
}

async fn extended_card<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path(agent): Path<String>,
    request: Request,
) -> Answer {
    let read = |open: RestRequest<B>, _| async move {
        Ok(open.reply(&open.form.card(open.call.extended_card(&open.parts)?)))
    };
    answer(state, &agent, request, read).await
}

/// What a query string asks of a list.
fn list_of(mut query: Parameters) -> Result<A2aList, A2aError> {
    Ok(A2aList {
        context_id: query.take("contextId")?,
        status: query.take("status")?,
        page_size: number(&mut query, "pageSize")?,
        page_token: query.take("pageToken")?,
        history_length: number(&mut query, "historyLength")?,
        status_timestamp_after: query.take("statusTimestampAfter")?,
        include_artifacts: read(&mut query, "includeArtifacts")?.unwrap_or_default(),
    })
}

fn number(query: &mut Parameters, name: &str) -> Result<Option<u32>, A2aError> {
    read(query, name)
}

fn read<T: FromStr>(query: &mut Parameters, name: &str) -> Result<Option<T>, A2aError> {
    let Some(text) = query.take(name)? else { return Ok(None) };
    let wrong = |_| A2aError::invalid(name, format!("{name} cannot be read"));
    text.parse().map(Some).map_err(wrong)
}

fn refuse(asked: &HeaderMap, form: RestForm, error: &A2aError) -> Response {
    written(asked, error.reason.http_status(form.dialect()), &form.refusal(error))
}

fn written(asked: &HeaderMap, status: StatusCode, body: &Json) -> Response {
    let names_it = |name| {
        let mut values = asked.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.contains("application/a2a+json"))
    };
    let media_type = if names_it(ACCEPT) || names_it(CONTENT_TYPE) { A2A_JSON } else { JSON };
    bytes_reply(status, media_type, body.to_string())
}

/// How a stream is written here.
struct RestShape(RestForm);

impl StreamShape for RestShape {
    fn update(&self, update: &A2aUpdate) -> Json {
        self.0.update(update)
    }

    fn error(&self, error: &A2aError) -> Json {
        self.0.refusal(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_string_asks_for_a_list() {
        let query = "contextId=c&status=TASK_STATE_WORKING&pageSize=2&includeArtifacts=true&new=1";
        let asked = list_of(Parameters::read(Some(query)).unwrap()).unwrap();
        assert_eq!((asked.context_id.as_deref(), asked.page_size), (Some("c"), Some(2)));
        assert!(asked.include_artifacts);
        for wrong in ["pageSize=-1", "pageSize=x", "includeArtifacts=yes", "historyLength=1.5"] {
            let refused = list_of(Parameters::read(Some(wrong)).unwrap()).unwrap_err();
            assert_eq!(refused.reason, A2aReason::InvalidParams, "{wrong}");
        }
    }

    /// Answers are JSON, and of the media type of A2A only for those who name that.
    #[test]
    fn the_media_type_is_the_one_that_was_named() {
        let media_type = |name: Option<axum::http::HeaderName>| {
            let asked: HeaderMap = name.into_iter().map(|name| (name, A2A_JSON)).collect();
            let response = written(&asked, StatusCode::OK, &json!({}));
            response.headers()[CONTENT_TYPE].clone()
        };
        assert_eq!(media_type(None), JSON);
        assert_eq!(media_type(Some(ACCEPT)), A2A_JSON);
        assert_eq!(media_type(Some(CONTENT_TYPE)), A2A_JSON);
    }
}
