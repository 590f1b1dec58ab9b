//! Makes findings from the answers of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use tenure_core::Rejection;
use tenure_core::id::{Millis, PoolId, SessionId};
use tenure_node::doctor::{Finding, clock};
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::NodeFacts;

use super::silent::{Ground, START, holding};
use crate::answer::{Failure, human};
use crate::lease;
use crate::worker::{refused, suspended};

/// How many sessions to check, and how many at a time: one for which nobody answers takes a while.
pub(super) const SESSIONS: (usize, usize) = (64, 8);
/// How many of the sessions without an answer are named.
const NAMED: usize = 3;

/// The advice if the server refuses the caller.
pub(super) const AS_WHOM: &str =
    "name an observer's login with --client-nats, --name and --session";

/// The node that has the lease of each partition.
pub(super) type Holders = BTreeMap<u32, String>;

/// Makes findings from the answers of nodes, which came `within` this span of this machine's time.
pub(super) fn nodes(
    heard: Result<Gather<NodeFacts>, Rejection>,
    within: RangeInclusive<Millis>,
    holders: &Holders,
) -> Vec<Finding> {
    const CHECK: &str = "nodes";
    let heard = match heard {
        Ok(heard) => heard,
        Err(refused) => {
            return vec![Finding::bad(CHECK, refused.to_string(), START)];
        }
    };
    let mut findings = Vec::new();
    let name = |node: &NodeFacts| {
        format!("{} ({})", node.node, human::plural(node.owned.len(), "partition"))
    };
    let names = heard.answers.iter().map(name).collect::<Vec<_>>().join(", ");
    if heard.missing_partitions.is_empty() {
        findings.push(Finding::good(CHECK, format!("all partitions are served: {names}")));
    } else {
        let missing = heard.missing_partitions.iter().map(u32::to_string).collect::<Vec<_>>();
        let found = format!("nobody answers for partitions {}: {names}", missing.join(", "));
        findings.push(Finding::bad(CHECK, found, not_served(&heard.missing_partitions, holders)));
    }
    findings.extend(elsewhere(CHECK, &heard.answers, holders));
    findings.extend(lacking(&heard.answers));
    findings.extend(refused(&heard));
    findings.extend(suspended(&heard));
    findings.extend(heard.answers.iter().filter_map(room));
    for node in &heard.answers {
        if let Some(at) = node.at {
            let nearest = at.clamp(*within.start(), *within.end().max(within.start()));
            let offset = at.saturating_sub(nearest);
            findings.push(clock("clock.nodes", &node.node, offset, Duration::ZERO));
        }
    }
    findings
}

/// What to do about partitions for which nobody answers: the node that holds them in Redis does not
/// serve them.
fn not_served(missing: &[u32], holders: &Holders) -> String {
    let held = holding(missing, holders);
    if held.is_empty() {
        return START.into();
    }
    let held: Vec<String> =
        held.iter().map(|(node, which)| format!("{node} holds {}", which.join(", "))).collect();
    format!(
        "{}, and does not serve them: another scheduler does not help. See whether it reaches NATS, and what \
         its log says. Within seconds it gives them away or serves them; if it does neither, stop it, and \
         others take them",
        held.join("; ")
    )
}

/// Partitions that a node serves although Redis gives them to another node.
fn elsewhere(check: &'static str, answers: &[NodeFacts], holders: &Holders) -> Option<Finding> {
    let is_other =
        |node: &NodeFacts, at: &u32| holders.get(at).is_some_and(|it| node.node != it.as_str());
    let of = |node: &NodeFacts| {
        let which: Vec<String> =
            node.owned.iter().filter(|at| is_other(node, at)).map(u32::to_string).collect();
        (!which.is_empty()).then(|| format!("{} serves {}", node.node, which.join(", ")))
    };
    let found: Vec<String> = answers.iter().filter_map(of).collect();
    let advice = "look again: they may have just changed hands. If it stays so, that node has another Redis, or \
                  none: give all schedulers the same";
    (!found.is_empty()).then(|| {
        let found = format!("{}, by Redis another's", found.join("; "));
        Finding::caution(check, found, advice)
    })
}

