//! How long to wait before a request is repeated.

use std::time::Duration;

use tenure_core::Rejection;

use crate::jitter::jittered;

/// A refusal asks for no longer pause than this: who asks for a day may have asked for it by mistake.
const ASKED_MAX: Duration = Duration::from_secs(60);

/// Pauses that double up to a longest one, each with some jitter.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// Whether they no longer double.
    pub(crate) fn are_longest(&self) -> bool {
        self.next >= self.longest
    }

    /// The pause after this refusal: no shorter than the refusal's `retry_after_ms`, up to a minute, and
    /// not the same for all callers that got the same refusal.
    pub(crate) fn after(&mut self, refused: &Rejection) -> Duration {
        let pause = jittered(self.next);
        self.next = (self.next * 2).min(self.longest);
        let asked = refused.details.get("retry_after_ms").and_then(serde_json::Value::as_u64);
        let asked = Duration::from_millis(asked.unwrap_or(0)).min(ASKED_MAX);
        pause.max(asked + jittered(asked / 4))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn they_double_up_to_the_longest_and_differ() {
        let refused = Rejection::new(Code::Unavailable, "busy");
        let of = || {
            let mut pauses = Pauses::between(20 * MS, 100 * MS);
            [(); 5].map(|()| pauses.after(&refused))
        };
        for pauses in [of(), of(), of()] {
            for (pause, whole) in pauses.into_iter().zip([20, 40, 80, 100, 100]) {
                assert!((whole * MS / 2..=whole * MS).contains(&pause), "{pause:?} of {whole} ms");
            }
        }
        assert_ne!(of(), of(), "those who begin together do not go on together");
        let mut pauses = Pauses::between(20 * MS, 40 * MS);
        assert!(!pauses.are_longest());
        pauses.after(&refused);
        assert!(pauses.are_longest());
    }

    /// Mechanisms 16: `retry_after_ms` is honoured.
    #[test]
    fn none_is_shorter_than_was_asked_for() {
        let mut pauses = Pauses::between(20 * MS, 100 * MS);
        let refused = Rejection::new(Code::Unavailable, "busy").with("retry_after_ms", 700);
        assert!((700 * MS..=875 * MS).contains(&pauses.after(&refused)));
        let mut of = || pauses.after(&refused);
        assert_ne!([of(), of(), of()], [of(), of(), of()], "they do not come back together");
        let refused = Rejection::new(Code::Unavailable, "busy").with("retry_after_ms", 1);
        assert!(pauses.after(&refused) >= 20 * MS);
    }

    #[test]
    fn nobody_is_told_to_wait_for_a_day() {
        let refused = Rejection::new(Code::Unavailable, "busy").with("retry_after_ms", 86_400_000);
        let pause = Pauses::between(20 * MS, 40 * MS).after(&refused);
        assert!((ASKED_MAX..=ASKED_MAX * 5 / 4).contains(&pause), "{pause:?}");
    }
}
