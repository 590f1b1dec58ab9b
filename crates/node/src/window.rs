//! The deliveries of a link: the window numbers them, holds them until the worker acknowledges
//! them, and has them sent again when that takes too long.
//!
//! Step 8 of the walk in docs/architecture.md.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_wire::bus::worker::Delivery;
use tokio::time::Instant;

/// How long a worker may take to acknowledge a delivery.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a delivery is sent again before the link is given up.
const AGAIN_MAX: u32 = 3;

/// What a link has to send, or has sent without an acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The number of the first delivery in `kept`.
    first: u64,
    kept: VecDeque<Delivery>,
    /// From this place in `kept` on deliveries are to be sent.
    unsent: usize,
    /// The deliveries before this place were sent at least once.
    sent: usize,
    /// Since when the worker has not acknowledged the first delivery.
    since: Option<Instant>,
    again: u32,
}

/// What to do about a worker's silence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nothing.
    Bearable,
    /// Send everything again that the worker has not acknowledged.
    SendAgain,
    /// Give up the link: the worker does not get what it is sent.
    GiveUp,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// Adds deliveries that are to be sent.
    pub(crate) fn push(&mut self, deliveries: impl IntoIterator<Item = Delivery>) {
        self.kept.extend(deliveries);
    }

    /// The deliveries that are to be sent now, with the number of the first.
    pub(crate) fn unsent(
        &mut self,
        now: Instant,
    ) -> Option<(u64, impl Iterator<Item = &Delivery>)> {
        let from = self.unsent;
        if from >= self.kept.len() {
            return None;
        }
        self.since.get_or_insert(now);
        self.unsent = self.kept.len();
        self.sent = self.kept.len();
        Some((self.first + from as u64, self.kept.range(from..)))
    }

    /// Replaces a delivery that cannot be sent by an empty one.
    pub(crate) fn blank(&mut self, number: u64) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(kept) = place.and_then(|place| self.kept.get_mut(place)) {
            *kept = Delivery::default();
        }
    }

    /// Notes that the worker got everything up to this number.
    pub(crate) fn heard(&mut self, got: u64, now: Instant) {
        let known = got.saturating_add(1).saturating_sub(self.first);
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(self.sent);
        if known == 0 {
            return;
        }
        self.kept.drain(..known);
        self.first += known as u64;
        self.sent -= known;
        self.unsent = self.unsent.saturating_sub(known);
        self.again = 0;
        self.since = (self.sent > 0).then_some(now);
    }

    /// Gives the worker all its time again, as the node could not receive acknowledgements until
    /// now.
    pub(crate) fn excuse(&mut self, now: Instant) {
        self.again = 0;
        self.since = self.since.map(|_| now);
    }

    /// Checks the time. Deliveries that are to be sent again are unsent from then on.
    pub(crate) fn judge(&mut self, now: Instant) -> Silence {
        match self.since {
            Some(since) if now - since >= PATIENCE => {}
            _ => return Silence::Bearable,
        }
        if self.again >= AGAIN_MAX {
            return Silence::GiveUp;
        }
        self.again += 1;
        self.since = Some(now);
        self.unsent = 0;
        Silence::SendAgain
    }

    /// How many grants and offers were sent, or are to be, and not acknowledged.
    pub(crate) fn unheard(&self) -> u64 {
        self.kept.iter().filter(|one| one.uses_capacity()).count() as u64
    }

    /// Ends the window. Answers what the worker has not acknowledged.
    pub(crate) fn take_all(&mut self) -> Vec<Delivery> {
        (self.unsent, self.sent) = (0, 0);
        self.since = None;
        self.kept.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::id::AttemptId;
    use uuid::Uuid;

    use super::*;

    fn lost(number: u128) -> Delivery {
        Delivery { lost: Some(AttemptId(Uuid::from_u128(number))), ..Delivery::default() }
    }

    fn sent(window: &mut Window, now: Instant) -> Option<(u64, Vec<Delivery>)> {
        window.unsent(now).map(|(first, all)| (first, all.cloned().collect()))
    }

    #[test]
    fn deliveries_are_numbered_and_sent_once() {
        let (mut window, now) = (Window::new(), Instant::now());
        assert_eq!(sent(&mut window, now), None);
        window.push([lost(1), lost(2)]);
        assert_eq!(sent(&mut window, now), Some((1, vec![lost(1), lost(2)])));
        assert_eq!(sent(&mut window, now), None);
        window.push([lost(3)]);
        assert_eq!(sent(&mut window, now), Some((3, vec![lost(3)])));
    }

    #[test]
    fn what_is_not_heard_of_is_sent_again_and_then_given_up() {
        let (mut window, mut now) = (Window::new(), Instant::now());
        window.push([lost(1), lost(2), lost(3)]);
        sent(&mut window, now);
        window.heard(1, now);
        for _ in 0..AGAIN_MAX {
            assert_eq!(window.judge(now), Silence::Bearable);
            now += PATIENCE;
            assert_eq!(window.judge(now), Silence::SendAgain);
            assert_eq!(sent(&mut window, now), Some((2, vec![lost(2), lost(3)])));
        }
        now += PATIENCE;
        assert_eq!(window.judge(now), Silence::GiveUp);
        assert_eq!(window.take_all(), [lost(2), lost(3)]);
    }

    #[test]
    fn time_in_which_nothing_could_be_heard_does_not_count() {
        let (mut window, mut now) = (Window::new(), Instant::now());
        window.push([lost(1)]);
        sent(&mut window, now);
        for _ in 0..AGAIN_MAX {
            now += PATIENCE;
            assert_eq!(window.judge(now), Silence::SendAgain);
            sent(&mut window, now);
        }
        now += PATIENCE;
        window.excuse(now);
        assert_eq!(window.judge(now), Silence::Bearable);
        now += PATIENCE;
        assert_eq!(window.judge(now), Silence::SendAgain, "as often as at first");
        let mut idle = Window::new();
        idle.excuse(now);
        assert_eq!(idle.judge(now + PATIENCE), Silence::Bearable, "nothing is awaited");
    }

    #[test]
    fn what_is_heard_of_while_it_is_about_to_be_sent_again_is_not() {
        let (mut window, now) = (Window::new(), Instant::now());
        window.push([lost(1), lost(2)]);
        sent(&mut window, now);
        assert_eq!(window.judge(now + PATIENCE), Silence::SendAgain);
        window.heard(1, now + PATIENCE);
        assert_eq!(sent(&mut window, now + PATIENCE), Some((2, vec![lost(2)])));
        window.heard(2, now + PATIENCE);
        assert_eq!(window.judge(now + 9 * PATIENCE), Silence::Bearable);
    }

    #[test]
    fn nothing_is_awaited_once_everything_was_heard_of() {
        let (mut window, now) = (Window::new(), Instant::now());
        window.push([lost(1)]);
        sent(&mut window, now);
        window.heard(1, now);
        assert_eq!(window.judge(now + 10 * PATIENCE), Silence::Bearable);
        assert_eq!(window.take_all(), []);
    }

    #[test]
    fn what_was_never_sent_cannot_be_heard_of() {
        let (mut window, now) = (Window::new(), Instant::now());
        window.push([lost(1)]);
        window.heard(7, now);
        assert_eq!(sent(&mut window, now), Some((1, vec![lost(1)])));
        window.heard(7, now);
        window.push([lost(2)]);
        assert_eq!(sent(&mut window, now), Some((2, vec![lost(2)])));
        window.heard(1, now);
        assert_eq!(window.take_all(), [lost(2)], "an old statement says nothing");
    }
}
