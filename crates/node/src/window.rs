//! The deliveries of a link: numbered, kept until the worker has said that it got them, sent again
//! when that takes too long.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_wire::bus::worker::Delivery;
use tokio::time::Instant;

/// How long a worker may take to say that it got something.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often something is sent again before the worker is given up.
const AGAIN_MAX: u32 = 3;

/// What a link has sent and not heard of.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Number of the first that is kept.
    first: u64,
    kept: VecDeque<Delivery>,
    /// Those from here on are to be sent, counted from the first that is kept.
    unsent: usize,
    /// Those before this were sent, once at least.
    sent: usize,
    /// Since when nothing was heard of the first that is kept.
    since: Option<Instant>,
    again: u32,
}

/// What is to be done about silence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nothing.
    Bearable,
    /// Everything that was not heard of is sent again.
    SendAgain,
    /// The worker does not get what it is sent.
    GiveUp,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// Takes deliveries to be sent.
    pub(crate) fn push(&mut self, deliveries: impl IntoIterator<Item = Delivery>) {
        self.kept.extend(deliveries);
    }

    /// What is to be sent now: the number of the first, and all from there on.
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

    /// Puts nothing into the place of a delivery that cannot be sent.
    pub(crate) fn blank(&mut self, number: u64) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(kept) = place.and_then(|place| self.kept.get_mut(place)) {
            *kept = Delivery::default();
        }
    }

    /// The worker got everything up to this number.
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

    /// Nothing could be heard until now: the worker has all its time again to say what it got.
    pub(crate) fn excuse(&mut self, now: Instant) {
        self.again = 0;
        self.since = self.since.map(|_| now);
    }

    /// A look at the clock. What is to be sent again is unsent from then on.
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

    /// Steps and Runs that were sent, or are to be, and not heard of.
    pub(crate) fn unheard(&self) -> u64 {
        self.kept.iter().filter(|one| one.uses_capacity()).count() as u64
    }

    /// Ends the window: what nobody has said to have got.
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
