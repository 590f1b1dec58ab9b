//! Tests of each finding, by the answers of nodes.

use tenure_node::doctor::Verdict::{self, Bad, Good, Unknown};
use tenure_wire::bus::operate::PoolFacts;

use super::*;
use crate::pool::quiet;
use crate::worker::idle;

/// A node of two at rest, with a worker that has no work.
fn node(name: &str, owned: u32) -> NodeFacts {
    let pool = PoolFacts { workers: 1, free: 4, ended: Some(9), ..quiet("default") };
    let (silent_ms, holds, sent, seen) = (1_900, Some(0), Some(9), Some(9));
    let worker = WorkerFacts { free: 4, silent_ms, holds, sent, seen, ..idle("default", "w", "b") };
    NodeFacts {
        node: name.into(),
        partitions: 2,
        owned: vec![owned],
        workers: vec![worker],
        pools: vec![pool],
        tasks: Some(0),
        kept: Some(RetainedWork::default()),
        ..NodeFacts::default()
    }
}

fn look(answers: Vec<NodeFacts>) -> Gather<NodeFacts> {
    Gather { answers, missing_partitions: Vec::new() }
}

fn at_rest() -> Gather<NodeFacts> {
    look(vec![node("n1", 0), node("n2", 1)])
}

/// The findings when the first node's answers are changed like this, both times.
fn changed(change: impl Fn(&mut NodeFacts)) -> Vec<(&'static str, Verdict, String)> {
    let mut looks = [at_rest(), at_rest()];
    looks.iter_mut().for_each(|look| change(&mut look.answers[0]));
    found(&looks)
}

fn found(looks: &[Gather<NodeFacts>]) -> Vec<(&'static str, Verdict, String)> {
    let found = judge(looks).into_iter();
    found.map(|finding| (finding.check, finding.verdict, finding.found)).collect()
}

