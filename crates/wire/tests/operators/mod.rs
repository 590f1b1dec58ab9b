//! Messages of operators, and of nodes to each other.

#![allow(unreachable_pub)] // It is a part of a test.

mod blobs;
mod outputs;

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::command::create::Parent;
use tenure_core::features::Features;
use tenure_core::sessions::WorkerSessions;
use tenure_core::status::{Intent, TaskStatus};
use tenure_core::{Counts, Rejection};
use tenure_wire::bus::node::Alive;
use tenure_wire::bus::operate::{
    Drain, Drained, ImportLog, Imported, LeasePage, LeaseRow, NodeFacts, Nodes, NodesAfter,
    OpenAttempt, PoolFacts, RefusedFacts, RetainedWork, SuspendedFacts, WaitFacts, WorkerFacts,
};
use tenure_wire::bus::request::{Ask, RawBytes, ReadParent, Request, Welcome};
use tenure_wire::bus::worker::Delivery;
use tenure_wire::bus::{Answer, V, decode, encode};

use super::attempt;

/// What operators ask, and what they are answered, as bytes.
pub fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let pool = || "default".parse().unwrap();
    let worker = WorkerFacts {
        pool: pool(),
        principal: "alice".into(),
        boot: "b01".into(),
        free: 3,
        unheard: 1,
        silent_ms: 250,
        draining: true,
        sessions: WorkerSessions::ALL,
        commands: false,
        suspended: None,
        holds: None,
        sent: None,
        seen: None,
    };
    let facts = NodeFacts {
        node: "n1".into(),
        partitions: 8,
        owned: vec![0, 3],
        features: Features::default(),
        lacks: Features::default(),
        workers: vec![worker.clone()],
        refused: Vec::new(),
        silent: Vec::new(),
        more: false,
        next: None,
        pools: vec![no_pool()],
        at: None,
        tasks: None,
        counts: None,
        live: None,
        waits: None,
        kept: None,
    };
    let counts =
        Counts { claims: 9, completed: 5, failed: 1, lost: 1, tasks_created: 3, tasks_ended: 2 };
    let pool_counts =
        PoolFacts { oldest_ms: Some(1_500), running: Some(2), ended: Some(7), ..no_pool() };
    let counted = NodeFacts {
        at: Some(1_700_000_000_000),
        tasks: Some(4),
        counts: Some(counts),
        workers: vec![WorkerFacts { holds: Some(2), ..worker.clone() }],
        pools: vec![PoolFacts { waiting: 6, ..pool_counts }],
        ..facts.clone()
    };
    let longest =
        WaitFacts { task_id: "t".parse().unwrap(), step_id: "a".parse().unwrap(), ready_ms: 1_500 };
    let waiting = NodeFacts {
        waits: Some(BTreeMap::from([("not_before".into(), 2), ("pool_saturated".into(), 6)])),
        pools: vec![PoolFacts { longest: Some(longest), ..no_pool() }],
        ..facts.clone()
    };
    let kept = RetainedWork { live: 4, leases: 2, waiters: 1, reads: 1, ..RetainedWork::default() };
    let audited = NodeFacts {
        workers: vec![WorkerFacts { sent: Some(9), seen: Some(8), ..worker }],
        kept: Some(kept),
        ..facts.clone()
    };
    let refused = RefusedFacts {
        pool: "default".into(),
        principal: "alice".into(),
        boot: "b01".into(),
        error: Rejection::invalid("handlers", "no such name"),
        ago_ms: 1_500,
    };
    let fails = SuspendedFacts { handler: "convert".parse().unwrap(), again_ms: 12_000 };
    let suspending = NodeFacts {
        workers: vec![WorkerFacts { suspended: Some(fails), ..facts.workers[0].clone() }],
        ..facts.clone()
    };
    let some = WorkerSessions::read("ci-*,main").unwrap();
    let place = facts.workers[0].place();
    let next = NodesAfter { worker: Some(place), pool: Some(pool()) };
    let serving = NodeFacts {
        workers: vec![WorkerFacts {
            sessions: some.clone(),
            commands: true,
            ..facts.workers[0].clone()
        }],
        pools: vec![PoolFacts { sessions: some.patterns().map(<[_]>::to_vec), ..no_pool() }],
        more: true,
        next: Some(next.clone()),
        ..facts.clone()
    };
    let refusing = NodeFacts { refused: vec![refused], ..facts.clone() };
    let (principal, boot) = (Some("alice".into()), None);
    let drain = Drain { v: V, pool: Some(pool()), principal, boot, within_ms: None };
    let draining = Delivery { drain: true, ..Delivery::default() };
    let drained = Drained {
        node: "n1".into(),
        partitions: 8,
        owned: vec![0, 3],
        workers: vec!["alice.b01".parse().unwrap()],
    };
    let open = OpenAttempt {
        step_id: "a".parse().unwrap(),
        ordinal: 1,
        worker_id: "alice.b01".parse().unwrap(),
        started_at: 1_700_000_000_000,
    };
    let lease = LeaseRow {
        task_id: "t".parse().unwrap(),
        attempt_id: attempt(),
        left_ms: Some(29_000),
        open: Some(open),
    };
    let lines = RawBytes(b"{}\n".to_vec());
    let import = ImportLog { v: V, task_id: "t".parse().unwrap(), len: 3, from: 0, lines };
    let mut all = vec![
        ("nodes", bytes(&Nodes { v: V, audit: false, after: None })),
        ("nodes-audit", bytes(&Nodes { v: V, audit: true, after: None })),
        ("nodes-after", bytes(&Nodes { v: V, audit: false, after: Some(next) })),
        ("node-facts-sessions", bytes(&Answer::from(Ok(serving)))),
        ("node-facts", bytes(&Answer::from(Ok(facts)))),
        ("node-facts-counted", bytes(&Answer::from(Ok(counted)))),
        ("node-facts-waiting", bytes(&Answer::from(Ok(waiting)))),
        ("node-facts-audited", bytes(&Answer::from(Ok(audited)))),
        ("node-facts-refused", bytes(&Answer::from(Ok(refusing)))),
        ("node-facts-suspended", bytes(&Answer::from(Ok(suspending)))),
        ("drain", bytes(&drain)),
        ("drain-within", bytes(&Drain { within_ms: Some(300_000), ..drain.clone() })),
        ("drained", bytes(&Answer::from(Ok(drained)))),
        ("leases", bytes(&Answer::from(Ok(LeasePage { leases: vec![lease], more: false })))),
        ("import", bytes(&import)),
        ("imported", bytes(&Answer::from(Ok(Imported { received: 3, version: Some(9) })))),
        ("delivery-drain", bytes(&draining)),
        (
            "delivery-drain-within",
            bytes(&Delivery { time_left_ms: Some(300_000), ..draining.clone() }),
        ),
    ];
    all.extend(of_nodes());
    all.extend(blobs::messages());
    all.extend(outputs::messages());
    all.extend(of_its_making());
    all
}

