//! The counts of a worker's link with one node: the deliveries that came, and the capacity that the
//! worker has stated.

use smol_str::SmolStr;
use tenure_wire::bus::V;
use tenure_wire::bus::worker::Capacity;

/// The counts of a link. They begin anew with its name (mechanisms 8).
#[derive(Debug)]
pub(super) struct LinkCounts {
    name: SmolStr,
    /// Number of the next delivery.
    next: u64,
    /// How many grants and Runs came.
    seen: u64,
    /// Statements of capacity so far.
    said: u64,
    /// The free capacity that was last stated.
    free: u64,
    /// The number of Attempts in hand on Steps that were lost before, as last stated.
    lost: u64,
    /// The worker owes the node a statement: the node does not know all of this yet.
    owes: bool,
}

/// What to do with a batch of deliveries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Handle it without so many at its front, which came before.
    After(usize),
    /// Drop it: deliveries before it are missing, and the node sends all again when it learns that.
    Early,
}

impl LinkCounts {
    pub(super) fn new(name: SmolStr) -> Self {
        Self { name, next: 1, seen: 0, said: 0, free: 0, lost: 0, owes: true }
    }

    pub(super) fn name(&self) -> &SmolStr {
        &self.name
    }

    /// Decides what to do with a batch, and counts it.
    pub(super) fn came(&mut self, first: u64, count: usize) -> Came {
        if first > self.next {
            self.owes = true;
            return Came::Early;
        }
        self.owes |= count > 0;
        let before = self.next - first;
        self.next = self.next.max(first.saturating_add(count as u64));
        Came::After(usize::try_from(before).map_or(count, |before| before.min(count)))
    }

    /// One of them uses capacity.
    pub(super) fn used_capacity(&mut self) {
        self.seen += 1;
    }

    /// Makes the worker state its capacity to the node, even if nothing has changed.
    pub(super) fn owe(&mut self) {
        self.owes = true;
    }

    /// Whether this is news to the node.
    pub(super) fn has_news(&self, free: u64, lost: u64) -> bool {
        self.owes || (self.free, self.lost) != (free, lost)
    }

    /// States the capacity.
    pub(super) fn room(&mut self, free: u64, lost: u64) -> Capacity {
        self.said += 1;
        (self.free, self.lost) = (free, lost);
        self.owes = false;
        Capacity {
            v: V,
            link: self.name.clone(),
            number: self.said,
            free,
            seen: self.seen,
            got: self.next - 1,
            lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> LinkCounts {
        LinkCounts::new("l".into())
    }

    #[test]
    fn what_comes_in_order_is_handled_whole() {
        let mut link = link();
        assert_eq!(link.came(1, 2), Came::After(0));
        assert_eq!(link.came(3, 1), Came::After(0));
        assert_eq!(link.room(0, 0).got, 3);
    }

    #[test]
    fn what_came_before_is_passed_over() {
        let mut link = link();
        link.came(1, 3);
        assert_eq!(link.came(2, 4), Came::After(2), "two of four are known");
        assert_eq!(link.came(1, 3), Came::After(3), "all of it is known");
        assert_eq!(link.room(0, 0).got, 5, "an old batch takes nothing back");
    }

    #[test]
    fn a_gap_drops_the_batch_and_says_what_came() {
        let mut link = link();
        link.came(1, 2);
        link.room(4, 0);
        assert_eq!(link.came(4, 1), Came::Early);
        assert!(link.has_news(4, 0), "the node learns of it at once");
        assert_eq!(link.room(4, 0).got, 2);
        assert_eq!(link.came(3, 2), Came::After(0), "and sends everything again");
    }

    #[test]
    fn statements_rise_and_say_the_window() {
        let mut link = link();
        link.came(1, 3);
        link.used_capacity();
        link.used_capacity();
        let first = link.room(6, 0);
        assert_eq!((first.number, first.free, first.seen, first.got), (1, 6, 2, 3));
        assert_eq!(link.room(6, 0).number, 2);
    }

    #[test]
    fn nothing_new_needs_no_statement() {
        let mut link = link();
        assert!(link.has_news(0, 0), "a new link knows nothing");
        link.room(5, 0);
        assert!(!link.has_news(5, 0));
        assert!(link.has_news(4, 0));
        assert!(link.has_news(5, 1), "a Step that was lost is news");
        link.came(1, 0);
        assert!(!link.has_news(5, 0), "an empty batch says that the link is there");
        link.came(1, 1);
        assert!(link.has_news(5, 0));
    }
}
