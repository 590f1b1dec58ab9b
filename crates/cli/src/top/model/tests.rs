//! Tests of the model by the answers of nodes.

use tenure_core::features::Features;
use tenure_core::id::AttemptId;
use tenure_core::{Code, Rejection};
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::{
    LeaseRow, NodeFacts, OpenAttempt, PoolFacts, SuspendedFacts, WorkerFacts,
};
use uuid::Uuid;

use super::*;
use crate::pool::quiet;
use crate::top::snapshot::WorkerState;
use crate::worker::idle;

const SECOND: Duration = Duration::from_secs(1);

fn worker(name: &str, silent_ms: u64) -> WorkerFacts {
    WorkerFacts { free: 1, silent_ms, holds: Some(2), ..idle("default", name, "b1") }
}

fn silence(why: &str) -> Rejection {
    Rejection::new(Code::Unavailable, why)
}

/// A node that owns everything, and has counted so many claims.
fn node(name: &str, at: Millis, claims: u64) -> NodeFacts {
    NodeFacts {
        live: None,
        node: name.into(),
        partitions: 2,
        owned: vec![0, 1],
        features: Features::default(),
        lacks: Features::default(),
        workers: Vec::new(),
        refused: Vec::new(),
        silent: Vec::new(),
        more: false,
        next: None,
        pools: Vec::new(),
        at: Some(at),
        tasks: Some(3),
        counts: Some(Counts { claims, ..Counts::default() }),
        waits: None,
        kept: None,
    }
}

fn heard(answers: Vec<NodeFacts>) -> Gather<NodeFacts> {
    Gather { answers, missing_partitions: Vec::new() }
}

fn model() -> (Model, Instant) {
    (Model::new("nats://here", "default".parse().unwrap()), Instant::now())
}

fn claims(model: &Model, now: Instant) -> Option<f64> {
    model.snapshot(now, 0).rates.map(|rates| rates.claims)
}

#[test]
fn rates_are_of_two_answers_of_one_boot() {
    let (mut model, now) = model();
    model.note_nodes(heard(vec![node("n1-a", 10_000, 100)]), now);
    assert_eq!(claims(&model, now), None, "one answer says nothing");
    assert!(!model.is_whole());
    // Answers take different times on the way: the node's clock gives the time between them.
    model.note_nodes(heard(vec![node("n1-a", 12_000, 130)]), now + 3 * SECOND);
    assert_eq!(claims(&model, now + 3 * SECOND), Some(15.0));
    // Another boot has counted from the beginning; it gives no rate, and takes none from others.
    let both = vec![node("n1-b", 13_000, 4), node("n2", 1_000, 50)];
    model.note_nodes(heard(both), now + 4 * SECOND);
    assert_eq!(claims(&model, now + 4 * SECOND), None);
    let both = vec![node("n1-b", 14_000, 8), node("n2", 3_000, 50)];
    model.note_nodes(heard(both), now + 5 * SECOND);
    let snapshot = model.snapshot(now + 5 * SECOND, 0);
    assert_eq!(snapshot.rates.unwrap().claims, 4.0);
    assert_eq!((snapshot.counts.claims, snapshot.tasks), (58, 6));
    let rows: Vec<_> = snapshot.nodes.iter().map(|row| (row.node.as_str(), row.state)).collect();
    let (here, silent) = (NodeState::Here, NodeState::Silent);
    assert_eq!(rows, [("n1-a", silent), ("n1-b", here), ("n2", here)]);
    // A node that did not answer comes back: the rate is of the whole time.
    model.note_nodes(heard(vec![node("n1-a", 22_000, 230)]), now + 13 * SECOND);
    assert_eq!(claims(&model, now + 13 * SECOND), Some(10.0));
    // A node that stays silent is forgotten.
    model.note_nodes(heard(vec![node("n1-a", 90_000, 230)]), now + 80 * SECOND);
    assert_eq!(model.snapshot(now + 80 * SECOND, 0).nodes.len(), 1);
}

#[test]
fn nodes_that_count_nothing_have_no_rates_and_are_waited_for_no_longer() {
    let (mut model, now) = model();
    let old = || NodeFacts { at: None, tasks: None, counts: None, ..node("n1", 0, 0) };
    model.note_nodes(heard(vec![old()]), now);
    assert!(!model.is_whole(), "its attempts are not known");
    model.note_leases(Err(silence("not asked")), now);
    assert!(model.is_whole());
    model.note_nodes(heard(vec![old()]), now + SECOND);
    assert_eq!(claims(&model, now + SECOND), None);
}

#[test]
fn a_cluster_that_goes_away_is_shown_as_it_was() {
    let (mut model, now) = model();
    assert_eq!(model.is_heard(), Err("no node has answered"));
    model.note_silence("no node answers".into());
    assert_eq!(model.is_heard(), Err("no node answers"));
    model.note_nodes(heard(vec![node("n1", 0, 0)]), now);
    model.note_silence("no node answers".into());
    let snapshot = model.snapshot(now + 7 * SECOND, 0);
    assert_eq!((snapshot.age_ms, snapshot.partitions), (Some(7_000), 2));
    assert_eq!(snapshot.trouble.as_deref(), Some("no node answers"));
    assert_eq!(snapshot.nodes[0].state, NodeState::Silent);
    assert_eq!(snapshot.nodes[0].age_ms, 7_000);
    model.note_nodes(heard(vec![node("n1", 9_000, 0)]), now + 9 * SECOND);
    let snapshot = model.snapshot(now + 9 * SECOND, 0);
    assert_eq!((snapshot.trouble, snapshot.nodes[0].state), (None, NodeState::Here));
}

