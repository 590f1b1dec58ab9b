//! The JSON-RPC binding: one address for all methods.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::{Value as Json, json};

use super::agents::Agent;
use super::dialect::{A2aDialect, A2aMethod, named_version};
use super::error::{A2aError, A2aReason};
use super::ops::{AgentCall, Performed, StreamShape};
use super::wire::A2aUpdate;
use super::{agent_of, body_text};
use crate::api::json_reply;
use crate::live::stream_reply;
use crate::problem::HttpProblem;
use crate::{Backend, Gateway};

/// A request of JSON-RPC.
#[derive(Debug)]
struct RpcRequest {
    id: Json,
    method: String,
    params: Json,
}

/// What cannot be answered, and the id of the request if it was understood.
struct RpcRefusal {
    id: Json,
    error: A2aError,
}

/// At the address of 1.0. A caller that names no version is answered in that of the method that it names.
pub(super) async fn v1<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path(agent): Path<String>,
    request: Request,
) -> Result<Response, HttpProblem> {
    answer(state, &agent, request, None).await
}

/// At the address of 0.3.
pub(super) async fn v03<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    Path(agent): Path<String>,
    request: Request,
) -> Result<Response, HttpProblem> {
    answer(state, &agent, request, Some(A2aDialect::V03)).await
}

async fn answer<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    agent: &str,
    request: Request,
    only: Option<A2aDialect>,
) -> Result<Response, HttpProblem> {
    let agent = agent_of(&gateway, agent)?;
    let (parts, body) = request.into_parts();
    let refused = match body_text(&parts, body).await {
        Err(problem) => RpcRefusal { id: Json::Null, error: problem.into() },
        Ok(text) => match read(&text) {
            Err(refused) => refused,
            Ok(request) => {
                let id = request.id.clone();
                match perform(gateway, agent, &parts, request, only).await {
                    Ok(response) => return Ok(response),
                    Err(error) => RpcRefusal { id, error },
                }
            }
        },
    };
    Ok(json_reply(StatusCode::OK, &failed(&refused.id, &refused.error)))
}

/// Reads a request.
fn read(text: &[u8]) -> Result<RpcRequest, RpcRefusal> {
    let refused = |id: Json, reason, message: &str| {
        Err(RpcRefusal { id, error: A2aError::new(reason, message) })
    };
    let Ok(whole) = serde_json::from_slice::<Json>(text) else {
        return refused(Json::Null, A2aReason::Parse, "the body is no JSON");
    };
    let Json::Object(mut fields) = whole else {
        let message = "a request of JSON-RPC is an object, and comes alone";
        return refused(Json::Null, A2aReason::InvalidRequest, message);
    };
    let id = fields.remove("id").unwrap_or_default();
    if !matches!(id, Json::Null | Json::String(_) | Json::Number(_)) {
        let message = "an id is a text or a number";
        return refused(Json::Null, A2aReason::InvalidRequest, message);
    }
    if fields.get("jsonrpc").and_then(Json::as_str) != Some("2.0") {
        return refused(id, A2aReason::InvalidRequest, "jsonrpc is \"2.0\"");
    }
    let Some(Json::String(method)) = fields.remove("method") else {
        return refused(id, A2aReason::InvalidRequest, "method is a text");
    };
    let params = fields.remove("params").unwrap_or_default();
    if !matches!(params, Json::Null | Json::Object(_)) {
        return refused(id, A2aReason::InvalidParams, "params is an object");
    }
    Ok(RpcRequest { id, method, params })
}

/// In which version a request is answered, and what it asks for.
fn understood(
    parts: &Parts,
    method: &str,
    only: Option<A2aDialect>,
) -> Result<(A2aDialect, A2aMethod), A2aError> {
    let named = only.map_or_else(|| named_version(parts), |only| Ok(Some(only)))?;
    let candidates = match named {
        Some(named) => [named, named],
        None => [A2aDialect::V1, A2aDialect::V03],
    };
    let known = candidates.into_iter().find_map(|it| Some((it, it.method(method)?)));
    known.ok_or_else(|| {
        let short: String = method.chars().take(80).collect();
        A2aError::new(A2aReason::MethodNotFound, format!("there is no method {short:?}"))
    })
}

