//! Workers over HTTP: a worker joins a pool, fetches deliveries by long poll, heartbeats and reports,
//! with the words of docs/protocol.md as JSON.
//!
//! ```text
//!  client ── fetch, heartbeat, report ──► HttpLink ──► WorkerPort ──► scheduler
//!         ◄────── deliveries, numbered ── buffer ◄──── deliveries ──
//! ```
//!
//! | Module | What it is |
//! |---|---|
//! | [`buffer`] | deliveries that wait for the client |
//! | [`hand`] | the Attempts and Runs that use the worker's slots |
//! | [`account`] | decides what capacity the worker has, and what goes back |
//! | [`link`] | carries that out |
//! | [`table`] | all links of this gateway |
//! | [`bodies`], [`asked`] | what requests say |
//! | [`calls`], [`blobs`], [`described`](mod@described) | the routes |
//!
//! The gateway judges no report and renews no lease by itself. The scheduler judges by the worker's name
//! (`<principal>.<boot>`), the Attempt and its fencing token, which the client sends with every report. A client that
//! gets no renewal stops its handler in time: fencing itself is its part. So a gateway may go at any time. Its workers
//! join again at another one under the same boot, and go on with what they have in hand.

mod account;
mod asked;
mod blobs;
mod bodies;
mod buffer;
mod calls;
mod described;
#[cfg(test)]
mod double;
mod hand;
mod link;
mod table;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tenure_core::id::AttemptId;
use tenure_core::{Code, Rejection};

use crate::Gateway;
use crate::backend::Backend;

pub(crate) use self::asked::memory_of;
pub(crate) use self::described::described;
pub(crate) use self::table::HttpWorkers;

/// The most Steps that a worker may run at a time.
const CONCURRENCY_MAX: usize = 1_024;

/// A client that has not asked for deliveries for so long gets no work until it asks again: nodes
/// end the link of a silent worker after the same time.
const FETCH_GAP: Duration = Duration::from_secs(5);

/// Where workers join a pool.
pub(crate) const WORKERS: &str = "/v1/pools/{pool}/workers";

/// The routes of workers.
pub(crate) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    let link = "/v1/pools/{pool}/workers/{link}";
    let of_link = |rest: &str| format!("{link}/{rest}");
    let of_attempt = |rest: &str| format!("{link}/attempts/{{attempt_id}}/{rest}");
    let of_run = |rest: &str| format!("{link}/runs/{{run_id}}/{rest}");
    Router::new()
        .route(WORKERS, post(calls::join::<B>))
        .route(link, get(calls::show::<B>).patch(calls::change::<B>).delete(calls::leave::<B>))
        .route(&of_link("deliveries"), get(calls::fetch::<B>))
        .route(&of_link("heartbeat"), post(calls::heartbeat::<B>))
        .route(&of_attempt("report"), post(calls::report::<B>))
        .route(&of_attempt("end"), post(calls::end_run::<B>))
        .route(&of_attempt("release"), post(calls::release::<B>))
        .route(&of_attempt("blobs/{digest}"), get(blobs::get::<B>).put(blobs::put::<B>))
        .route(&of_link("runs/{run_id}"), axum::routing::delete(calls::let_go::<B>))
        .route(&of_run("query"), post(calls::query::<B>))
        .route(&of_run("claim"), post(calls::claim::<B>))
        .route(&of_run("look"), post(calls::look::<B>))
        .route(&of_run("decline"), post(calls::decline::<B>))
        .route(&of_run("end"), post(calls::end_unused::<B>))
}

/// The refusal where a link is not, or no longer, or another caller's.
fn gone() -> Rejection {
    let message = "there is no such worker here: join again, under the same boot, and go on";
    Rejection::new(Code::WorkerGone, message)
}

/// The refusal of a report with another token than the claim's (LEASE-13).
fn stale(attempt: AttemptId) -> Rejection {
    let message = "the fencing token is not that of the claim";
    Rejection::new(Code::StaleAttempt, message).with("attempt_id", attempt.to_string())
}