/// How much the live Tasks of a node take, and how much they may.
fn room(node: &NodeFacts) -> Option<Finding> {
    const CHECK: &str = "nodes.room";
    let live = node.live?;
    let is_near = |used: u64, most: u64| used > most / 10 * 8;
    let mib = |bytes: u64| bytes >> 20;
    let found = format!(
        "{} has {} of {} live tasks, with {} of {} MiB of logs, and {} of {} MiB in memory; {} found no place there, \
         and {} messages were over the rate of a principal",
        node.node,
        live.tasks,
        live.tasks_max,
        mib(live.bytes),
        mib(live.bytes_max),
        mib(live.memory),
        mib(live.memory_max),
        live.unplaced,
        live.over_rate,
    );
    if is_near(live.tasks, live.tasks_max)
        || is_near(live.bytes, live.bytes_max)
        || live.unplaced > 0
    {
        let advice = "end what nobody needs, start another node, or raise --live-tasks, --live-bytes or --memory";
        return Some(Finding::caution(CHECK, found, advice));
    }
    if live.over_rate > 0 {
        let advice = "the node's log names the principal: have it send less, or raise the --rate that the log names, \
                      if it names one";
        return Some(Finding::caution(CHECK, found, advice));
    }
    Some(Finding::good(CHECK, found))
}

/// Nodes that cannot read what the logs of the cluster may hold (EVOLVE-02).
fn lacking(answers: &[NodeFacts]) -> Option<Finding> {
    let those = answers.iter().filter(|node| !node.lacks.is_empty());
    let found: Vec<String> =
        those.map(|node| format!("{} cannot read {}", node.node, node.lacks)).collect();
    let advice = "start a newer version of `tenure serve` there: a log of the cluster may hold that, so these \
                  nodes take no partition";
    (!found.is_empty()).then(|| Finding::bad("features", found.join("; "), advice))
}

/// Pools whose workers run the commands of any session, where several sessions have work: whoever may create a task in
/// one of them runs commands beside the tasks of the others (DISP-20).
pub(super) fn open_to_all(answers: &[NodeFacts], busy: usize) -> Option<Finding> {
    let workers = answers.iter().flat_map(|node| &node.workers);
    let open = workers.filter(|worker| worker.commands && worker.sessions.is_all());
    let pools: BTreeSet<&PoolId> = open.map(|worker| &worker.pool).collect();
    if busy < 2 || pools.is_empty() {
        return None;
    }
    let named: Vec<&str> = pools.iter().take(NAMED).map(|pool| pool.as_str()).collect();
    let more = if pools.len() > NAMED { ", …" } else { "" };
    let found = format!(
        "{busy} sessions have work, and workers of {} ({}{more}) run commands of all sessions",
        human::plural(pools.len(), "pool"),
        named.join(", ")
    );
    let advice = "where sessions are teams that do not trust each other, start workers with --sessions, or give each \
                  team a cluster of its own";
    Some(Finding::caution("workers.sessions", found, advice))
}

/// The findings on leases and logs. Sessions without an answer have one finding together.
pub(super) fn leases(
    compared: Vec<(&SessionId, Result<lease::LeaseAudit, Failure>)>,
    left_out: &[SessionId],
    ground: &Ground,
) -> Vec<Finding> {
    const CHECK: &str = "leases";
    let (mut findings, mut silent, mut why) = (Vec::new(), Vec::new(), None);
    for (session, compared) in compared {
        match compared {
            Ok(report) => findings.push(fit(CHECK, session, &report)),
            Err(failure) => {
                silent.push(session);
                why.get_or_insert(failure);
            }
        }
    }
    if let Some(why) = why {
        let found = format!("{} not looked into: {}", some_of(&silent), why.message);
        findings.push(Finding::unknown(CHECK, found, ground.advice(why.exit)));
    }
    if !left_out.is_empty() {
        let left_out: Vec<&SessionId> = left_out.iter().collect();
        let found = format!("{} left out: {} are looked into", some_of(&left_out), SESSIONS.0);
        let advice = "`tenure lease audit --session NAME` looks into one";
        findings.push(Finding::unknown(CHECK, found, advice));
    }
    findings
}

