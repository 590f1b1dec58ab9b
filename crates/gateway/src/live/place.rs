//! [`EventPlace`]: a place in the public events of a Task.
//!
//! The events of a Task are numbered by the event of the log that they come from (`wal_seq`), and up to
//! three share a number. A reader may lose its connection between them, so each has a place of its own:
//! `7.2` is the second event at `wal_seq` 7. A reader that resumes there misses none and gets none twice.
//! `7` is the place behind all events at 7.

use std::fmt;
use std::str::FromStr;

use tenure_core::Rejection;

/// A place in the public events of a Task, behind which a reader goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventPlace {
    /// The event of the log.
    pub(super) seq: u64,
    /// Which of the public events that come from it, from 1; [`ALL`](Self::ALL) for all of them.
    nth: u32,
}

impl EventPlace {
    const ALL: u32 = u32::MAX;

    /// Behind all public events at this event of the log.
    pub(crate) const fn behind(seq: u64) -> Self {
        Self { seq, nth: Self::ALL }
    }

    /// The place of the event that follows this one and comes from event `seq` of the log.
    pub(crate) const fn next(self, seq: u64) -> Self {
        let nth = if self.seq == seq && self.nth != Self::ALL { self.nth + 1 } else { 1 };
        Self { seq, nth }
    }

    /// The last event of the log all of whose public events lie before or at this place.
    pub(crate) const fn complete(self) -> u64 {
        if self.names_one() { self.seq.saturating_sub(1) } else { self.seq }
    }

    /// Whether this is the place of one event, and not behind all at its number.
    pub(super) const fn names_one(self) -> bool {
        self.nth != Self::ALL
    }
}

/// Before the first event.
impl Default for EventPlace {
    fn default() -> Self {
        Self::behind(0)
    }
}

impl fmt::Display for EventPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nth {
            Self::ALL => write!(f, "{}", self.seq),
            nth => write!(f, "{}.{nth}", self.seq),
        }
    }
}

impl FromStr for EventPlace {
    type Err = Rejection;

    fn from_str(text: &str) -> Result<Self, Rejection> {
        let message =
            "a place in the events of a task is a wal_seq, or the id of an event, such as 7.2";
        parse(text).ok_or_else(|| Rejection::invalid("since", message))
    }
}

fn parse(text: &str) -> Option<EventPlace> {
    let Some((seq, nth)) = text.split_once('.') else {
        return Some(EventPlace::behind(number(text)?));
    };
    let nth = u32::try_from(number(nth)?).ok()?;
    let is_one = nth > 0 && nth != EventPlace::ALL;
    Some(EventPlace { seq: number(seq)?, nth }).filter(|_| is_one)
}

/// Decimal digits alone: no sign, no space.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> EventPlace {
        text.parse().unwrap()
    }

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for text in ["0", "7", "7.1", "7.3", "18446744073709551615"] {
            assert_eq!(place(text).to_string(), text);
        }
        for text in ["", ".", "7.", ".1", "7.0", "7.4294967295", "-1", "+7", " 7", "7.1.1", "a"] {
            let refused = text.parse::<EventPlace>().unwrap_err();
            assert_eq!(refused.details["field"], "since", "{text:?}");
        }
    }

    #[test]
    fn places_follow_each_other_as_the_events_do() {
        let first = place("6").next(7);
        let all = [first, first.next(7), first.next(7).next(7), first.next(8), place("8").next(8)];
        assert_eq!(all.map(|place| place.to_string()), ["7.1", "7.2", "7.3", "8.1", "8.1"]);
        let sorted = ["0", "6", "7.1", "7.2", "7.3", "7", "8.1"].map(place);
        assert!(sorted.is_sorted(), "{sorted:?}");
    }

    /// A reader that names no place gets the same as one that names `0`: it is not told of a gap.
    #[test]
    fn a_reader_begins_before_the_first_event() {
        let start = EventPlace::default();
        assert_eq!((start, start.names_one()), (place("0"), false));
        assert_eq!(start.next(1), place("1.1"));
    }

    /// Where to read from so that no event behind the place is missing.
    #[test]
    fn what_is_complete_at_a_place_is_known() {
        for (text, complete) in [("0", 0), ("7", 7), ("7.1", 6), ("1.1", 0)] {
            assert_eq!(place(text).complete(), complete, "{text}");
        }
    }
}
