//! [`HttpProblem`]: a refusal as HTTP says it (RFC 9457).
//!
//! A refusal of the ports keeps its code, its message and its details; [`status_of`] adds the status.
//! What HTTP itself refuses (a malformed body, an unknown path) has the code `validation_error` and a
//! status that says more.

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value as Json};
use tenure_core::{Code, Rejection};

/// The media type of a problem.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Where the codes are explained: the page of the gateway itself, below which each code has its place.
const DOCS: &str = "/docs#";

/// How long a caller is told to wait where the refusal says nothing of it.
const RETRY_AFTER_SECONDS: u64 = 1;

/// How callers of this API prove who they are.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer");

/// A refusal with the status of its answer. It is boxed, as it is in the result of every function that
/// answers, and seldom there.
#[derive(Debug, Clone)]
pub struct HttpProblem(Box<ProblemParts>);

#[derive(Debug, Clone)]
struct ProblemParts {
    status: StatusCode,
    rejection: Rejection,
    headers: HeaderMap,
}

/// The body of a problem.
#[derive(Serialize)]
struct ProblemBody<'a> {
    r#type: String,
    title: String,
    status: u16,
    detail: &'a str,
    code: Code,
    retryable: bool,
    details: &'a Map<String, Json>,
}

impl HttpProblem {
    /// A refusal with another status than its code has by itself.
    pub fn new(status: StatusCode, rejection: Rejection) -> Self {
        let headers = headers_of(status, &rejection);
        Self(Box::new(ProblemParts { status, rejection, headers }))
    }

    /// What HTTP itself refuses, with the code `validation_error`.
    pub fn of_http(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, Rejection::new(Code::ValidationError, message))
    }

    /// 400: the body or the query string is not what its media type says.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::of_http(StatusCode::BAD_REQUEST, message)
    }

    /// 400: a header is not what it must be. The refusal names it.
    pub fn bad_header(name: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Rejection::invalid(name, message))
    }

    /// 401: nobody has authenticated the caller. Why is not said to callers that may be hostile.
    pub fn unauthenticated() -> Self {
        let message = "the request has no valid credentials";
        Rejection::new(Code::Unauthenticated, message).into()
    }

    /// 403: the caller is known, and this is not for it.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Rejection::new(Code::PermissionDenied, message).into()
    }

    /// 404: there is no such resource.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::of_http(StatusCode::NOT_FOUND, message)
    }

    /// 413: the body has more than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("the body has more than {limit} bytes");
        let rejection = Rejection::new(Code::ValidationError, message).with("limit", limit);
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, rejection)
    }

    /// The same problem with one more header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// The same problem with the methods that the resource has (405).
    #[must_use]
    pub fn allowing(self, methods: HeaderValue) -> Self {
        self.with_header(ALLOW, methods)
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The refusal.
    pub fn rejection(&self) -> &Rejection {
        &self.0.rejection
    }
}

impl From<Rejection> for HttpProblem {
    fn from(rejection: Rejection) -> Self {
        Self::new(status_of(rejection.code), rejection)
    }
}

impl From<tenure_core::id::BadId> for HttpProblem {
    fn from(bad: tenure_core::id::BadId) -> Self {
        Rejection::from(bad).into()
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let ProblemParts { status, rejection, headers } = *self.0;
        let body = ProblemBody {
            r#type: format!("{DOCS}{}", rejection.code),
            title: rejection.code.as_str().replace('_', " "),
            status: status.as_u16(),
            detail: &rejection.message,
            code: rejection.code,
            retryable: rejection.code.is_retryable(),
            details: &rejection.details,
        };
        let body = serde_json::to_vec(&body).unwrap_or_default(); // Text, numbers and JSON have a form.
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response.extensions_mut().insert(rejection); // For a binding that says it in another way.
        response
    }
}

/// The status with which a refusal is answered.
pub(crate) const fn status_of(code: Code) -> StatusCode {
    match code {
        Code::ValidationError | Code::DependencyCycle | Code::IdempotencyConflict => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Code::ValueTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ToolNotAvailable | Code::PermissionDenied | Code::StepOutOfScope => {
            StatusCode::FORBIDDEN
        }
        Code::TaskNotFound | Code::StepNotFound | Code::RunNotFound | Code::WorkerGone => {
            StatusCode::NOT_FOUND
        }
        Code::VersionConflict => StatusCode::PRECONDITION_FAILED,
        Code::StorageError | Code::StorageUnavailable | Code::NotOwner | Code::Unavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::PathConflict
        | Code::StepHasDependents
        | Code::TaskTerminal
        | Code::StepAlreadyClaimed
        | Code::StepAlreadyClaimedByRun
        | Code::TaskIdConflict
        | Code::CreationUnfinished
        | Code::TaskNotDispatchable
        | Code::TaskCancelling
        | Code::StepNotReady
        | Code::StepInProgress
        | Code::StepHistoryImmutable
        | Code::InvalidTransition
        | Code::StaleAttempt
        | Code::RunEnded
        | Code::RequiredStepsIncomplete
        | Code::StepsInProgress
        | Code::FactsUnreconciled
        | Code::AcceptanceUnmet
        | Code::BlobMissing
        | Code::QuotaExceeded => StatusCode::CONFLICT,
    }
}

/// The headers that go with a status and a refusal.
fn headers_of(status: StatusCode, rejection: &Rejection) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, CHALLENGE);
    }
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        headers.insert(RETRY_AFTER, retry_after(rejection).into());
    }
    headers
}

/// In how many whole seconds to ask again, at least one.
fn retry_after(rejection: &Rejection) -> u64 {
    let said = rejection.details.get("retry_after_ms").and_then(Json::as_u64);
    said.map_or(RETRY_AFTER_SECONDS, |ms| ms.div_ceil(1_000).max(RETRY_AFTER_SECONDS))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn body(response: Response) -> Json {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn a_refusal_keeps_its_code_and_its_details() {
        let refused = Rejection::invalid("steps[0].title", "it is empty");
        let response = HttpProblem::from(refused).into_response();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(response.headers()[CONTENT_TYPE], MEDIA_TYPE);
        let expected = serde_json::json!({
            "type": "/docs#validation_error",
            "title": "validation error",
            "status": 422,
            "detail": "it is empty",
            "code": "validation_error",
            "retryable": false,
            "details": { "field": "steps[0].title" },
        });
        assert_eq!(body(response).await, expected);
    }

    #[test]
    fn every_retryable_refusal_says_when_to_come_back() {
        for &code in Code::ALL {
            let problem = HttpProblem::from(Rejection::new(code, "no"));
            assert_eq!(problem.0.headers.contains_key(RETRY_AFTER), code.is_retryable(), "{code}");
            assert!(problem.status().is_client_error() || code.is_retryable(), "{code}");
        }
        for (ms, seconds) in [(0, 1), (50, 1), (1_000, 1), (1_001, 2)] {
            let refused = Rejection::new(Code::Unavailable, "busy").with("retry_after_ms", ms);
            assert_eq!(retry_after(&refused), seconds, "{ms}");
        }
    }

    #[test]
    fn who_is_unknown_is_told_how_to_say_who_it_is() {
        let problem = HttpProblem::unauthenticated();
        assert_eq!(problem.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(problem.0.headers[WWW_AUTHENTICATE], CHALLENGE);
    }
}
