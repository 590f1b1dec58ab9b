//! `GET /v1/sessions/{session}/events`: which Tasks of a session have changed, as a stream of hints.
//!
//! A hint says that a Task has at least this version, and whether it has ended; what it looks like, the
//! reader asks. The stream keeps no places. A reader that was away is told of the gap, and lists the Tasks
//! again.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_core::status::TaskStatus;
use tenure_core::view::RuntimeEvent;
use tenure_ports::ClientPort;
use tenure_ports::client::Changed;
use tenure_sdk::client::Client;

use super::call::LiveCall;
use super::feed::{FeedBatch, FeedNews, FeedSender, FeedTopic, Feeds, Subscriber};
use super::place::EventPlace;
use super::sse;
use super::stream::{self as live_stream, Gap, RETRY_MS, write_json};
use super::tempo::Tempo;
use crate::Gateway;
use crate::backend::Backend;
use crate::problem::HttpProblem;

/// The `id` that readers of such a stream have: that they send one says that they were away.
const ID: &str = "live";

/// A hint, as readers see it.
#[derive(Debug, Serialize)]
struct TaskHint<'a> {
    task_id: &'a TaskId,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<TaskStatus>,
}

/// The stream of a session.
pub(super) async fn events<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut call: LiveCall,
) -> Result<Response, HttpProblem> {
    let with_runtime = call.take("runtime")?.unwrap_or(false);
    call.query.end()?;
    if !call.takes_text(sse::MEDIA_TYPE) {
        let message = format!("the answer is {}", sse::MEDIA_TYPE);
        return Err(HttpProblem::of_http(StatusCode::NOT_ACCEPTABLE, message));
    }
    let client = call.client(&gateway).await?;
    let permit = gateway.live.streams.open(&call.who)?;
    let feeds = &gateway.live.feeds;
    let hints = news(hints(feeds, &client).await?);
    let mut start = Vec::new();
    sse::write_start(&mut start, RETRY_MS, Some(ID));
    if call.last_event_id().is_some() {
        Gap::PlaceNotKept.write(&mut start);
    }
    let start = stream::iter([Bytes::from(start)]);
    if !with_runtime {
        return Ok(live_stream::reply(start.chain(hints), permit));
    }
    let runtime = news(runtime(feeds, &client).await?);
    Ok(live_stream::reply(start.chain(stream::select(hints, runtime)), permit))
}

/// Joins the hints of the session of a client.
async fn hints<P: ClientPort>(
    feeds: &Arc<Feeds>,
    client: &Client<P>,
) -> Result<Subscriber, Rejection> {
    let topic = FeedTopic::Hints(client.port().session().clone());
    if let Some(joined) = feeds.find(&topic) {
        return Ok(joined);
    }
    let changes = client.port().changes(None).await?;
    let run = |sender| send_all(changes, write_hints, sender);
    Ok(feeds.join(topic, EventPlace::default(), run))
}

/// Joins the runtime events of the session of a client.
async fn runtime<P: ClientPort>(
    feeds: &Arc<Feeds>,
    client: &Client<P>,
) -> Result<Subscriber, Rejection> {
    let topic = FeedTopic::Runtime(client.port().session().clone());
    if let Some(joined) = feeds.find(&topic) {
        return Ok(joined);
    }
    let events = client.runtime_events(None).await?;
    let run = |sender| send_all(events, write_runtime, sender);
    Ok(feeds.join(topic, EventPlace::default(), run))
}

/// A feed: sends everything that comes.
async fn send_all<S: Stream + Unpin>(
    items: S,
    write: fn(&[S::Item], &mut Vec<u8>),
    sender: FeedSender,
) {
    let (mut items, mut tempo) = (items.fuse(), Tempo::new());
    while let Some(batch) = tempo.gather(&mut items, |_| false).await {
        let mut out = Vec::new();
        write(&batch, &mut out);
        tempo.sent_to(sender.readers());
        sender.send(FeedBatch { frames: out.into(), ..FeedBatch::default() });
    }
}

/// Writes the newest hint of each Task.
fn write_hints(hints: &[Changed], out: &mut Vec<u8>) {
    for Changed { task_id, version, ended } in newest(hints) {
        write_json(out, "task", &TaskHint { task_id: &task_id, version, ended });
    }
}

fn write_runtime(events: &[RuntimeEvent], out: &mut Vec<u8>) {
    events.iter().for_each(|event| write_json(out, "runtime", event));
}

/// One hint for each Task, in the order in which the Tasks first come.
fn newest(hints: &[Changed]) -> Vec<Changed> {
    let mut all: Vec<Changed> = Vec::new();
    let mut places: HashMap<&TaskId, usize> = HashMap::new();
    for hint in hints {
        let place = *places.entry(&hint.task_id).or_insert(all.len());
        match all.get_mut(place) {
            None => all.push(hint.clone()),
            Some(known) => {
                known.version = known.version.max(hint.version);
                known.ended = known.ended.or(hint.ended);
            }
        }
    }
    all
}

/// What a feed sends, as frames for one reader.
fn news(joined: Subscriber) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(joined, async |mut joined| {
        let frames = match joined.next().await {
            FeedNews::Batch(batch) => batch.frames.clone(),
            FeedNews::Missed => {
                let mut gap = Vec::new();
                Gap::Missed.write(&mut gap);
                gap.into()
            }
            FeedNews::Over => return None,
        };
        Some((frames, joined))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(task: &str, version: u64, ended: Option<TaskStatus>) -> Changed {
        Changed { task_id: task.parse().unwrap(), version, ended }
    }

    #[test]
    fn a_batch_has_one_hint_for_each_task() {
        let hints = [
            hint("a", 3, None),
            hint("b", 1, None),
            hint("a", 5, Some(TaskStatus::Completed)),
            hint("a", 4, None), // Hints may come out of order.
        ];
        let mut out = Vec::new();
        write_hints(&hints, &mut out);
        let expected = "event: task\ndata: {\"task_id\":\"a\",\"version\":5,\"ended\":\"completed\"}\n\n\
                        event: task\ndata: {\"task_id\":\"b\",\"version\":1}\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
