//! What long answers take of memory until they were read: of those of all callers together, each caller has at most
//! three times as many bytes as are free.
//!
//! An answer that is there as a whole takes its bytes as soon as it is made, and its route takes them before if it
//! knows them. An answer that comes in parts takes those that it has at a time. Both give them back once the connection
//! has taken the last of them, but for a short piece, or has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::Extensions;
use axum::http::header::CONTENT_LENGTH;
use axum::http::response::Parts;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tenure_core::{Code, Rejection};
use tenure_mcp::{Share, Shares};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// An answer of so many bytes takes nothing: as many wait on a connection anyhow.
pub(crate) const SHORT: usize = 64 << 10;

/// The memory is given out in places of so many bytes.
const PLACE: usize = 64 << 10;

/// How many bytes of a long answer are handed on at a time, and count no more.
const PIECE: usize = 64 << 10;

/// How long a caller is told to stay away for whose answer there is no room.
const COME_BACK_MS: u64 = 2_000;

/// The bytes of which all long answers may take so many.
#[derive(Debug, Clone)]
pub(crate) struct AnswerMemory {
    places: Shares,
    taken_within: Duration,
}

/// Where the answers to one request take their bytes. Among the extensions of the request.
#[derive(Debug, Clone)]
pub(crate) struct AnswerShare {
    places: Shares,
    caller: Arc<str>,
    taken_within: Duration,
}

/// Bytes that an answer takes, until the last clone of this is dropped. Among the extensions of an answer whose route
/// has taken them.
#[derive(Debug, Clone)]
pub(crate) struct AnswerBytes(Arc<Mutex<Vec<Share>>>);

/// Why an answer ends before its end.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not read in time")]
struct NotReadInTime;

impl AnswerMemory {
    /// So many bytes for all answers, each of which has to be taken within this time if its length is known.
    pub(crate) fn new(bytes_max: usize, taken_within: Duration) -> Self {
        Self { places: Shares::new(bytes_max / PLACE), taken_within }
    }

    /// What a caller takes of them. Without a name all callers are one.
    pub(crate) fn share(&self, caller: Option<&str>) -> AnswerShare {
        let caller = caller.unwrap_or_default().into();
        AnswerShare { places: self.places.clone(), caller, taken_within: self.taken_within }
    }
}

impl AnswerShare {
    /// That of a request. One that did not come through the guard may take what it likes.
    pub(crate) fn of(request: &Extensions) -> Self {
        let unbounded = || AnswerMemory::new(usize::MAX / 4, Duration::MAX).share(None);
        request.get::<Self>().cloned().unwrap_or_else(unbounded)
    }

    /// Takes so many bytes for an answer.
    ///
    /// # Errors
    /// `unavailable`: the caller has its part already, or there are none left.
    pub(crate) fn take(&self, bytes: usize) -> Result<AnswerBytes, Rejection> {
        let places = (0..bytes.div_ceil(PLACE)).map(|_| self.places.take(&self.caller));
        let taken = places.collect::<Option<Vec<Share>>>().ok_or_else(|| {
            let message = "long answers that are made or were not read yet take all the memory that there is for you: \
                           read them, or come again";
            Rejection::new(Code::Unavailable, message).with("retry_after_ms", COME_BACK_MS)
        })?;
        Ok(AnswerBytes(Arc::new(Mutex::new(taken))))
    }

    /// Bytes that count until they were sent, if they are many.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(crate) fn keep(&self, bytes: impl Into<Bytes>) -> Result<Bytes, Rejection> {
        let bytes = bytes.into();
        if bytes.len() <= SHORT {
            return Ok(bytes);
        }
        let _taken = self.take(bytes.len())?;
        Ok(Bytes::from_owner(WeighedBytes { bytes, _taken }))
    }

    /// The same answer, whose bytes count until they were sent. A short one, and one of parts whose route has taken
    /// nothing for them, stays as it is.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) async fn weigh(&self, response: Response) -> Result<Response, Rejection> {
        let (mut parts, body) = response.into_parts();
        let taken = parts.extensions.remove::<AnswerBytes>();
        let (body, length) = match body.size_hint().exact() {
            None if super::lasting::is_whole_grpc(&parts) => gathered(body).await,
            length => (body, length),
        };
        let length = length.and_then(|length| usize::try_from(length).ok());
        let taken = match (taken, length) {
            (Some(taken), _) => taken,
            (None, Some(length)) if length > SHORT => self.take(length)?,
            _ => return Ok(Response::from_parts(parts, body)),
        };
        let within = has_length(&parts, length).then_some(self.taken_within);
        let body = Body::new(LongAnswer::new(body, taken, within));
        Ok(Response::from_parts(parts, body))
    }
}

