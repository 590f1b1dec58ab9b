//! What a node tells of itself in trouble, on real servers that are away.

use std::num::NonZeroUsize;
use std::time::Duration;

use nix::sys::signal::Signal;
use tenure_node::{Login, Node};
use tenure_ports::observer::{LogCapacity, PoolSample, Sample};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::{NatsClient, NatsSettings, NatsWorker, PoolMember};
use tenure_sdk::worker::{Handlers, Options, WorkerPool};

use crate::common::{Servers, until};
use crate::servers::{nats_with, redis};

const SLOTS: usize = 3;

async fn worker(servers: &Servers) -> WorkerPool<NatsWorker> {
    let handlers = Handlers::new().on("held", |_| std::future::pending()).unwrap();
    let member = PoolMember { pool: "default", name: "ant", build: None };
    let options = Options::new(NonZeroUsize::new(SLOTS).unwrap());
    let to = NatsSettings::new(servers.url());
    WorkerPool::connect(to, member, handlers, options).await.unwrap()
}

async fn create(client: &Client<NatsClient>, task: &str, steps: usize) {
    let mut made = Task::new(task).id(task);
    for step in 0..steps {
        made = made.step(Step::new(&format!("s{step}")).handler("held"));
    }
    client.create(made).await.unwrap();
}

fn pool(sample: Sample) -> PoolSample {
    sample.pools.into_iter().find(|pool| pool.pool.as_str() == "default").unwrap()
}

/// Mechanisms 6: Redis is stopped, and workers have capacity. What waits is what the log says waits, and it grows
/// older, though the Tasks are lent credits again and again that they cannot use.
#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_waiting_and_age_are_those_of_the_log() {
    let mut servers = Servers::start();
    let node = servers.node().await;
    let sampler = node.sampler();
    let _worker = worker(&servers).await;
    let to = NatsSettings::new(servers.url());
    let client: Client<NatsClient> = Client::connect(to, "s1", "bob").await.unwrap();
    until(async || sampler().pools.iter().any(|pool| pool.free == SLOTS as u64)).await;
    servers.redis.kill();
    until(async || !sampler().servers.unwrap().redis).await;
    create(&client, "t", 7).await;
    create(&client, "u", 2).await;
    until(async || pool(sampler()).waiting == 9).await;
    let (mut right, mut oldest) = (0, Duration::ZERO);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await; // Over five seconds.
        let pool = pool(sampler());
        right += usize::from(pool.waiting == 9 && pool.ready == 9);
        oldest = oldest.max(pool.oldest);
    }
    // Credits that are on their way to a Task or back count for a moment as if they were used: once in a second for
    // each Task, and for longer on a machine that is busy. Steps that were not counted would be missing all the time
    // but for such a moment.
    assert!(right >= 60, "{right} of 100 samples have all nine");
    assert!(oldest >= Duration::from_secs(4), "{oldest:?}");
    servers.redis.restart();
    until(async || pool(sampler()).running == SLOTS as u64).await;
    assert_eq!(pool(sampler()).waiting, 9 - SLOTS as u64);
    node.stop().await;
}

/// The connection that writes the log counts: with it alone away nothing can be recorded.
#[tokio::test(flavor = "multi_thread")]
async fn the_connection_of_the_log_is_one_of_those_to_nats() {
    const USERS: &str =
        "authorization { users: [{user: app, password: a}, {user: log, password: l}] }\n";
    let servers = Servers { nats: nats_with(USERS), redis: redis(&[]) };
    let mut settings = servers.settings("n1");
    let login = |user: &str, password: &str| Login::Password {
        user: user.to_owned(),
        password: password.to_owned(),
    };
    (settings.nats.journal, settings.nats.control) = (login("log", "l"), login("app", "a"));
    settings.nats.intake = login("app", "a");
    let node: Node = servers.node_of(settings).await;
    let (sampler, ready) = (node.sampler(), node.readiness());
    assert!(sampler().servers.unwrap().nats && ready().is_ok());
    let file = servers.nats.dir().join("nats.conf");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replace(", {user: log, password: l}", "")).unwrap();
    servers.nats.signal(Signal::SIGHUP);
    until(async || !sampler().servers.unwrap().nats).await;
    assert!(ready().is_err());
    std::fs::write(&file, config).unwrap();
    servers.nats.signal(Signal::SIGHUP);
    until(async || sampler().servers.unwrap().nats && ready().is_ok()).await;
    node.stop().await;
}

/// How full the log is: a stream has a bound of its own here, and the account has one that is further away.
#[tokio::test(flavor = "multi_thread")]
async fn the_room_of_the_log_is_that_of_its_fullest_place() {
    const BOUND: u64 = 1 << 20;
    let servers = Servers::start();
    let mut settings = servers.settings("n1");
    settings.max_bytes = Some(BOUND);
    let node = servers.node_of(settings).await;
    let sampler = node.sampler();
    let to = NatsSettings::new(servers.url());
    let client: Client<NatsClient> = Client::connect(to, "s1", "bob").await.unwrap();
    create(&client, "t", 20).await;
    until(async || sampler().log.is_some_and(|log| log.bytes > 0)).await;
    let log = sampler().log.unwrap();
    let LogCapacity { limit, free } = log.tightest.unwrap();
    assert_eq!(limit, BOUND);
    assert!(free < BOUND && BOUND - free <= log.bytes, "{log:?}");
    node.stop().await;
}

/// A worker tells what it may run, what it runs and what it holds, and nothing once it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_tells_its_slots_and_what_it_has_in_hand() {
    let servers = Servers::start();
    let node = servers.node().await;
    let worker = worker(&servers).await;
    let (sampler, is_linked) =
        (worker.sampler("default".parse().unwrap()), worker.port().link_state());
    let now = || sampler().map(|it| (it.slots, it.running, it.held));
    assert_eq!(now(), Some((3, 0, 0)));
    let to = NatsSettings::new(servers.url());
    let client: Client<NatsClient> = Client::connect(to, "s1", "bob").await.unwrap();
    create(&client, "t", 2).await;
    until(async || now() == Some((3, 2, 2))).await;
    assert!(is_linked());
    create(&client, "u", 5).await;
    until(async || now() == Some((3, 3, 3))).await;
    worker.interrupt().await;
    assert_eq!(now(), Some((3, 0, 0)));
    drop(worker);
    until(async || now().is_none() && !is_linked()).await;
    node.stop().await;
}