/// `5 sessions (a, b, c, …)`.
fn some_of(sessions: &[&SessionId]) -> String {
    let mut names: Vec<&str> = sessions.iter().take(NAMED).map(|id| id.as_str()).collect();
    if sessions.len() > NAMED {
        names.push("…");
    }
    format!("{} ({})", human::plural(sessions.len(), "session"), names.join(", "))
}

fn fit(check: &'static str, session: &SessionId, report: &lease::LeaseAudit) -> Finding {
    let checked = human::plural(report.checked, "attempt");
    if report.ok {
        return Finding::good(
            check,
            format!("session {session}: {checked}, leases and logs agree"),
        );
    }
    let found = format!(
        "session {session}: {} open without a lease, {} leased and not open",
        human::plural(report.without_lease.len(), "attempt"),
        report.without_attempt.len(),
    );
    let advice = format!(
        "`tenure lease audit --session {session}` names them. Nodes mend it within one lease duration; \
         if it lasts, TENURE_LOG=debug says why"
    );
    Finding::bad(check, found, advice)
}

#[cfg(test)]
mod tests {
    use tenure_core::features::{EDITION_2, Features};
    use tenure_node::doctor::Verdict;
    use tenure_wire::bus::operate::{LiveFacts, WorkerFacts};

    use super::*;
    use crate::answer::Exit;
    use crate::worker::idle;

    fn node(name: &str, owned: Vec<u32>, at: Option<i64>) -> NodeFacts {
        NodeFacts { node: name.into(), partitions: 2, owned, at, ..NodeFacts::default() }
    }

    fn judged(answers: Vec<NodeFacts>, missing_partitions: Vec<u32>) -> Vec<(Verdict, String)> {
        let heard = Ok(Gather { answers, missing_partitions });
        let found = nodes(heard, 99_700..=100_000, &Holders::new()).into_iter();
        found.map(|finding| (finding.verdict, finding.found)).collect()
    }

    #[test]
    fn partitions_that_nobody_answers_for_are_told() {
        let found = judged(vec![node("n1", vec![0], None)], vec![1]);
        let told = "nobody answers for partitions 1: n1 (1 partition)";
        assert_eq!(found, [(Verdict::Bad, told.to_owned())]);
        assert_eq!(judged(vec![node("n1", vec![0, 1], None)], vec![])[0].0, Verdict::Good);
        let nobody = Rejection::new(tenure_core::Code::Unavailable, "nobody");
        let silent = nodes(Err(nobody), 0..=1, &Holders::new());
        assert_eq!(silent[0].verdict, Verdict::Bad);
    }

    /// The finding names the holder of a partition for which nobody answers: another scheduler
    /// would not help.
    #[test]
    fn who_holds_what_is_not_served_is_named() {
        let judged = |owned, missing_partitions, holders: &[(u32, &str)]| {
            let heard = Gather { answers: vec![node("n1", owned, None)], missing_partitions };
            let holders = holders.iter().map(|(at, name)| (*at, (*name).to_owned())).collect();
            nodes(Ok(heard), 0..=1, &holders)
        };
        let found = judged(vec![0], vec![1], &[(0, "n1"), (1, "n2")]);
        assert_eq!((found.len(), found[0].verdict), (1, Verdict::Bad));
        let advice = found[0].advice.clone().unwrap();
        assert!(advice.starts_with("n2 holds 1, and does not serve them"), "{advice}");
        let nobody = judged(vec![0], vec![1], &[(0, "n1")]);
        assert!(nobody[0].advice.as_ref().unwrap().starts_with("start `tenure serve`"));
        let other = judged(vec![0, 1], vec![], &[(0, "n1"), (1, "n2")]);
        assert_eq!(other[1].verdict, Verdict::Caution);
        assert_eq!(other[1].found, "n1 serves 1, by Redis another's");
    }

