//! The pools of a node: opened when somebody names one, closed when nobody needs it.

use std::cell::RefCell;
use std::sync::Arc;

use ractor::ActorRuntime;
use tenure_core::Rejection;
use tenure_core::eligibility::{Wanted, WorkerCounts};
use tenure_core::id::{Millis, PoolId};
use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;
use tenure_ports::observer::PoolSample;
use tokio::time::Instant;

use super::{NodeShared, stopped};
use crate::pool::{Left, Msg as PoolMsg, Pool, PoolActor, PoolWorkers};
use crate::task::address::Address;

/// The workers of the pools of one Task. Each pool is looked at once, however many different Steps the Task has.
#[derive(Debug, Default)]
pub(crate) struct TaskWorkers(RefCell<IdMap<PoolId, Option<PoolWorkers>>>);

impl TaskWorkers {
    /// The workers that may take a Step of the Task.
    pub(crate) fn facts<J, L>(&self, node: &NodeShared<J, L>, wanted: Wanted<'_>) -> WorkerCounts {
        let mut known = self.0.borrow_mut();
        if !known.contains_key(wanted.pool) {
            let pool = node.pool_if_open(wanted.pool);
            let workers = pool.map(|pool| pool.workers_of(wanted.session));
            known.insert(wanted.pool.clone(), workers);
        }
        let workers = known.get(wanted.pool).and_then(Option::as_ref);
        workers.map_or_else(WorkerCounts::default, |workers| workers.facts(wanted))
    }
}

impl<J, L> NodeShared<J, L> {
    pub(crate) fn pool_if_open(&self, id: &PoolId) -> Option<Arc<Pool>> {
        self.pools.read().get(id).map(Arc::clone)
    }

    /// Calls `does` with a pool, which is opened if it is not, and which nobody closes meanwhile.
    pub(super) fn with_pool<T>(
        &self,
        id: &PoolId,
        act: impl FnOnce(&Arc<Pool>) -> T,
    ) -> Result<T, Rejection> {
        {
            let pools = self.pools.read();
            if let Some(pool) = pools.get(id) {
                return Ok(act(pool));
            }
        }
        let mut pools = self.pools.write();
        if let Some(pool) = pools.get(id) {
            return Ok(act(pool));
        }
        let supervisor = self.supervisor.lock().clone().ok_or_else(|| stopped("the node"))?;
        let _runtime = self.runtime.enter();
        let pool = Arc::new(Pool::new(id.clone()));
        let (actor, _) =
            ActorRuntime::spawn_linked_instant(None, PoolActor, Arc::clone(&pool), supervisor)
                .map_err(|error| stopped(&error.to_string()))?;
        pool.served_by(actor);
        pools.insert(id.clone(), Arc::clone(&pool));
        Ok(act(&pool))
    }

    /// Closes pools for which there has been nothing to do for a while: no worker, no Step that waits, no Attempt, no
    /// suspension. A pool is opened again when somebody names it.
    pub(crate) fn close_idle_pools(&self) {
        let now = Instant::now();
        let idle: Vec<PoolId> = {
            let pools = self.pools.read();
            let idle = pools.iter().filter(|(_, pool)| pool.has_been_idle(now));
            idle.map(|(id, _)| id.clone()).collect()
        };
        if idle.is_empty() {
            return;
        }
        let mut pools = self.pools.write(); // Nobody sends a message to a pool while this lock is held.
        for id in idle {
            if pools.get(&id).is_some_and(|pool| pool.is_idle())
                && let Some(pool) = pools.remove(&id)
            {
                pool.close();
            }
        }
    }

    pub(crate) fn hungry_pools(&self) -> Vec<(PoolId, u64)> {
        let pools = self.pools.read();
        let hungry = pools.iter().filter_map(|(id, pool)| Some((id.clone(), pool.hunger()?)));
        hungry.collect()
    }

    /// All pools at this moment.
    pub(crate) fn sample_pools(&self, now: Millis) -> Vec<PoolSample> {
        self.all_pools().into_iter().map(|(_, pool)| pool.sample(now)).collect()
    }

    /// The pools that are open now. Who opens one waits for as long as somebody reads the table.
    pub(super) fn all_pools(&self) -> Vec<(PoolId, Arc<Pool>)> {
        self.pools.read().iter().map(|(id, pool)| (id.clone(), Arc::clone(pool))).collect()
    }

    /// Has pools take back what the failed actor of a Task has left for them: only that knew for which. What the Task
    /// has now they are told by whoever reads its log.
    pub(crate) fn withdraw(&self, key: &TaskKey, at: &Address) {
        for pool in self.pools.read().values().filter(|pool| pool.may_have(key)) {
            pool.tell(PoolMsg::Ready(key.clone(), Left::nothing(at)));
        }
    }

    /// Sends a message to a pool, which is opened if need be.
    pub(crate) fn tell_pool(&self, id: &PoolId, msg: PoolMsg) {
        let _ = self.with_pool(id, |pool| pool.tell(msg)); // The node may be stopping.
    }
}
