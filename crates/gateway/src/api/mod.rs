//! The routes of operations. The [table](routes::ROUTES) gives each operation of the catalog a method and a
//! path; everything else comes from the catalog.
//!
//! ```text
//!  JSON, query string ─► read ─► request of the bus ─► call ─► port
//!                        (pack, query)                  │
//!  JSON, ETag, page token ◄── etag, page ◄── answer ◄───┘
//! ```
//!
//! [`parts`], [`pools`] and [`blobs`] are resources that no single operation answers, or not in JSON. [`rpc`]
//! takes requests of the bus as they are, for programs of ours.

mod blobs;
mod call;
mod etag;
mod fold;
mod fold_turns;
mod header;
mod pack;
mod page;
mod parts;
mod plan;
mod pools;
mod query;
mod read;
mod reply;
pub(crate) mod routes;
mod rpc;

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::StatusCode;
use tenure_wire::bus::call::MEDIA_TYPE;

pub(crate) use self::fold_turns::{FoldTurn, FoldTurns};
pub(crate) use self::header::idempotency_key;
pub(crate) use self::page::position_in;
pub(crate) use self::parts::PAGE_MAX;
pub(crate) use self::query::{ParameterKind, Parameters};
pub(crate) use self::read::{Inquiry, Place, check_accept, json_body};
pub(crate) use self::reply::{bytes_reply, json_reply};
use crate::described::{Content, DescribedRoute};
use crate::openapi::methods_of;
use crate::problem::HttpProblem;
use crate::{Backend, Gateway};

/// All routes of operations.
pub(crate) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    Router::new()
        .merge(call::routes())
        .merge(parts::routes())
        .merge(blobs::routes())
        .merge(pools::routes())
        .merge(rpc::routes())
}

/// The resources that are no operations of the catalog, for the document.
pub(crate) fn described() -> impl Iterator<Item = DescribedRoute> {
    let tables = parts::DESCRIBED.iter().chain(&blobs::DESCRIBED).chain(&pools::DESCRIBED);
    tables.copied().chain([CALL])
}

/// The route for programs that speak the messages of the bus, for the document.
const CALL: DescribedRoute = DescribedRoute {
    method: "post",
    path: "/v1/sessions/{session}/call",
    id: "call",
    summary: "Sends a request of the bus, as MessagePack (docs/protocol.md).",
    parameters: &[],
    body: Some(Content::Other(MEDIA_TYPE)),
    answers: &[(200, Some(Content::Other(MEDIA_TYPE)))],
    refusals: &[413, 415],
};

/// The answer where no route has the path.
pub(crate) async fn no_such_resource(request: Request) -> HttpProblem {
    HttpProblem::not_found(format!("there is nothing at {}", request.uri().path()))
}

/// The answer where the path has other methods. axum adds those as `Allow`, too.
pub(crate) async fn no_such_method(request: Request) -> HttpProblem {
    let path = request.extensions().get::<MatchedPath>();
    let mut message = format!("{} does not go with this path", request.method());
    if let Some(methods) = path.and_then(|path| methods_of(path.as_str())) {
        message.push_str(&format!("; it has {methods}"));
    }
    HttpProblem::of_http(StatusCode::METHOD_NOT_ALLOWED, message)
}
