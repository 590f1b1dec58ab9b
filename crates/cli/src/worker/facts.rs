//! The facts about workers from the answers of all nodes.

#[cfg(test)]
use tenure_core::sessions::WorkerSessions;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::fleet;
pub(crate) use tenure_wire::bus::fleet::WorkerSums;
use tenure_wire::bus::operate::NodeFacts;
#[cfg(test)]
use tenure_wire::bus::operate::WorkerFacts;

/// Every worker once, with the facts of all nodes about it.
pub(crate) fn merged(heard: &Gather<NodeFacts>) -> Vec<WorkerSums> {
    fleet::workers(&heard.answers)
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
        sessions: WorkerSessions::ALL,
        commands: false,
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