impl AnswerBytes {
    /// Gives back what is above so many bytes.
    pub(crate) fn shrink(&self, bytes: usize) {
        self.0.lock().truncate(bytes.div_ceil(PLACE));
    }
}

/// Bytes with what was taken for them.
struct WeighedBytes {
    bytes: Bytes,
    _taken: AnswerBytes,
}

impl AsRef<[u8]> for WeighedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether the answer says how long it is.
fn has_length(parts: &Parts, length: Option<usize>) -> bool {
    length.is_some() || parts.headers.contains_key(CONTENT_LENGTH)
}

/// An answer that is there, though it does not say so, and its length. What breaks it off stays its end.
async fn gathered(body: Body) -> (Body, Option<u64>) {
    let (mut body, mut frames, mut length) = (body, Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let bytes = frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
        length += bytes as u64;
        let is_broken = frame.is_err();
        frames.push(frame);
        if is_broken {
            break;
        }
    }
    (Body::new(StreamBody::new(stream::iter(frames))), Some(length))
}

/// An answer that is handed on in pieces, and holds what it has taken until the last one.
struct LongAnswer {
    left: Arc<Mutex<LeftAnswer>>,
    /// Drops what is left when the time is over, also if nobody asks for it.
    clock: Option<AbortHandle>,
}

/// What is left of an answer; nothing when it was not read in time.
type LeftAnswer = Option<HeldParts>;

struct HeldParts {
    inner: Body,
    /// What has come of it and was not handed on yet.
    next: Bytes,
    _taken: AnswerBytes,
}

impl LongAnswer {
    fn new(inner: Body, taken: AnswerBytes, within: Option<Duration>) -> Self {
        let parts = HeldParts { inner, next: Bytes::new(), _taken: taken };
        let left = Arc::new(Mutex::new(Some(parts)));
        let clock = within.map(|within| {
            let left = Arc::downgrade(&left);
            let over = async move {
                sleep(within).await;
                if let Some(left) = left.upgrade() {
                    *left.lock() = None;
                }
            };
            tokio::spawn(over).abort_handle()
        });
        Self { left, clock }
    }
}

impl Drop for LongAnswer {
    fn drop(&mut self) {
        if let Some(clock) = &self.clock {
            clock.abort();
        }
    }
}

impl HeldParts {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.next.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.next = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = self.next.split_to(self.next.len().min(PIECE));
        // A copy: a piece that waits on the connection does not hold the whole.
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece)))))
    }
}