async fn perform<B: Backend>(
    gateway: Arc<Gateway<B>>,
    agent: Arc<Agent>,
    parts: &Parts,
    request: RpcRequest,
    only: Option<A2aDialect>,
) -> Result<Response, A2aError> {
    let RpcRequest { id, method, params } = request;
    let (dialect, method) = understood(parts, &method, only)?;
    let call = AgentCall::open(gateway, agent, parts, dialect).await?;
    Ok(match call.perform(method, params, parts).await? {
        Performed::Answer(result) => json_reply(StatusCode::OK, &succeeded(&id, result)),
        Performed::Updates { stream, permit } => {
            stream_reply(stream.frames(RpcShape { id, dialect }), permit)
        }
    })
}

fn succeeded(id: &Json, result: Json) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn failed(id: &Json, error: &A2aError) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "error": error.to_rpc() })
}

/// How a stream is written here: each update is an answer of its own.
struct RpcShape {
    id: Json,
    dialect: A2aDialect,
}

impl StreamShape for RpcShape {
    fn update(&self, update: &A2aUpdate) -> Json {
        succeeded(&self.id, self.dialect.update(update))
    }

    fn error(&self, error: &A2aError) -> Json {
        failed(&self.id, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_refused_with_its_id() {
        for (text, reason, id) in [
            ("{", A2aReason::Parse, json!(null)),
            ("", A2aReason::Parse, json!(null)),
            ("[]", A2aReason::InvalidRequest, json!(null)),
            (
                r#"{"id": {}, "jsonrpc": "2.0", "method": "GetTask"}"#,
                A2aReason::InvalidRequest,
                json!(null),
            ),
            (r#"{"id": 7, "method": "GetTask"}"#, A2aReason::InvalidRequest, json!(7)),
            (
                r#"{"id": "a", "jsonrpc": "2.0", "method": 1}"#,
                A2aReason::InvalidRequest,
                json!("a"),
            ),
            (
                r#"{"id": 1, "jsonrpc": "2.0", "method": "GetTask", "params": [1]}"#,
                A2aReason::InvalidParams,
                json!(1),
            ),
        ] {
            let refused = read(text.as_bytes()).err().unwrap();
            assert_eq!((refused.error.reason, refused.id), (reason, id), "{text}");
        }
        let asked = read(br#"{"id": 1, "jsonrpc": "2.0", "method": "ListTasks"}"#);
        let asked = asked.map_err(|refused| refused.error).unwrap();
        assert_eq!((asked.method.as_str(), asked.params), ("ListTasks", Json::Null));
    }

    /// VER-SERVER-003: who names no version is answered in that of the method, and who names one has the methods
    /// of that.
    #[test]
    fn a_method_is_looked_for_in_its_version() {
        let of = |version: &str, method: &str, only| {
            let request = Request::post("/").header("A2A-Version", version);
            let (parts, _) = request.body(axum::body::Body::empty()).unwrap().into_parts();
            understood(&parts, method, only).map_err(|error| error.reason)
        };
        use A2aDialect::{V1, V03};
        assert_eq!(of("", "GetTask", None), Ok((V1, A2aMethod::Get)));
        assert_eq!(of("", "tasks/get", None), Ok((V03, A2aMethod::Get)));
        assert_eq!(of("0.3", "GetTask", None), Err(A2aReason::MethodNotFound));
        assert_eq!(of("1.0", "tasks/get", None), Err(A2aReason::MethodNotFound));
        assert_eq!(of("1.0", "tasks/get", Some(V03)), Ok((V03, A2aMethod::Get)));
        assert_eq!(of("9.9", "GetTask", None), Err(A2aReason::VersionNotSupported));
    }
}