    #[test]
    fn a_node_with_another_time_is_told() {
        let at = |name, at| node(name, vec![0], Some(at));
        let nodes = vec![at("n0", 99_800), at("n1", 100_100), at("n2", 94_600)];
        let found = judged(nodes, vec![]);
        assert_eq!(found[1], (Verdict::Good, "n0 agrees with this machine".into()));
        assert_eq!(found[2], (Verdict::Good, "n1 is 100 ms ahead of this machine".into()));
        assert_eq!(found[3], (Verdict::Bad, "n2 is 5100 ms behind this machine".into()));
    }

    /// EVOLVE-02: a node that cannot read what logs may hold is named, with what it lacks.
    #[test]
    fn a_node_that_lacks_a_feature_is_told() {
        let lacks = Features::of([EDITION_2]);
        let old = NodeFacts { lacks, ..node("n1", vec![], None) };
        let found = judged(vec![node("n0", vec![0], None), old], vec![]);
        assert_eq!(found[1], (Verdict::Bad, "n1 cannot read edition-2".into()));
    }

    /// LIVE-01, LIVE-02, LIVE-03: a node that is near its bounds, or has refused for them, is named.
    #[test]
    fn a_node_near_its_bounds_is_told() {
        let of = |live: LiveFacts| {
            let near = NodeFacts { live: Some(live), ..node("n1", vec![0], None) };
            judged(vec![near], vec![])[1].clone()
        };
        let live = LiveFacts { tasks: 79, tasks_max: 100, bytes_max: 100, ..LiveFacts::default() };
        assert_eq!(of(live).0, Verdict::Good);
        for near in [
            LiveFacts { tasks: 81, ..live },
            LiveFacts { bytes: 81, ..live },
            LiveFacts { unplaced: 1, ..live },
            LiveFacts { over_rate: 1, ..live },
        ] {
            let (verdict, found) = of(near);
            assert_eq!(verdict, Verdict::Caution, "{found}");
            assert!(found.starts_with("n1 has "), "{found}");
        }
    }

    /// DISP-20: only where several sessions have work, and only workers that run commands of all of them.
    #[test]
    fn pools_that_run_commands_of_all_sessions_are_told() {
        let worker = |pool: &str, commands, sessions: &str| WorkerFacts {
            commands,
            sessions: sessions.parse().unwrap(),
            ..idle(pool, "w", "b1")
        };
        let workers = vec![
            worker("open", true, "*"),
            worker("open", true, "*"),
            worker("bound", true, "ci-*"),
            worker("tame", false, "*"),
        ];
        let answers = [NodeFacts { workers, ..node("n1", vec![0], None) }];
        let found = open_to_all(&answers, 2).unwrap();
        let told =
            "2 sessions have work, and workers of 1 pool (open) run commands of all sessions";
        assert_eq!((found.verdict, &*found.found), (Verdict::Caution, told));
        assert_eq!(open_to_all(&answers, 1), None);
        assert_eq!(open_to_all(&[NodeFacts { workers: vec![], ..answers[0].clone() }], 2), None);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let report = |ok| lease::LeaseAudit {
            ok,
            checked: 3,
            without_lease: Vec::new(),
            without_attempt: Vec::new(),
        };
        let session = "s".parse().unwrap();
        let compared = vec![(&session, Ok(report(true))), (&session, Ok(report(false)))];
        let verdicts: Vec<_> =
            leases(compared, &[], &Ground::default()).into_iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [Verdict::Good, Verdict::Bad]);
    }

    #[test]
    fn sessions_that_say_nothing_are_told_together() {
        let sessions: Vec<SessionId> =
            ["a", "b", "c", "d"].into_iter().map(|id| id.parse().unwrap()).collect();
        let silent = sessions.iter().map(|session| {
            let failed = Failure::new(Exit::Unavailable, format!("no answer in {session}"));
            (session, Err(failed))
        });
        let found = leases(silent.collect(), &sessions[..1], &Ground::default()).into_iter();
        let found: Vec<_> = found.map(|one| (one.verdict, one.found)).collect();
        let silent = "4 sessions (a, b, c, …) not looked into: no answer in a".to_owned();
        let left_out = "1 session (a) left out: 64 are looked into".to_owned();
        assert_eq!(found, [(Verdict::Unknown, silent), (Verdict::Unknown, left_out)]);
    }
}
