//! The facts about pools from the answers of all nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use smol_str::SmolStr;
use tenure_core::id::PoolId;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::fleet;
pub(crate) use tenure_wire::bus::fleet::PoolSums;
#[cfg(test)]
use tenure_wire::bus::operate::PoolFacts;
use tenure_wire::bus::operate::{NodeFacts, WaitFacts};

use crate::answer::human;

/// If two waiting times differ by more than this, they belong to two Steps.
const SAME_MS: u64 = 1_000;

/// How many Steps of a cluster wait, by the most decisive reason.
pub(crate) type WaitCounts = BTreeMap<SmolStr, u64>;

/// `TASK/STEP`; and for how long it has waited, where one of another session has waited longer.
pub(crate) fn longest(step: Option<&WaitFacts>, oldest_ms: Option<u64>) -> String {
    let Some(step) = step else { return "–".into() };
    let name = format!("{}/{}", step.task_id, step.step_id);
    match oldest_ms.unwrap_or_default().saturating_sub(step.ready_ms) {
        ..SAME_MS => name,
        _ => format!("{name} {}", human::duration(step.ready_ms)),
    }
}

/// What Steps wait for, over all nodes; none if no node reports it.
pub(crate) fn waits(heard: &Gather<NodeFacts>) -> Option<WaitCounts> {
    heard.answers.iter().filter_map(|node| node.waits.clone()).reduce(|mut all, more| {
        more.into_iter().for_each(|(why, count)| *all.entry(why).or_default() += count);
        all
    })
}

/// The most first, on a line.
pub(crate) fn most_first(waits: &WaitCounts) -> Vec<(String, u64)> {
    let all = waits.iter().map(|(why, &count)| (human::one_line(why), count));
    let mut all: Vec<(String, u64)> = all.collect();
    all.sort_by_key(|(_, count)| Reverse(*count)); // A stable sort: equal counts stay in their order.
    all
}

/// Every pool once.
pub(crate) fn merged(heard: &Gather<NodeFacts>) -> BTreeMap<PoolId, PoolSums> {
    fleet::pools(&heard.answers)
}

/// A pool in which nothing runs.
#[cfg(test)]
pub(crate) fn quiet(pool: &str) -> PoolFacts {
    PoolFacts {
        pool: pool.parse().unwrap(),
        workers: 0,
        free: 0,
        waiting: 0,
        oldest_ms: None,
        running: Some(0),
        ended: Some(0),
        longest: None,
        sessions: None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::operate::WorkerFacts;

    use super::*;
    use crate::worker::idle;

    fn step(task: &str, ready_ms: u64) -> WaitFacts {
        let (task_id, step_id) = (task.parse().unwrap(), "train".parse().unwrap());
        WaitFacts { task_id, step_id, ready_ms }
    }

    #[test]
    fn a_step_that_another_session_lets_wait_says_for_how_long() {
        let step = step("nightly", 9_300);
        assert_eq!(longest(Some(&step), Some(9_301)), "nightly/train");
        assert_eq!(longest(Some(&step), Some(60_000)), "nightly/train 9.3 s");
        assert_eq!(longest(None, Some(60_000)), "–");
    }

    #[test]
    fn a_worker_with_two_links_is_one_worker() {
        let pool: PoolId = "default".parse().unwrap();
        let node = |name: &str, waiting| NodeFacts {
            node: name.into(),
            partitions: 1,
            owned: vec![0],
            workers: vec![WorkerFacts { free: 2, ..idle("default", "w", "b") }],
            more: false,
            pools: vec![PoolFacts {
                workers: 1,
                free: 2,
                waiting,
                oldest_ms: (waiting > 3).then_some(900),
                running: Some(waiting),
                longest: Some(step(name, waiting)),
                ..quiet("default")
            }],
            waits: Some(WaitCounts::from([("not_before".into(), waiting), (name.into(), 1)])),
            ..NodeFacts::default()
        };
        let answers = vec![node("n1", 3), node("n2", 4)];
        let heard = Gather { answers, missing_partitions: Vec::new() };
        let facts = PoolSums {
            workers: 1,
            free: 4,
            waiting: 7,
            oldest_ms: Some(900),
            running: Some(7),
            longest: Some(step("n2", 4)),
            sessions: None,
        };
        assert_eq!(merged(&heard)[&pool], facts);
        let of_both = waits(&heard).unwrap();
        let told: Vec<_> =
            most_first(&of_both).iter().map(|(why, n)| format!("{n} {why}")).collect();
        assert_eq!(told, ["7 not_before", "1 n1", "1 n2"]);
    }
}
