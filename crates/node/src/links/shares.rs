//! How much of a node each principal may take with its links, so that one login cannot take it all.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::{Code, Rejection};
use tenure_ports::map::IdMap;
use tenure_wire::bus::subject::Token;
use tokio::time::Instant;

/// The part of all links of a node that one principal may have: with it, three others find some at any time.
const OF_LINKS: usize = 4;

/// How many bytes the hellos of one principal may have in all, 16 MiB. A link costs memory by its handlers; 4,000
/// workers with 100 handlers each stay below.
const HELLO_BYTES: usize = 16 << 20;

/// How many links one principal may open in a moment: so many workers come back at once after an outage of NATS.
const OPENINGS_AT_ONCE: u64 = 4_096;

/// How many more it may open in a second.
const OPENINGS_PER_SECOND: u64 = 512;

/// What opening one link costs. A principal gets back [`OPENINGS_PER_SECOND`] of these parts each microsecond.
const OPENING: u64 = 1_000_000;

/// When the node remembers so many principals, it forgets those that could open all their links at once again.
const REMEMBERED: usize = 1_024;

/// How long a worker that was refused waits before it says hello again.
const RETRY_AFTER_MS: u64 = 2_000;

/// What every principal has taken.
pub(super) struct LinkShares {
    links: usize,
    taken: Mutex<IdMap<Token, PrincipalUse>>,
    opened: Mutex<IdMap<Token, Openings>>,
}

/// How many links a principal may still open, in parts of an [`OPENING`], as it stood at a moment.
struct Openings {
    left: u64,
    at: Instant,
}

impl Openings {
    const MOST: u64 = OPENINGS_AT_ONCE * OPENING;

    /// How many of these parts are left now.
    fn left_by(&self, now: Instant) -> u64 {
        let passed = u64::try_from((now - self.at).as_micros()).unwrap_or(u64::MAX);
        passed.saturating_mul(OPENINGS_PER_SECOND).saturating_add(self.left).min(Self::MOST)
    }
}

#[derive(Default)]
struct PrincipalUse {
    links: usize,
    bytes: usize,
}

/// The share of one link, given back when the link is dropped.
pub(super) struct HeldShare {
    shares: Arc<LinkShares>,
    principal: Token,
    bytes: usize,
}

impl LinkShares {
    /// Shares of a node that has `most` links.
    pub(super) fn of(most: usize) -> Arc<Self> {
        let (taken, opened) = (Mutex::default(), Mutex::default());
        Arc::new(Self { links: most.div_ceil(OF_LINKS), taken, opened })
    }

    /// Takes a link whose hello has so many bytes.
    ///
    /// # Errors
    /// `unavailable`, retryable: the principal has its share, or has opened too many links in a short time.
    pub(super) fn take(
        self: &Arc<Self>,
        principal: &Token,
        bytes: usize,
    ) -> Result<HeldShare, Rejection> {
        self.open_one(principal)?;
        let mut all = self.taken.lock();
        let (links, held) = all.get(principal).map_or((0, 0), |taken| (taken.links, taken.bytes));
        if links >= self.links {
            return Err(full(principal, "links", self.links));
        }
        if held.saturating_add(bytes) > HELLO_BYTES {
            return Err(full(principal, "bytes of hellos", HELLO_BYTES));
        }
        let taken = all.entry(principal.clone()).or_default();
        taken.links += 1;
        taken.bytes += bytes;
        drop(all);
        Ok(HeldShare { shares: Arc::clone(self), principal: principal.clone(), bytes })
    }

    /// Counts one more link that a principal opens: each costs some work, also if its worker is gone at once.
    fn open_one(&self, principal: &Token) -> Result<(), Rejection> {
        let now = Instant::now();
        let mut all = self.opened.lock();
        if all.len() >= REMEMBERED && !all.contains_key(principal) {
            all.retain(|_, openings| openings.left_by(now) < Openings::MOST);
        }
        let left = all.get(principal).map_or(Openings::MOST, |openings| openings.left_by(now));
        let Some(left) = left.checked_sub(OPENING) else {
            let message = format!(
                "{principal} opens links too fast: a node gives one principal {OPENINGS_AT_ONCE} in a moment, and \
                 {OPENINGS_PER_SECOND} more each second"
            );
            return Err(refusal(message));
        };
        all.insert(principal.clone(), Openings { left, at: now });
        Ok(())
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        let mut all = self.shares.taken.lock();
        if let Some(taken) = all.get_mut(&self.principal) {
            taken.links -= 1;
            taken.bytes -= self.bytes;
            if taken.links == 0 {
                all.remove(&self.principal);
            }
        }
    }
}

