//! The answer that is a stream of frames: its headers and the comments while it is quiet.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use serde::Serialize;
use tokio::time::timeout;

use super::permits::StreamPermit;
use super::sse::{COMMENT, MEDIA_TYPE, SseFrame};
use crate::api::bytes_reply;

/// After how long readers connect again.
pub(super) const RETRY_MS: u32 = 2_000;

/// How long a stream is silent before it sends a comment: proxies close connections that are silent for half
/// a minute or longer.
const QUIET: Duration = Duration::from_secs(15);

/// The most bytes that a stream hands over at a time.
const PIECE_MAX: usize = 16 << 10;

/// Tells proxies of the nginx family to pass on what they get at once.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Where a reader's knowledge of a stream has a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Gap {
    /// The log has no event at the place that the reader names: it is another log, under the same name.
    PlaceUnknown,
    /// This stream keeps no places, and the reader was away.
    PlaceNotKept,
    /// The reader was too slow.
    Missed,
}

impl Gap {
    /// Adds the frame that tells of it.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let message = match self {
            Self::PlaceUnknown => "the log has no such event; the stream goes on with the next one",
            Self::PlaceNotKept => "changes before this were not sent: list the tasks again",
            Self::Missed => "some changes were not sent: list the tasks again",
        };
        write_json(out, "gap", &serde_json::json!({ "reason": self, "message": message }));
    }
}

/// Adds a frame with JSON and without a place.
pub(super) fn write_json(out: &mut Vec<u8>, event: &str, data: &impl Serialize) {
    // What is sent here has a form in JSON: text, numbers and names.
    let data = serde_json::to_string(data).unwrap_or_default();
    SseFrame { event: Some(event), id: None, data: &data }.write(out);
}

/// The answer with these frames. It holds the permit until it has ended.
pub(crate) fn reply(
    frames: impl Stream<Item = Bytes> + Send + 'static,
    permit: StreamPermit,
) -> Response {
    let pieces = pieces(with_comments(frames.boxed(), permit));
    let body = pieces.map(Ok::<_, Infallible>);
    let media_type = HeaderValue::from_static(MEDIA_TYPE);
    let mut response = bytes_reply(StatusCode::OK, media_type, Body::from_stream(body));
    set_live(response.headers_mut());
    response
}

/// The headers of an answer that comes bit by bit.
pub(super) fn set_live(headers: &mut HeaderMap) {
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// The same frames, with a comment whenever none comes for a while. What is held is dropped at their end.
fn with_comments(
    frames: impl Stream<Item = Bytes> + Unpin + Send,
    held: impl Send,
) -> impl Stream<Item = Bytes> + Send {
    stream::unfold((frames, held), |(mut frames, held)| async move {
        let next = timeout(QUIET, frames.next()).await;
        let bytes = next.unwrap_or(Some(Bytes::from_static(COMMENT)))?;
        Some((bytes, (frames, held)))
    })
}

/// The same bytes in pieces: a connection that takes none then holds little.
fn pieces(bytes: impl Stream<Item = Bytes> + Send) -> impl Stream<Item = Bytes> + Send {
    bytes.flat_map(|mut bytes| {
        stream::iter(std::iter::from_fn(move || {
            let piece = bytes.split_to(bytes.len().min(PIECE_MAX));
            (!piece.is_empty()).then_some(piece)
        }))
    })
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_sends_comments() {
        let begun = Instant::now();
        let quiet = stream::once(pending::<Bytes>()).boxed();
        let sent: Vec<Bytes> = with_comments(quiet, ()).take(4).collect().await;
        assert!(sent.iter().all(|bytes| *bytes == COMMENT));
        assert!(begun.elapsed() >= 4 * QUIET && begun.elapsed() < 5 * QUIET);
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_frames() {
        let frames = stream::iter(["one", "two"].map(Bytes::from));
        let sent: Vec<Bytes> = with_comments(frames, ()).collect().await;
        assert_eq!(sent, ["one", "two"]);
    }

    #[tokio::test]
    async fn long_batches_go_out_in_pieces() {
        let given = vec![Bytes::from(vec![b'a'; 2 * PIECE_MAX + 1]), Bytes::from_static(b"b")];
        let sent: Vec<Bytes> = pieces(stream::iter(given.clone())).collect().await;
        let lengths: Vec<_> = sent.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [PIECE_MAX, PIECE_MAX, 1, 1]);
        assert_eq!(sent.concat(), given.concat());
    }

    #[test]
    fn a_gap_says_what_to_do() {
        let mut out = Vec::new();
        Gap::PlaceNotKept.write(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("event: gap\ndata: {"), "{text}");
        assert!(text.contains("\"reason\":\"place_not_kept\"") && text.contains("list the tasks"));
    }
}
