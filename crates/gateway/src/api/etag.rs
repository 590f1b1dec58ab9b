//! [`ETag`]: the tag of a Task, `"<version>-<spec_version>"` (OCC-07), in `ETag`, `If-Match` and
//! `If-None-Match`.

use std::any::Any;
use std::fmt;

use axum::http::HeaderValue;
use axum::http::header::{HeaderMap, IF_NONE_MATCH};
use tenure_core::view::{TaskView, WriteSummary};
use tenure_core::{Code, Rejection};

use super::header::one;
use crate::problem::HttpProblem;

/// The header by which a write expects a version.
const NAME: &str = "If-Match";

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
/// 400 for several tags, and for what is no tag; 412 for a tag that no Task has.
pub(super) fn expected_spec_version(headers: &HeaderMap) -> Result<Option<u64>, HttpProblem> {
    let Some(text) = one(headers, NAME)? else { return Ok(None) };
    match ETag::read(text) {
        Some(tag) => Ok(Some(tag.spec_version)),
        None if text == "*" => Ok(None),
        None if is_tag(text) => Err(no_tag(text)),
        None => {
            let message =
                "If-Match is the ETag of a task, with its quotes, such as \"12-7\"; one, or *";
            Err(HttpProblem::bad_header(NAME, message))
        }
    }
}

/// Whether a text has the form of one tag, as HTTP knows it.
fn is_tag(text: &str) -> bool {
    let strong = text.strip_prefix("W/").unwrap_or(text);
    let inner = strong.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.is_some_and(|inner| !inner.contains('"'))
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

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::http::header::IF_MATCH;

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
        for tag in ["\"other\"", "\"\"", "W/\"12-7\""] {
            assert_eq!(status(&[tag]), StatusCode::PRECONDITION_FAILED, "{tag}");
        }
    }

    /// What is no tag says nothing about the Task: the header is named, and not the version.
    #[test]
    fn what_is_no_tag_is_refused_by_the_name_of_the_header() {
        let two = ["\"12-7\"", "\"13-7\""];
        for values in [&["abc"][..], &["12-7"], &[""], &["\"12-7\", \"13-7\""], &["\""], &two] {
            let refused = expected_spec_version(&with(IF_MATCH, values)).unwrap_err();
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{values:?}");
            assert_eq!(refused.rejection().details["field"], "If-Match", "{values:?}");
        }
    }

    #[test]
    fn a_read_compares_both_numbers() {
        let known = |values: &[&str]| is_known(&with(IF_NONE_MATCH, values), TAG);
        assert!(known(&["\"12-7\""]) && known(&["W/\"12-7\""]) && known(&["*"]));
        assert!(known(&["\"1-1\", \"12-7\""]) && known(&["\"1-1\"", "\"12-7\""]));
        assert!(!known(&[]) && !known(&["\"13-7\""]) && !known(&["\"12-8\""]));
    }
}