#[test]
fn the_sickest_pool_is_on_top() {
    let (mut model, now) = model();
    let waits = |name: &str, workers, oldest_ms, waiting| PoolFacts {
        workers,
        waiting,
        oldest_ms: Some(oldest_ms),
        ..quiet(name)
    };
    let pools = vec![
        quiet("idle"),
        waits("default", 1, 900, 3),
        waits("deserted", 0, 10, 1),
        waits("slow", 1, 90_000, 1),
    ];
    let with_workers = |name: &str| {
        let of = |pool: &str| WorkerFacts { pool: pool.parse().unwrap(), ..worker(pool, 0) };
        let workers = vec![of("default"), of("slow")];
        NodeFacts { workers, pools: pools.clone(), ..node(name, 0, 0) }
    };
    model.note_nodes(heard(vec![with_workers("n1"), with_workers("n2")]), now);
    let rows = model.snapshot(now, 0).pools;
    let names: Vec<&str> = rows.iter().map(|row| row.pool.as_str()).collect();
    assert_eq!(names, ["deserted", "slow", "default", "idle"]);
    assert_eq!((rows[1].workers, rows[1].waiting, rows[1].oldest_ms), (1, 2, Some(90_000)));
    assert_eq!(rows[1].steps_per_s, None);

    let done = |at, ended| {
        let pools = vec![PoolFacts { ended: Some(ended), ..quiet("default") }];
        NodeFacts { pools, ..node("n1", at, 0) }
    };
    model.note_nodes(heard(vec![done(1_000, 5)]), now + SECOND);
    model.note_nodes(heard(vec![done(3_000, 8)]), now + 2 * SECOND);
    let rows = model.snapshot(now + 2 * SECOND, 0).pools;
    assert_eq!(rows[0].steps_per_s, Some(1.5));
}

#[test]
fn the_sickest_worker_is_on_top_and_one_that_vanished_is_told() {
    let (mut model, now) = model();
    let leaving = WorkerFacts { draining: true, ..worker("leaving", 0) };
    let fails = SuspendedFacts { handler: "h".parse().unwrap(), again_ms: 1 };
    let suspended = WorkerFacts { suspended: Some(fails), ..worker("suspended", 0) };
    let workers = vec![
        worker("a", 5),
        leaving,
        suspended,
        worker("mute", 4_000),
        worker("muter", 4_500),
        worker("z", 9),
    ];
    let one = NodeFacts { workers: workers.clone(), ..node("n1", 0, 0) };
    let other = NodeFacts { workers: vec![worker("a", 900)], ..node("n2", 0, 0) };
    model.note_nodes(heard(vec![one, other]), now);
    let names = |model: &Model, now| -> Vec<(String, WorkerState)> {
        let rows = model.snapshot(now, 0).workers;
        rows.iter().map(|row| (row.worker.to_string(), row.state)).collect()
    };
    use WorkerState::{Gone, Here, Leaving, Silent, Suspended};
    let expected = [
        ("muter.b1", Silent),
        ("mute.b1", Silent),
        ("suspended.b1", Suspended),
        ("leaving.b1", Leaving),
        ("a.b1", Here),
        ("z.b1", Here),
    ];
    assert_eq!(names(&model, now), expected.map(|(name, state)| (name.to_owned(), state)));
    let a = model.snapshot(now, 0).workers[4].clone();
    assert_eq!((a.silent_ms, a.running, a.free), (5, Some(4), 2), "of two links");

    let left = NodeFacts { workers: vec![worker("a", 5)], ..node("n1", 0, 0) };
    model.note_nodes(heard(vec![left.clone()]), now + SECOND);
    let after = names(&model, now + SECOND);
    let gone: Vec<&str> =
        after.iter().filter(|(_, state)| *state == Gone).map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        gone,
        ["muter.b1", "mute.b1", "z.b1", "suspended.b1"],
        "who was told to leave has left"
    );
    model.note_nodes(heard(vec![left]), now + 30 * SECOND);
    assert_eq!(names(&model, now + 30 * SECOND).len(), 1);
}

#[test]
fn attempts_are_aged_by_the_clock_of_the_nodes() {
    let (mut model, now) = model();
    model.note_nodes(heard(vec![node("n1", 50_000, 0)]), now);
    let row = |id: u128, started_at, is_open: bool| {
        let open = OpenAttempt {
            step_id: "a".parse().unwrap(),
            ordinal: 1,
            worker_id: "w.b".parse().unwrap(),
            started_at,
        };
        LeaseRow {
            task_id: "t".parse().unwrap(),
            attempt_id: AttemptId(Uuid::from_u128(id)),
            left_ms: Some(20_000),
            open: is_open.then_some(open),
        }
    };
    let answers = vec![row(1, 48_000, true), row(2, 40_000, true), row(3, 1, false)];
    let leases = Gather { answers, missing_partitions: vec![1] };
    model.note_leases(Ok(leases), now + SECOND);
    model.note_leases(Err(silence("nobody serves this now")), now + 2 * SECOND);
    let attempts = model.snapshot(now + 3 * SECOND, 77).attempts;
    let ages: Vec<u64> = attempts.oldest.iter().map(|row| row.running_ms).collect();
    assert_eq!(ages, [11_000, 3_000], "when they were asked for");
    assert_eq!((attempts.age_ms, attempts.missing_partitions), (Some(2_000), vec![1]));
    assert_eq!(attempts.trouble.as_deref(), Some("nobody serves this now"));
}
