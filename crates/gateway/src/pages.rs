//! The pages of a process that is no gateway: a scheduler without the HTTP API, or a worker. They have the paths and
//! the answers of the same pages of a gateway, behind the same guard.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::routing::get;
use axum::{Extension, Router};
use tenure_core::Rejection;

use crate::api;
use crate::health::{self, LIVE_PATH, READY_PATH};
use crate::identity::Identity;
use crate::metrics;
use crate::problem::HttpProblem;

/// The routes of `/livez`, `/readyz` and `/metrics`. `ready` says whether the process does its work now, and why not
/// otherwise; `metrics` is the page of metrics with its media type, for a reader who accepts the types in its `Accept`.
pub fn process_pages(
    ready: impl Fn() -> Result<(), Rejection> + Clone + Send + Sync + 'static,
    metrics: impl Fn(Option<&str>) -> (&'static str, String) + Clone + Send + Sync + 'static,
) -> Router {
    let cache = health::ready_cache();
    let ready = move || {
        let (cache, ready) = (Arc::clone(&cache), ready.clone());
        async move { health::answer_ready(&cache, || async move { ready() }).await }
    };
    let page = move |Extension(who): Extension<Identity>, headers: HeaderMap| {
        let metrics = metrics.clone();
        async move {
            metrics::check_reader(&who)?;
            let accepts = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
            let (media_type, text) = metrics(accepts);
            Ok::<_, HttpProblem>(metrics::page_reply(media_type, text))
        }
    };
    Router::new()
        .route(LIVE_PATH, get(health::live))
        .route(READY_PATH, get(ready))
        .route(metrics::PATH, get(page))
        .fallback(api::no_such_resource)
        .method_not_allowed_fallback(api::no_such_method)
}
