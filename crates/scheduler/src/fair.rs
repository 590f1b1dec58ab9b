//! [`FairPermits`]: permits for requests, of which no principal takes so many that others find none.
//!
//! A principal gets a permit while it has fewer than [`SHARE`] times as many as are free. So one alone may have three
//! quarters of them, a second one then three quarters of the rest, and so on: however many take all that they may,
//! another one finds some, and as soon as these are given back all have as many.
//!
//! Step 4 of the walk in docs/architecture.md.

use std::sync::Arc;

use parking_lot::Mutex;
use smol_str::SmolStr;
use tenure_core::Caller;
use tenure_core::eligibility::principal_of;
use tenure_core::status::Role;
use tenure_ports::map::IdMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many times as many permits or places as are free a principal may have.
pub(crate) const SHARE: usize = 3;

type InUse = Arc<Mutex<IdMap<SmolStr, usize>>>;

/// Permits of one kind.
#[derive(Debug, Clone)]
pub struct FairPermits {
    all: Arc<Semaphore>,
    in_use: InUse,
    most: usize,
}

/// One permit, given back when it is dropped.
#[derive(Debug)]
pub struct FairPermit {
    _permit: OwnedSemaphorePermit,
    who: SmolStr,
    in_use: InUse,
}

impl FairPermits {
    /// So many permits.
    pub fn new(most: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(most)), in_use: Arc::default(), most }
    }

    /// A permit for a caller. None while no more than `kept` are free, which other kinds of requests may take, or
    /// while the caller has its share.
    pub(crate) fn take(&self, caller: &Caller, kept: usize) -> Option<FairPermit> {
        self.take_unless(principal(caller), kept, caller.role == Role::System)
    }

    /// A permit for a principal. None while it has its share.
    pub fn take_for(&self, who: &str) -> Option<FairPermit> {
        self.take_unless(who, 0, false)
    }

    fn take_unless(&self, who: &str, kept: usize, is_system: bool) -> Option<FairPermit> {
        let free = self.all.available_permits().saturating_sub(kept);
        let mut in_use = self.in_use.lock();
        let own = in_use.get(who).copied().unwrap_or(0);
        if free == 0 || (own >= SHARE * free && !is_system) {
            return None;
        }
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        match in_use.get_mut(who) {
            Some(own) => *own += 1,
            None => drop(in_use.insert(who.into(), 1)),
        }
        drop(in_use);
        Some(FairPermit { _permit: permit, who: who.into(), in_use: Arc::clone(&self.in_use) })
    }

    /// How many are in use.
    pub fn in_use(&self) -> usize {
        self.most - self.all.available_permits()
    }
}

/// Who a caller is, whichever boot of it asks.
pub(crate) fn principal(caller: &Caller) -> &str {
    match caller.role {
        Role::Worker => principal_of(&caller.agent),
        _ => caller.agent.as_str(),
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let mut in_use = self.in_use.lock();
        if let Some(own) = in_use.get_mut(&self.who) {
            *own -= 1;
            if *own == 0 {
                in_use.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use tenure_core::id::{AgentId, SessionId};

    use super::*;

    fn take_all(permits: &FairPermits, who: &str, kept: usize) -> Vec<FairPermit> {
        let mut caller = Caller::system(SessionId::new("s").unwrap());
        (caller.role, caller.agent) = (Role::Worker, AgentId::new(format!("{who}.b1")).unwrap());
        let mut taken: Vec<FairPermit> = Vec::new();
        taken.extend(std::iter::from_fn(|| permits.take(&caller, kept)));
        caller.agent = AgentId::new(format!("{who}.b2")).unwrap();
        assert!(permits.take(&caller, kept).is_none(), "another boot is the same principal");
        taken
    }

    /// LIVE-04: however much one principal asks for at a time, others are served.
    #[test]
    fn no_principal_takes_all() {
        let permits = FairPermits::new(64);
        let of_eve = take_all(&permits, "eve", 0);
        let of_mallory = take_all(&permits, "mallory", 0);
        let of_bob = take_all(&permits, "bob", 0);
        assert_eq!([of_eve.len(), of_mallory.len(), of_bob.len()], [48, 12, 3]);
        assert_eq!(permits.in_use(), 63);
        drop(of_eve);
        assert_eq!(take_all(&permits, "bob", 0).len(), 36, "what is given back is for all");
        drop((of_mallory, of_bob));
        assert!(permits.in_use.lock().is_empty());
    }

    /// Mechanisms 16: creates are refused first.
    #[test]
    fn some_are_kept_from_some_requests() {
        let permits = FairPermits::new(64);
        let creates = take_all(&permits, "eve", 16);
        assert_eq!(creates.len(), 36, "of 48");
        assert_eq!(take_all(&permits, "eve", 0).len(), 12);
    }
}
