//! The pages of a process that is no gateway: a scheduler without the HTTP API, or a worker. They have the paths and
//! the answers of the same pages of a gateway, behind the same guard.

use std::sync::Arc;

use axum::routing::get;
use axum::{Extension, Router};
use tenure_core::Rejection;

use crate::api;
use crate::health::{self, LIVE_PATH, READY_PATH};
use crate::identity::Identity;
use crate::metrics;

/// The routes of `/livez`, `/readyz` and `/metrics`. `ready` says whether the process does its work now, and why not
/// otherwise; `text` is the page of metrics.
pub fn process_pages(
    ready: impl Fn() -> Result<(), Rejection> + Clone + Send + Sync + 'static,
    text: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> Router {
    let cache = health::ready_cache();
    let ready = move || {
        let (cache, ready) = (Arc::clone(&cache), ready.clone());
        async move { health::answer_ready(&cache, || async move { ready() }).await }
    };
    let page = move |Extension(who): Extension<Identity>| {
        let text = text.clone();
        async move { metrics::check_reader(&who).map(|()| metrics::page_reply(text())) }
    };
    Router::new()
        .route(LIVE_PATH, get(health::live))
        .route(READY_PATH, get(ready))
        .route(metrics::PATH, get(page))
        .fallback(api::no_such_resource)
        .method_not_allowed_fallback(api::no_such_method)
}
