//! [`GoodLogins`]: the credentials that were good of late, so that they need not wait behind the guesses of a
//! neighbour.
//!
//! They are still checked, so what is remembered need not be forgotten when the file of callers is read again: those
//! that are good no more go then. Each counts from its own address alone: elsewhere it waits as any other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use parking_lot::Mutex;
use smol_str::SmolStr;

use crate::server::line_of;

/// The most credentials that are remembered.
const REMEMBERED_MAX: usize = 4_096;

/// One of the credentials, by a part of its digest, from one address.
type GoodKey = (IpAddr, u64);

/// The good logins of late.
#[derive(Debug, Default)]
pub(super) struct GoodLogins(Mutex<HashMap<GoodKey, GoodLogin>>);

#[derive(Debug)]
struct GoodLogin {
    principal: SmolStr,
    used: Instant,
}

impl GoodLogins {
    /// Whether the credentials were good from there.
    pub(super) fn has(&self, from: IpAddr, credential: u64) -> bool {
        self.0.lock().contains_key(&(line_of(from), credential))
    }

    /// Notes that credentials were good.
    pub(super) fn note(&self, from: IpAddr, credential: u64, principal: &str, now: Instant) {
        let (mut good, key) = (self.0.lock(), (line_of(from), credential));
        if let Some(known) = good.get_mut(&key).filter(|known| known.principal == principal) {
            known.used = now;
            return;
        }
        if good.len() >= REMEMBERED_MAX {
            forget(&mut good);
        }
        good.insert(key, GoodLogin { principal: principal.into(), used: now });
    }

    /// Forgets credentials that are not good any more.
    pub(super) fn remove(&self, from: IpAddr, credential: u64) {
        self.0.lock().remove(&(line_of(from), credential));
    }
}

/// Makes room: of the principal who has the most, the half goes that was used longest ago.
fn forget(good: &mut HashMap<GoodKey, GoodLogin>) {
    let mut uses: HashMap<&SmolStr, Vec<Instant>> = HashMap::new();
    good.values().for_each(|it| uses.entry(&it.principal).or_default().push(it.used));
    let most = uses.into_iter().max_by_key(|(_, uses)| uses.len());
    let Some((principal, mut uses)) = most.map(|(name, uses)| (name.clone(), uses)) else { return };
    let middle = uses.len() / 2;
    let (_, median, _) = uses.select_nth_unstable(middle);
    let median = *median;
    good.retain(|_, it| it.principal != principal || it.used > median);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn what_was_good_is_known_at_its_address_alone_until_it_is_not() {
        let (good, now) = (GoodLogins::default(), Instant::now());
        good.note(HERE, 1, "ann", now);
        assert!(good.has(HERE, 1) && !good.has(HERE, 2) && !good.has(THERE, 1));
        good.remove(HERE, 1);
        assert!(!good.has(HERE, 1));
    }

    /// Mechanisms 15: who has many tokens pushes out its own.
    #[test]
    fn memory_is_bounded_and_one_principal_leaves_the_others_theirs() {
        let (good, mut now) = (GoodLogins::default(), Instant::now());
        good.note(HERE, 0, "bob", now);
        for token in 1..=3 * REMEMBERED_MAX as u64 {
            now += Duration::from_millis(1);
            good.note(HERE, token, "eve", now);
            assert!(good.0.lock().len() <= REMEMBERED_MAX);
        }
        assert!(good.has(HERE, 0));
        assert!(good.has(HERE, 3 * REMEMBERED_MAX as u64) && !good.has(HERE, 1));
    }
}
