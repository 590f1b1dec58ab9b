//! Times in which a Task rests, and moments counted without them (POL-08, POL-12).

use serde::{Deserialize, Serialize};

use super::Shift;
use super::apply::At;
use crate::id::Millis;

/// How long a Task has rested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestPeriods {
    /// Since when it rests, while it does.
    since: Option<Millis>,
    /// The shift of the event that began that.
    #[serde(skip)] // As all shifts.
    since_shift: Shift,
    /// How long it rested before, in milliseconds by the times of events.
    before_ms: Millis,
    /// By how much longer that was on the steady line.
    #[serde(skip)] // As all shifts.
    shift: Shift,
}

/// A moment on the line of time in which the Task did not rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awake {
    at: Millis,
    /// By how much the steady line was ahead.
    #[serde(skip)] // As all shifts.
    shift: Shift,
}

impl Awake {
    /// The moment, as the steady line counts.
    pub(crate) fn steady(self) -> Millis {
        self.at.saturating_add(self.shift)
    }
}

impl RestPeriods {
    /// The Task begins to rest, or ceases to.
    pub(super) fn turn(&mut self, rests: bool, at: At) {
        match self.since {
            None if rests => (self.since, self.since_shift) = (Some(at.time), at.shift),
            Some(since) if !rests => {
                self.before_ms = self.before_ms.saturating_add(at.time.saturating_sub(since));
                self.shift = self.shift.saturating_add(at.shift.saturating_sub(self.since_shift));
                (self.since, self.since_shift) = (None, 0);
            }
            _ => {}
        }
    }

    /// Whether only the owner's memory knows how long it was by the steady line.
    pub(super) fn is_shifted(&self) -> bool {
        self.since_shift != 0 || self.shift != 0
    }

    /// Counts from now on.
    pub(super) fn restart(&mut self, now: Millis) {
        let since = self.since.map(|_| now);
        *self = Self { since, since_shift: self.since_shift, ..Self::default() };
    }

    /// Whether the Task rests.
    pub fn is_now(&self) -> bool {
        self.since.is_some()
    }

    /// How long it had rested at a time, in milliseconds by the times of events.
    pub fn total_ms(&self, now: Millis) -> Millis {
        let this = self.since.map_or(0, |since| now.saturating_sub(since).max(0));
        self.before_ms.saturating_add(this)
    }

    /// The moment of an event, without the time in which the Task rested.
    pub(super) fn awake(&self, at: At) -> Awake {
        let this = self.since.map_or(0, |_| at.shift.saturating_sub(self.since_shift));
        let shift = at.shift.saturating_sub(self.shift).saturating_sub(this);
        Awake { at: at.time.saturating_sub(self.total_ms(at.time)), shift }
    }

    /// When a moment of the line without rests comes, on the steady line; `None` while the Task rests.
    pub(crate) fn wakes(&self, moment: Millis) -> Option<Millis> {
        let rested = self.before_ms.saturating_add(self.shift);
        self.since.is_none().then(|| moment.saturating_add(rested))
    }
}
