//! Divides the capacity of a worker among nodes.

/// The part of each node; together the parts are `free`. `hungry` says which nodes have work that
/// waits.
///
/// The parts are equal if no node is hungry or all are; the remainder goes to one node after
/// another, by `turn`. Otherwise every hungry node gets at least one first, as far as there is
/// enough, then each other node one, and the hungry nodes share the rest.
pub(super) fn shares(free: u64, hungry: &[bool], turn: u64) -> Vec<u64> {
    let with = hungry.iter().filter(|is| **is).count() as u64;
    let without = hungry.len() as u64 - with;
    if with == 0 || without == 0 {
        let mut parts = EvenSplit::of(free, hungry.len() as u64, turn);
        return hungry.iter().map(|_| parts.next()).collect();
    }
    let kept = free.saturating_sub(with).min(without);
    let mut for_hungry = EvenSplit::of(free - kept, with, turn);
    let mut for_others = EvenSplit::of(kept, without, turn);
    let part = |is: &bool| if *is { for_hungry.next() } else { for_others.next() };
    hungry.iter().map(part).collect()
}

/// Divides a number into parts that differ by at most one.
struct EvenSplit {
    each: u64,
    more: u64,
    count: u64,
    at: u64,
}

impl EvenSplit {
    fn of(whole: u64, count: u64, turn: u64) -> Self {
        let parts = count.max(1);
        Self { each: whole / parts, more: whole % parts, count: parts, at: turn % parts }
    }

    fn next(&mut self) -> u64 {
        let part = self.each + u64::from(self.at < self.more);
        self.at = (self.at + 1) % self.count;
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_gets_everything() {
        assert_eq!(shares(7, &[false], 3), [7]);
        assert_eq!(shares(7, &[true], 3), [7]);
        assert!(shares(7, &[], 3).is_empty());
    }

    #[test]
    fn equal_parts_and_the_rest_goes_round() {
        assert_eq!(shares(8, &[false, false, false], 0), [3, 3, 2]);
        assert_eq!(shares(8, &[false, false, false], 1), [3, 2, 3]);
        assert_eq!(shares(8, &[false, false, false], 2), [2, 3, 3]);
        assert_eq!(shares(8, &[true, true], 0), [4, 4]);
    }

    #[test]
    fn hungry_nodes_get_all_but_one_each() {
        assert_eq!(shares(10, &[true, false, false], 0), [8, 1, 1]);
        assert_eq!(shares(10, &[true, true, false], 0), [5, 4, 1]);
    }

    #[test]
    fn little_room_goes_to_hungry_nodes_first() {
        assert_eq!(shares(1, &[false, true, false], 0), [0, 1, 0]);
        assert_eq!(shares(2, &[false, true, false], 0), [1, 1, 0]);
        assert_eq!(shares(0, &[false, true, false], 0), [0, 0, 0]);
    }

    #[test]
    fn no_room_is_lost_or_made_up() {
        for free in 0..40 {
            for turn in 0..5 {
                for mask in 0..16_u8 {
                    let hungry: Vec<bool> = (0..4).map(|at| mask >> at & 1 == 1).collect();
                    assert_eq!(shares(free, &hungry, turn).iter().sum::<u64>(), free);
                }
            }
        }
    }
}
