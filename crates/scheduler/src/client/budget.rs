//! Answers within the budget of the caller (CTRL-06).

use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::view::{WriteSummary, fit};
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::answer_bytes;

use super::ClientLink;
use crate::ask::{Done, WriteAnswer};
use crate::handle::ambiguous;

impl<J: Journal, L: Leases> ClientLink<J, L> {
    /// Shortens an answer until it fits into what the caller can take. Without a budget an answer
    /// may be as long as the bus can send.
    pub(super) fn fit<T: Serialize>(&self, answer: T, shorten: impl FnMut(&mut T) -> bool) -> T {
        match self.max_bytes {
            Some(max_bytes) => fit(max_bytes, answer, answer_bytes, shorten),
            None => answer,
        }
    }

    /// The answer to a write, within the budget.
    pub(super) fn answered(&self, answer: WriteAnswer) -> Result<Done, Rejection> {
        let summary = answer.summary.ok_or_else(ambiguous)?;
        let summary = self.fit(*summary, WriteSummary::shorten);
        Ok(Done { summary, is_written: answer.is_written })
    }
}
