//! How long an assignee may be silent (L-07), if a session asks for such a bound by its `configuration_version`.
//!
//! The protocol has no heartbeat, and in it no assignment ends by itself. Only a session may expire.

use crate::code::invalid;
use crate::{MacpEffect, MacpRefusal, MacpSession, SessionState, is_pool};

/// Versions of configurations that begin with this are those of Tenure.
const RESERVED: &str = "tenure.";
/// How a lease is asked for: a number of seconds and `s` stand behind this.
const LEASE: &str = "tenure.lease.";
/// How many seconds a lease may have: a day, which is as long as a session may live.
const LEASE_S: std::ops::RangeInclusive<i64> = 1..=86_400;

/// The lease that a `configuration_version` asks for, in milliseconds; 0 is none.
///
/// # Errors
///
/// INVALID_ENVELOPE for a version that is reserved and that there is not.
pub(crate) fn asked_ms(configuration_version: &str) -> Result<i64, MacpRefusal> {
    if !configuration_version.starts_with(RESERVED) {
        return Ok(0);
    }
    let digits = configuration_version.strip_prefix(LEASE).and_then(|it| it.strip_suffix('s'));
    let seconds = digits.filter(|it| it.bytes().all(|b| b.is_ascii_digit()));
    match seconds.and_then(|it| it.parse::<i64>().ok()).filter(|it| LEASE_S.contains(it)) {
        Some(seconds) => Ok(seconds.saturating_mul(1_000)),
        None => invalid(format!(
            "configuration_version: versions of Tenure are {LEASE}<seconds>s, with {} to {} seconds; choose another \
             name for your own",
            LEASE_S.start(),
            LEASE_S.end()
        )),
    }
}

impl MacpSession {
    /// When the lease of the assignee ends, in milliseconds since 1970. `None`: nobody has one.
    pub fn lease_until_ms(&self) -> Option<i64> {
        self.lease_until_ms
    }

    /// Whether the assignee of an open session has been silent for longer than its lease at this time.
    pub fn has_lapsed(&self, now_ms: i64) -> bool {
        self.state == SessionState::Open && self.lease_until_ms.is_some_and(|until| now_ms > until)
    }

    /// Why an open session is over at this time, in words.
    pub fn why_over(&self, now_ms: i64) -> String {
        if self.has_lapsed(now_ms) {
            let lease_s = self.bound().lease_ms / 1_000;
            return format!("the assignee was silent for longer than its lease of {lease_s} s");
        }
        "the time of the session is over".to_owned()
    }

    /// How a message changes the lease: a participant who accepts gets one, and a report of progress renews it. The
    /// worker of a pool has a lease of its own.
    pub(crate) fn renew(&mut self, sender: &str, effect: &MacpEffect, now_ms: i64) {
        let lease_ms = self.bound().lease_ms;
        let renewed = (lease_ms > 0 && !is_pool(sender)).then(|| now_ms.saturating_add(lease_ms));
        self.lease_until_ms = match effect {
            MacpEffect::Accept(_) | MacpEffect::Progress(_) => renewed,
            MacpEffect::Return(_) | MacpEffect::Report(_) => None,
            MacpEffect::Request(_)
            | MacpEffect::Decline(_)
            | MacpEffect::Commit(_)
            | MacpEffect::Noted => self.lease_until_ms,
        };
    }
}
