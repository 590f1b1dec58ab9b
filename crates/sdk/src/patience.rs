//! Decides how long and with what pauses a request is repeated.

use std::time::Duration;

use tenure_core::{Code, Rejection, RejectionKind};
use tokio::time::Instant;

use crate::client::NotifiedWait;
use crate::pauses::Pauses;

/// First and longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Another try begins only if so much patience is left, or half of it where it is short: the answer to a shorter try
/// may come too late, and a reason that is known would end as an answer that was lost.
const TRY_MIN: Duration = Duration::from_millis(200);

/// How long there may be no answer before the user is told.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// How long to wait for the owner to read a log, as long as it answers that it is reading.
const READING_MAX: Duration = Duration::from_secs(600);

/// What a caller means who gives the longest duration that there is: a time that a clock can still tell.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

/// The patience that is left for one request.
#[derive(Debug)]
pub(crate) struct Patience {
    begun: Instant,
    whole: Duration,
    until: Instant,
    pauses: Pauses,
    /// An answer was lost: the request may have taken effect, whatever later answers say.
    lost_one: bool,
    /// Whether the user is told that there is no answer yet.
    tells: bool,
    /// Set once the user was told.
    told: Option<NotifiedWait>,
}

impl Patience {
    /// Patience that begins now.
    pub(crate) fn of(whole: Duration) -> Self {
        let pauses = Pauses::between(PAUSES.0, PAUSES.1);
        let begun = Instant::now();
        let whole = whole.min(FOR_EVER);
        let until = begun + whole;
        Self { begun, whole, until, pauses, lost_one: false, tells: true, told: None }
    }

    /// Patience that tells the user nothing: for requests behind which nobody waits at a screen.
    pub(crate) fn quiet(whole: Duration) -> Self {
        Self { tells: false, ..Self::of(whole) }
    }

    /// How long a try that takes up to `most` may take.
    pub(crate) fn for_a_try(&self, most: Duration) -> Duration {
        most.min(self.until.saturating_duration_since(Instant::now())).max(PAUSES.0)
    }

    /// Pauses, and returns true, if the request may be repeated after this refusal.
    pub(crate) async fn outlasts(&mut self, refused: &Rejection) -> bool {
        let pause = self.pauses.after(refused);
        if refused.details.get("reading").is_some_and(|it| *it == true) {
            let on = (Instant::now() + self.whole).min(self.begun + READING_MAX);
            self.until = self.until.max(on);
        }
        // What not all nodes know yet they will not know in a moment (EVOLVE-02).
        let is_final = !refused.code.is_retryable() || refused.details.contains_key("feature");
        let least = TRY_MIN.min(self.whole / 2);
        if is_final || Instant::now() + pause + least > self.until {
            return false;
        }
        self.lost_one |= refused.is_ambiguous();
        self.tell(refused);
        tokio::time::sleep(pause).await;
        true
    }

    /// Tells the user, once and after a second, why there is no answer yet: nobody answers, or somebody refuses for
    /// now. That an answer is late is no reason, as some requests are answered only when their effect is over.
    fn tell(&mut self, refused: &Rejection) {
        let is_due = !refused.is_ambiguous() && self.begun.elapsed() >= TOLD_AFTER;
        if self.tells && self.told.is_none() && is_due {
            self.told = Some(NotifiedWait::begin(refused));
        }
    }

    /// The result of all the tries together.
    pub(crate) fn conclude<T>(self, answer: Result<T, Rejection>) -> Result<T, Rejection> {
        let Self { told, lost_one, .. } = self;
        let is_final = answer.as_ref().err().is_none_or(|refused| !refused.code.is_retryable());
        if let Some(told) = told.filter(|_| is_final) {
            told.answered();
        }
        answer.map_err(|refused| match lost_one && refused.code.is_retryable() {
            true => refused.of_kind(RejectionKind::Ambiguous),
            false => refused,
        })
    }
}

/// The error when there is no answer now; the request may be repeated.
pub(crate) fn unavailable(message: impl Into<String>) -> Rejection {
    Rejection::new(Code::Unavailable, message)
}

