//! Page tokens: where the next page of a list begins, in a form that callers need not understand.
//!
//! A token is a position and a digest of what the list was asked with. Given with other filters it is
//! refused, as the position would mean something else there. It needs no signature: whoever makes one
//! up reads what `offset` would show as well.

use std::any::Any;

use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::view::{FactsPage, Inspection, StepPage, TaskPage};

use super::query::{InputSchema, Parameters};
use crate::problem::HttpProblem;

/// The parameter.
pub(super) const PAGE_TOKEN: &str = "page_token";

/// Parameters that may differ from page to page.
const FREE: [&str; 2] = ["limit", "max_bytes"];

/// The fields of inputs at which a page begins. An operation whose input has none has no pages.
const POSITIONS: [&str; 2] = ["offset", "from_seq"];

/// How many bytes of a digest a token has: enough that no two filters meet by accident.
const DIGEST_BYTES: usize = 8;

/// What a list is asked with, beside the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filter([u8; DIGEST_BYTES]);

impl Filter {
    /// The digest of a path and its parameters.
    pub(super) fn of(path: &str, query: &Parameters) -> Self {
        let mut parameters: Vec<_> = query.rest().iter().collect();
        parameters.retain(|(name, _)| !FREE.contains(&name.as_str()));
        parameters.sort();
        let mut digest = Sha256::new();
        digest.update(path);
        for (name, value) in parameters {
            digest.update([0]);
            digest.update(name.as_bytes());
            digest.update([0]);
            digest.update(value);
        }
        let digest: [u8; 32] = digest.finalize().into();
        let mut first = [0; DIGEST_BYTES];
        first.copy_from_slice(&digest[..DIGEST_BYTES]);
        Self(first)
    }

    /// The token of the page that begins here.
    pub(super) fn token(self, position: u64) -> String {
        let bytes = self.0.into_iter().chain(position.to_be_bytes());
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// The position in a token.
    ///
    /// # Errors
    /// 422: it is no token, or that of another list.
    pub(super) fn position(self, token: &str) -> Result<u64, HttpProblem> {
        let position = token.get(DIGEST_BYTES * 2..);
        let position = position.and_then(|text| u64::from_str_radix(text, 16).ok());
        match position.filter(|position| self.token(*position) == token) {
            Some(position) => Ok(position),
            None => {
                let message = "this is no page token of this list with these filters";
                Err(Rejection::invalid(PAGE_TOKEN, message).into())
            }
        }
    }
}

/// The field of an input at which a page begins, if its answer comes in pages.
pub(crate) fn position_in(schema: &InputSchema<'_>) -> Option<SmolStr> {
    let properties = schema.properties()?;
    let position = POSITIONS.into_iter().find(|name| properties.contains_key(*name))?;
    Some(position.into())
}

/// Where the next page begins, of an answer that is a page.
pub(super) fn next(answer: &dyn Any) -> Option<u64> {
    if let Some(history) = answer.downcast_ref::<Inspection>() {
        return history.next_seq;
    }
    let offset = if let Some(page) = answer.downcast_ref::<TaskPage>() {
        page.next_offset
    } else if let Some(page) = answer.downcast_ref::<StepPage>() {
        page.next_offset
    } else {
        answer.downcast_ref::<FactsPage>()?.next_offset
    };
    offset.map(|offset| offset as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Filter {
        Filter::of("/tasks", &Parameters::read(Some(text)).unwrap())
    }

    #[test]
    fn a_token_is_good_for_its_list_alone() {
        let token = filter("a=1&b=2").token(513);
        assert_eq!(token.len(), 32);
        assert_eq!(filter("b=2&limit=5&a=1").position(&token).unwrap(), 513);
        for other in ["a=1", "a=1&b=3", "a=1&b=2&b=2", ""] {
            assert!(filter(other).position(&token).is_err(), "{other}");
        }
        let elsewhere = Filter::of("/steps", &Parameters::read(Some("a=1&b=2")).unwrap());
        assert!(elsewhere.position(&token).is_err());
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let good = filter("").token(10);
        assert_eq!(filter("").position(&good).unwrap(), 10);
        let plus = format!("{}+{}", &good[..16], &good[17..]);
        let longer = format!("{good}0");
        for bad in ["", "x", &good[1..], &longer, &good.to_uppercase(), &plus, "ééééééééé"]
        {
            assert!(filter("").position(bad).is_err(), "{bad}");
        }
    }
}
