//! `GET …/tasks/{task_id}/events`: the public events of a Task, as a page or as a stream.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tenure_core::id::TaskId;
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;
use tenure_wire::bus::event::{EventPage, ReadEvents};

use super::call::LiveCall;
use super::follow::FollowedEvents;
use super::place::EventPlace;
use super::stream::{self, RETRY_MS};
use super::{SINCE, check_since, sse};
use crate::Gateway;
use crate::api::{check_accept, json_reply};
use crate::backend::Backend;
use crate::problem::HttpProblem;

/// A page of events, and where to go on.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EventsAnswer {
    #[serde(flatten)]
    page: EventPage,
    /// What to give as `since` to get the events that follow.
    next: u64,
}

/// Public events behind the last that the reader got, or else behind `since`: a stream to whoever accepts one,
/// and else a page.
pub(super) async fn events<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut call: LiveCall,
) -> Result<Response, HttpProblem> {
    let since = call.take::<EventPlace>(SINCE)?.unwrap_or_default();
    let max_bytes = call.take("max_bytes")?;
    call.query.end()?;
    let last: Option<EventPlace> = call.last_event_id().map(|id| id.parse()).transpose()?;
    let task = call.task()?;
    let mut client = call.client(&gateway).await?;
    // A reader that connects again repeats its first request, with the place that it has reached.
    let place = last.unwrap_or(since);
    if call.asks_for(sse::MEDIA_TYPE) {
        return streamed(&gateway, &call, client, task, (place, last.is_some())).await;
    }
    check_accept(call.headers())?;
    if let Some(most) = max_bytes {
        client = client.within(most);
    }
    page(&client, &task, place).await
}

async fn page<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    since: EventPlace,
) -> Result<Response, HttpProblem> {
    let mut page = client.ask(task, ReadEvents { after: since.complete() }).await?;
    check_since(since.seq, page.version)?;
    let mut at = EventPlace::default();
    page.events.retain(|event| {
        at = at.next(event.wal_seq);
        at > since
    });
    let next = page.through;
    Ok(json_reply(StatusCode::OK, &EventsAnswer { page, next }))
}

/// A stream of the events behind `place`, for a reader that may have had a stream before.
async fn streamed<B: Backend>(
    gateway: &Gateway<B>,
    call: &LiveCall,
    client: Client<B::Client>,
    task: TaskId,
    (place, had_some): (EventPlace, bool),
) -> Result<Response, HttpProblem> {
    let permit = gateway.live.streams.open(&call.who)?;
    let feeds = Arc::clone(&gateway.live.feeds);
    let followed = FollowedEvents::begin(client, task, feeds, place).await?;
    if had_some && followed.had_all() {
        return Ok(StatusCode::NO_CONTENT.into_response()); // Browsers stay away after this answer.
    }
    let mut start = Vec::new();
    sse::write_start(&mut start, RETRY_MS, None);
    Ok(stream::reply(followed.frames(start), permit))
}
