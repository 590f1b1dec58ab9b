//! Clusters that share their servers.

use std::num::NonZeroUsize;
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use tenure_core::id::TaskId;
use tenure_core::status::TaskStatus;
use tenure_node::{Node, Settings};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::{ClusterName, NatsClient, NatsSettings, NatsWorker, PoolMember};
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tenure_tests::cluster::redis::command;

use crate::common::{PARTITIONS, Servers, until};
use crate::servers::{nats, redis};

fn settings(servers: &Servers, node: &str, cluster: &str) -> Settings {
    let cluster = ClusterName::new(cluster).unwrap();
    Settings { cluster, ..servers.settings(node) }
}

fn at(servers: &Servers, cluster: &str) -> NatsSettings {
    let cluster = ClusterName::new(cluster).unwrap();
    NatsSettings { cluster, ..NatsSettings::new(servers.url()) }
}

async fn client(servers: &Servers, cluster: &str) -> Client<NatsClient> {
    Client::connect(at(servers, cluster), "s1", "bob").await.unwrap()
}

async fn worker(servers: &Servers, cluster: &str) -> WorkerPool<NatsWorker> {
    let files = std::env::temp_dir();
    let handlers = Handlers::new().with_builtins(files).unwrap();
    let handlers = handlers.on("held", |_| std::future::pending()).unwrap();
    let member = PoolMember { pool: "default", name: "ant", build: None };
    let options = Options::new(NonZeroUsize::new(4).unwrap());
    WorkerPool::connect(at(servers, cluster), member, handlers, options).await.unwrap()
}

async fn create(client: &Client<NatsClient>, task: &str, handler: &str) -> TaskId {
    let task = Task::new(task).id(task).step(Step::new("a").handler(handler));
    client.create(task).await.unwrap()
}

async fn tasks(client: &Client<NatsClient>) -> usize {
    let listing = client.list(true).await.unwrap();
    assert_eq!(listing.missing_partitions, Vec::<u32>::new());
    listing.entries.len()
}

/// OWN-01: clusters of two names share NATS and Redis. Tasks, workers, leases and nodes of one are nothing to
/// the other.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_two_names_do_not_meet_on_the_same_servers() {
    let servers = Servers::start();
    let one = servers.node_of(settings(&servers, "n1", "TENURE")).await;
    let two = servers.node_of(settings(&servers, "n2", "b")).await;
    let (usual, other) = (client(&servers, "TENURE").await, client(&servers, "b").await);
    let task = create(&usual, "t", "noop").await;
    create(&usual, "held", "held").await;
    assert_eq!(create(&other, "t", "noop").await, task, "the same name in another cluster");
    assert_eq!((tasks(&usual).await, tasks(&other).await), (2, 1));

    let ant = worker(&servers, "TENURE").await;
    assert_eq!(usual.wait_for_end(&task).await.unwrap().status, TaskStatus::Completed);
    until(async || usual.port().leases().await.unwrap().len() == 1).await;
    assert_eq!(other.port().leases().await.unwrap().len(), 0);
    assert_eq!(other.list(false).await.unwrap().entries.len(), 1, "its task has not begun");
    for (client, workers) in [(&usual, 1), (&other, 0)] {
        let nodes = client.port().nodes().await.unwrap().answers;
        assert_eq!((nodes.len(), nodes[0].workers.len()), (1, workers));
    }
    let bee = worker(&servers, "b").await;
    assert_eq!(other.wait_for_end(&task).await.unwrap().status, TaskStatus::Completed);
    drop((ant, bee));
    one.stop().await;
    assert_eq!(tasks(&other).await, 1, "it goes on");
    two.stop().await;
}

/// OWN-01: whoever names a cluster that nobody serves is told so.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_nobody_serves_is_named() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let patience = Duration::from_secs(1);
    let to = NatsSettings { patience, ..at(&servers, "c") };
    let refused = Client::connect(to, "s1", "bob").await.unwrap_err().to_string();
    assert!(refused.contains("nobody serves this in the cluster c now"), "{refused}");
}

/// Which store the log is of.
async fn store(servers: &Servers) -> String {
    let context = async_nats::jetstream::new(servers.client().await);
    let stream = context.get_stream("TENURE_WAL_0").await.unwrap();
    stream.cached_info().config.metadata["tenure_cluster"].clone()
}

/// OWN-01: a new store beside a Redis that belongs to another one is refused, and the node says whose is whose.
/// A Redis that is empty belongs to whoever comes first.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_store_beside_an_old_redis_is_refused() {
    let servers = Servers::start();
    servers.node().await.stop().await;
    servers.node().await.stop().await; // Its Redis knows it.
    let old = store(&servers).await;
    let servers = Servers { nats: nats(), redis: servers.redis };
    let refused = Node::start(servers.settings("n2")).await.unwrap_err();
    let (new, said) = (store(&servers).await, refused.to_string());
    assert!(old.starts_with("TENURE, store ") && old != new, "{old} {new}");
    assert!(said.contains(&old) && said.contains(&new), "{said}");
    assert!(refused.is_of_another_cluster() && !refused.passes(), "{refused:?}");
    let advice = refused.advice();
    for way in ["--cluster", "--redis", "Restore"] {
        assert!(advice.contains(way), "{advice}");
    }
    servers.node_of(settings(&servers, "n3", "b")).await.stop().await;
    let servers = Servers { nats: servers.nats, redis: redis(&[]) };
    servers.node().await.stop().await;
    assert_eq!(store(&servers).await, new, "it stays what it is");
}

/// OWN-01: the first node of this version takes over a cluster that an older version made: its streams name no
/// store, and its Redis has keys and belongs to nobody. From then on a new store beside that Redis is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_an_older_version_is_taken_over() {
    const STORE: &str = "tenure:{own}:store";
    const OLDER: &str = "TENURE, made by an older version";
    let servers = Servers::start();
    let context = async_nats::jetstream::new(servers.client().await);
    for partition in 0..PARTITIONS {
        let record = format!("{PARTITIONS}, placement 2");
        let made = Config {
            name: format!("TENURE_WAL_{partition}"),
            subjects: vec![format!("tenure.wal.{partition}")],
            metadata: [("tenure_partitions".to_owned(), record)].into(),
            allow_direct: true,
            allow_atomic_publish: true,
            ..Config::default()
        };
        context.create_stream(&made).await.unwrap();
    }
    servers.node().await.stop().await;
    command(servers.redis.port, &["DEL", STORE]).unwrap(); // The other keys are as that version leaves them.
    let node = servers.node().await;
    let bob = client(&servers, "TENURE").await;
    let task = create(&bob, "t", "noop").await;
    let ant = worker(&servers, "TENURE").await;
    assert_eq!(bob.wait_for_end(&task).await.unwrap().status, TaskStatus::Completed);
    drop(ant);
    node.stop().await;
    let named = command(servers.redis.port, &["GET", STORE]).unwrap();
    assert!(named.contains(OLDER), "{named}");
    servers.node().await.stop().await;

    let servers = Servers { nats: nats(), redis: servers.redis };
    let refused = Node::start(servers.settings("n2")).await.unwrap_err();
    assert!(refused.is_of_another_cluster() && refused.to_string().contains(OLDER), "{refused}");
}