/// The error when the answer to a request is lost: the request may have taken effect (WAL-09).
pub(crate) fn ambiguous(message: impl Into<String>) -> Rejection {
    unavailable(message).of_kind(RejectionKind::Ambiguous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn patience_may_be_endless() {
        let patience = Patience::of(Duration::MAX);
        assert_eq!(patience.for_a_try(Duration::from_secs(9)), Duration::from_secs(9));
    }

    #[tokio::test]
    async fn what_will_not_change_is_not_asked_again() {
        let mut patience = Patience::of(Duration::from_secs(60));
        let refused = Rejection::new(Code::TaskTerminal, "over");
        assert!(!patience.outlasts(&refused).await);
        assert!(patience.outlasts(&unavailable("busy")).await);
    }

    /// Mechanisms 16: `retry_after_ms` is honoured.
    #[tokio::test(start_paused = true)]
    async fn a_pause_lasts_as_long_as_was_asked_for() {
        let mut patience = Patience::of(Duration::from_secs(60));
        let begun = Instant::now();
        assert!(patience.outlasts(&unavailable("busy").with("retry_after_ms", 700)).await);
        assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
    }

    /// WAL-09: that no owner answers any more does not decide a try whose answer was lost.
    #[tokio::test(start_paused = true)]
    async fn one_lost_answer_leaves_all_in_doubt() {
        for (first, kind) in
            [(ambiguous("none in time"), Some("ambiguous")), (unavailable("busy"), None)]
        {
            let mut patience = Patience::of(Duration::from_secs(60));
            assert!(patience.outlasts(&first).await);
            let last = patience.conclude::<()>(Err(unavailable("nobody is there"))).unwrap_err();
            assert_eq!(last.details.get("kind").and_then(|kind| kind.as_str()), kind);
        }
    }

    /// VIEW-12: while the owner answers that it is reading a long log, patience begins anew; not
    /// for ever.
    #[tokio::test(start_paused = true)]
    async fn whoever_hears_that_a_log_is_being_read_asks_on() {
        let (mut patience, begun) = (Patience::of(Duration::from_secs(30)), Instant::now());
        let reading = unavailable("it is long").with("reading", true).with("retry_after_ms", 4_000);
        while patience.outlasts(&reading).await {}
        assert!(begun.elapsed() > READING_MAX - Duration::from_secs(10), "{:?}", begun.elapsed());
        let (mut patience, begun) = (Patience::of(Duration::from_secs(30)), Instant::now());
        assert!(patience.outlasts(&reading).await);
        while patience.outlasts(&unavailable("busy")).await {}
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    }

    /// CTRL-11: the user is told after a second that there is no answer yet, and not that an answer is late.
    #[tokio::test(start_paused = true)]
    async fn a_silence_is_told_after_a_second() {
        let mut patience = Patience::of(Duration::from_secs(30));
        let nobody = unavailable("nobody serves this now");
        assert!(patience.outlasts(&nobody).await && patience.told.is_none());
        tokio::time::sleep(TOLD_AFTER).await;
        assert!(patience.outlasts(&ambiguous("none in time")).await && patience.told.is_none());
        assert!(patience.outlasts(&nobody).await && patience.told.is_some());
        let mut quiet = Patience::quiet(Duration::from_secs(30));
        tokio::time::sleep(TOLD_AFTER).await;
        assert!(quiet.outlasts(&nobody).await && quiet.told.is_none());
    }

    /// CTRL-11: whoever hears all the time that nobody is there is told so in the end, and not that an answer was late.
    #[tokio::test(start_paused = true)]
    async fn no_try_begins_that_is_too_short_for_an_answer() {
        for (whole, least) in [(300, 150), (1_000, 200), (10_000, 200)] {
            let [whole, least] = [whole, least].map(Duration::from_millis);
            let mut patience = Patience::of(whole);
            let nobody = unavailable("nobody serves this now");
            let begun = Instant::now();
            while patience.outlasts(&nobody).await {
                assert!(patience.for_a_try(whole) >= least, "{:?}", begun.elapsed());
            }
            assert!(begun.elapsed() + least + PAUSES.1 >= whole, "{:?}", begun.elapsed());
        }
    }

    #[tokio::test]
    async fn a_pause_longer_than_what_is_left_is_not_begun() {
        let mut patience = Patience::of(Duration::from_secs(5));
        let refused = unavailable("busy").with("retry_after_ms", 10_000);
        assert!(!patience.outlasts(&refused).await);
    }
}
