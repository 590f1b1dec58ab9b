//! How many Tasks a session and a node may have, and how much of them is in memory.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    self, Node, POOL, cancel, completing, create, dag, envelope, key, replayed, status, until,
    with_policy,
};
use tenure_core::command::create::CreateTask;
use tenure_core::command::{AppendProgress, Dispatch, OnBehalf, Why};
use tenure_core::id::{AgentId, PoolId, Ref, SessionId};
use tenure_core::record::{RetryPolicy, Value, ValueBody};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{Policy, TaskStatus};
use tenure_core::{Caller, Code, Command, Rejection};
use tenure_local::MemoryLeases;
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Config, Envelope, LiveTaskLimits, Scheduler};
use tenure_testkit::{Faulty, MemoryJournal};

type Journal = Arc<Faulty<MemoryJournal>>;

async fn node_of(journal: &Journal, live: LiveTaskLimits) -> Node {
    let config = Config { live, ..Config::embedded(PoolId::new(POOL).unwrap()) };
    Scheduler::start(Arc::clone(journal), Arc::new(MemoryLeases::default()), config).await.unwrap()
}

fn journal() -> Journal {
    Arc::new(Faulty::new(MemoryJournal::default()))
}

/// A draft of about a megabyte.
fn draft(name: &str) -> CreateTask {
    let mut draft = dag(name, "a b c d e f g h i j k l m n o p");
    for step in &mut draft.steps {
        let body = ValueBody::Data(vec![b'x'; 60_000].into());
        step.input = Some(Value::of("text/plain", body));
    }
    CreateTask { draft: Some(true), ..draft }
}

