//! Makes findings about work that waits for something that is away: workers, leases, or the log.

use tenure_core::eligibility::Obstacle;
use tenure_node::doctor::Finding;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::NodeFacts;

use crate::answer::human;
use crate::pool::{WaitCounts, longest, merged, waits};

/// A Step that waits longer than this for a busy worker is a finding.
const LONG_MS: u64 = 600_000;

/// How many pools a finding names at most.
const NAMED: usize = 3;

/// What Steps wait for, as all nodes together say it.
pub(super) fn work(heard: &Gather<NodeFacts>) -> Vec<Finding> {
    let waits = waits(heard).unwrap_or_default();
    vec![workers(heard, &waits), steps(heard, &waits)]
}

fn count(waits: &WaitCounts, why: Obstacle) -> u64 {
    waits.get(why.as_str()).copied().unwrap_or_default()
}

/// `3 steps wait`.
fn wait(count: u64) -> String {
    let steps = human::plural(usize::try_from(count).unwrap_or(usize::MAX), "step");
    format!("{steps} wait{}", if count == 1 { "s" } else { "" })
}

/// Steps that wait for a worker that is not there.
fn workers(heard: &Gather<NodeFacts>, waits: &WaitCounts) -> Finding {
    const CHECK: &str = "workers.missing";
    let (mut found, mut advice) = (Vec::new(), Vec::new());
    let pools = merged(heard);
    let deserted: Vec<String> = pools
        .iter()
        .filter(|(_, facts)| facts.waiting > 0 && facts.workers == 0)
        .map(|(pool, facts)| {
            let oldest = facts
                .oldest_ms
                .map_or_else(String::new, |ms| format!(", since {}", human::duration(ms)));
            let first = facts.longest.as_ref().map_or_else(String::new, |_| {
                format!(", {} first", longest(facts.longest.as_ref(), facts.oldest_ms))
            });
            format!(
                "{} for a worker of pool {pool}, which has none{oldest}{first}",
                wait(facts.waiting)
            )
        })
        .collect();
    if !deserted.is_empty() {
        let more = deserted.len().saturating_sub(NAMED);
        found.extend(deserted.into_iter().take(NAMED));
        found.extend((more > 0).then(|| format!("and so in {more} more pools")));
        advice.push(
            "start workers of that pool: `tenure worker --pool POOL`. If they run, their log says why NATS or nodes \
             do not let them in",
        );
    }
    let unhandled = count(waits, Obstacle::NoWorkerWithHandler);
    if unhandled > 0 {
        found.push(format!("{} for a handler that no worker of its pool has", wait(unhandled)));
        advice.push("`tenure task explain TASK` names the handler: start a worker that has it");
    }
    let unserved = count(waits, Obstacle::NoWorkerServesSession);
    if unserved > 0 {
        found.push(format!("{} in a session that no worker of its pool serves", wait(unserved)));
        advice.push("`tenure pool list` says which sessions pools serve: start a worker with this one in --sessions");
    }
    match found.is_empty() {
        true => Finding::good(CHECK, "no step waits for a worker that is not there"),
        false => Finding::bad(CHECK, found.join("; "), advice.join("; ")),
    }
}

/// Steps that wait for what no claim can be made without, or have waited for long.
fn steps(heard: &Gather<NodeFacts>, waits: &WaitCounts) -> Finding {
    const CHECK: &str = "steps.waiting";
    let (logless, leaseless) =
        (count(waits, Obstacle::LogUnavailable), count(waits, Obstacle::LeasesUnavailable));
    if logless > 0 {
        let found = format!("{} for the log, which takes no writes", wait(logless));
        let advice = "see what `log.room`, `log.replicas` and `log.append` say; `tenure task explain` has the log's \
                      own words";
        return Finding::bad(CHECK, found, advice);
    }
    if leaseless > 0 {
        let found = format!("{} for leases, which nodes do not get", wait(leaseless));
        let advice = "see what `redis` says, whether it has room, and whether nodes reach it";
        return Finding::bad(CHECK, found, advice);
    }
    let pools = merged(heard);
    let busy =
        pools.iter().filter(|(_, facts)| facts.workers > 0 && facts.oldest_ms >= Some(LONG_MS));
    let busy: Vec<String> = busy
        .map(|(pool, facts)| {
            format!(
                "pool {pool}: one has waited for {}",
                human::duration(facts.oldest_ms.unwrap_or_default())
            )
        })
        .take(NAMED)
        .collect();
    match busy.is_empty() {
        true => Finding::good(CHECK, "none waits for the log, for leases, or long for a worker"),
        false => Finding::caution(
            CHECK,
            busy.join("; "),
            "`tenure pool list`: if all workers are busy, start more; if some are free, `tenure task explain` says why",
        ),
    }
}

#[cfg(test)]
mod tests {
    use tenure_node::doctor::Verdict;
    use tenure_wire::bus::operate::{PoolFacts, WorkerFacts};

    use super::*;
    use crate::pool::quiet;
    use crate::worker::idle;

    fn heard(pools: Vec<PoolFacts>, why: &[(&str, u64)]) -> Gather<NodeFacts> {
        let waits = why.iter().map(|(why, count)| ((*why).into(), *count)).collect();
        let workers: Vec<WorkerFacts> = vec![idle("default", "w", "b1")];
        let node = NodeFacts { pools, workers, waits: Some(waits), ..NodeFacts::default() };
        Gather { answers: vec![node], missing_partitions: Vec::new() }
    }

    fn judged(pools: Vec<PoolFacts>, why: &[(&str, u64)]) -> [(Verdict, String); 2] {
        let found = work(&heard(pools, why));
        let [workers, steps] = &found[..] else { panic!("{found:?}") };
        [workers, steps].map(|one| (one.verdict, one.found.clone()))
    }

    #[test]
    fn work_without_workers_is_told() {
        let waiting =
            |pool: &str, count| PoolFacts { waiting: count, oldest_ms: Some(7_000), ..quiet(pool) };
        let sound = judged(vec![waiting("default", 3)], &[("pool_saturated", 3)]);
        assert_eq!(sound.map(|(verdict, _)| verdict), [Verdict::Good; 2]);
        let [workers, _] = judged(vec![waiting("default", 3), waiting("gpu", 2)], &[]);
        let told = "2 steps wait for a worker of pool gpu, which has none, since 7.0 s";
        assert_eq!(workers, (Verdict::Bad, told.into()));
        for (why, told) in [
            ("no_worker_with_handler", "1 step waits for a handler that no worker of its pool has"),
            (
                "no_worker_serves_session",
                "1 step waits in a session that no worker of its pool serves",
            ),
        ] {
            let [workers, _] = judged(Vec::new(), &[(why, 1)]);
            assert_eq!(workers, (Verdict::Bad, told.into()));
        }
    }

    #[test]
    fn work_without_log_or_leases_is_told() {
        for (why, what) in [("log_unavailable", "the log"), ("leases_unavailable", "leases")] {
            let [workers, steps] = judged(Vec::new(), &[(why, 2)]);
            assert_eq!((workers.0, steps.0), (Verdict::Good, Verdict::Bad), "{steps:?}");
            assert!(steps.1.starts_with(&format!("2 steps wait for {what}, ")), "{steps:?}");
        }
        let long = PoolFacts { waiting: 1, oldest_ms: Some(LONG_MS), ..quiet("default") };
        assert_eq!(judged(vec![long], &[])[1].0, Verdict::Caution);
    }
}
