//! Answers that go on: they are counted, and end when the gateway stops or their caller is known no more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

use super::credentials::Credentials;
use crate::identity::{Authenticator, LoggedIn};
use crate::metrics::CountedIn;

/// The media type of a stream of events. Its reader goes on from the last event elsewhere, so it may end
/// anywhere.
const EVENTS: &[u8] = b"text/event-stream";

/// The media type of an answer of gRPC, which says at its end how it ended.
const GRPC: &[u8] = b"application/grpc";

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Among the extensions of an answer: it follows what goes on, and has no end that one could wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowingAnswer;

/// How a caller of an answer proved who it is.
#[derive(Debug)]
pub(super) struct LoginWatch {
    pub(super) by: Arc<Authenticator>,
    pub(super) credentials: Credentials,
    pub(super) login: LoggedIn,
    /// Cancelled once the credentials count no more, whatever they say.
    pub(super) outdated: CancellationToken,
}

impl LoginWatch {
    /// Ends when the credentials are good no more, or are somebody else's.
    async fn over(mut self) {
        let mut reloads = self.by.reloads();
        loop {
            tokio::select! {
                () = passed(self.login.until) => return,
                () = self.outdated.cancelled() => return,
                changed = reloads.changed() => if changed.is_err() { return },
            }
            match self.credentials.check(&self.by) {
                Some(now) if now.identity == self.login.identity => self.login = now,
                _ => return,
            }
        }
    }
}

/// Waits until a time has passed; for ever, if there is none.
async fn passed(until: Option<SystemTime>) {
    match until {
        Some(until) => {
            let left = until.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::time::sleep(left).await;
        }
        None => std::future::pending().await,
    }
}

/// Why an answer ends before its end. An answer that is no stream of events is broken off, so that nobody takes
/// what has come for all of it.
#[derive(Debug, thiserror::Error)]
enum AnswerEnd {
    /// The gateway stops.
    #[error("the gateway stops")]
    Stopping,
    /// Its caller is not known any more.
    #[error("the credentials of the caller are not valid any more")]
    LoggedOut,
}

impl AnswerEnd {
    /// The end of an answer of gRPC.
    fn trailers(&self) -> HeaderMap {
        let status = match self {
            Self::Stopping => HeaderValue::from_static("14"), // UNAVAILABLE
            Self::LoggedOut => HeaderValue::from_static("16"), // UNAUTHENTICATED
        };
        let message = HeaderValue::try_from(self.to_string());
        let mut trailers = HeaderMap::from_iter([(GRPC_STATUS, status)]);
        trailers.extend(message.ok().map(|message| (GRPC_MESSAGE, message)));
        trailers
    }
}

/// How an answer ends before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EarlyEnd {
    /// As any: its reader goes on elsewhere.
    Clean,
    /// Broken off.
    Broken,
    /// With a status of gRPC.
    Status,
}

impl EarlyEnd {
    fn of(answer: &Parts) -> Self {
        let media_type = answer.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        match media_type {
            Some(of) if of.starts_with(EVENTS) => Self::Clean,
            Some(of) if of.starts_with(GRPC) => Self::Status,
            _ => Self::Broken,
        }
    }

    fn frame(self, why: AnswerEnd) -> Option<Result<Frame<Bytes>, axum::Error>> {
        match self {
            Self::Clean => None,
            Self::Broken => Some(Err(axum::Error::new(why))),
            Self::Status => Some(Ok(Frame::trailers(why.trailers()))),
        }
    }
}

fn follows(answer: &Parts) -> bool {
    answer.extensions.get::<FollowingAnswer>().is_some()
}

/// Whether this is an answer of gRPC that follows nothing: it is there as a whole, though its length is not.
pub(super) fn is_whole_grpc(answer: &Parts) -> bool {
    EarlyEnd::of(answer) == EarlyEnd::Status && !follows(answer)
}

/// The answer, if it goes on, with what ends it.
pub(super) fn watch(
    answer: &Parts,
    body: Body,
    stop: &CancellationToken,
    login: Option<LoginWatch>,
    count: impl FnOnce() -> CountedIn,
) -> Body {
    if body.size_hint().exact().is_some() || is_whole_grpc(answer) {
        return body;
    }
    let early = EarlyEnd::of(answer);
    let is_endless = early == EarlyEnd::Clean || follows(answer);
    let ends = Box::pin(ends(is_endless.then(|| stop.clone()), login));
    Body::new(LastingBody { inner: body, early, ends: Some(ends), _counted: count() })
}