/// Creates a Task, as often as the node asks to come again. Answers how often it did.
async fn create_patiently(node: &Node, input: CreateTask) -> u64 {
    for tries in 0..1_000 {
        match create(node, input.clone()).await {
            Ok(_) => return tries,
            Err(refused) if refused.code == Code::Unavailable => {
                let ms = refused.details["retry_after_ms"].as_u64().unwrap();
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            Err(refused) => panic!("{refused}"),
        }
    }
    panic!("there is no place for {:?}", input.task_id);
}

const MIB: u64 = 1 << 20;

fn memory(of: u64) -> LiveTaskLimits {
    LiveTaskLimits { memory: of, ..LiveTaskLimits::default() }
}

/// LIVE-02: drafts that nobody looks at leave memory, and come back as they were when somebody asks for them.
#[tokio::test(start_paused = true)]
async fn tasks_at_rest_leave_memory_and_come_back() {
    let node = node_of(&journal(), memory(8 * MIB)).await;
    for n in 0..60 {
        create_patiently(&node, draft(&format!("t{n}"))).await;
        let held = node.sample().live.memory;
        assert!(held <= 9 * MIB, "{held} bytes with {n} drafts");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let live = node.sample().live;
    assert_eq!(live.tasks, 60);
    assert!(live.bytes > 50 * MIB && live.memory < 8 * MIB, "{live:?}");
    for n in [0, 30, 59] {
        let key = key(&format!("t{n}"));
        let there = node.read(&key, |task| task.to_task()).await.unwrap();
        assert_eq!(there, replayed(&node, &key).await);
        node.command(&key, envelope(), Command::SubmitTask(Why::default())).await.unwrap();
    }
    let _workers = completing(&node, 4);
    for n in [0, 30, 59] {
        node.wait_for_end(&key(&format!("t{n}"))).await.unwrap();
        assert_eq!(status(&node, &key(&format!("t{n}"))).await, TaskStatus::Completed);
    }
    assert_eq!(node.sample().live.tasks, 57);
    assert!(node.sample().live.memory < 9 * MIB);
}

/// LIVE-02, OWN-06: a node that takes over more than it can hold at a time reads all of it, and never has more in
/// memory than it may.
#[tokio::test(start_paused = true)]
async fn a_node_takes_over_more_than_it_can_hold() {
    let journal = journal();
    let first = node_of(&journal, LiveTaskLimits::default()).await;
    for n in 0..60 {
        create(&first, draft(&format!("t{n}"))).await.unwrap();
    }
    first.stop().await;
    let node = node_of(&journal, memory(8 * MIB)).await;
    assert_eq!(node.resume_all().await.unwrap(), 60);
    let mut most = 0;
    while node.sample().live.tasks < 60 {
        most = most.max(node.sample().live.memory);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(most <= 8 * MIB, "{most}");
    for n in 0..60 {
        assert_eq!(status(&node, &key(&format!("t{n}"))).await, TaskStatus::Draft);
        assert!(node.sample().live.memory <= 8 * MIB);
    }
}

/// LIVE-02, READY-02: what waits for a worker or for a time waits on while it is not in memory.
#[tokio::test(start_paused = true)]
async fn what_waits_waits_on_out_of_memory() {
    let node = node_of(&journal(), memory(MIB / 2)).await;
    let soon =
        RetryPolicy { schedule_to_start_ms: Some(Limit::Of(60_000)), ..RetryPolicy::default() };
    let timed = create(&node, with_policy(dag("timed", "a"), soon)).await.unwrap();
    for n in 0..300 {
        create_patiently(&node, dag(&format!("t{n}"), "a b<-a")).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(node.sample().live.memory <= MIB / 2, "{:?}", node.sample().live);
    until(&node, &timed, |task| task.status() == TaskStatus::Failed).await;
    let _workers = completing(&node, 4);
    for n in 0..300 {
        node.wait_for_end(&key(&format!("t{n}"))).await.unwrap();
    }
    let live = node.sample().live;
    assert_eq!((live.tasks, live.bytes, live.memory), (0, 0, 0));
}

fn code<T>(answer: Result<T, Rejection>) -> Option<Code> {
    answer.err().map(|refused| refused.code)
}

fn patch(add: &str) -> Command {
    let step = serde_json::json!({"op": "add_step", "step": {"step_id": add, "title": add, "summary": ""}});
    Command::TaskUpdate { operations: vec![serde_json::from_value(step).unwrap()] }
}

/// LIVE-01: a session at its bound gets no Task and adds to none, and is told what to do; it goes on when it has ended
/// some. What repeats an earlier command, ends work or moves a Task is served.
#[tokio::test(start_paused = true)]
async fn a_session_has_so_many_tasks_and_bytes() {
    let live =
        LiveTaskLimits { session_tasks: 3, session_bytes: 2 * MIB, ..LiveTaskLimits::default() };
    let node = node_of(&journal(), live).await;
    for name in ["a", "b", "c"] {
        create(&node, dag(name, "a")).await.unwrap();
    }
    let refused = create(&node, dag("d", "a")).await.unwrap_err();
    assert_eq!(refused.code, Code::QuotaExceeded);
    assert_eq!((&refused.details["used"], &refused.details["limit"]), (&3.into(), &3.into()));
    assert!(refused.message.contains("--session-tasks"), "{refused}");
    assert_eq!(code(node.read(&key("d"), |_| ()).await), Some(Code::TaskNotFound));
    create(&node, dag("a", "a")).await.unwrap(); // It exists, and this is a repetition.
    cancel(&node, &key("a")).await.unwrap();
    cancel(&node, &key("b")).await.unwrap();
    create(&node, draft("d")).await.unwrap();
    let first = envelope();
    node.command(&key("d"), first.clone(), patch("y")).await.unwrap();
    create(&node, draft("e")).await.unwrap();
    let other = draft("f");
    let refused = create(&node, other.clone()).await.unwrap_err();
    assert_eq!(refused.code, Code::QuotaExceeded, "{refused}");
    cancel(&node, &key("c")).await.unwrap();
    assert_eq!(node.sample().live.tasks, 2);
    create(&node, other.clone()).await.unwrap();
    let added = node.command(&key("d"), envelope(), patch("z")).await.unwrap_err();
    assert_eq!(added.code, Code::QuotaExceeded, "{added}");
    assert!(added.message.contains("--session-bytes"), "{added}");
    node.command(&key("d"), first, patch("y")).await.unwrap();
    node.command(&key("d"), envelope(), Command::SubmitTask(Why::default())).await.unwrap();
    cancel(&node, &key("e")).await.unwrap();
    node.command(&key("d"), envelope(), patch("z")).await.unwrap();
}

/// LIVE-01: a node at its bound takes no Task of any session, and says so in a way that programs wait for.
#[tokio::test(start_paused = true)]
async fn a_node_has_so_many_tasks() {
    let node = node_of(&journal(), LiveTaskLimits { tasks: 2, ..LiveTaskLimits::default() }).await;
    create(&node, dag("a", "a")).await.unwrap();
    create(&node, dag("b", "a")).await.unwrap();
    let refused = create(&node, dag("c", "a")).await.unwrap_err();
    assert_eq!((refused.code, &refused.details["kind"]), (Code::Unavailable, &"overloaded".into()));
    assert!(refused.details["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0));
    let waits = tokio::spawn({
        let node = node.clone();
        async move { create_patiently(&node, dag("c", "a")).await }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    cancel(&node, &key("a")).await.unwrap();
    assert!(waits.await.unwrap() > 0);
    assert_eq!(status(&node, &key("c")).await, TaskStatus::Running);
}

/// LIVE-02: a Task for which there is no place is answered for as one that comes later, and the node goes on; it is
/// read as soon as there is a place.
#[tokio::test(start_paused = true)]
async fn a_task_without_a_place_comes_later() {
    let journal = journal();
    let first = node_of(&journal, LiveTaskLimits::default()).await;
    let keys: Vec<TaskKey> = {
        let mut keys = Vec::new();
        for n in 0..8 {
            keys.push(
                create(&first, CreateTask { draft: None, ..draft(&format!("t{n}")) })
                    .await
                    .unwrap(),
            );
        }
        keys
    };
    first.stop().await;
    // The Steps of four of them fill the memory, as somebody works on them.
    let node = node_of(&journal, memory(4 * MIB)).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opens = Arc::clone(&gate);
    let _workers = common::workers(&node, 128, move |ctx| {
        let gate = Arc::clone(&opens);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(ctx.complete(None)?)
        }
    });
    node.resume_all().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let live = node.sample().live;
    assert!(live.memory <= 4 * MIB && live.unplaced > 0, "{live:?}");
    let mut refused = Vec::new();
    for key in &keys {
        refused.extend(node.read(key, |task| task.status()).await.err());
    }
    assert!(!refused.is_empty());
    for refused in refused {
        assert_eq!(refused.code, Code::Unavailable, "{refused}");
        assert!(refused.message.contains("--memory"), "{refused}");
    }
    gate.add_permits(8 * 16);
    for key in &keys {
        until_ended(&node, key).await;
    }
}

async fn until_ended(node: &Node, key: &TaskKey) {
    let ended = async {
        while !node.read(key, |task| task.status().is_terminal()).await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), ended).await.expect("the task ends");
}

/// LIVE-01, LIVE-02: Tasks that somebody holds by claims on behalf stay in memory for as long as the leases last; their
/// session cannot make them so large that others find no place.
#[tokio::test(start_paused = true)]
async fn a_session_leaves_memory_to_others() {
    let node = node_of(&journal(), memory(MIB)).await;
    let claim = Command::DispatchWorker(Dispatch {
        allowed_step_ids: Some(vec![common::step_id("a")]),
        on_behalf: Some(OnBehalf {
            lease_ms: Some(691_200_000),
            ..OnBehalf::of(AgentId::new("far").unwrap())
        }),
        ..Dispatch::to(PoolId::new(POOL).unwrap())
    });
    let evidence_refs = vec![Ref::new(format!("urn:{}", "x".repeat(1_000))).unwrap(); 30];
    let more = AppendProgress { evidence_refs, ..AppendProgress::default() };
    let more = Command::AppendTaskProgress(more);
    let mut refused = Vec::new();
    for n in 0..5 {
        let key = create(&node, dag(&format!("t{n}"), "a")).await.unwrap();
        node.command(&key, envelope(), claim.clone()).await.unwrap();
    }
    for n in 0..5 {
        let key = key(&format!("t{n}"));
        let grown = async || {
            loop {
                if let Err(refused) = node.command(&key, envelope(), more.clone()).await {
                    return refused;
                }
            }
        };
        refused.push(grown().await);
    }
    let held = node.sample().live.memory;
    assert!((MIB / 4 * 3..MIB / 10 * 9).contains(&held), "{held}");
    for refused in &refused {
        assert!(refused.code == Code::Unavailable || refused.details["quota"] == "memory");
    }
    assert!(refused[4].message.contains("of the session, or"), "{}", refused[4]);
    let session_id = SessionId::new("other").unwrap();
    let other = || Envelope {
        caller: Caller {
            session_id: session_id.clone(),
            agent: AgentId::new("other").unwrap(),
            ..common::orchestrator()
        },
        ..envelope()
    };
    node.create(other(), dag("t", "a"), Policy::Auto).await.unwrap();
    let of_other = TaskKey { session_id: session_id.clone(), ..key("t") };
    node.command(&of_other, other(), claim.clone()).await.unwrap();
    node.command(&of_other, other(), more.clone()).await.unwrap();
    cancel(&node, &key("t0")).await.unwrap();
    node.command(&key("t4"), envelope(), more).await.unwrap();
}

/// LIVE-02, CANCEL-03: the questions of children do not bring a parent back that was put away, and a child still learns
/// that its parent is being closed. A parent that does not know the child is read.
#[tokio::test(start_paused = true)]
async fn questions_of_children_bring_no_parent_back() {
    let node = node_of(&journal(), memory(8 * MIB)).await;
    create(&node, draft("p")).await.unwrap();
    let child =
        |name: &str| CreateTask { parent_task_id: Some("p".parse().unwrap()), ..dag(name, "a") };
    create(&node, child("c")).await.unwrap();
    for n in 0..12 {
        create_patiently(&node, draft(&format!("t{n}"))).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let read = node.journal().commits_read();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node.journal().commits_read(), read, "the parent was read again");
    create(&node, child("d")).await.unwrap();
    assert!(node.journal().commits_read() > read);
    cancel(&node, &key("p")).await.unwrap();
    for name in ["c", "d"] {
        node.wait_for_end(&key(name)).await.unwrap();
        assert_eq!(status(&node, &key(name)).await, TaskStatus::Cancelled);
    }
}
