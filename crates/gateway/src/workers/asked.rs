//! What is read from a request before its route sees it: the caller, the pool, the link and the body.
//! Whoever may not work in the pool learns nothing about its links.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde_json::Value as Json;
use tenure_core::Rejection;
use tenure_core::id::{AttemptId, PoolId, RunId};
use tenure_core::status::Role;

use super::bodies::Body;
use super::link::HttpLink;
use crate::Gateway;
use crate::api::{Inquiry, Parameters, json_body};
use crate::backend::Backend;
use crate::guard::{AnswerShare, BodyShare};
use crate::identity::Identity;
use crate::problem::HttpProblem;

/// The longest body of JSON: a message of the bus, and as much again for what JSON writes longer.
pub(super) const BODY_MAX: usize = 2 << 20;

/// About how many bytes a map of JSON takes that has any entry: there is room for eleven.
const MAP_BYTES: usize = 700;

/// About how many bytes another value of JSON takes. A list may have twice as much room as it needs.
const VALUE_BYTES: usize = 64;

/// A request of a caller that may work in the pool of the path.
#[derive(Debug)]
pub(super) struct AtPool {
    pub(super) pool: PoolId,
    asked: Inquiry,
}

impl AtPool {
    fn of(asked: Inquiry) -> Result<Self, HttpProblem> {
        let pool = word_of(&asked, "pool").parse()?;
        let is_worker = matches!(asked.who.role, Role::Worker | Role::Orchestrator);
        if !is_worker || !asked.who.pools.admits(&pool) {
            return Err(HttpProblem::forbidden(format!("this caller may not work in pool {pool}")));
        }
        Ok(Self { pool, asked })
    }

    /// The caller.
    pub(super) fn who(&self) -> &Identity {
        &self.asked.who
    }

    fn id<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, Rejection> {
        let read = word_of(&self.asked, name).parse();
        read.map_err(|error: T::Err| Rejection::invalid(name, error.to_string()))
    }
}

/// A parameter of the path; an empty one where the route has none of this name.
fn word_of<'a>(asked: &'a Inquiry, name: &str) -> &'a str {
    let found = asked.path.iter().find(|(it, _)| *it == name);
    found.map_or("", |(_, word)| word)
}

impl<S: Send + Sync> FromRequestParts<S> for AtPool {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        Self::of(Inquiry::from_request_parts(parts, state).await?)
    }
}

/// A request on the link of the path, which is this caller's.
pub(super) struct AtLink<B: Backend> {
    pub(super) link: Arc<HttpLink<B::Worker>>,
    at: AtPool,
}

impl<B: Backend> AtLink<B> {
    /// The pool of the path.
    pub(super) fn pool(&self) -> &PoolId {
        &self.at.pool
    }

    /// The Attempt of the path.
    ///
    /// # Errors
    /// `validation_error`: it is no id.
    pub(super) fn attempt_id(&self) -> Result<AttemptId, Rejection> {
        self.at.id("attempt_id")
    }

    /// The Run of the path.
    ///
    /// # Errors
    /// `validation_error`: it is no id.
    pub(super) fn run_id(&self) -> Result<RunId, Rejection> {
        self.at.id("run_id")
    }

    /// The digest of the path, whatever its form.
    pub(super) fn digest(&self) -> &str {
        word_of(&self.at.asked, "digest")
    }

    /// The query string.
    pub(super) fn query(&mut self) -> &mut Parameters {
        &mut self.at.asked.query
    }

    /// Where the answer takes its bytes.
    pub(super) fn answers(&self) -> &AnswerShare {
        &self.at.asked.answers
    }

    /// The headers.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.at.asked.headers
    }
}

impl<B: Backend> FromRequestParts<Arc<Gateway<B>>> for AtLink<B> {
    type Rejection = HttpProblem;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway<B>>,
    ) -> Result<Self, HttpProblem> {
        let at = AtPool::from_request_parts(parts, gateway).await?;
        let link = gateway.workers.get(at.who(), &at.pool, word_of(&at.asked, "link"))?;
        Ok(Self { link, at })
    }
}

