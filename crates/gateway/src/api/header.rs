//! Headers that say something about a command.

use axum::http::HeaderMap;
use tenure_core::id::CommandId;
use tenure_core::{Code, Rejection};

use crate::problem::HttpProblem;

/// The header with the id of a command, for its repetitions.
pub(crate) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The one value of a header.
///
/// # Errors
/// 400: it is given twice, or is not ASCII.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, HttpProblem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(HttpProblem::bad_header(name, format!("the header {name} is given twice")));
    }
    let not_ascii = |_| {
        let message = format!("the header {name} has characters that are not ASCII");
        HttpProblem::bad_header(name, message)
    };
    value.to_str().map(|text| Some(text.trim())).map_err(not_ascii)
}

/// The id that a caller gives to its command; none if it gives none.
///
/// # Errors
/// 400: it is no id.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<CommandId>, HttpProblem> {
    let Some(text) = one(headers, IDEMPOTENCY_KEY)? else { return Ok(None) };
    let no_id = |_| {
        let message = format!("{IDEMPOTENCY_KEY} is a text of 1 to 256 bytes");
        HttpProblem::bad_header(IDEMPOTENCY_KEY, message)
    };
    CommandId::new(unquoted(text)).map(Some).map_err(no_id)
}

/// A key without the quotes that the draft of the header asks for, and few write.
fn unquoted(key: &str) -> &str {
    key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key)
}

/// The refusal of a command whose id came in the header: a conflict of ids names the header.
pub(super) fn of_keyed(refused: Rejection) -> Rejection {
    match refused.code {
        Code::IdempotencyConflict => {
            let message = format!("this {IDEMPOTENCY_KEY} was used for a different command");
            Rejection { message, ..refused }.with("field", IDEMPOTENCY_KEY)
        }
        _ => refused,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue, StatusCode};

    use super::*;

    fn keys(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            let name: HeaderName = IDEMPOTENCY_KEY.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn a_key_may_be_quoted() {
        for (given, key) in [("\"k\"", "k"), ("k", "k"), ("\"k", "\"k"), (" k ", "k")] {
            let read = idempotency_key(&keys(&[given])).unwrap();
            assert_eq!(read.unwrap().as_str(), key, "{given}");
        }
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
    }

    /// Whoever sends a header that cannot be used is told which.
    #[test]
    fn a_key_that_is_no_id_is_refused_by_its_name() {
        let long = "x".repeat(257);
        for given in [&[""][..], &["\"\""], &[long.as_str()], &["é"], &["a", "b"]] {
            let refused = idempotency_key(&keys(given)).unwrap_err();
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{given:?}");
            assert_eq!(refused.rejection().details["field"], IDEMPOTENCY_KEY, "{given:?}");
        }
    }
}
