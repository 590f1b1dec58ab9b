//! [`Shares`]: places that callers share, so that one who takes many leaves some to others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// A caller gets one more place while it has fewer than so many times as many as are free.
const TIMES_FREE: usize = 3;

/// A number of places. A caller that is alone gets three quarters of them. Clones share the places.
#[derive(Debug, Clone)]
pub struct Shares {
    places: usize,
    taken: Arc<Mutex<TakenPlaces>>,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    all: usize,
    of: HashMap<Arc<str>, usize>,
}

/// A place that a caller has, until this is dropped.
#[derive(Debug)]
pub struct Share {
    of: Shares,
    caller: Arc<str>,
}

impl Shares {
    /// So many places.
    pub fn new(places: usize) -> Self {
        Self { places, taken: Arc::default() }
    }

    /// A place for this caller; `None` if it has its part already.
    pub fn take(&self, caller: &str) -> Option<Share> {
        let mut taken = self.taken.lock();
        let free = self.places.saturating_sub(taken.all);
        let own = taken.of.get(caller).copied().unwrap_or(0);
        (own < TIMES_FREE * free).then(|| self.add(&mut taken, caller))
    }

    /// A place for this caller whatever it has: what the place is for goes on already.
    pub fn hold(&self, caller: &str) -> Share {
        self.add(&mut self.taken.lock(), caller)
    }

    fn add(&self, taken: &mut TakenPlaces, caller: &str) -> Share {
        let known = taken.of.get_key_value(caller).map(|(name, own)| (Arc::clone(name), *own));
        let (caller, own) = known.unwrap_or_else(|| (Arc::from(caller), 0));
        taken.all += 1;
        taken.of.insert(Arc::clone(&caller), own + 1);
        Share { of: self.clone(), caller }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock();
        taken.all -= 1;
        if let Some(own) = taken.of.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                taken.of.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 15: one who takes all that it can leaves a quarter to another, and gives back what it had.
    #[test]
    fn one_leaves_places_to_others() {
        let shares = Shares::new(1_024);
        let mut held: Vec<_> = std::iter::from_fn(|| shares.take("eve")).collect();
        assert_eq!(held.len(), 768);
        held.extend(std::iter::from_fn(|| shares.take("bob")));
        assert_eq!(held.len(), 768 + 192);
        assert!(shares.take("ann").is_some(), "whoever comes last gets one");
        held.extend((0..100).map(|_| shares.hold("ann")));
        assert!(shares.take("zoe").is_none(), "there are more than there are places for");
        held.clear();
        assert!(shares.taken.lock().of.is_empty());
        assert!(shares.take("eve").is_some());
    }
}
