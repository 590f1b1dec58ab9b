//! [`Weights`]: how much memory the entries of a list take, of which the oldest go when all take too much.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::workers::memory_of;

/// How many bytes of memory what was said in a task, and what it has made, take at most, each of the two. A text of
/// JSON that alone would take more is not read.
pub(crate) const KEPT_MAX: usize = 64 << 20;

/// The same while a task is followed: whoever then needs all of it reads it again.
pub(crate) const KEPT_WHILE_FOLLOWED: usize = 1 << 20;

/// What a text of JSON says; none if it is no such JSON, or takes too much memory.
pub(super) fn read_json<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    (memory_of(json) <= KEPT_MAX).then(|| serde_json::from_slice(json).ok()).flatten()
}

/// The weights of the entries of a list, in the same order.
#[derive(Debug, Clone, Default)]
pub(super) struct Weights {
    of: Vec<usize>,
    all: usize,
}

impl Weights {
    /// Notes an entry that was changed or that is new at this place. `grows`: its earlier weight counts on.
    pub(super) fn note(&mut self, place: usize, entry: &impl Serialize, grows: bool) {
        let weight = memory_of(&serde_json::to_vec(entry).unwrap_or_default());
        self.all += weight;
        match self.of.get_mut(place) {
            None => self.of.push(weight),
            Some(known) if grows => *known += weight,
            Some(known) => self.all -= std::mem::replace(known, weight),
        }
    }

    /// How many of the oldest entries go so that the others take no more than this. More go than must, so that it is
    /// not done again for each new entry. The newest one stays if there is room for it alone.
    pub(super) fn shrink(&mut self, most: usize) -> usize {
        let (enough, mut gone) = (most / 4 * 3, 0);
        if self.all > most {
            for (place, weight) in self.of.iter().enumerate() {
                let is_newest = place + 1 == self.of.len();
                if self.all <= if is_newest { most } else { enough } {
                    break;
                }
                self.all -= weight;
                gone += 1;
            }
        }
        self.of.drain(..gone);
        gone
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    #[test]
    fn the_oldest_entries_go() {
        let mut weights = Weights::default();
        let text = |length: usize| "x".repeat(length - 2);
        for place in 0..10 {
            weights.note(place, &text(100), false);
        }
        assert_eq!((weights.all, weights.shrink(1_000)), (1_000, 0));
        weights.note(0, &text(50), true);
        assert_eq!((weights.all, weights.shrink(1_000)), (1_050, 3), "150, 100 and 100");
        weights.note(0, &text(200), false);
        assert_eq!((weights.all, weights.of.len()), (800, 7));
        weights.note(7, &text(990), false);
        assert_eq!((weights.shrink(1_000), weights.all), (7, 990), "the newest stays");
        assert_eq!((weights.shrink(100), weights.all, weights.of.len()), (1, 0, 0));
        assert_eq!(weights.shrink(0), 0);
    }

    #[test]
    fn json_that_would_take_much_memory_is_not_read() {
        let list = |length: usize| format!("[{}0]", "{\"\":0},".repeat(length));
        assert!(read_json::<Json>(list(80_000).as_bytes()).is_some());
        assert!(read_json::<Json>(list(100_000).as_bytes()).is_none());
        let text = json!("{,".repeat(1 << 20)).to_string();
        assert!(read_json::<Json>(text.as_bytes()).is_some());
    }
}