/// The only finding that is not good.
#[track_caller]
fn only(found: Vec<(&'static str, Verdict, String)>) -> (&'static str, Verdict, String) {
    let mut not = found.into_iter().filter(|(_, verdict, _)| *verdict != Good);
    let first = not.next().unwrap();
    assert_eq!(not.next(), None);
    first
}

#[track_caller]
fn is_bad(check: &str, told: &str, change: impl Fn(&mut NodeFacts)) {
    let (of, verdict, found) = only(changed(change));
    assert_eq!((of, verdict), (check, Bad), "{found}");
    assert_eq!(found, told);
}

#[test]
fn a_cluster_at_rest_keeps_nothing() {
    let found = changed(|_| {});
    assert!(found.iter().all(|(_, verdict, _)| *verdict == Good), "{found:?}");
    assert_eq!(found.len(), 3 + THINGS.len());
    assert_eq!(found[0].2, "2 nodes looked at 2 times");
    assert_eq!(found[2].2, "2 links agree");
}

#[test]
fn each_thing_that_stays_is_left_over() {
    let with = |kept: RetainedWork| move |node: &mut NodeFacts| node.kept = Some(kept);
    let none = RetainedWork::default();
    let left = "are left over: n1";
    is_bad("audit.tasks", &format!("2 ended tasks in memory {left} 2"), |node| {
        node.tasks = Some(2);
    });
    is_bad("audit.attempts", &format!("1 open attempts {left} 1"), |node| {
        node.pools[0].running = Some(1);
    });
    is_bad("audit.waiting", &format!("3 steps and runs that wait for a worker {left} 3"), |node| {
        node.pools[0].waiting = 3;
    });
    is_bad(
        "audit.waiters",
        &format!("1 callers that wait for an end {left} 1"),
        with(RetainedWork { waiters: 1, ..none }),
    );
    is_bad(
        "audit.leases",
        &format!("4 leases that a node knows of {left} 4"),
        with(RetainedWork { leases: 4, ..none }),
    );
    is_bad(
        "audit.credits",
        &format!("2 credits of workers that are lent or under way {left} 2"),
        |node| node.workers[0].sent = Some(11),
    );
    is_bad(
        "audit.deliveries",
        &format!("1 deliveries that no worker has acknowledged {left} 1"),
        |node| node.workers[0].unheard = 1,
    );
    is_bad(
        "audit.signals",
        &format!("5 signals for workers that have no link {left} 5"),
        with(RetainedWork { signals: 5, ..none }),
    );
    is_bad(
        "audit.requests",
        &format!("10 requests that take up room {left} 10"),
        with(RetainedWork { commands: 1, reports: 2, reads: 3, heartbeats: 4, ..none }),
    );
}

/// State that comes and goes is there one time and not another.
#[test]
fn what_is_not_there_at_every_look_is_not_left_over() {
    let mut looks = [at_rest(), at_rest()];
    looks[0].answers[0].kept =
        Some(RetainedWork { waiters: 1, commands: 3, ..RetainedWork::default() });
    looks[0].answers[1].workers[0].unheard = 1;
    looks[1].answers[1].kept =
        Some(RetainedWork { leases: 1, reads: 7, ..RetainedWork::default() });
    looks[1].answers[0].workers[0].sent = Some(10);
    let found = found(&looks);
    assert!(found.iter().all(|(_, verdict, _)| *verdict == Good), "{found:?}");
}

/// State that belongs to Tasks is not left over while one lives, nor state that belongs to work
/// while some is under way.
#[test]
fn what_belongs_to_work_is_not_judged_while_there_is_work() {
    let waits = |node: &mut NodeFacts| {
        node.tasks = Some(2);
        node.kept = Some(RetainedWork { live: 2, waiters: 1, ..RetainedWork::default() });
    };
    let (check, verdict, told) = only(changed(waits));
    assert_eq!((check, verdict), ("audit.live", Unknown));
    assert!(told.starts_with("2 tasks live: not judged are open attempts, steps and"), "{told}");
    let works = |node: &mut NodeFacts| {
        waits(node);
        node.pools[0].running = Some(1);
        node.workers[0].sent = Some(10);
        node.kept.as_mut().unwrap().leases = 1;
    };
    assert_eq!(only(changed(works)).0, "audit.live");
    // Nothing runs: so no lease belongs to work, and no ended Task should be in memory.
    let leaks = |node: &mut NodeFacts| {
        waits(node);
        node.tasks = Some(3);
        node.kept.as_mut().unwrap().leases = 1;
    };
    let found = changed(leaks);
    let bad = found.iter().filter(|(_, verdict, _)| *verdict == Bad).map(|(check, ..)| *check);
    assert_eq!(bad.collect::<Vec<_>>(), ["audit.tasks", "audit.leases"]);
}

/// Without an answer for a partition, it is unknown which Tasks live there.
#[test]
fn nothing_has_ended_for_sure_while_a_partition_is_not_heard_of() {
    let look = || Gather { answers: vec![node("n1", 0)], missing_partitions: vec![1] };
    let found = found(&[look(), look()]);
    let not: Vec<_> = found.iter().filter(|(_, verdict, _)| *verdict != Good).collect();
    assert_eq!(not[0], &("audit.owners", Bad, "no node serves partitions 1".to_owned()));
    assert_eq!(not[1].0, "audit.live");
    assert_eq!(not.len(), 2);
}

#[test]
fn a_partition_that_two_nodes_serve_is_told() {
    let two = |node: &mut NodeFacts| node.owned = vec![0, 1];
    is_bad("audit.owners", "several nodes serve partitions 1", two);
    let mut looks = [at_rest(), at_rest()];
    two(&mut looks[1].answers[0]);
    assert!(found(&looks).iter().all(|(_, verdict, _)| *verdict == Good), "it was handed over");
}

#[test]
fn links_that_contradict_themselves_are_told() {
    is_bad("audit.links", "n1 has a link that is silent", |node| {
        node.workers[0].silent_ms = 10_001;
    });
    is_bad("audit.links", "n1 has a link on which more was seen than was sent", |node| {
        node.workers[0].sent = Some(8);
    });
    let gone = |node: &mut NodeFacts| node.workers.clear();
    is_bad("audit.links", "n1 has pools whose workers are not those of its links", gone);
    let more = changed(|node| {
        gone(node);
        node.more = true;
    });
    assert!(more.iter().all(|(_, verdict, _)| *verdict == Good), "{more:?}");
}

#[test]
fn nodes_that_come_or_go_or_are_older_are_told() {
    let looks = [at_rest(), look(vec![node("n1", 0), node("n3", 1)])];
    let (check, verdict, told) = only(found(&looks));
    assert_eq!((check, verdict), ("audit.nodes", Unknown));
    assert_eq!(told, "n2 did not answer at each of 2 looks");
    let old = changed(|node| node.kept = None);
    assert_eq!(old[0].1, Unknown);
    assert_eq!(old[0].2, "n1 does not tell what it keeps: it is of an older version");
}

/// If no node answered long enough, no check is good.
#[test]
fn nothing_is_good_where_nobody_was_looked_at() {
    let none = || look(Vec::new());
    let (one, other) = (look(vec![node("n1", 0)]), look(vec![node("n2", 0)]));
    let (mut old, mut older) = (at_rest(), at_rest());
    for node in old.answers.iter_mut().chain(&mut older.answers) {
        node.kept = None;
    }
    for looks in [[none(), none()], [one, other], [old, older]] {
        let found = found(&looks);
        assert_eq!(found[0].1, Unknown, "{found:?}");
        let checks: Vec<_> = found.iter().map(|(check, ..)| *check).collect();
        assert_eq!(checks, ["audit.nodes", "audit.owners"]);
    }
    assert_eq!(found(&[none(), none()])[1].1, Unknown);
}
