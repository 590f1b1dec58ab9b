//! `tenure doctor --audit`: finds what nodes hold in memory although the work to which it belonged
//! has ended.
//!
//! Much of a node's state comes and goes while work is under way. So the audit asks several times,
//! over a longer time than any message takes to be repeated, and reports only what is there each
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::Rejection;
use tenure_node::doctor::Finding;
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::{NodeFacts, RetainedWork, WorkerFacts};

use super::judge::AS_WHOM;
use crate::answer::human;

/// How often to ask the nodes, and the time between. A worker repeats its statement of capacity
/// every two seconds.
const LOOKS: (usize, Duration) = (4, Duration::from_secs(1));
/// A node should have ended a link after half of this silence.
const SILENT_MS: u64 = 10_000;
/// What to do about left-over state.
const ADVICE: &str = "look again in half a minute: what workers that died had, and signals for them, last \
                      as long as a lease. What stays is a defect: keep the logs of that node, and start \
                      it again";

/// A kind of state that a node holds for work, and should drop with it.
struct Thing {
    check: &'static str,
    /// Its name within the check, which may have several kinds.
    name: &'static str,
    count: fn(&NodeFacts) -> u64,
    /// It may be there as long as a Task lives; otherwise only while something runs.
    goes_with_tasks: bool,
}

const THINGS: [Thing; 9] = [
    Thing {
        check: "audit.tasks",
        name: "ended tasks in memory",
        count: |node| node.tasks.unwrap_or_default().saturating_sub(kept(node).live),
        goes_with_tasks: false,
    },
    Thing { check: "audit.attempts", name: "open attempts", count: running, goes_with_tasks: true },
    Thing {
        check: "audit.waiting",
        name: "steps and runs that wait for a worker",
        count: waiting,
        goes_with_tasks: true,
    },
    Thing {
        check: "audit.waiters",
        name: "callers that wait for an end",
        count: |node| kept(node).waiters,
        goes_with_tasks: true,
    },
    Thing {
        check: "audit.leases",
        name: "leases that a node knows of",
        count: |node| kept(node).leases,
        goes_with_tasks: false,
    },
    Thing {
        check: "audit.credits",
        name: "credits of workers that are lent or under way",
        count: |node| of_workers(node, |worker| sent(worker).saturating_sub(seen(worker))),
        goes_with_tasks: false,
    },
    Thing {
        check: "audit.deliveries",
        name: "deliveries that no worker has acknowledged",
        count: |node| of_workers(node, |worker| worker.unheard),
        goes_with_tasks: false,
    },
    Thing {
        check: "audit.signals",
        name: "signals for workers that have no link",
        count: |node| kept(node).signals,
        goes_with_tasks: false,
    },
    Thing {
        check: "audit.requests",
        name: "requests that take up room",
        count: |node| {
            let RetainedWork { commands, reports, reads, heartbeats, .. } = kept(node);
            commands + reports + reads + heartbeats
        },
        goes_with_tasks: false,
    },
];

fn kept(node: &NodeFacts) -> RetainedWork {
    node.kept.unwrap_or_default()
}

fn running(node: &NodeFacts) -> u64 {
    node.pools.iter().filter_map(|pool| pool.running).sum()
}

fn waiting(node: &NodeFacts) -> u64 {
    node.pools.iter().map(|pool| pool.waiting).sum()
}

fn of_workers(node: &NodeFacts, count: impl Fn(&WorkerFacts) -> u64) -> u64 {
    node.workers.iter().map(count).sum()
}

fn sent(worker: &WorkerFacts) -> u64 {
    worker.sent.unwrap_or_default()
}

fn seen(worker: &WorkerFacts) -> u64 {
    worker.seen.unwrap_or_default()
}

