//! A server of NATS that is frozen, or whose cable is pulled: connections to it stay open, and nothing comes.

use std::time::{Duration, Instant};

use tenure_core::status::Role;
use tenure_node::Nats;
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::{Connection, NatsClient, Settings};
use tenure_tests::cluster::proxy::Proxy;
use tenure_tests::cluster::servers::free_port;
use tenure_wire::bus::subject::{ClientName, Token, inbox};
use tokio::time::timeout;

use crate::common::{Caller, PARTITIONS, Servers};

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
    let connection = Connection::open(&Settings::new(url), inbox).await.unwrap();
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
