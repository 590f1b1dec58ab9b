//! [`RecentCalls`]: how many calls each caller has made of late in sessions of older versions.
//!
//! Such a session keeps each answer for a while, in case its host has lost the connection and asks for it again. So
//! what a caller has made the gateway keep is bounded by the number of its calls in that time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use tenure_core::status::Role;
use tenure_core::{Code, Rejection};
use tenure_wire::bus::subject::Token;

use crate::problem::HttpProblem;

/// How long an answer is kept: a host that has lost its connection asks again at once.
pub(super) const ANSWERS_KEPT: Duration = Duration::from_secs(5);

/// The most calls of one caller in that time.
const CALLS_MAX: u32 = 1_000;

/// How many callers are remembered before those are forgotten that have made no call of late.
const REMEMBERED: usize = 1_024;

/// The calls of late.
#[derive(Debug, Default)]
pub(super) struct RecentCalls(Mutex<HashMap<(Token, Role), CallWindow>>);

/// A time of [`ANSWERS_KEPT`], and the calls in it.
#[derive(Debug, Clone, Copy)]
struct CallWindow {
    since: Instant,
    calls: u32,
}

impl CallWindow {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= ANSWERS_KEPT
    }
}

impl RecentCalls {
    /// Counts a call.
    ///
    /// # Errors
    /// The caller has made too many.
    pub(super) fn count(&self, who: &Token, role: Role) -> Result<(), HttpProblem> {
        self.count_at(who, role, Instant::now())
    }

    fn count_at(&self, who: &Token, role: Role, now: Instant) -> Result<(), HttpProblem> {
        let mut recent = self.0.lock();
        if recent.len() >= REMEMBERED {
            recent.retain(|_, window| !window.is_over(now));
        }
        let window = recent
            .entry((who.clone(), role))
            .and_modify(|window| {
                if window.is_over(now) {
                    *window = CallWindow { since: now, calls: 0 };
                }
            })
            .or_insert(CallWindow { since: now, calls: 0 });
        if window.calls < CALLS_MAX {
            window.calls += 1;
            return Ok(());
        }
        let left = (window.since + ANSWERS_KEPT).saturating_duration_since(now);
        let seconds = ANSWERS_KEPT.as_secs();
        let message = format!(
            "this login has made {CALLS_MAX} calls in {seconds} seconds in sessions of older versions of MCP, and more \
             are not taken: make them a little later, or speak the newest version"
        );
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let refused = Rejection::new(Code::Unavailable, message).with("limit", CALLS_MAX);
        Err(HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, refused.with("retry_after_ms", ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 15: the calls of one caller cost no other its own, and it has its own again after a while.
    #[test]
    fn calls_of_late_are_bounded() {
        let (calls, begun) = (RecentCalls::default(), Instant::now());
        let call = |who: &str, at: Duration| {
            let who = Token::new(who).unwrap();
            calls.count_at(&who, Role::Observer, begun + at).is_ok()
        };
        let passed = (0..2 * CALLS_MAX).filter(|_| call("eve", Duration::ZERO)).count();
        assert_eq!(passed, CALLS_MAX as usize);
        assert!(call("bob", Duration::ZERO));
        assert!(!call("eve", ANSWERS_KEPT / 2) && call("eve", ANSWERS_KEPT));
        for n in 0..2 * REMEMBERED {
            assert!(call(&format!("p{n}"), ANSWERS_KEPT * u32::try_from(n).unwrap()));
        }
        assert!(calls.0.lock().len() <= REMEMBERED);
    }
}