/// Asks all nodes several times, and makes findings from the answers.
pub(super) async fn audit(client: &NatsClient) -> Vec<Finding> {
    let (count, apart) = LOOKS;
    let mut looks = Vec::new();
    for at in 0..count {
        if at > 0 {
            tokio::time::sleep(apart).await;
        }
        match client.audit().await {
            Ok(heard) => looks.push(heard),
            Err(refused) => return vec![silent(&refused)],
        }
    }
    judge(&looks)
}

fn silent(refused: &Rejection) -> Finding {
    Finding::unknown("audit.nodes", refused.to_string(), AS_WHOM)
}

/// Makes findings from the answers of all nodes, asked several times.
fn judge(looks: &[Gather<NodeFacts>]) -> Vec<Finding> {
    let mut steady = steady(looks);
    let mut findings = vec![nodes(looks, &steady), owners(looks)];
    steady.retain(|_, answers| answers.iter().all(|node| node.kept.is_some()));
    if steady.is_empty() {
        return findings; // No node has answered with its state.
    }
    findings.push(links(&steady));
    let all = || steady.values().flatten();
    let live: u64 = steady.values().filter_map(|of| of.iter().map(|n| kept(n).live).max()).sum();
    let is_whole = looks.iter().all(|look| look.missing_partitions.is_empty());
    let ended = is_whole && live == 0;
    let at_rest = ended || all().all(|node| running(node) == 0 && waiting(node) == 0);
    let (judged, left_out): (Vec<&Thing>, Vec<&Thing>) =
        THINGS.iter().partition(|thing| if thing.goes_with_tasks { ended } else { at_rest });
    findings.extend(judged.into_iter().map(|thing| left_over(thing, &steady)));
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|thing| thing.name).collect();
        let tasks = human::plural(usize::try_from(live).unwrap_or(usize::MAX), "task");
        let found = format!("{tasks} live: not judged are {}", names.join(", "));
        findings.push(Finding::unknown("audit.live", found, "look again when nothing runs"));
    }
    findings
}

/// Each node that has answered every time, with its answers.
fn steady(looks: &[Gather<NodeFacts>]) -> BTreeMap<&str, Vec<&NodeFacts>> {
    let mut by_name: BTreeMap<&str, Vec<&NodeFacts>> = BTreeMap::new();
    for node in looks.iter().flat_map(|look| &look.answers) {
        by_name.entry(node.node.as_str()).or_default().push(node);
    }
    by_name.retain(|_, answers| answers.len() == looks.len());
    by_name
}

/// The finding that says whose answers are used.
fn nodes(looks: &[Gather<NodeFacts>], steady: &BTreeMap<&str, Vec<&NodeFacts>>) -> Finding {
    const CHECK: &str = "audit.nodes";
    let old = |answers: &[&NodeFacts]| answers.iter().any(|node| node.kept.is_none());
    let old: Vec<&str> = steady.iter().filter(|(_, of)| old(of)).map(|(name, _)| *name).collect();
    let came: Vec<&str> = looks.iter().flat_map(|look| &look.answers).map(|n| &*n.node).collect();
    let unsteady = came.iter().find(|name| !steady.contains_key(*name));
    match (unsteady, &old[..]) {
        (None, []) if steady.is_empty() => {
            Finding::unknown(CHECK, "no node has answered", "start one with `tenure serve`")
        }
        (Some(name), _) => Finding::unknown(
            CHECK,
            format!("{name} did not answer at each of {} looks", looks.len()),
            "look again when no node comes or goes",
        ),
        (None, []) => Finding::good(
            CHECK,
            format!("{} looked at {} times", human::plural(steady.len(), "node"), looks.len()),
        ),
        (None, old) => Finding::unknown(
            CHECK,
            format!("{} does not tell what it keeps: it is of an older version", old.join(", ")),
            "look again when all nodes are of one version",
        ),
    }
}