/// A parameter of the query string that is an id or a number.
///
/// # Errors
/// 400 or 422: it is missing, is given twice, or has another form.
pub(super) fn needed<T: FromStr<Err: Display>>(
    query: &mut Parameters,
    name: &str,
) -> Result<T, HttpProblem> {
    let text = query.take(name)?.ok_or_else(|| Rejection::invalid(name, "it is missing"))?;
    let read = text.parse();
    Ok(read.map_err(|error: T::Err| Rejection::invalid(name, error.to_string()))?)
}

/// A body of JSON: an object. No body is an empty one.
#[derive(Debug)]
pub(super) struct JsonBody(pub(super) Body);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, _: &S) -> Result<Self, HttpProblem> {
        let (parts, body) = request.into_parts();
        let text = json_body(&parts.headers, body, BODY_MAX).await?;
        if let Some(share) = parts.extensions.get::<BodyShare>() {
            share.grow(memory_of(&text))?;
        }
        if text.is_empty() {
            return Ok(Self(Body::new()));
        }
        match serde_json::from_slice(&text) {
            Ok(Json::Object(body)) => Ok(Self(body)),
            Ok(_) => Err(Rejection::invalid("body", "it is no object").into()),
            Err(error) => Err(HttpProblem::malformed(format!("the body is no JSON: {error}"))),
        }
    }
}

/// About how many bytes a text of JSON takes once it is read, at most.
pub(crate) fn memory_of(json: &[u8]) -> usize {
    let (mut bytes, mut in_string, mut is_escaped) = (0, false, false);
    for byte in json {
        bytes += match byte {
            b'{' if !in_string => MAP_BYTES,
            b'[' | b',' if !in_string => VALUE_BYTES,
            _ => 1,
        };
        in_string ^= *byte == b'"' && !is_escaped;
        is_escaped = in_string && *byte == b'\\' && !is_escaped;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use axum::body::Body as HttpBody;
    use axum::http::header::CONTENT_TYPE;

    use super::*;

    async fn status(media_type: &str, body: String) -> u16 {
        let request = Request::builder().header(CONTENT_TYPE, media_type);
        let request = request.body(HttpBody::from(body)).unwrap();
        let read = JsonBody::from_request(request, &()).await;
        read.map_or_else(|problem| problem.status().as_u16(), |_| 200)
    }

    #[tokio::test]
    async fn a_body_is_an_object_of_json() {
        let json = "application/json";
        assert_eq!(status("Application/JSON; charset=utf-8", "{}".into()).await, 200);
        assert_eq!(status(json, String::new()).await, 200);
        assert_eq!(status("text/plain", "{}".into()).await, 415);
        assert_eq!(status("application/x-www-form-urlencoded", "{}".into()).await, 415);
        assert_eq!(status(json, "{".into()).await, 400);
        assert_eq!(status(json, "[]".into()).await, 422);
        let of_length = |length: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
        assert_eq!(status(json, of_length(BODY_MAX)).await, 200);
        assert_eq!(status(json, of_length(BODY_MAX + 1)).await, 413);
    }

    #[test]
    fn small_values_take_more_than_their_text() {
        assert_eq!(memory_of(b"\"text\""), 6);
        assert!(memory_of(&b"{\"\":0},".repeat(1_000)) > 700_000);
        assert_eq!(memory_of(br#""{[,\"{[,\\","#), 12 + VALUE_BYTES, "a string is its bytes");
        assert!(memory_of(&b"0,".repeat(1_000)) > 64_000);
    }

    #[test]
    fn a_parameter_is_read_as_what_it_is() {
        let mut query = Parameters::read(Some("a=7&b=x")).unwrap();
        assert_eq!(needed::<u64>(&mut query, "a").unwrap(), 7);
        for name in ["a", "b"] {
            let refused = needed::<u64>(&mut query, name).unwrap_err();
            assert_eq!(refused.rejection().details["field"], name);
        }
    }
}
