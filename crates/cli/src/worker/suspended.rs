//! Workers that nodes give nothing for a while, because they fail what others complete (DISP-19).

use tenure_node::doctor::Finding;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::{NodeFacts, SuspendedFacts};

use super::facts::{WorkerSums, merged};
use crate::answer::human;

/// How many workers to name.
const NAMED: usize = 3;

/// Why a worker gets no work; none if it gets work.
pub(super) fn why(worker: &WorkerSums) -> Option<String> {
    let SuspendedFacts { handler, again_ms } = worker.suspended.as_ref()?;
    let WorkerSums { pool, principal, boot, .. } = worker;
    let again = match again_ms {
        0 => "is tried with one step".to_owned(),
        ms => format!("is given no steps for {}", human::duration(*ms)),
    };
    Some(format!(
        "{principal}.{boot} of pool {pool} {again}: it fails {handler}, which others complete"
    ))
}

/// The finding about suspended workers, if there are any.
pub(crate) fn finding(heard: &Gather<NodeFacts>) -> Option<Finding> {
    let all: Vec<String> = merged(heard).iter().filter_map(why).collect();
    let named = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    let more = match all.len().saturating_sub(NAMED) {
        0 if all.is_empty() => return None,
        0 => String::new(),
        more => format!("; and {}", human::plural(more, "other worker")),
    };
    let advice = "see what that worker says and whether its disk is full, mend that, and start it again: a \
                  worker that was started anew is given steps at once";
    Some(Finding::caution("workers.suspended", named + &more, advice))
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::operate::WorkerFacts;

    use super::super::facts::idle;
    use super::*;

    fn heard(all: &[(&str, Option<u64>)]) -> Gather<NodeFacts> {
        let worker = |(boot, again_ms): &(&str, Option<u64>)| WorkerFacts {
            suspended: again_ms.map(|again_ms| {
                let handler = "convert".parse().unwrap();
                SuspendedFacts { handler, again_ms }
            }),
            ..idle("p", "w", boot)
        };
        let node = NodeFacts { workers: all.iter().map(worker).collect(), ..NodeFacts::default() };
        Gather { answers: vec![node], missing_partitions: Vec::new() }
    }

    #[test]
    fn some_are_named_with_what_they_fail_and_for_how_long() {
        let five =
            [("b1", None), ("b2", Some(12_000)), ("b3", Some(0)), ("b4", Some(1)), ("b5", Some(1))];
        let found = finding(&heard(&five)).unwrap().found;
        let first = "w.b2 of pool p is given no steps for 12";
        assert!(found.starts_with(first), "{found}");
        assert!(
            found.contains("w.b3 of pool p is tried with one step: it fails convert"),
            "{found}"
        );
        assert!(found.ends_with("; and 1 other worker"), "{found}");
        assert_eq!(finding(&heard(&five[..1])), None);
    }

    /// If several nodes suspend a worker, the finding has the longest suspension.
    #[test]
    fn of_several_nodes_the_longest_pause_is_told() {
        let mut both = heard(&[("b", Some(1_000))]);
        both.answers.extend(heard(&[("b", Some(9_000))]).answers);
        both.answers.extend(heard(&[("b", None)]).answers);
        let [worker] = &merged(&both)[..] else { panic!("one worker") };
        assert_eq!(worker.suspended.as_ref().map(|it| it.again_ms), Some(9_000));
    }
}