/// Partitions that two nodes serve, or none, each time.
fn owners(looks: &[Gather<NodeFacts>]) -> Finding {
    const CHECK: &str = "audit.owners";
    let counted = |look: &Gather<NodeFacts>, partition: u32| {
        look.answers.iter().filter(|node| node.owned.contains(&partition)).count()
    };
    let all = looks.iter().flat_map(|look| &look.answers).map(|node| node.partitions).max();
    let wrong = |which: fn(usize) -> bool| -> Vec<String> {
        let is_wrong = |partition: &u32| looks.iter().all(|look| which(counted(look, *partition)));
        (0..all.unwrap_or_default()).filter(is_wrong).map(|one| one.to_string()).collect()
    };
    if all.is_none() {
        return Finding::unknown(CHECK, "no node has answered", "start one with `tenure serve`");
    }
    let (nobody, several) = (wrong(|count| count == 0), wrong(|count| count > 1));
    if nobody.is_empty() && several.is_empty() {
        return Finding::good(CHECK, "each partition is served by one node");
    }
    let told = [(several, "several nodes serve"), (nobody, "no node serves")];
    let told = told.into_iter().filter(|(which, _)| !which.is_empty());
    let told: Vec<String> =
        told.map(|(which, what)| format!("{what} partitions {}", which.join(", "))).collect();
    let advice =
        "see that all nodes have the same Redis, and what their logs say of these partitions";
    Finding::bad(CHECK, told.join("; "), advice)
}

/// A contradiction in a node's answer, and its name.
type FactCheck = (fn(&NodeFacts) -> bool, &'static str);

/// Links that should have ended, and counts of links that contradict each other, each time.
fn links(steady: &BTreeMap<&str, Vec<&NodeFacts>>) -> Finding {
    const CHECK: &str = "audit.links";
    let wrongs: [FactCheck; 3] = [
        (
            |node| node.workers.iter().any(|one| one.silent_ms > SILENT_MS),
            "has a link that is silent",
        ),
        (
            |node| node.workers.iter().any(|one| seen(one) > sent(one)),
            "has a link on which more was seen than was sent",
        ),
        (|node| !node.more && !fit(node), "has pools whose workers are not those of its links"),
    ];
    let of_node = |(name, answers): (&&str, &Vec<&NodeFacts>)| {
        let lasting = wrongs.iter().filter(|(is, _)| answers.iter().all(|node| is(node)));
        lasting.map(|(_, what)| format!("{name} {what}")).collect::<Vec<_>>()
    };
    let found: Vec<String> = steady.iter().flat_map(of_node).collect();
    match &found[..] {
        [] => {
            let links = steady.values().filter_map(|of| of.last()).map(|node| node.workers.len());
            Finding::good(CHECK, format!("{} agree", human::plural(links.sum(), "link")))
        }
        found => Finding::bad(CHECK, found.join("; "), ADVICE),
    }
}

/// Whether each pool has as many workers as there are links of it.
fn fit(node: &NodeFacts) -> bool {
    node.pools.iter().all(|pool| {
        let links = node.workers.iter().filter(|worker| worker.pool == pool.pool).count();
        pool.workers == links as u64
    })
}

/// The finding on one kind of state: the smallest count of each node is left over.
fn left_over(thing: &Thing, steady: &BTreeMap<&str, Vec<&NodeFacts>>) -> Finding {
    let Thing { check, name, count, .. } = *thing;
    let least = steady.iter().filter_map(|(node, answers)| {
        let least = answers.iter().map(|answer| count(answer)).min()?;
        (least > 0).then_some((*node, least))
    });
    let least: Vec<(&str, u64)> = least.collect();
    let sum: u64 = least.iter().map(|(_, count)| count).sum();
    if sum == 0 {
        return Finding::good(check, format!("no {name}"));
    }
    let each: Vec<String> = least.iter().map(|(node, count)| format!("{node} {count}")).collect();
    Finding::bad(check, format!("{sum} {name} are left over: {}", each.join(", ")), ADVICE)
}

#[cfg(test)]
mod tests;
