//! Adds up the facts about workers from the answers of all nodes.

use std::collections::BTreeMap;

use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::id::PoolId;
use tenure_sdk::nats::client::Gather;
#[cfg(test)]
use tenure_wire::bus::operate::WorkerFacts;
use tenure_wire::bus::operate::{NodeFacts, SuspendedFacts};

use crate::cli::pool::sum;

/// A worker, with the sums over all nodes.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerSums {
    pub(crate) pool: PoolId,
    pub(crate) principal: SmolStr,
    pub(crate) boot: SmolStr,
    pub(crate) free: u64,
    pub(crate) unheard: u64,
    pub(crate) silent_ms: u64,
    pub(crate) draining: bool,
    /// The suspension, if a node gives it nothing for a while because it fails what others
    /// complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suspended: Option<SuspendedFacts>,
    /// Open Attempts that it holds; none if nodes do not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<u64>,
    /// The nodes with which it has a link.
    pub(super) nodes: Vec<SmolStr>,
}

/// Every worker once, with the facts of all nodes about it.
pub(crate) fn merged(heard: &Gather<NodeFacts>) -> Vec<WorkerSums> {
    let mut all: BTreeMap<(PoolId, SmolStr, SmolStr), WorkerSums> = BTreeMap::new();
    for node in &heard.answers {
        for seen in &node.workers {
            let name = (seen.pool.clone(), seen.principal.clone(), seen.boot.clone());
            let new = |(pool, principal, boot): (PoolId, SmolStr, SmolStr)| WorkerSums {
                pool,
                principal,
                boot,
                free: 0,
                unheard: 0,
                silent_ms: u64::MAX,
                draining: false,
                suspended: None,
                running: None,
                nodes: Vec::new(),
            };
            let worker = all.entry(name.clone()).or_insert_with(|| new(name));
            worker.free += seen.free;
            worker.unheard += seen.unheard;
            worker.silent_ms = worker.silent_ms.min(seen.silent_ms);
            worker.draining |= seen.draining;
            let again = |it: &SuspendedFacts| it.again_ms;
            let both = worker.suspended.take().into_iter().chain(seen.suspended.clone());
            worker.suspended = both.max_by_key(again);
            worker.running = sum(worker.running, seen.holds);
            worker.nodes.push(node.node.clone());
        }
    }
    let mut all: Vec<WorkerSums> = all.into_values().collect();
    all.iter_mut().for_each(|worker| worker.nodes.sort_unstable());
    all
}

/// A worker without any facts.
#[cfg(test)]
pub(crate) fn idle(pool: &str, principal: &str, boot: &str) -> WorkerFacts {
    WorkerFacts {
        pool: pool.parse().unwrap(),
        principal: principal.into(),
        boot: boot.into(),
        free: 0,
        unheard: 0,
        silent_ms: 0,
        draining: false,
        suspended: None,
        holds: None,
        sent: None,
        seen: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(boot: &str, free: u64, silent_ms: u64, draining: bool) -> WorkerFacts {
        let holds = draining.then_some(2);
        WorkerFacts { free, unheard: 1, silent_ms, draining, holds, ..idle("default", "w", boot) }
    }

    fn node(name: &str, workers: Vec<WorkerFacts>) -> NodeFacts {
        let owned = vec![0];
        NodeFacts { node: name.into(), partitions: 1, owned, workers, ..NodeFacts::default() }
    }

    #[test]
    fn a_worker_that_several_nodes_know_is_shown_once() {
        let one = node("n2", vec![seen("b1", 2, 900, false), seen("b2", 1, 10, false)]);
        let other = node("n1", vec![seen("b1", 3, 40, true)]);
        let heard = Gather { answers: vec![one, other], missing_partitions: Vec::new() };
        let [first, second] = &merged(&heard)[..] else { panic!("two workers") };
        assert_eq!((first.free, first.unheard, first.silent_ms, first.draining), (5, 2, 40, true));
        assert_eq!((first.running, second.running), (Some(2), None));
        assert_eq!(first.nodes, ["n1", "n2"]);
        assert_eq!((second.boot.as_str(), second.free, second.draining), ("b2", 1, false));
    }
}