fn full(principal: &Token, what: &str, most: usize) -> Rejection {
    let message = format!(
        "a node gives one principal {most} {what}, and {principal} has as many: give workers other logins, or more \
         slots to each"
    );
    refusal(message)
}

fn refusal(message: String) -> Rejection {
    Rejection::new(Code::Unavailable, message).with("retry_after_ms", RETRY_AFTER_MS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn principal(name: &str) -> Token {
        Token::new(name).unwrap()
    }

    /// What one principal does costs that principal: others get links while it has none left, and what it gives back
    /// is free again.
    #[test]
    fn a_principal_has_its_share_of_links() {
        let shares = LinkShares::of(16);
        let (eve, bob) = (principal("eve"), principal("bob"));
        let mut held: Vec<HeldShare> = (0..4).map(|_| shares.take(&eve, 1).unwrap()).collect();
        let refused = shares.take(&eve, 1).map(drop).unwrap_err();
        assert_eq!(refused.code, Code::Unavailable);
        assert!(
            refused.message.contains("4 links") && refused.message.contains("eve"),
            "{refused}"
        );
        let of_bob = shares.take(&bob, 1).unwrap();
        held.pop();
        held.push(shares.take(&eve, 1).unwrap());
        drop((held, of_bob));
        assert!(shares.taken.lock().is_empty(), "nothing is remembered of who has left");
    }

    #[test]
    fn a_principal_has_its_share_of_bytes() {
        let shares = LinkShares::of(65_536);
        let eve = principal("eve");
        let whole = shares.take(&eve, HELLO_BYTES).unwrap();
        let refused = shares.take(&eve, 1).map(drop).unwrap_err();
        assert!(refused.message.contains("bytes of hellos"), "{refused}");
        drop(shares.take(&eve, 0).unwrap());
        drop(whole);
        drop(shares.take(&eve, HELLO_BYTES).unwrap());
        assert!(shares.take(&eve, HELLO_BYTES + 1).is_err());
        assert!(shares.take(&principal("one"), usize::MAX).is_err());
    }

    /// Links that are opened and given up again at once are bounded, too.
    #[tokio::test(start_paused = true)]
    async fn a_principal_opens_links_no_faster_than_it_may() {
        let shares = LinkShares::of(65_536);
        let (eve, bob) = (principal("eve"), principal("bob"));
        let opened = |who: &Token| (0..20_000).filter(|_| shares.take(who, 1).is_ok()).count();
        assert_eq!(opened(&eve) as u64, OPENINGS_AT_ONCE);
        let refused = shares.take(&eve, 1).map(drop).unwrap_err();
        assert!(refused.message.contains("too fast"), "{refused}");
        assert_eq!(opened(&bob) as u64, OPENINGS_AT_ONCE, "it is not bob's doing");
        let pause = std::time::Duration::from_millis(3);
        for _ in 0..1_000 {
            tokio::time::advance(pause).await;
            assert!(shares.take(&eve, 1).is_ok(), "one in two milliseconds");
        }
        tokio::time::advance(1_000 * pause).await;
        assert_eq!(opened(&eve) as u64, 6 * OPENINGS_PER_SECOND - 1_000);
    }

    /// Principals that have come and gone take no memory.
    #[tokio::test(start_paused = true)]
    async fn principals_that_open_nothing_are_forgotten() {
        let shares = LinkShares::of(65_536);
        for number in 0..REMEMBERED {
            drop(shares.take(&principal(&format!("p{number}")), 1).unwrap());
        }
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        drop(shares.take(&principal("last"), 1).unwrap());
        assert_eq!(shares.opened.lock().len(), 1);
    }

    #[test]
    fn a_node_of_one_link_has_one_for_anybody() {
        assert!(LinkShares::of(1).take(&principal("eve"), 10).is_ok());
    }
}
