//! What stands still: a server of NATS that is frozen, or whose cable is pulled, so that connections to it stay
//! open and nothing comes; a node that hears nothing for a while, and is not to hold that against others; and a
//! worker that its handler holds up.

use std::num::NonZeroUsize;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::json;

use tenure_core::status::{Role, StepStatus};
use tenure_core::view::ClaimResult;
use tenure_node::{Nats, Node};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::{Connection, NatsClient, NatsSettings, NatsWorker};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tenure_tests::cluster::proxy::Proxy;
use tenure_wire::bus::V;
use tenure_wire::bus::operate::NodeFacts;
use tenure_wire::bus::subject::{ClientName, Token, WorkerName, inbox};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::common::{Caller, Hand, PARTITIONS, Servers, until};
use crate::servers::free_port;
use crate::workers::{one_grant, report, tell};

/// A node notices after three seconds, a client after six; more is allowed, for a machine that is busy. It was
/// after fifteen seconds and more.
const NOTICED: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(9));

/// Ways to one server, as to two of a cluster. The second is closed at first, so that all take the first.
fn ways(servers: &Servers) -> (Proxy, u16, String) {
    let first = Proxy::before(servers.nats.port).unwrap();
    let second = free_port();
    let url = format!("nats://127.0.0.1:{},nats://127.0.0.1:{second}", first.port);
    (first, second, url)
}

/// P30, mechanisms 6: leases of a cluster with copies of its log are at least 15 s, for which a node and a client
/// that have lost their server without a word must have found another long before.
#[tokio::test(flavor = "multi_thread")]
async fn who_hears_nothing_of_its_server_goes_to_another() {
    let servers = Servers::start();
    let (first, second, url) = ways(&servers);
    let mut settings = servers.settings("n1");
    settings.nats = Nats::at(url.clone());
    let _node = servers.node_of(settings).await;
    let name = ClientName {
        role: Role::Orchestrator,
        session: "s1".parse().unwrap(),
        principal: Token::new("ann").unwrap(),
    };
    let inbox = inbox(name.role, &name.principal, &Token::new("b1").unwrap());
    let connection = Connection::open(&NatsSettings::new(url), inbox).await.unwrap();
    let client = Client::new(NatsClient::join(connection, &name).await.unwrap());
    let bob = Caller::new(&servers).await; // Has a way of his own.

    let _second = Proxy::at(second, servers.nats.port).unwrap();
    first.cut(true, true);
    let frozen = Instant::now();
    let creating = tokio::spawn(async move {
        let task = Task::new("of-ann").step(Step::new("a"));
        client.create(task).await.unwrap();
        frozen.elapsed()
    });
    let mut left: Vec<u32> = (0..PARTITIONS).collect();
    let tasks: Vec<String> = (0..100).map(|n| format!("t{n}")).collect();
    while let Some(partition) = left.pop() {
        let task = tasks.iter().find(|id| bob.key(id).partition(PARTITIONS) == partition).unwrap();
        // What the server has handed to the frozen connection is lost: the same is asked again.
        let create = || timeout(Duration::from_millis(300), bob.try_create(task, task, &["a"]));
        while !matches!(create().await, Ok(Ok(_))) {}
    }
    assert!(frozen.elapsed() < NOTICED.0, "the node: {:?}", frozen.elapsed());
    let client = creating.await.unwrap();
    assert!(client < NOTICED.1, "the client: {client:?}");
}

/// Longer than a worker may be silent, and than it may leave a grant unanswered.
const DEAF: Duration = Duration::from_secs(6);

/// One thread, which may be held up.
fn runtime() -> Runtime {
    let mut one = tokio::runtime::Builder::new_multi_thread();
    one.worker_threads(1).enable_all().build().unwrap()
}

/// Whether the link of a worker is the same as before, and the Step that came on it still its own.
async fn is_still_at_work(node: &Node, bob: &Caller, alice: &mut Hand, claim: &ClaimResult) {
    let pool = claim.step.worker_pool_id.clone();
    let begun = Instant::now();
    while node.scheduler().pool_facts(&pool).free != 7 {
        alice.room(7).await; // Nothing is heard of a link that has ended.
        assert!(begun.elapsed() < Duration::from_secs(20), "the link has ended");
        sleep(Duration::from_millis(50)).await;
    }
    let said = tell(alice, vec![report(claim, StepStatus::Completed)]).await;
    assert_eq!(said[0].error, None, "nobody else was given the step");
    let events = bob.events("t1").await;
    assert!(!events.contains(&"task_step_lease_expired".to_owned()), "{events:?}");
}

