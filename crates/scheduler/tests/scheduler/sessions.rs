//! Workers that serve some sessions, and how many pools a session names.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

use std::time::Duration;

use crate::common::{
    Node, POOL, cancel, completing, create, dag, envelope, node, orchestrator, step_id,
};
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{AgentId, CommandId, PoolId};
use tenure_core::patch::StepInput;
use tenure_core::sessions::{Abilities, WorkerSessions};
use tenure_core::status::Policy;
use tenure_core::{Caller, Code, Command, Rejection};
use tenure_local::MemoryLeases;
use tenure_ports::bus::{Credit, Delivery, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Envelope, WorkerLink};
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::sleep;

type Link = WorkerLink<Faulty<MemoryJournal>, MemoryLeases>;

/// A worker of these sessions with so much capacity.
fn join(node: &Node, name: &str, sessions: &str, free: u64) -> (Link, UnboundedReceiver<Delivery>) {
    let sessions = WorkerSessions::read(sessions).unwrap();
    let abilities = Abilities { handlers: None, sessions };
    let (id, pool) = (AgentId::new(name).unwrap(), PoolId::new(POOL).unwrap());
    let (link, inbox) = node.join(id, pool, abilities).unwrap();
    link.credit(Credit { free, seen: 0, lost: 0, number: 1 });
    (link, inbox)
}

fn envelope_in(session: &str) -> Envelope {
    let id = CommandId::new(uuid::Uuid::now_v7().to_string()).unwrap();
    Envelope::new(Caller { session_id: session.parse().unwrap(), ..orchestrator() }, Some(id))
}

async fn create_in(node: &Node, session: &str, input: CreateTask) -> TaskKey {
    let task_id = input.task_id.clone().unwrap();
    node.create(envelope_in(session), input, Policy::Auto).await.unwrap();
    TaskKey { session_id: session.parse().unwrap(), task_id }
}

