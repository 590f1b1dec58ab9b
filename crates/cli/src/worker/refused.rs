//! Workers that get no work, because a node cannot accept their messages.

use std::collections::BTreeMap;

use smol_str::SmolStr;
use tenure_node::doctor::Finding;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::{NodeFacts, RefusedFacts};

use crate::answer::human;

/// How many workers to name with their reasons.
const NAMED: usize = 3;

/// Each worker that a node has refused lately, once, with the last error that it got.
pub(super) fn refused(heard: &Gather<NodeFacts>) -> Vec<RefusedFacts> {
    let mut all: BTreeMap<(&str, &str, &str), &RefusedFacts> = BTreeMap::new();
    for one in heard.answers.iter().flat_map(|node| &node.refused) {
        let last = all.entry((&one.pool, &one.principal, &one.boot)).or_insert(one);
        if one.ago_ms < last.ago_ms {
            *last = one;
        }
    }
    all.into_values().cloned().collect()
}

/// Its name in lists and in the log.
pub(super) fn name(worker: &RefusedFacts) -> SmolStr {
    smol_str::format_smolstr!("{}.{}", worker.principal, worker.boot)
}

/// Why it gets no work.
pub(super) fn why(worker: &RefusedFacts) -> String {
    let RefusedFacts { pool, error, ago_ms, .. } = worker;
    let (name, ago) = (name(worker), human::duration(*ago_ms));
    format!("{name} of pool {pool} was refused {ago} ago and gets no work: {error}")
}

/// The finding about refused workers, if there are any.
pub(crate) fn finding(heard: &Gather<NodeFacts>) -> Option<Finding> {
    let refused = refused(heard);
    let whys: Vec<String> = refused.iter().take(NAMED).map(why).collect();
    if whys.is_empty() {
        return None;
    }
    let more = match refused.len() - whys.len() {
        0 => String::new(),
        more => format!("; and {}", human::plural(more, "other worker")),
    };
    let advice = "mend what that worker says, as docs/protocol.md describes it, and start it again: it \
                  was told the same";
    Some(Finding::caution("workers.refused", whys.join("; ") + &more, advice))
}

#[cfg(test)]
mod tests {
    use tenure_core::Rejection;

    use super::*;

    fn node(name: &str, boots: &[(&str, u64)]) -> NodeFacts {
        let refused = boots.iter().map(|(boot, ago_ms)| RefusedFacts {
            pool: "default".into(),
            principal: "w".into(),
            boot: (*boot).into(),
            error: Rejection::invalid("v", format!("said to {name}")),
            ago_ms: *ago_ms,
        });
        NodeFacts { node: name.into(), refused: refused.collect(), ..NodeFacts::default() }
    }

    #[test]
    fn a_worker_that_several_nodes_refused_is_told_once() {
        let answers =
            vec![node("n1", &[("b1", 5_000), ("b2", 7_000)]), node("n2", &[("b1", 2_000)])];
        let heard = Gather { answers, missing_partitions: Vec::new() };
        let [first, second] = &refused(&heard)[..] else { panic!("two workers") };
        assert_eq!((name(first).as_str(), first.ago_ms), ("w.b1", 2_000));
        assert_eq!(first.error.message, "said to n2", "the last that it was told");
        assert_eq!(name(second), "w.b2");
        let found = finding(&heard).unwrap().found;
        assert!(found.starts_with("w.b1 of pool default was refused 2"), "{found}");
        assert!(found.contains("validation_error: said to n2"), "{found}");
    }

    #[test]
    fn where_many_were_refused_some_are_named() {
        let many = [("b1", 1), ("b2", 1), ("b3", 1), ("b4", 1), ("b5", 1)];
        let of =
            |boots| Gather { answers: vec![node("n1", boots)], missing_partitions: Vec::new() };
        let found = finding(&of(&many)).unwrap().found;
        assert!(found.contains("b3") && found.ends_with("; and 2 other workers"), "{found}");
        assert_eq!(finding(&of(&[])), None);
    }
}