impl HttpBody for LongAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut *self.left.lock() {
            Some(parts) => parts.poll(cx),
            None => Poll::Ready(Some(Err(axum::Error::new(NotReadInTime)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let left = self.left.lock();
        left.as_ref().is_some_and(|it| it.next.is_empty() && it.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.left.lock();
        match left.as_ref().map(|it| (it.inner.size_hint().exact(), it.next.len() as u64)) {
            Some((Some(inner), next)) => SizeHint::with_exact(inner + next),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::CONTENT_TYPE;
    use axum::http::{HeaderMap, HeaderValue};
    use futures::{FutureExt as _, StreamExt as _};

    use super::*;

    const IN_TIME: Duration = Duration::from_secs(600);

    fn answer(bytes: usize) -> Response {
        Response::new(Body::from(vec![b'x'; bytes]))
    }

    /// Takes an answer of so many places.
    async fn weighed(share: &AnswerShare, places: usize) -> Option<Body> {
        share.weigh(answer(places * PLACE)).await.ok().map(Response::into_body)
    }

    /// Mechanisms 15: who reads nothing costs itself, and others have their answers.
    #[tokio::test]
    async fn long_answers_are_bounded_for_each_caller_and_for_all() {
        let memory = AnswerMemory::new(16 * PLACE, IN_TIME);
        let (eve, bob) = (memory.share(Some("eve")), memory.share(Some("bob")));
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(weighed(&eve, 4).await.unwrap());
        }
        let refused = eve.weigh(answer(4 * PLACE)).await.unwrap_err();
        assert_eq!(
            (refused.code, &refused.details["retry_after_ms"]),
            (Code::Unavailable, &COME_BACK_MS.into())
        );
        assert!(weighed(&eve, 1).await.is_some(), "it is short");
        let of_bob = weighed(&bob, 3).await.unwrap();
        assert_eq!(of_bob.size_hint().exact(), Some(3 * PLACE as u64));
        let whole = of_bob.collect().await.unwrap().to_bytes();
        assert_eq!(whole.len(), 3 * PLACE);
        held.clear();
        assert!(weighed(&eve, 12).await.is_some(), "all was given back");
    }

    /// A piece that waits on a connection holds neither the bytes of the whole answer nor its share.
    #[tokio::test]
    async fn an_answer_counts_until_its_last_piece_is_handed_on() {
        let eve = AnswerMemory::new(4 * PLACE, IN_TIME).share(Some("eve"));
        let mut body = weighed(&eve, 3).await.unwrap();
        let mut pieces = Vec::new();
        while !body.is_end_stream() {
            assert!(weighed(&eve, 3).await.is_none());
            pieces.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        drop(body);
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE && piece.is_unique()));
        assert!(weighed(&eve, 3).await.is_some());
    }

    /// Nobody may keep an answer for hours, whether it is asked for its next piece or not.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_in_time_is_given_up() {
        let eve = AnswerMemory::new(4 * PLACE, IN_TIME).share(Some("eve"));
        let mut body = weighed(&eve, 3).await.unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        sleep(IN_TIME - Duration::from_secs(1)).await;
        assert!(body.frame().await.unwrap().is_ok());
        sleep(Duration::from_secs(2)).await;
        assert!(weighed(&eve, 3).await.is_some(), "its bytes are free");
        assert!(body.frame().await.unwrap().is_err(), "nobody takes it for the whole");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_parts_takes_what_its_route_has_taken() {
        let eve = AnswerMemory::new(4 * PLACE, IN_TIME).share(Some("eve"));
        let endless = || {
            let parts = stream::repeat(Bytes::from(vec![b'x'; PLACE + 1]));
            Response::new(Body::from_stream(parts.map(Ok::<_, axum::Error>)))
        };
        let mut parts = endless();
        parts.extensions_mut().insert(eve.take(3 * PLACE).unwrap());
        let mut body = eve.weigh(parts).await.unwrap().into_body();
        for _ in 0..10 {
            assert!(body.frame().await.unwrap().is_ok());
        }
        assert!(eve.take(1).is_err());
        sleep(2 * IN_TIME).await;
        assert!(body.frame().await.unwrap().is_ok(), "nobody knows how long it is");
        drop(body);
        let taken = eve.take(3 * PLACE).unwrap();
        taken.shrink(1);
        assert!(eve.take(1).is_ok());
        let mut free = eve.weigh(endless()).await.unwrap().into_body();
        assert_eq!(free.frame().await.unwrap().unwrap().into_data().unwrap().len(), PLACE + 1);
    }

    #[tokio::test]
    async fn a_message_of_grpc_counts_and_keeps_its_status() {
        let eve = AnswerMemory::new(4 * PLACE, IN_TIME).share(Some("eve"));
        let of = |bytes: usize| {
            let trailers = HeaderMap::from_iter([(
                "grpc-status".parse().unwrap(),
                HeaderValue::from_static("0"),
            )]);
            let frames = [Frame::data(Bytes::from(vec![0; bytes])), Frame::trailers(trailers)];
            let frames = stream::iter(frames.map(Ok::<_, axum::Error>));
            let mut response = Response::new(Body::new(StreamBody::new(frames)));
            let media_type = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert(CONTENT_TYPE, media_type);
            response
        };
        for (bytes, is_held) in [(10, false), (2 * PLACE, true)] {
            let body = eve.weigh(of(bytes)).await.unwrap().into_body();
            assert_eq!(eve.take(3 * PLACE).is_err(), is_held);
            let whole = body.collect().await.unwrap();
            assert_eq!(whole.trailers().unwrap()["grpc-status"], "0");
            assert_eq!(whole.to_bytes().len(), bytes);
        }
        assert!(eve.weigh(of(4 * PLACE)).await.is_err());
    }

    #[test]
    fn bytes_that_are_sent_on_their_own_count_if_they_are_many() {
        let eve = AnswerMemory::new(4 * PLACE, IN_TIME).share(Some("eve"));
        let _short: Vec<_> = (0..10).map(|_| eve.keep(vec![0; SHORT]).unwrap()).collect();
        let long = eve.keep(vec![0; 3 * PLACE]).unwrap();
        assert!(eve.keep(vec![0; SHORT + 1]).is_err());
        drop(long);
        assert!(eve.keep(vec![0; SHORT + 1]).is_ok());
        let unbounded = AnswerShare::of(&Extensions::new());
        assert!(unbounded.keep(vec![0; 64 * PLACE]).is_ok());
        assert!(async { weighed(&unbounded, 1).await }.now_or_never().is_some());
    }
}
