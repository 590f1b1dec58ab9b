//! How many pools the live Tasks of a session name (DISP-21).
//!
//! A pool costs each node an actor, and a line in what the node says of itself. Anybody who may create a Task can name
//! a new pool. So a node counts, for each session, the pools that the live Tasks on it name, and refuses what would
//! name too many. It counts what is in the log already, and never refuses that.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::Rejection;
use tenure_core::command::pools::NamedPools;
use tenure_core::id::{PoolId, SessionId};
use tenure_ports::map::IdMap;

/// How many pools the live Tasks of a session may name on a node: more than a fleet has kinds of machines, and some
/// 11 MB of actors.
pub(crate) const POOLS_OF_SESSION_MAX: usize = 1_000;

/// The pools that live Tasks name, by session, each with the number of these Tasks.
#[derive(Debug, Default)]
pub(crate) struct PoolNames(Mutex<IdMap<SessionId, BTreeMap<PoolId, u32>>>);

/// The pools that one live Task names. Dropping this counts them out.
#[derive(Debug)]
pub(crate) struct PoolsOfTask {
    all: Arc<PoolNames>,
    session: SessionId,
    /// Sorted. Most Tasks have one.
    named: Vec<PoolId>,
}

impl PoolsOfTask {
    /// A Task that names none yet.
    pub(crate) fn none(all: &Arc<PoolNames>, session: SessionId) -> Self {
        Self { all: Arc::clone(all), session, named: Vec::new() }
    }

    /// Whether the Task may name these pools, too.
    ///
    /// # Errors
    /// `validation_error`: then the live Tasks of its session would name too many.
    pub(crate) fn check(&self, more: &NamedPools<'_>) -> Result<(), Rejection> {
        if more.keys().all(|pool| self.has(pool)) {
            return Ok(()); // As almost always.
        }
        let all = self.all.0.lock();
        let known = all.get(&self.session);
        let count = known.map_or(0, BTreeMap::len);
        let new =
            more.iter().filter(|(pool, _)| known.is_none_or(|known| !known.contains_key(**pool)));
        let room = POOLS_OF_SESSION_MAX.saturating_sub(count);
        let mut new: Vec<_> = new.map(|(pool, field)| (*field, *pool)).collect();
        if new.len() <= room {
            return Ok(());
        }
        new.sort_unstable_by_key(|(field, _)| field.place());
        let (field, pool) = new[room];
        let message = format!(
            "pool {pool} would be one too many: the live tasks of session {} name {count} pools on this node, this \
             request names {} others, and a session may name {POOLS_OF_SESSION_MAX}; send steps to pools that are \
             named already, or end tasks",
            self.session,
            new.len()
        );
        Err(Rejection::invalid(&field.name(), message).with("limit", POOLS_OF_SESSION_MAX))
    }

    /// Counts these pools as named by the Task.
    pub(crate) fn add<'a>(&mut self, more: impl IntoIterator<Item = &'a PoolId>) {
        let mut last = None;
        for pool in more {
            if last == Some(pool) {
                continue;
            }
            last = Some(pool);
            if let Err(at) = self.named.binary_search(pool) {
                self.named.insert(at, pool.clone());
                let mut all = self.all.0.lock();
                let of_session = all.entry(self.session.clone()).or_default();
                *of_session.entry(pool.clone()).or_default() += 1;
            }
        }
    }

    fn has(&self, pool: &PoolId) -> bool {
        self.named.binary_search(pool).is_ok()
    }

    /// Notes that the Task has ended, and names no pool any more.
    pub(crate) fn clear(&mut self) {
        if self.named.is_empty() {
            return;
        }
        let mut all = self.all.0.lock();
        let Some(of_session) = all.get_mut(&self.session) else { return };
        for pool in self.named.drain(..) {
            if let Some(tasks) = of_session.get_mut(&pool) {
                *tasks -= 1;
                if *tasks == 0 {
                    of_session.remove(&pool);
                }
            }
        }
        if of_session.is_empty() {
            all.remove(&self.session);
        }
    }
}

impl Drop for PoolsOfTask {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::command::pools::PoolField;

    use super::*;

    fn pools(from: usize, to: usize) -> Vec<PoolId> {
        (from..to).map(|n| format!("p{n:05}").parse().unwrap()).collect()
    }

    fn named(pools: &[PoolId]) -> NamedPools<'_> {
        pools.iter().enumerate().map(|(at, pool)| (pool, PoolField::Step(at))).collect()
    }

    /// DISP-21: the live Tasks of a session name so many pools at most; the refusal names the first one too many. What
    /// a Task named that has ended is free for others, and other sessions have their own.
    #[test]
    fn a_session_names_so_many_pools() {
        let (all, session): (_, SessionId) = (Arc::default(), "s".parse().unwrap());
        let mut first = PoolsOfTask::none(&all, session.clone());
        let most = pools(0, POOLS_OF_SESSION_MAX);
        first.check(&named(&most)).unwrap();
        first.add(&most);
        let mut second = PoolsOfTask::none(&all, session);
        second.check(&named(&most)).unwrap();
        second.add(&most[..2]);
        let more = pools(POOLS_OF_SESSION_MAX - 1, POOLS_OF_SESSION_MAX + 2);
        let refused = second.check(&named(&more)).unwrap_err();
        assert_eq!(refused.details["field"], "steps[1].worker_pool_id");
        assert_eq!(refused.details["limit"], POOLS_OF_SESSION_MAX);
        let other = PoolsOfTask::none(&all, "other".parse().unwrap());
        other.check(&named(&more)).unwrap();
        assert!(other.check(&named(&pools(0, POOLS_OF_SESSION_MAX + 1))).is_err());
        drop(first);
        second.check(&named(&more)).unwrap();
        drop((second, other));
        assert!(all.0.lock().is_empty(), "nothing is remembered of Tasks that have ended");
    }
}
