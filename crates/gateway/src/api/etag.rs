//! [`ETag`]: the tag of a Task, `"<version>-<spec_version>"` (OCC-07), in `ETag`, `If-Match` and
//! `If-None-Match`.

use std::any::Any;
use std::fmt;

use axum::http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderValue, StatusCode};
use tenure_core::view::{TaskView, WriteSummary};
use tenure_core::{Code, Rejection};

use crate::problem::HttpProblem;

/// The tag of a Task. Both numbers are fields of the Task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ETag {
    /// `wal_seq` of its last event.
    pub(crate) version: u64,
    /// `wal_seq` of the event by which orchestrators last changed what the Task is to do.
    pub(crate) spec_version: u64,
}

impl ETag {
    /// The tag of the Task that an answer shows, or that a write has left.
    pub(super) fn of_answer(answer: &dyn Any) -> Option<Self> {
        if let Some(view) = answer.downcast_ref::<TaskView>() {
            return Some(Self { version: view.task.version, spec_version: view.task.spec_version });
        }
        let summary = answer.downcast_ref::<WriteSummary>()?;
        Some(Self { version: summary.version, spec_version: summary.spec_version? })
    }

    /// As the value of a header.
    pub(crate) fn to_value(self) -> Option<HeaderValue> {
        HeaderValue::try_from(self.to_string()).ok()
    }

    fn read(text: &str) -> Option<Self> {
        let (version, spec_version) = text.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        Some(Self { version: version.parse().ok()?, spec_version: spec_version.parse().ok()? })
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}-{}\"", self.version, self.spec_version)
    }
}

/// The `spec_version` that a write expects, by `If-Match`. `*` expects none in particular.
///
/// # Errors
/// 400 for several tags; 412 for a tag that no Task has.
pub(super) fn expected_spec_version(headers: &HeaderMap) -> Result<Option<u64>, HttpProblem> {
    let Some(text) = one(headers, &IF_MATCH)? else { return Ok(None) };
    match text {
        "*" => Ok(None),
        text if text.contains(',') => Err(HttpProblem::malformed("If-Match names one tag here")),
        text => match ETag::read(text) {
            Some(tag) => Ok(Some(tag.spec_version)),
            None => Err(no_tag(text)),
        },
    }
}

/// No Task has such a tag, so no Task matches it.
fn no_tag(text: &str) -> HttpProblem {
    let text: String = text.chars().take(80).collect();
    let message = format!("{text} is the tag of no task");
    Rejection::new(Code::VersionConflict, message).with("if_match", text).into()
}

/// Whether the caller has this version of the Task already, by `If-None-Match`.
pub(crate) fn is_known(headers: &HeaderMap, tag: ETag) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|it| it == "*" || ETag::read(it.strip_prefix("W/").unwrap_or(it)) == Some(tag))
}

/// The one value of a header.
pub(super) fn one<'a>(
    headers: &'a HeaderMap,
    name: &axum::http::HeaderName,
) -> Result<Option<&'a str>, HttpProblem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(HttpProblem::malformed(format!("the header {name} is given twice")));
    }
    let text = value.to_str().map(str::trim);
    let no_text = |_| {
        let message = format!("the header {name} has characters that are not ASCII");
        HttpProblem::of_http(StatusCode::BAD_REQUEST, message)
    };
    text.map(Some).map_err(no_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: axum::http::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, value.parse().unwrap());
        }
        headers
    }

    const TAG: ETag = ETag { version: 12, spec_version: 7 };

    #[test]
    fn a_tag_is_read_as_it_is_written() {
        assert_eq!(TAG.to_string(), "\"12-7\"");
        assert_eq!(ETag::read("\"12-7\""), Some(TAG));
        for other in ["12-7", "\"12\"", "\"a-7\"", "\"-1-7\"", "", "\""] {
            assert_eq!(ETag::read(other), None, "{other}");
        }
    }

    #[test]
    fn a_write_expects_the_second_number() {
        let expected = |values: &[&str]| expected_spec_version(&with(IF_MATCH, values));
        assert_eq!(expected(&[]).unwrap(), None);
        assert_eq!(expected(&["*"]).unwrap(), None);
        assert_eq!(expected(&["\"12-7\""]).unwrap(), Some(7));
        let status = |values: &[&str]| expected(values).unwrap_err().status();
        assert_eq!(status(&["\"12-7\", \"13-7\""]), StatusCode::BAD_REQUEST);
        assert_eq!(status(&["\"12-7\"", "\"13-7\""]), StatusCode::BAD_REQUEST);
        assert_eq!(status(&["\"other\""]), StatusCode::PRECONDITION_FAILED);
        assert_eq!(status(&["W/\"12-7\""]), StatusCode::PRECONDITION_FAILED);
    }

    #[test]
    fn a_read_compares_both_numbers() {
        let known = |values: &[&str]| is_known(&with(IF_NONE_MATCH, values), TAG);
        assert!(known(&["\"12-7\""]) && known(&["W/\"12-7\""]) && known(&["*"]));
        assert!(known(&["\"1-1\", \"12-7\""]) && known(&["\"1-1\"", "\"12-7\""]));
        assert!(!known(&[]) && !known(&["\"13-7\""]) && !known(&["\"12-8\""]));
    }
}