/// Waits for the first reason. What has an end goes on while the gateway stops, as long as that waits.
async fn ends(stop: Option<CancellationToken>, login: Option<LoginWatch>) -> AnswerEnd {
    let stopping = async {
        match &stop {
            Some(stop) => stop.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let logged_out = async {
        match login {
            Some(login) => login.over().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stopping => AnswerEnd::Stopping,
        () = logged_out => AnswerEnd::LoggedOut,
    }
}

struct LastingBody {
    inner: Body,
    early: EarlyEnd,
    /// `None`: it has ended.
    ends: Option<BoxFuture<'static, AnswerEnd>>,
    _counted: CountedIn,
}

impl HttpBody for LastingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(ends) = &mut self.ends else { return Poll::Ready(None) };
        if let Poll::Ready(why) = ends.as_mut().poll(cx) {
            self.ends = None;
            return Poll::Ready(self.early.frame(why));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.ends.is_none() || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Response;
    use futures::{FutureExt as _, StreamExt as _, stream};
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::metrics::Counters;

    /// An answer that has said something and goes on for ever.
    fn endless() -> Body {
        let first = stream::iter([Ok::<_, axum::Error>(Bytes::from_static(b"x"))]);
        Body::from_stream(first.chain(stream::pending()))
    }

    fn of_type(media_type: &'static str) -> Parts {
        let answer = Response::builder().header(CONTENT_TYPE, media_type);
        answer.body(()).unwrap().into_parts().0
    }

    #[tokio::test]
    async fn what_has_no_end_ends_when_the_gateway_stops() {
        let (stop, counters) = (CancellationToken::new(), Counters::default());
        let lasting = |of: Parts| watch(&of, endless(), &stop, None, || counters.stream());
        let mut following = of_type("text/plain");
        following.extensions.insert(FollowingAnswer);
        let mut events = lasting(of_type("text/event-stream; charset=utf-8"));
        let (mut bytes, mut following) =
            (lasting(of_type("application/jsonl")), lasting(following));
        for body in [&mut events, &mut bytes, &mut following] {
            assert!(body.frame().await.unwrap().is_ok());
            assert!(body.frame().now_or_never().is_none(), "it goes on");
        }
        stop.cancel();
        assert!(events.frame().await.is_none(), "a reader goes on elsewhere");
        assert!(following.frame().await.unwrap().is_err(), "there may be more");
        assert!(bytes.frame().now_or_never().is_none(), "a reader would take it for the whole");
    }

    /// A stream of gRPC ends with the status that has its reader try again elsewhere.
    #[tokio::test]
    async fn an_answer_of_grpc_ends_with_a_status() {
        let (stop, counters) = (CancellationToken::new(), Counters::default());
        let mut of = of_type("application/grpc");
        of.extensions.insert(FollowingAnswer);
        let mut body = watch(&of, endless(), &stop, None, || counters.stream());
        assert!(body.frame().await.unwrap().is_ok());
        stop.cancel();
        let end = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(
            (&end[GRPC_STATUS], &end[GRPC_MESSAGE]),
            (&"14".parse().unwrap(), &"the gateway stops".parse().unwrap())
        );
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn an_answer_that_is_there_as_a_whole_stays_as_it_is() {
        let stop = CancellationToken::new();
        stop.cancel();
        let count = || unreachable!("it is no stream");
        let body = watch(&of_type("text/plain"), Body::from("whole"), &stop, None, count);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "whole");
    }

    fn known(dir: &std::path::Path, token: &str) -> std::path::PathBuf {
        use sha2::{Digest as _, Sha256};
        let digest: String =
            Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
        let path = dir.join("who.toml");
        let entry =
            format!("[[tokens]]\nsha256 = \"{digest}\"\nprincipal = \"a\"\nrole = \"observer\"\n");
        std::fs::write(&path, entry).unwrap();
        path
    }

    #[tokio::test]
    async fn an_answer_ends_when_its_token_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let by = Arc::new(Authenticator::load(known(dir.path(), "t")).unwrap());
        let credentials = Credentials::Bearer(Arc::from(b"t".as_slice()));
        let watched = |of| {
            let login = credentials.check(&by).unwrap();
            let (by, credentials) = (Arc::clone(&by), credentials.clone());
            let login = LoginWatch { by, credentials, login, outdated: CancellationToken::new() };
            let (stop, counters) = (CancellationToken::new(), Counters::default());
            watch(&of_type(of), endless(), &stop, Some(login), || counters.stream())
        };
        let (mut events, mut bytes) = (watched("text/event-stream"), watched("text/plain"));
        for body in [&mut events, &mut bytes] {
            assert!(body.frame().await.unwrap().is_ok());
            assert!(body.frame().now_or_never().is_none());
        }
        by.reload().unwrap();
        for body in [&mut events, &mut bytes] {
            assert!(body.frame().now_or_never().is_none(), "the token is still known");
        }
        known(dir.path(), "other");
        by.reload().unwrap();
        assert!(events.frame().await.is_none());
        assert!(bytes.frame().await.unwrap().is_err(), "it is not the whole");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_when_its_token_does() {
        let dir = tempfile::tempdir().unwrap();
        let by = Arc::new(Authenticator::load(known(dir.path(), "t")).unwrap());
        let credentials = Credentials::Bearer(Arc::from(b"t".as_slice()));
        let mut login = credentials.check(&by).unwrap();
        login.until = Some(SystemTime::now() + std::time::Duration::from_secs(60));
        let outdated = CancellationToken::new();
        let login = LoginWatch { by, credentials, login, outdated };
        let (stop, counters) = (CancellationToken::new(), Counters::default());
        let events = of_type("text/event-stream");
        let mut body = watch(&events, endless(), &stop, Some(login), || counters.stream());
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().now_or_never().is_none());
        assert!(body.frame().await.is_none());
    }
}
