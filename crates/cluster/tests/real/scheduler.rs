//! The scheduler on the servers, with its workers in the same process: the whole way of a Step through
//! JetStream and Redis.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_cluster::{JetStreamJournal, LogSettings, RedisLeases};
use tenure_core::command::create::CreateTask;
use tenure_core::event::Body;
use tenure_core::id::{AgentId, CommandId, PoolId, StepId};
use tenure_core::patch::StepInput;
use tenure_core::status::{End, Policy, Role, StepStatus, TaskStatus};
use tenure_core::{Caller, Commit};
use tenure_ports::Journal;
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Config, Envelope, Scheduler, WorkerLink};
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tenure_testkit::conformance::read_all;
use uuid::Uuid;

use crate::servers::{Server, nats, redis};

pub(crate) type Node = Scheduler<JetStreamJournal, RedisLeases>;

const PARTITIONS: u32 = 4;

async fn journal(server: &Server) -> Arc<JetStreamJournal> {
    let client = async_nats::connect(format!("127.0.0.1:{}", server.port)).await.unwrap();
    let settings = LogSettings {
        partitions: PARTITIONS,
        timeout: Duration::from_secs(1),
        ..LogSettings::default()
    };
    let journal = JetStreamJournal::open(client, settings).await.unwrap();
    for partition in 0..PARTITIONS {
        journal.take(partition).await.unwrap();
    }
    Arc::new(journal)
}

async fn node(nats: &Server, redis: &Server) -> Node {
    let journal = journal(nats).await;
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let leases =
        RedisLeases::open(&url.into(), "tenure", Arc::clone(journal.owned())).await.unwrap();
    let config = Config::embedded(PoolId::new("default").unwrap());
    Scheduler::start(journal, Arc::new(leases), config).await.unwrap()
}

fn workers(
    node: &Node,
    ran: &Arc<AtomicUsize>,
) -> WorkerPool<WorkerLink<JetStreamJournal, RedisLeases>> {
    let id = AgentId::new("worker-1").unwrap();
    let (link, inbox) = node.join(id, PoolId::new("default").unwrap(), None).unwrap();
    let ran = Arc::clone(ran);
    let handlers = Handlers::new().on("default", move |ctx| {
        ran.fetch_add(1, Ordering::SeqCst);
        async move { Ok(ctx.complete(None)?) }
    });
    let options = Options::new(NonZeroUsize::new(64).unwrap());
    WorkerPool::start(link, inbox, handlers.unwrap(), options)
}

/// One Step, `fan` after it, and one after those.
pub(crate) fn graph(task: &str, fan: usize) -> CreateTask {
    let step = |id: &str, on: Vec<StepId>| StepInput {
        assignee: None,
        claim_only_by: None,
        ext: None,
        depends_on_step_ids: on,
        handler: None,
        input: None,
        inputs_from: None,
        required: None,
        retry_policy: None,
        step_id: id.parse().unwrap(),
        summary: "".into(),
        title: id.into(),
        worker_pool_id: None,
    };
    let middle: Vec<String> = (0..fan).map(|n| format!("m{n}")).collect();
    let all = middle.iter().map(|id| id.parse().unwrap()).collect();
    let mut steps = vec![step("first", Vec::new())];
    steps.extend(middle.iter().map(|id| step(id, vec!["first".parse().unwrap()])));
    steps.push(step("last", all));
    CreateTask {
        steps,
        task_id: Some(task.parse().unwrap()),
        title: task.into(),
        summary: task.into(),
        ..CreateTask::default()
    }
}

pub(crate) async fn create(node: &Node, input: CreateTask) -> TaskKey {
    let caller = Caller {
        agent: AgentId::new("o").unwrap(),
        role: Role::Orchestrator,
        session_id: "s".parse().unwrap(),
        run_id: None,
        worker_pool_id: None,
        origin: None,
    };
    let key = TaskKey { session_id: "s".parse().unwrap(), task_id: input.task_id.clone().unwrap() };
    let id = CommandId::new(Uuid::now_v7().to_string()).unwrap();
    node.create(Envelope::new(caller, Some(id)), input, Policy::Auto).await.unwrap();
    key
}

