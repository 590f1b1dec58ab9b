//! Answers that no cache keeps.

use std::io::{self, Write};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tenure_core::{Code, Rejection};

use crate::problem::HttpProblem;

/// An answer in JSON, which no cache keeps.
pub(crate) fn json_reply(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => bytes_reply(status, HeaderValue::from_static("application/json"), bytes),
        Err(error) => {
            let message = format!("the answer cannot be written: {error}");
            HttpProblem::from(Rejection::new(Code::StorageError, message)).into_response()
        }
    }
}

/// An answer of bytes, which no cache keeps.
pub(crate) fn bytes_reply(
    status: StatusCode,
    media_type: HeaderValue,
    bytes: impl Into<Body>,
) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// How many bytes an answer has in JSON. Nothing is kept of them.
pub(super) fn json_bytes(body: &impl Serialize) -> usize {
    let mut count = CountedBytes(0);
    let _ = serde_json::to_writer(&mut count, body); // What has no form in JSON is refused when it is written.
    count.0
}

struct CountedBytes(usize);

impl Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
