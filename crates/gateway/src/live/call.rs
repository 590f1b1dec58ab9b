//! [`LiveCall`]: what a request for a stream or for bytes says, checked before anything is asked.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::http::request::Parts;
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_sdk::client::Client;

use crate::Gateway;
use crate::api::{Inquiry, Parameters, Place};
use crate::backend::Backend;
use crate::guard::AnswerShare;
use crate::identity::Identity;
use crate::problem::HttpProblem;

/// A request: who asks, about what, and how.
#[derive(Debug)]
pub(super) struct LiveCall {
    pub(super) who: Identity,
    pub(super) place: Place,
    /// What stands in the query string, and was not taken yet.
    pub(super) query: Parameters,
    headers: HeaderMap,
    /// Where the answer takes its bytes.
    pub(super) answers: AnswerShare,
}

impl<S: Send + Sync> FromRequestParts<S> for LiveCall {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        let Inquiry { who, path, query, headers, answers, .. } =
            Inquiry::from_request_parts(parts, state).await?;
        Ok(Self { who, place: Place::read(&path)?, query, headers, answers })
    }
}

impl LiveCall {
    /// The client of the caller.
    pub(super) async fn client<B: Backend>(
        &self,
        gateway: &Gateway<B>,
    ) -> Result<Client<B::Client>, HttpProblem> {
        self.place.client(gateway, &self.who).await
    }

    /// The Task in the path.
    pub(super) fn task(&self) -> Result<TaskId, HttpProblem> {
        self.place.task().cloned()
    }

    /// Another name in the path.
    pub(super) fn at<T: FromStr<Err: Display>>(
        &self,
        name: &'static str,
    ) -> Result<T, HttpProblem> {
        let read = self.place.named(name)?.parse();
        Ok(read.map_err(|error: T::Err| Rejection::invalid(name, error.to_string()))?)
    }

    /// A field of the query string, read; none if it is not there.
    pub(super) fn take<T: FromStr<Err: Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, HttpProblem> {
        let Some(text) = self.query.take(name)? else { return Ok(None) };
        let refused = |error| Rejection::invalid(name, format!("{text:?} cannot be read: {error}"));
        Ok(Some(text.parse().map_err(refused)?))
    }

    /// The place of the last event that the reader of a stream got before it lost its connection.
    pub(super) fn last_event_id(&self) -> Option<Cow<'_, str>> {
        let id = self.headers.get("last-event-id")?;
        Some(String::from_utf8_lossy(id.as_bytes())).filter(|id| !id.is_empty())
    }

    /// Whether the caller asks for this media type by name.
    pub(super) fn asks_for(&self, media_type: &str) -> bool {
        ranges(&self.headers).any(|range| range == media_type)
    }

    /// Whether the caller takes a text of this media type.
    pub(super) fn takes_text(&self, media_type: &str) -> bool {
        let may_be = |range: String| range == media_type || range == "text/*" || range == "*/*";
        !self.headers.contains_key(ACCEPT) || ranges(&self.headers).any(may_be)
    }

    /// The headers.
    pub(super) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

/// The media types that a caller takes, without their weights.
fn ranges(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let name = |one: &str| one.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    lines.flat_map(move |line| line.split(',').map(name))
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::body::Body;
    use axum::http::Request;

    use super::*;

    /// A call as it comes through a router.
    async fn call(query: &str, accept: Option<&str>) -> LiveCall {
        use axum::routing::get;
        use futures::channel::oneshot;
        use parking_lot::Mutex;
        use std::sync::Arc;

        let (to, made) = oneshot::channel();
        let to = Arc::new(Mutex::new(Some(to)));
        let take = move |call: LiveCall| async move {
            if let Some(to) = to.lock().take() {
                let _ = to.send(call); // Whoever asked may have gone.
            }
        };
        let router = axum::Router::new()
            .route("/{session}/{task_id}/{ordinal}", get(take))
            .layer(Extension(Identity::local()));
        let mut request = Request::get(format!("/main/t/x?{query}"));
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept).header("last-event-id", "7.1");
        }
        let request = request.body(Body::empty()).unwrap();
        let service = hyper_util::service::TowerToHyperService::new(router);
        hyper::service::Service::call(&service, request).await.unwrap();
        made.await.unwrap()
    }

    #[tokio::test]
    async fn a_call_is_read_part_by_part() {
        let mut call = call("since=7&from=x", Some("")).await;
        assert_eq!(
            (call.task().unwrap().as_str(), call.last_event_id().as_deref()),
            ("t", Some("7.1"))
        );
        assert_eq!(call.take("since").unwrap(), Some(7_u64));
        assert_eq!(call.take::<u64>("since").unwrap(), None, "it was taken");
        let refused =
            [call.take::<u64>("from").unwrap_err(), call.at::<u32>("ordinal").unwrap_err()];
        let fields = refused.map(|refused| refused.rejection().details["field"].clone());
        assert_eq!(fields, ["from", "ordinal"]);
    }

    #[tokio::test]
    async fn a_media_type_is_asked_for_by_its_name() {
        for (accept, asks, takes) in [
            (Some("text/event-stream"), true, true),
            (Some("application/json, Text/Event-Stream;q=0.9"), true, true),
            (Some("*/*"), false, true),
            (Some("text/*"), false, true),
            (Some("application/json"), false, false),
            (None, false, true),
        ] {
            let call = call("", accept).await;
            assert_eq!(call.asks_for("text/event-stream"), asks, "{accept:?}");
            assert_eq!(call.takes_text("text/event-stream"), takes, "{accept:?}");
        }
    }
}