/// Each Step completed exactly once, after what it waits for, from the log alone.
fn assert_sound(commits: &[Commit], fan: usize) {
    let mut at: BTreeMap<String, usize> = BTreeMap::new();
    let (mut done, mut last) = (0, None);
    for event in commits.iter().flat_map(|commit| &commit.events) {
        if let Body::StepCompleted(_) = &event.body {
            let step = event.step_id.as_ref().unwrap().to_string();
            assert_eq!(at.insert(step, done), None, "completed once");
            done += 1;
        }
        last = Some(&event.body);
    }
    assert_eq!((done, at["first"], at["last"]), (fan + 2, 0, fan + 1));
    assert!(matches!(last, Some(Body::TaskCompleted(_))), "{last:?}");
}

/// The way of a Step through the servers: graphs of all partitions run to their ends, the log carries
/// the owner's epochs, the next owner reads the same, and no lease is left.
#[tokio::test(flavor = "multi_thread")]
async fn graphs_run_on_the_servers() {
    let (nats, redis) = (nats(), redis(&[]));
    let node = node(&nats, &redis).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let pool = workers(&node, &ran);
    let mut keys = Vec::new();
    for n in 0..10 {
        keys.push(create(&node, graph(&format!("{n}-{}", Uuid::now_v7()), 40)).await);
    }
    for key in &keys {
        let ended = tokio::time::timeout(Duration::from_secs(60), node.wait_for_end(key));
        ended.await.expect("it ends").unwrap();
        assert_eq!(node.read(key, |task| task.head().status).await.unwrap(), TaskStatus::Completed);
    }
    assert_eq!(ran.load(Ordering::SeqCst), 420);
    drop(pool);
    let owned = Arc::clone(node.journal().owned());
    node.stop().await;
    let next = journal(&nats).await;
    for key in &keys {
        let commits = read_all(&*next, key).await.unwrap();
        assert_sound(&commits, 40);
        let epoch = owned.epoch(key.partition(PARTITIONS)).unwrap();
        assert!(commits.iter().all(|commit| commit.epoch == epoch), "the owner's epoch");
        let entry = next.entry(key).await.unwrap().unwrap();
        assert_eq!(entry.ended, Some(End::Completed));
    }
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let mut plain = redis::Client::open(url).unwrap().get_connection().unwrap();
    for partition in 0..PARTITIONS {
        let key = format!("tenure:{{{partition}}}:ends");
        let left: u64 = redis::cmd("ZCARD").arg(key).query(&mut plain).unwrap();
        assert_eq!(left, 0, "leases of ended Attempts are dropped");
    }
}

