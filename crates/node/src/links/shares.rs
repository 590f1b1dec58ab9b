//! How much of a node each principal may take with its links, so that one login cannot take it all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::{Code, Rejection};
use tenure_wire::bus::subject::Token;

/// The part of all links of a node that one principal may have: with it, three others find room at any time.
const OF_LINKS: usize = 4;

/// How many bytes the hellos of one principal may have in all, 16 MiB. A link costs memory by its handlers; 4,000
/// workers with 100 handlers each stay below.
const HELLO_BYTES: usize = 16 << 20;

/// How long a worker that was refused waits before it says hello again.
const RETRY_AFTER_MS: u64 = 2_000;

/// What every principal has taken.
pub(super) struct LinkShares {
    links: usize,
    taken: Mutex<HashMap<Token, PrincipalUse>>,
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
        Arc::new(Self { links: most.div_ceil(OF_LINKS), taken: Mutex::default() })
    }

    /// Takes a link whose hello has so many bytes.
    ///
    /// # Errors
    /// `unavailable`, retryable: the principal has its share.
    pub(super) fn take(
        self: &Arc<Self>,
        principal: &Token,
        bytes: usize,
    ) -> Result<HeldShare, Rejection> {
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

    #[test]
    fn a_node_of_one_link_has_one_for_anybody() {
        assert!(LinkShares::of(1).take(&principal("eve"), 10).is_ok());
    }
}