/// The session of the next Step or Run that comes.
async fn came(inbox: &mut UnboundedReceiver<Delivery>) -> String {
    match inbox.next().await {
        Some(Delivery::Grant(claim)) => claim.session_id.to_string(),
        Some(Delivery::Run(run)) => run.session_id.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Waits until the first pool shows this.
async fn until_waits(node: &Node, expected: &str) {
    loop {
        let sample = node.sample();
        let waits: Vec<String> = sample
            .waits
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(why, n)| format!("{} {n}", why.as_str()))
            .collect();
        if waits.join(", ") == expected {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// DISP-20: a worker is given Steps of the sessions that it serves and of no other, however many Steps of other
/// sessions come first; the others wait for a worker that serves them.
#[tokio::test(start_paused = true)]
async fn a_worker_is_given_steps_of_its_sessions_alone() {
    let node = node().await;
    for task in 0..20 {
        create_in(&node, "other", dag(&format!("t{task}"), "a b")).await;
    }
    create_in(&node, "ci-1", dag("t", "a b")).await;
    create_in(&node, "main", dag("t", "a")).await;
    until_waits(&node, "no_worker_in_pool 43").await;
    let (link, mut inbox) = join(&node, "w.1", "ci-*,main", 9);
    let mut sessions = [came(&mut inbox).await, came(&mut inbox).await, came(&mut inbox).await];
    sessions.sort();
    assert_eq!(sessions, ["ci-1", "ci-1", "main"]);
    until_waits(&node, "no_worker_serves_session 40").await;
    assert_eq!((link.free(), node.hungry_pools()), (6, vec![]), "nobody would come for them");
    let (_all, mut theirs) = join(&node, "w.2", "*", 1);
    assert_eq!(came(&mut theirs).await, "other");
    until_waits(&node, "pool_saturated 39").await;
    assert_eq!(node.hungry_pools(), [(PoolId::new(POOL).unwrap(), 39)]);
    assert!(inbox.try_recv().is_err());
    let pools = node.sample().pools;
    assert_eq!(pools[0].sessions, None, "one of its workers serves all");
}

/// DISP-20: Runs are offered as Steps are given.
#[tokio::test(start_paused = true)]
async fn a_worker_is_offered_runs_of_its_sessions_alone() {
    let node = node().await;
    let mut tasks = Vec::new();
    for session in ["other", "main"] {
        let manual = CreateTask { dispatch: Some(Policy::Manual), ..dag("t", "a") };
        tasks.push(create_in(&node, session, manual).await);
    }
    let (_link, mut inbox) = join(&node, "w.1", "main", 5);
    for task in &tasks {
        let dispatch =
            serde_json::json!({"operation": "dispatch_worker", "input": {"worker_pool_id": POOL}});
        let dispatch: Command = serde_json::from_value(dispatch).unwrap();
        node.command(task, envelope_in(task.session_id.as_str()), dispatch).await.unwrap();
    }
    assert_eq!(came(&mut inbox).await, "main");
    sleep(Duration::from_secs(1)).await;
    assert!(inbox.try_recv().is_err());
    let sessions: Vec<String> =
        node.sample().pools[0].sessions.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(sessions, ["main"]);
}

/// DISP-20: so many different lists of sessions, of which one principal cannot have all, and no more; the refusal says
/// what to do.
#[tokio::test(start_paused = true)]
async fn a_pool_has_so_many_lists_of_sessions() {
    let node = node().await;
    let mut links: Vec<_> =
        (0..48).map(|n| join(&node, &format!("eve.{n}"), &format!("s{n}"), 0)).collect();
    let refused_to = |id: &str, sessions: &str| -> Option<Rejection> {
        let sessions = WorkerSessions::read(sessions).unwrap();
        let (id, pool) = (AgentId::new(id).unwrap(), PoolId::new(POOL).unwrap());
        node.join(id, pool, Abilities { handlers: None, sessions }).err()
    };
    let share = refused_to("eve.99", "other").unwrap();
    assert_eq!(share.code, Code::Unavailable);
    assert!(share.message.contains("eve have 48 of the 64"), "{share}");
    links.extend((48..64).map(|n| join(&node, &format!("w{n}.1"), &format!("s{n}"), 0)));
    let refused = |sessions: &str| refused_to("x.1", sessions);
    let one_more = refused("other").unwrap();
    assert_eq!(
        (one_more.code, &one_more.details["field"]),
        (Code::Unavailable, &"sessions".into())
    );
    assert_eq!(refused("s7"), None);
    links.pop();
    assert_eq!(refused("other"), None);
}

/// A Task with a Step for each of these pools.
fn in_pools(task: &str, pools: std::ops::Range<usize>) -> CreateTask {
    let step = dag(task, "a").steps.remove(0);
    let step = |n: usize| StepInput {
        step_id: step_id(&format!("s{n}")),
        worker_pool_id: Some(format!("p{n}").parse().unwrap()),
        ..step.clone()
    };
    CreateTask { steps: pools.map(step).collect(), ..dag(task, "a") }
}

/// DISP-21: a create that names too many pools is refused with its field, and so is what would name too many beside
/// others; when these have ended there is room again. The names of pools go when nothing waits for them.
#[tokio::test(start_paused = true)]
async fn a_session_names_so_many_pools_and_they_go_with_its_tasks() {
    let node = node().await;
    let refused = create(&node, in_pools("t", 0..5_000)).await.unwrap_err();
    assert_eq!((refused.code, &refused.details["limit"]), (Code::ValidationError, &1_000.into()));
    let field = refused.details["field"].as_str().unwrap().to_owned();
    assert!(field.starts_with("steps[") && field.ends_with("].worker_pool_id"), "{field}");
    assert!(node.sample().pools.is_empty());
    let task = create(&node, in_pools("first", 0..999)).await.unwrap();
    // The pool of Steps that name none counts, too.
    assert!(create(&node, in_pools("second", 999..1_001)).await.is_err());
    let add = serde_json::json!({"operation": "task_update", "input": {"operations": [
        {"op": "add_step", "step": {"step_id": "x", "title": "x", "worker_pool_id": "another"}},
    ]}});
    let add: Command = serde_json::from_value(add).unwrap();
    let refused = node.command(&task, envelope(), add.clone()).await.unwrap_err();
    assert_eq!(refused.details["field"], "operations[0].step.worker_pool_id");
    create_in(&node, "other-session", in_pools("t", 2_000..2_010)).await;
    while node.sample().pools.len() < 999 + 10 {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(node.hungry_pools().is_empty(), "no worker would hear it");
    cancel(&node, &task).await.unwrap();
    node.wait_for_end(&task).await.unwrap();
    while node.sample().pools.len() > 10 {
        sleep(Duration::from_secs(1)).await;
    }
    let again = create(&node, in_pools("third", 0..3)).await.unwrap();
    let workers = completing(&node, 3);
    while node.sample().pools.len() < 10 + 3 + 1 {
        sleep(Duration::from_millis(10)).await;
    }
    cancel(&node, &again).await.unwrap();
    drop(workers);
    while node.sample().pools.len() > 10 {
        sleep(Duration::from_secs(1)).await;
    }
    // A pool that was dropped comes back with its Steps and its workers.
    let task = create(&node, dag("fourth", "a b<-a")).await.unwrap();
    let _workers = completing(&node, 1);
    node.wait_for_end(&task).await.unwrap();
}
