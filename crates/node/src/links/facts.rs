//! What a node tells of its links.

use std::sync::Arc;

use tenure_core::id::PoolId;
use tenure_wire::bus::operate::{SuspendedFacts, WorkerFacts};
use tenure_wire::bus::subject::WorkerName;

use super::{Links, NodeLink};

impl Links {
    /// What is known of each worker, in the order of their names; with its credits if `is_audit`.
    pub(crate) fn facts(&self, is_audit: bool) -> Vec<WorkerFacts> {
        let mut all: Vec<(WorkerName, Arc<NodeLink>)> =
            self.all.lock().links.iter().map(|(n, l)| (n.clone(), Arc::clone(l))).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.into_iter().map(|(name, link)| link.facts(name, is_audit)).collect()
    }

    /// How many workers of a pool were asked to leave.
    pub(crate) fn leaving(&self, pool: &PoolId) -> u64 {
        let all = self.all.lock();
        let of_pool = all.links.iter().filter(|(name, _)| name.pool == *pool);
        of_pool.filter(|(_, link)| link.state.lock().leave.is_some()).count() as u64
    }
}

/// The name of the handler that runs commands (`crates/sdk`, `exec`).
const EXEC: &str = "exec";

impl NodeLink {
    /// Whether the worker may be given Steps that name a command.
    fn runs_commands(&self) -> bool {
        let Some(said) = &self.said else { return false };
        said.handlers.as_ref().is_none_or(|all| all.iter().any(|one| one.as_str() == EXEC))
    }

    pub(super) fn facts(&self, name: WorkerName, is_audit: bool) -> WorkerFacts {
        let free = self.port.free();
        let (sent, seen) = is_audit.then(|| self.port.sent_and_seen()).unzip();
        let suspended = self.port.suspension();
        let suspended = suspended.map(|(handler, again_ms)| SuspendedFacts { handler, again_ms });
        let state = self.state.lock();
        let silent = state.heard.elapsed().as_millis();
        WorkerFacts {
            pool: name.pool,
            principal: name.principal.as_str().into(),
            boot: name.boot.as_str().into(),
            free,
            unheard: state.window.unheard(),
            silent_ms: u64::try_from(silent).unwrap_or(u64::MAX),
            draining: state.leave.is_some(),
            sessions: self.port.sessions().clone(),
            commands: self.runs_commands(),
            suspended,
            holds: Some(self.port.holds()),
            sent,
            seen,
        }
    }
}