/// NATS killed in the middle of the work and started again: nothing acknowledged is lost, nothing is
/// recorded twice, and the work goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_after_nats_was_killed() {
    let (mut nats, redis) = (nats(), redis(&[]));
    let node = node(&nats, &redis).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let pool = workers(&node, &ran);
    let mut keys = Vec::new();
    for n in 0..6 {
        keys.push(create(&node, graph(&format!("{n}-{}", Uuid::now_v7()), 400)).await);
    }
    for _ in 0..3 {
        let before = ran.load(Ordering::SeqCst);
        nats.kill();
        tokio::time::sleep(Duration::from_millis(300)).await;
        nats.restart();
        let begun = std::time::Instant::now();
        while ran.load(Ordering::SeqCst) == before && before < 2_412 {
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing moves after {before}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    for key in &keys {
        let ended = tokio::time::timeout(Duration::from_secs(60), node.wait_for_end(key));
        ended.await.expect("it ends").unwrap();
    }
    drop(pool);
    node.stop().await;
    let next = journal(&nats).await;
    for key in &keys {
        assert_sound(&read_all(&*next, key).await.unwrap(), 400);
    }
    assert_eq!(ran.load(Ordering::SeqCst), 2_412, "no lease was judged meanwhile");
}

/// Law 5, mechanisms 6: while Redis is away what runs goes on and its reports are recorded, nothing is
/// claimed and nothing expires; when it is back, empty, the rest runs, and no Attempt was lost.
#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_nothing_is_claimed_and_nothing_lost() {
    let (nats, mut redis) = (nats(), redis(&[]));
    let node = node(&nats, &redis).await;
    let id = AgentId::new("worker-1").unwrap();
    let (link, inbox) = node.join(id, PoolId::new("default").unwrap(), None).unwrap();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let ran = Arc::new(AtomicUsize::new(0));
    let (handler_gate, counter) = (Arc::clone(&gate), Arc::clone(&ran));
    let handlers = Handlers::new().on("default", move |ctx| {
        counter.fetch_add(1, Ordering::SeqCst);
        let gate = Arc::clone(&handler_gate);
        async move {
            let _ = gate.acquire().await; // Closed once and for all.
            Ok(ctx.complete(None)?)
        }
    });
    let options = Options::new(NonZeroUsize::new(64).unwrap());
    let pool = WorkerPool::start(link, inbox, handlers.unwrap(), options);
    let key = create(&node, graph("t", 30)).await;
    until(|| ran.load(Ordering::SeqCst) == 1).await;
    redis.kill();
    tokio::time::sleep(Duration::from_secs(2)).await; // A scan has noticed.
    gate.close();
    let first: StepId = "first".parse().unwrap();
    let done = move |task: &tenure_core::view::View<'_>| {
        task.step(&first).is_some_and(|step| step.state.status == StepStatus::Completed)
    };
    let begun = std::time::Instant::now();
    while !node.read(&key, done.clone()).await.unwrap() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the report is recorded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(ran.load(Ordering::SeqCst), 1, "nothing is claimed without a lease");
    let version = node.read(&key, |task| task.version()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = node.read(&key, |task| task.version()).await.unwrap();
    assert_eq!(version, later, "nor written down again and again");
    redis.restart();
    let ended = tokio::time::timeout(Duration::from_secs(60), node.wait_for_end(&key));
    ended.await.expect("it ends").unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 32);
    assert_sound(&read_all(&**node.journal(), &key).await.unwrap(), 30);
    drop(pool);
}

/// LEASE-14, mechanisms 6: while Redis refuses writes no Step is claimed, but for one that finds it out; when it
/// takes them again the work goes on.
#[tokio::test(flavor = "multi_thread")]
async fn while_redis_refuses_writes_nothing_is_claimed() {
    let (nats, redis) = (nats(), redis(&[]));
    let journal = journal(&nats).await;
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let at = url.clone().into();
    let leases = RedisLeases::open(&at, "tenure", Arc::clone(journal.owned()));
    let mut config = Config::embedded(PoolId::new("default").unwrap());
    config.tick = Duration::from_millis(100);
    let node = Scheduler::start(journal, Arc::new(leases.await.unwrap()), config).await.unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let pool = workers(&node, &ran);
    let mut plain = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut limit = |bytes: &str| {
        let () =
            redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).query(&mut plain).unwrap();
    };
    limit("1");
    let key = create(&node, graph("t", 3)).await;
    // The task pauses for a second after each claim without its lease: three would have been made by then.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert_eq!(ran.load(Ordering::SeqCst), 0, "nothing runs without a lease");
    limit("0");
    let ended = tokio::time::timeout(Duration::from_secs(60), node.wait_for_end(&key));
    ended.await.expect("it ends").unwrap();
    let commits = read_all(&**node.journal(), &key).await.unwrap();
    assert_sound(&commits, 3);
    let is_claim = |body: &Body| matches!(body, Body::StepClaimed(_));
    let claims = commits.iter().flat_map(|commit| &commit.events).filter(|it| is_claim(&it.body));
    assert!(claims.count() <= 5 + 1, "at most one of them for nothing");
    drop(pool);
}

async fn until(holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not come true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
