//! The pools of a node: opened when somebody names one, closed when nobody needs it.

use std::sync::Arc;

use ractor::ActorRuntime;
use tenure_core::Rejection;
use tenure_core::id::{Millis, PoolId};
use tenure_ports::journal::TaskKey;
use tenure_ports::observer::PoolSample;
use tokio::time::Instant;

use super::{NodeShared, stopped};
use crate::pool::{Left, Msg as PoolMsg, Pool, PoolActor};
use crate::task::address::Address;

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
        let pools = self.pools.read();
        pools.values().map(|pool| pool.sample(now)).collect()
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
