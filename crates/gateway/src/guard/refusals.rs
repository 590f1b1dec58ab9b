//! [`RefusedLogins`]: how often credentials from an address were not valid.
//!
//! An address that sends many different ones is guessing; for a while nothing that it sends is looked at, but what was
//! good from there of late ([`GoodLogins`](super::good_logins::GoodLogins)). Who repeats one that is not valid guesses
//! nothing (a program whose token was taken away), and locks out itself but no neighbour behind the same address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::server::line_of;

/// How many credentials may be wrong in a row: more than a person mistypes.
pub(crate) const REFUSED_MAX: u32 = 10;

/// After how long one more may be wrong.
pub(crate) const ONE_MORE_AFTER: Duration = Duration::from_secs(6);

/// The most addresses and credentials that are remembered. When there are more, the ones are forgotten
/// first that have the fewest refusals left to wait for.
const REMEMBERED_MAX: usize = 8_192;

/// Who is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RefusedKey {
    /// All credentials from there.
    Address(IpAddr),
    /// One of them, by a part of its digest.
    Credential(IpAddr, u64),
}

/// The refusals of late.
#[derive(Debug, Default)]
pub(super) struct RefusedLogins(Mutex<HashMap<RefusedKey, Instant>>);

/// How long a full count takes to be forgotten.
fn whole_wait() -> Duration {
    ONE_MORE_AFTER * REFUSED_MAX
}

impl RefusedLogins {
    /// How long credentials are not looked at, if so.
    pub(super) fn must_wait(
        &self,
        from: IpAddr,
        credential: u64,
        now: Instant,
    ) -> Option<Duration> {
        let (from, refused) = (line_of(from), self.0.lock());
        let keys = [RefusedKey::Address(from), RefusedKey::Credential(from, credential)];
        let waits = keys.iter().filter_map(|key| {
            // It counts as many refusals as the time until it is forgotten has parts.
            let left = refused.get(key)?.saturating_duration_since(now);
            let over = left.checked_sub(whole_wait() - ONE_MORE_AFTER)?;
            (!over.is_zero()).then_some(over)
        });
        waits.max()
    }

    /// Notes that credentials were not valid. An address counts each of its credentials once.
    pub(super) fn note(&self, from: IpAddr, credential: u64, now: Instant) {
        let from = line_of(from);
        let mut refused = self.0.lock();
        if refused.len() + 2 > REMEMBERED_MAX {
            forget(&mut refused, now);
        }
        let one = RefusedKey::Credential(from, credential);
        let is_new = refused.get(&one).is_none_or(|until| *until <= now);
        count(&mut refused, one, now);
        if is_new {
            count(&mut refused, RefusedKey::Address(from), now);
        }
    }

    /// Forgets everything: other credentials count now.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

fn count(refused: &mut HashMap<RefusedKey, Instant>, key: RefusedKey, now: Instant) {
    let until = refused.entry(key).or_insert(now);
    *until = ((*until).max(now) + ONE_MORE_AFTER).min(now + whole_wait());
}

/// Makes room: for what is over, or else for half.
fn forget(refused: &mut HashMap<RefusedKey, Instant>, now: Instant) {
    refused.retain(|_, until| *until > now);
    if refused.len() + 2 > REMEMBERED_MAX {
        let mut ends: Vec<Instant> = refused.values().copied().collect();
        let (_, median, _) = ends.select_nth_unstable(REMEMBERED_MAX / 2);
        let median = *median;
        refused.retain(|_, until| *until > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn who_guesses_waits_and_others_do_not() {
        let (refused, now) = (RefusedLogins::default(), Instant::now());
        for guess in 0..REFUSED_MAX.into() {
            assert_eq!(refused.must_wait(HERE, guess, now), None, "guess {guess}");
            refused.note(HERE, guess, now);
        }
        assert_eq!(refused.must_wait(HERE, 99, now), Some(ONE_MORE_AFTER), "whatever it sends");
        assert_eq!(refused.must_wait(THERE, 0, now), None);
        let soon = now + ONE_MORE_AFTER - Duration::from_millis(1);
        assert!(refused.must_wait(HERE, 99, soon).is_some());
        let later = now + ONE_MORE_AFTER;
        assert_eq!(refused.must_wait(HERE, 99, later), None);
        refused.note(HERE, 99, later);
        assert!(refused.must_wait(HERE, 100, later).is_some(), "one more, and not ten");
    }

    #[test]
    fn who_repeats_a_wrong_token_locks_out_itself_alone() {
        let (refused, now) = (RefusedLogins::default(), Instant::now());
        for _ in 0..REFUSED_MAX {
            assert_eq!(refused.must_wait(HERE, 1, now), None);
            refused.note(HERE, 1, now);
        }
        assert!(refused.must_wait(HERE, 1, now).is_some());
        assert_eq!(refused.must_wait(HERE, 2, now), None, "a neighbour behind the same address");
        refused.clear();
        assert_eq!(refused.must_wait(HERE, 1, now), None);
    }

    #[test]
    fn the_addresses_of_one_line_count_together() {
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        let (refused, now) = (RefusedLogins::default(), Instant::now());
        for i in 0..REFUSED_MAX {
            refused.note(v6(&format!("2001:db8::{i}")), i.into(), now);
        }
        assert!(refused.must_wait(v6("2001:db8::ffff"), 99, now).is_some());
        assert_eq!(refused.must_wait(v6("2001:db8:0:1::1"), 99, now), None);
        assert_eq!(line_of(v6("::ffff:192.0.2.1")), HERE);
    }

    #[test]
    fn memory_is_bounded_and_the_worst_are_remembered() {
        let (refused, now) = (RefusedLogins::default(), Instant::now());
        for guess in 0..REFUSED_MAX.into() {
            refused.note(HERE, guess, now);
        }
        for i in 0..10_000_u32 {
            refused.note(IpAddr::V4((0x0b00_0000 + i).into()), 0, now);
            assert!(refused.0.lock().len() <= REMEMBERED_MAX);
        }
        assert!(refused.must_wait(HERE, 99, now).is_some());
    }
}
