//! Chooses the NATS server to try next when a connection is lost.

use std::hash::{BuildHasher as _, RandomState};

/// The order of servers: the one that was tried longest ago is next. So the server whose connection
/// was lost comes last: it may be frozen, accept every connection and answer nothing.
#[derive(Debug)]
pub struct ServerTurns<A> {
    /// The servers that were tried, the last one at the end.
    tried: Vec<A>,
}

impl<A> Default for ServerTurns<A> {
    fn default() -> Self {
        Self { tried: Vec::new() }
    }
}

impl<A: Clone + PartialEq> ServerTurns<A> {
    /// The server to try next. `servers` has all of them, each with whether there ever was a
    /// connection to it. `None` before the first connection: the caller then tries all in any
    /// order. Among servers that were not tried yet chance decides, so that programs that lose one
    /// server do not all go to the same other one.
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

/// A number that differs in every process, and at each call.
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
        // A new one is next at once; one that is gone never comes.
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
