//! Which of several servers is tried next when a connection to one of them is lost.

use std::hash::{BuildHasher as _, RandomState};

/// The turns of servers: the one that was tried longest ago is next. So that from which a connection was lost
/// comes last: it may be frozen, let everybody in and answer nothing.
#[derive(Debug)]
pub struct ServerTurns<A> {
    /// The one tried last stands last.
    tried: Vec<A>,
}

impl<A> Default for ServerTurns<A> {
    fn default() -> Self {
        Self { tried: Vec::new() }
    }
}

impl<A: Clone + PartialEq> ServerTurns<A> {
    /// The server to try next, of all there are and whether there was a connection to each. None before there
    /// was any: then all are tried, in any order. Among those that were not tried yet chance decides, so that
    /// not all who have lost one server go to the same.
    pub fn next(&mut self, servers: &[(A, bool)]) -> Option<A> {
        if self.tried.is_empty() {
            let begun = servers.iter().filter(|(_, was_there)| *was_there);
            self.tried.extend(begun.map(|(server, _)| server.clone()));
        }
        let oldest = self.tried.first()?;
        let all = || servers.iter().map(|(server, _)| server);
        let new: Vec<&A> = all().filter(|server| !self.tried.contains(server)).collect();
        let next = match new.len() as u64 {
            0 => self.tried.iter().find(|tried| all().any(|it| it == *tried)).unwrap_or(oldest),
            many => new[usize::try_from(chance() % many).unwrap_or(0)],
        };
        let next = next.clone();
        self.tried.retain(|tried| *tried != next);
        self.tried.push(next.clone());
        Some(next)
    }
}

/// Unlike in any other process, and each time.
fn chance() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_that_was_lost_is_tried_last() {
        let mut turns = ServerTurns::default();
        assert_eq!(turns.next(&[("a", false), ("b", false), ("c", false)]), None, "all are tried");
        let all = [("a", false), ("b", true), ("c", false)];
        let first = turns.next(&all).unwrap();
        let second = turns.next(&all).unwrap();
        assert!(first != second && ![first, second].contains(&"b"), "{first} {second}");
        assert_eq!(turns.next(&all), Some("b"));
        assert_eq!(turns.next(&all), Some(first), "it is its turn again");
        // One that is new comes at once, one that is gone never.
        assert_eq!(turns.next(&[("b", true), ("d", false)]), Some("d"));
        assert_eq!(turns.next(&[("b", true), ("d", false)]), Some("b"));
        assert_eq!(turns.next(&[("b", true)]), Some("b"), "there is no other");
    }

    #[test]
    fn not_all_who_have_lost_a_server_go_to_the_same() {
        let all = [("a", true), ("b", false), ("c", false)];
        let next = |_| ServerTurns::default().next(&all).unwrap();
        let went: Vec<&str> = (0..64).map(next).collect();
        assert!(went.contains(&"b") && went.contains(&"c"), "{went:?}");
    }
}
