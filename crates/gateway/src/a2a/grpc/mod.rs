//! The gRPC binding of 1.0, a cargo feature: the service of `proto/a2a.proto`.
//!
//! Its methods have the names of those of JSON-RPC, and its messages have a form in JSON (ProtoJSON), which is that
//! of the other bindings. So a request becomes one of theirs as soon as it is read ([`codec`]), and an answer becomes
//! a message as the last thing. The `tenant` of a request is the name of the agent.

mod codec;
mod size;
mod status;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures::future::{BoxFuture, ready};
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};
use serde_json::Value as Json;
use tonic::Status;
use tonic::server::{Grpc, ServerStreamingService};

use self::codec::JsonCodec;
use self::status::to_status;
pub(crate) use self::status::with_refusals;
use super::agents::Agent;
use super::dialect::{A2aDialect, A2aMethod, check_v1};
use super::error::A2aError;
use super::ops::{AgentCall, Performed};
use crate::guard::{BodyShare, FollowingAnswer};
use crate::{Backend, Gateway};

/// What the build script has made of `proto/a2a.proto`.
const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/a2a.binpb"));

/// The service by its name in the description.
const SERVICE_NAME: &str = "lf.a2a.v1.A2AService";

/// The service; none if the description had no such, which a test excludes.
static SERVICE: LazyLock<Option<ServiceDescriptor>> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTION).ok()?.get_service_by_name(SERVICE_NAME));

/// The route of all methods.
pub(crate) fn routes<B: Backend>(gateway: Arc<Gateway<B>>) -> Router {
    Router::new()
        .route(&format!("/{SERVICE_NAME}/{{method}}"), post(answer))
        .fallback(async || unimplemented("service"))
        .with_state(gateway)
}

fn unimplemented(what: &str) -> Response {
    Status::unimplemented(format!("there is no such {what}")).into_http()
}

/// The method of this name, as the description and the other bindings have it.
fn method(name: &str) -> Option<(A2aMethod, MethodDescriptor)> {
    let described = SERVICE.as_ref()?.methods().find(|method| method.name() == name)?;
    Some((A2aDialect::V1.method(name)?, described))
}

async fn answer<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let media_type = request.headers().get(CONTENT_TYPE);
    if !media_type.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc")) {
        let message = "gRPC is spoken here: send it with `content-type: application/grpc`";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, message).into_response();
    }
    let Some((method, described)) = method(&name) else { return unimplemented("method") };
    let share = request.extensions().get::<BodyShare>().cloned();
    let (parts, body) = request.into_parts();
    let call = GrpcCall { gateway, parts: Arc::new(parts.clone()), method };
    let mut grpc =
        Grpc::new(JsonCodec::new(&described, share)).max_decoding_message_size(super::BODY_MAX);
    // One message in answer is a stream of one.
    let answered = grpc.server_streaming(call, Request::from_parts(parts, body)).await;
    let mut response = answered.map(Body::new);
    if described.is_server_streaming() {
        response.extensions_mut().insert(FollowingAnswer);
    }
    response
}

/// A request, up to its message.
struct GrpcCall<B: Backend> {
    gateway: Arc<Gateway<B>>,
    parts: Arc<Parts>,
    method: A2aMethod,
}

/// The messages of an answer, as JSON.
type AnswerStream = BoxStream<'static, Result<Json, Status>>;

impl<B: Backend> ServerStreamingService<Json> for GrpcCall<B> {
    type Response = Json;
    type ResponseStream = AnswerStream;
    type Future = BoxFuture<'static, Result<tonic::Response<AnswerStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Json>) -> Self::Future {
        let (gateway, parts) = (Arc::clone(&self.gateway), Arc::clone(&self.parts));
        let answers = perform(gateway, parts, self.method, request.into_inner());
        answers
            .map(|done| done.map(tonic::Response::new).map_err(|error| to_status(&error)))
            .boxed()
    }
}

async fn perform<B: Backend>(
    gateway: Arc<Gateway<B>>,
    parts: Arc<Parts>,
    method: A2aMethod,
    mut params: Json,
) -> Result<AnswerStream, A2aError> {
    check_v1(&parts)?;
    let agent = agent_of(&gateway, &mut params)?;
    let call = AgentCall::open(gateway, agent, &parts, A2aDialect::V1).await?;
    Ok(match call.perform(method, params, &parts).await? {
        Performed::Answer(answer) => stream::once(ready(Ok(answer))).boxed(),
        Performed::Updates { stream, permit } => {
            let written = stream.told().map(move |update| {
                let _open = &permit;
                let told = update.told.map(|told| A2aDialect::V1.update(&told));
                told.map_err(|error| to_status(&error))
            });
            written.boxed()
        }
    })
}

/// The agent that a request names as its tenant. Where there is only one, a request need not name it.
fn agent_of<B: Backend>(gateway: &Gateway<B>, params: &mut Json) -> Result<Arc<Agent>, A2aError> {
    let tenant = params.as_object_mut().and_then(|fields| fields.remove("tenant"));
    let (agents, named) = (gateway.settings.agents.now(), tenant.as_ref().and_then(Json::as_str));
    let agent = named.map_or_else(|| agents.only(), |name| agents.find(name));
    agent.cloned().ok_or_else(|| {
        let message = "there is no such agent: the tenant is its name, and may be left out only \
                       if there is one agent alone";
        A2aError::invalid("tenant", message)
    })
}

#[cfg(test)]
mod tests;