/// Mechanisms 8: a node that stood still holds the silence of that time against no worker: it hears of them only
/// after it has looked at its links again.
#[test]
fn a_node_that_stood_still_ends_no_link() {
    let (own, test) = (runtime(), runtime());
    test.block_on(async {
        let servers = Servers::start();
        let mut settings = servers.settings("n1");
        settings.scheduler.limits.lease_ms = 60_000;
        let node = own.spawn(Node::start(settings)).await.unwrap().unwrap();
        until(async || node.served().len() == PARTITIONS as usize).await;
        let bob = Caller::new(&servers).await;
        let mut alice = Hand::join(&servers, "alice").await;
        alice.room(1).await;
        bob.create("t1", &["a"]).await;
        let claim = one_grant(&mut alice).await;
        // Its only thread: nothing of the node goes on.
        let (begun, begins) = channel();
        let stands = own.spawn(async move {
            begun.send(()).unwrap();
            std::thread::sleep(DEAF);
        });
        tokio::task::spawn_blocking(move || begins.recv().unwrap()).await.unwrap();
        stands.await.unwrap();
        sleep(Duration::from_secs(1)).await; // The node looks at its links before it hears of the worker.
        alice.room(0).await; // Says that it has the grant.
        is_still_at_work(&node, &bob, &mut alice, &claim).await;
    });
    own.shutdown_background();
}

/// Mechanisms 8: the same of a node whose connection was away.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_connection_ends_no_link() {
    let servers = Servers::start();
    let way = Proxy::at(free_port(), servers.nats.port).unwrap();
    let mut settings = servers.settings("n1");
    settings.scheduler.limits.lease_ms = 60_000;
    settings.nats = Nats::at(format!("nats://127.0.0.1:{}", way.port));
    let node = servers.node_of(settings).await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::join(&servers, "alice").await;
    alice.room(1).await;
    bob.create("t1", &["a"]).await;
    let claim = one_grant(&mut alice).await;
    let port = way.port;
    drop(way); // Its connections end, and nobody answers there.
    alice.room(0).await;
    sleep(DEAF).await;
    let _way = Proxy::at(port, servers.nats.port).unwrap();
    is_still_at_work(&node, &bob, &mut alice, &claim).await;
}

/// Mechanisms 7: a worker has said that a Step came before its handler begins: one that holds up its whole worker,
/// or ends it, is not given out again as if it had reached nobody.
#[test]
fn a_step_is_acknowledged_before_its_handler_begins() {
    let (own, test) = (runtime(), runtime());
    test.block_on(async {
        let servers = Servers::start();
        let mut settings = servers.settings("n1");
        settings.scheduler.limits.lease_ms = 60_000;
        let node = servers.node_of(settings).await;
        let principal = Token::new("alice").unwrap();
        let boot = Token::new("b1").unwrap();
        let name = WorkerName { pool: "default".parse().unwrap(), principal, boot };
        let ((begun, begins), (go, goes)) = (channel(), channel());
        let goes = parking_lot::Mutex::new(goes);
        let holds_up = move |ctx: StepContext| {
            begun.send(()).unwrap();
            goes.lock().recv().unwrap();
            async move { Ok(ctx.complete(None)?) }
        };
        let url = servers.url();
        let pool = own.spawn(async move {
            let connection = Connection::open(&NatsSettings::new(url), name.inbox()).await.unwrap();
            let (port, deliveries) = NatsWorker::join(connection, &name, None).await.unwrap();
            let handlers = Handlers::new().on("noop", holds_up).unwrap();
            WorkerPool::start(port, deliveries, handlers, Options::new(NonZeroUsize::MIN))
        });
        let pool = pool.await.unwrap();
        let bob = Caller::new(&servers).await;
        bob.create("t1", &["a"]).await;
        tokio::task::spawn_blocking(move || begins.recv().unwrap()).await.unwrap();
        // From here on the worker says nothing.
        let asked = json!({"v": V, "audit": true});
        until(async || {
            let facts: NodeFacts = bob.say("nodes", &asked).await.unwrap();
            facts.workers[0].unheard == 0
        })
        .await;
        go.send(()).unwrap();
        node.scheduler().wait_for_end(&bob.key("t1")).await.unwrap();
        let events = bob.events("t1").await;
        assert!(!events.contains(&"task_step_lease_expired".to_owned()), "{events:?}");
        drop(pool);
    });
    own.shutdown_background();
}
