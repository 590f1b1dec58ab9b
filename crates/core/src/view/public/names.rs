//! The names of the public events of one event of the log.

use super::EventName;

/// Up to three names, without an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names {
    pub(super) all: [Option<EventName>; 3],
    /// A name that keeps its number and is not published: the ids of the others stay as they were
    /// before this name was left out (EVENT-04).
    pub(super) withheld: Option<EventName>,
}

impl Names {
    /// The names, in the order in which they are published.
    pub fn iter(self) -> impl Iterator<Item = EventName> {
        self.numbered().map(|(_, name)| name)
    }

    /// The names with their numbers in ids of events.
    pub(super) fn numbered(self) -> impl Iterator<Item = (u8, EventName)> {
        let numbered = (0..).zip(self.all.into_iter().flatten());
        numbered.filter(move |(_, name)| self.withheld != Some(*name))
    }

    pub(super) const fn of(all: [Option<EventName>; 3]) -> Self {
        Self { all, withheld: None }
    }

    pub(super) const fn one(name: EventName) -> Self {
        Self::of([Some(name), None, None])
    }

    pub(super) fn with(first: Option<EventName>, last: EventName) -> Self {
        Self::of([first, Some(last), None])
    }
}
