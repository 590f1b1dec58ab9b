//! `/livez` and `/readyz`: whether the process works, and whether requests would be answered now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use tenure_core::{Code, Rejection};
use tokio::sync::Mutex;

use crate::Gateway;
use crate::api::json_reply;
use crate::backend::Backend;
use crate::problem::HttpProblem;

/// Whether the process works. It answers whatever is wrong behind it.
pub(crate) const LIVE_PATH: &str = "/livez";
/// Whether requests would be answered now.
pub(crate) const READY_PATH: &str = "/readyz";

/// For how long an answer of the backend is used again. Anybody may ask, as probes bring no token, so
/// the backend is not asked each time.
const FRESH: Duration = Duration::from_secs(1);

/// How long the backend has to answer: probes often wait for a second or two.
const PATIENCE: Duration = Duration::from_millis(900);

/// The body of both.
#[derive(Serialize)]
struct HealthReply {
    status: &'static str,
}

/// The last answer to the question whether the process is ready.
pub(crate) type ReadyCache = Arc<ShortCache<Result<(), Rejection>>>;

/// The routes of both.
pub(crate) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    let cache = ready_cache();
    let ready = move |State(gateway): State<Arc<Gateway<B>>>| {
        let cache = Arc::clone(&cache);
        async move { ready(&gateway, &cache).await }
    };
    Router::new().route(LIVE_PATH, get(live)).route(READY_PATH, get(ready))
}

pub(crate) async fn live() -> Response {
    json_reply(StatusCode::OK, &HealthReply { status: "live" })
}

async fn ready<B: Backend>(
    gateway: &Gateway<B>,
    cache: &ReadyCache,
) -> Result<Response, HttpProblem> {
    answer_ready(cache, || gateway.backend.ready()).await
}

/// Answers whether the process is ready. Requests within a second get the same answer.
pub(crate) async fn answer_ready<F: Future<Output = Result<(), Rejection>>>(
    cache: &ReadyCache,
    ready: impl FnOnce() -> F,
) -> Result<Response, HttpProblem> {
    cache.get(|| ask(ready())).await.map_err(unready)?;
    Ok(json_reply(StatusCode::OK, &HealthReply { status: "ready" }))
}

/// A cache for such answers.
pub(crate) fn ready_cache() -> ReadyCache {
    Arc::new(ShortCache::new(FRESH))
}

async fn ask(ready: impl Future<Output = Result<(), Rejection>>) -> Result<(), Rejection> {
    let answered = tokio::time::timeout(PATIENCE, ready).await;
    let late = |_| Rejection::new(Code::Unavailable, "the scheduler does not answer in time");
    answered.map_err(late).flatten()
}

/// 503, whatever the reason. Details are not for everybody.
fn unready(why: Rejection) -> HttpProblem {
    let Rejection { code, message, .. } = why;
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, Rejection::new(code, message))
}

/// An answer that is used again for a short time. Whoever asks meanwhile waits for the one who asks.
#[derive(Debug)]
pub(crate) struct ShortCache<T> {
    fresh: Duration,
    last: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> ShortCache<T> {
    /// Keeps an answer for this time.
    pub(crate) fn new(fresh: Duration) -> Self {
        Self { fresh, last: Mutex::default() }
    }

    /// The answer as it was a short time ago, or a new one.
    pub(crate) async fn get<F: Future<Output = T>>(&self, ask: impl FnOnce() -> F) -> T {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < self.fresh
        {
            return answer.clone();
        }
        let answer = ask().await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn many_who_ask_at_once_get_one_answer() {
        let (cache, asked) = (ShortCache::new(Duration::from_secs(60)), AtomicU32::new(0));
        let ask = || async {
            tokio::task::yield_now().await;
            asked.fetch_add(1, Ordering::Relaxed)
        };
        let answers = futures::future::join_all((0..10).map(|_| cache.get(ask))).await;
        assert_eq!((answers, asked.load(Ordering::Relaxed)), (vec![0; 10], 1));
    }

    #[tokio::test]
    async fn an_old_answer_is_not_used() {
        let (cache, asked) = (ShortCache::new(Duration::ZERO), AtomicU32::new(0));
        let ask = || async { asked.fetch_add(1, Ordering::Relaxed) };
        assert_eq!([cache.get(ask).await, cache.get(ask).await], [0, 1]);
    }

    #[tokio::test]
    async fn whatever_is_wrong_the_answer_is_503_without_details() {
        let why = Rejection::new(Code::PermissionDenied, "no").with("secret", 1);
        let problem = unready(why);
        assert_eq!(problem.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(problem.rejection().details.is_empty());
    }
}