/// How a cluster was made, as nodes say. OWN-01: of the first placement they say none.
fn of_its_making() -> [(&'static str, Vec<u8>); 6] {
    let none = Features::default;
    let new = || Features::read("edition-2,input");
    let alive = |placement, (features, lacks)| {
        bytes(&Alive {
            v: V,
            node: "n1".into(),
            partitions: 8,
            placement,
            owned: vec![0, 3],
            features,
            lacks,
        })
    };
    let welcome = |placement, features| {
        bytes(&Answer::from(Ok(Welcome { node: "n1".into(), partitions: 8, placement, features })))
    };
    [
        ("alive", alive(1, (none(), none()))),
        ("alive-placed", alive(2, (none(), none()))),
        ("alive-features", alive(2, (Features::read("input"), Features::read("edition-2")))),
        ("welcome", welcome(1, none())),
        ("welcome-placed", welcome(2, none())),
        ("welcome-features", welcome(2, new())),
    ]
}

/// A pool of a node that says no more of it.
fn no_pool() -> PoolFacts {
    PoolFacts {
        pool: "default".parse().unwrap(),
        workers: 1,
        free: 3,
        waiting: 0,
        oldest_ms: None,
        running: None,
        ended: None,
        longest: None,
        sessions: None,
    }
}

fn bytes<T>(message: &T) -> Vec<u8>
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let bytes = encode(message).unwrap();
    assert_eq!(decode::<T>(&bytes).unwrap(), *message);
    bytes
}

/// What nodes ask each other of parents, and what they are answered.
fn of_nodes() -> [(&'static str, Vec<u8>); 4] {
    let written = |record| {
        let ask = Ask::ReadParent(ReadParent { child: "c".parse().unwrap(), record });
        let request = Request::new(Some("t".parse().unwrap()), Some("c-1".parse().unwrap()), ask);
        let written = request.write().unwrap();
        assert_eq!(Request::read(&written).unwrap(), request);
        written
    };
    let closing = Parent {
        root_task_id: "r".parse().unwrap(),
        status: TaskStatus::Running,
        closing: true,
        closes_children: Some(Intent::Fail),
        adopts: false,
    };
    let adopting =
        Parent { closing: false, closes_children: None, adopts: true, ..closing.clone() };
    [
        ("request-read-parent", written(false)),
        ("request-read-parent-record", written(true)),
        ("parent", bytes(&Answer::from(Ok(closing)))),
        ("parent-adopts", bytes(&Answer::from(Ok(adopting)))),
    ]
}
