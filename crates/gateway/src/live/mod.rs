//! What the gateway sends while it happens: streams of events, long polls, logs and outputs.
//!
//! ```text
//!  one subscription of the backend ─► feed ─► batches of frames ─► stream ─► reader
//!  (a Task, or a session)            (feed.rs) (shared bytes)     (stream.rs) └► reader …
//! ```
//!
//! All readers of a Task share a feed ([`feed`]), and so do all readers of a session. A reader of a Task reads
//! from the log what lies before the feed ([`follow`]), so it may begin at any place and misses nothing. The
//! stream of a session has hints and no places ([`session`]).
//!
//! **Slow readers.** Nothing is queued for a reader: it takes from the feed what its connection has room for.
//! One that is too far behind the feed reads the log again (Task) or is told that it missed something
//! (session). One that takes nothing at all is ended by the server, with its connection.

mod call;
mod described;
#[cfg(test)]
pub(crate) mod double;
mod feed;
mod follow;
mod log;
mod output;
mod permits;
mod place;
mod session;
mod sse;
mod stream;
mod tail;
mod task;
mod tempo;
mod trail;
mod wait;
mod writer;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tenure_core::Rejection;

pub(crate) use self::described::described;
use self::feed::Feeds;
use self::permits::OpenStreams;
pub(crate) use self::permits::StreamPermit;
pub(crate) use self::place::EventPlace;
pub(crate) use self::sse::SseFrame;
pub(crate) use self::stream::reply as stream_reply;
pub(crate) use self::wait::wait_for_change;
use crate::Gateway;
use crate::backend::Backend;
use crate::identity::Identity;
use crate::problem::HttpProblem;

/// The parameter with which a reader says what it knows.
const SINCE: &str = "since";

/// What all streams share.
#[derive(Debug, Default)]
pub(crate) struct SharedStreams {
    feeds: Arc<Feeds>,
    streams: Arc<OpenStreams>,
}

impl SharedStreams {
    /// The right to one more stream for a caller.
    ///
    /// # Errors
    /// As many are open as the caller, or the gateway, may have.
    pub(crate) fn open(&self, who: &Identity) -> Result<StreamPermit, HttpProblem> {
        self.streams.open(who)
    }

    /// The same for a caller of this name.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg(feature = "grpc")]
    pub(crate) fn open_as(&self, name: &str) -> Result<StreamPermit, HttpProblem> {
        self.streams.open_as(name)
    }

    /// Leaves some of so many connections to requests that are no streams.
    pub(crate) fn fit(&self, connections: usize) {
        self.streams.fit(connections);
    }
}

/// The routes of streams and of bytes.
pub(crate) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    const TASK: &str = "/v1/sessions/{session}/tasks/{task_id}";
    Router::new()
        .route("/v1/sessions/{session}/events", get(session::events))
        .route(&format!("{TASK}/events"), get(task::events))
        .route(&format!("{TASK}/log"), get(log::log))
        .route(&format!("{TASK}/attempts/{{attempt_id}}/logs"), get(output::of_attempt))
        .route(&format!("{TASK}/steps/{{step_id}}/attempts/{{ordinal}}/logs"), get(output::of_step))
}

/// Refuses a place behind the end of the log: nobody has seen it, so the reader means another log.
fn check_since(since: u64, version: u64) -> Result<(), Rejection> {
    if since <= version {
        return Ok(());
    }
    let message = format!("since is {since}, and the log of the task ends with event {version}");
    Err(Rejection::invalid(SINCE, message).with("version", version))
}
