//! Which features the log of a partition may hold (EVOLVE-02, mechanisms 17).

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Connection, cmd};
use async_nats::jetstream::stream::Stream;
use tenure_cluster::ownership::{Keeper, OwnershipOptions};
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_core::features::Features;
use tenure_testkit::conformance::History;
use tenure_wire::stored::frame::{Header, decode};

use crate::journal::{assert_holds, connect, create, owner, settings, work};
use crate::ownership::until;
use crate::servers::{Server, nats, redis};

/// A node of one partition with these features.
fn with(node: &str, features: &str) -> LogSettings {
    LogSettings { partitions: 1, features: Features::read(features), ..settings(node) }
}

async fn stream(server: &Server) -> Stream {
    let context = async_nats::jetstream::new(connect(server).await);
    context.get_stream("TENURE_WAL_0").await.unwrap()
}

/// The features that an owner record names.
async fn named_at(stream: &Stream, at: u64) -> String {
    let message = stream.get_raw_message(at).await.unwrap();
    match decode(&message.payload).unwrap().header {
        Header::Owner { features, .. } => features.to_string(),
        other => panic!("no owner record: {other:?}"),
    }
}

async fn last_seq(stream: &Stream) -> u64 {
    stream.get_info().await.unwrap().state.last_sequence
}

/// EVOLVE-02: a record names what all live nodes have, no more than the node has itself, and all that the log
/// may hold already: the set only grows.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_names_what_all_live_nodes_have() {
    let server = nats();
    let client = connect(&server).await;
    let journal = JetStreamJournal::open(client, with("one", "a,b,c")).await.unwrap();
    let stream = stream(&server).await;
    for (shared, named) in [("", ""), ("b", "b"), ("a,z", "a,b"), ("", "a,b")] {
        let epoch = journal.take_with(0, &Features::read(shared)).await.unwrap();
        assert_eq!(named_at(&stream, epoch).await, named, "all have {shared:?}");
    }
}

/// EVOLVE-02: who lacks a feature that the log may hold does not take the partition, with or without a
/// checkpoint, and says why; it has changed nothing there.
#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_read_a_partition_does_not_take_it() {
    let server = nats();
    let newer = owner(&server, with("newer", "a,b")).await;
    let mut history = History::of("s", "t");
    create(&newer, &mut history).await;
    let client = connect(&server).await;
    let older = JetStreamJournal::open(client, with("older", "a")).await.unwrap();
    let stream = stream(&server).await;
    for has_checkpoint in [false, true] {
        if has_checkpoint {
            newer.checkpoint(0).await.unwrap();
        }
        let before = last_seq(&stream).await;
        let refused = older.take(0).await.unwrap_err().to_string();
        assert!(refused.contains("may hold b, which this node cannot read"), "{refused}");
        assert_eq!(last_seq(&stream).await, before);
        assert_eq!(older.owned().epoch(0), None);
    }
    work(&newer, &mut history, 1).await.unwrap();
    assert_holds(&owner(&server, with("next", "a,b")).await, &history).await;
}

fn plain(redis: &Server) -> Connection {
    let url = format!("redis://127.0.0.1:{}", redis.port);
    ::redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn field(redis: &Server, hash: &str, field: &str) -> Option<String> {
    let hash = format!("tenure:{{own}}:{hash}");
    cmd("HGET").arg(hash).arg(field).query(&mut plain(redis)).unwrap()
}

/// Has a node register that does nothing else. One of an older program does not say its features.
fn register(redis: &Server, node: &str, features: Option<&str>) {
    let mut redis = plain(redis);
    let mut add = cmd("ZADD");
    let () = add.arg("tenure:{own}:nodes").arg(9e12).arg(node).query(&mut redis).unwrap();
    if let Some(features) = features {
        let mut set = cmd("HSET");
        let () =
            set.arg("tenure:{own}:features").arg(node).arg(features).query(&mut redis).unwrap();
    }
}

/// Takes a node out of those that live.
fn remove(redis: &Server, node: &str) {
    let () = cmd("ZREM").arg("tenure:{own}:nodes").arg(node).query(&mut plain(redis)).unwrap();
}

async fn keep(
    nats: &Server,
    redis: &Server,
    settings: LogSettings,
) -> (Arc<JetStreamJournal>, Keeper) {
    let options =
        OwnershipOptions::new(format!("redis://127.0.0.1:{}", redis.port), settings.node.clone());
    let journal = JetStreamJournal::open(connect(nats).await, settings).await.unwrap();
    let journal = Arc::new(journal);
    let keeper = Keeper::start(options, Arc::clone(&journal)).unwrap();
    (journal, keeper)
}

const LONG: Duration = Duration::from_secs(20);

/// EVOLVE-02: nodes register their features; what one of them lacks is not in the first record. When that one
/// has gone, the owner takes the partition again, with a record that names what all have now.
#[tokio::test(flavor = "multi_thread")]
async fn what_all_live_nodes_have_is_named_once_they_have_it() {
    for (other, named) in [(Some("a,b,z"), "a,b"), (Some("b"), "b"), (None, "")] {
        let (nats, redis) = (nats(), redis(&[]));
        register(&redis, "another", other);
        let (journal, _keeper) = keep(&nats, &redis, with("one", "a,b")).await;
        let stream = stream(&nats).await;
        until(LONG, "it takes the partition", || journal.owned().epoch(0).is_some()).await;
        assert_eq!(named_at(&stream, 1).await, named, "beside one that has {other:?}");
        let own = field(&redis, "features", "one");
        assert_eq!(own.as_deref(), Some("a,b"), "it has said what it has itself");
        remove(&redis, "another");
        let all = Features::read("a,b");
        until(LONG, "its log may hold all", || journal.features_of(0).as_ref() == Some(&all)).await;
        let epoch = journal.owned().epoch(0).unwrap();
        assert_eq!(named_at(&stream, epoch).await, "a,b");
        assert_eq!(epoch > 1, named != "a,b", "taken again only if that adds something");
    }
}

/// EVOLVE-02: a node that lacks what some log may hold takes no partition, not even one that nobody has, says
/// which feature it is, and does not keep others from using it.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_node_takes_nothing_and_does_not_count() {
    let (nats, redis) = (nats(), redis(&[]));
    let settings = |node: &str, has| LogSettings { partitions: 8, ..with(node, has) };
    let (newer, keeper) = keep(&nats, &redis, settings("newer", "a,b")).await;
    until(LONG, "it takes everything", || newer.owned().all().len() == 8).await;
    let epochs = newer.owned().all();
    let (older, its_keeper) = keep(&nats, &redis, settings("older", "a")).await;
    until(LONG, "it knows what it lacks", || its_keeper.lacking() == Features::read("b")).await;
    // It would have been handed its share within four polls.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(newer.owned().all(), epochs);
    keeper.hand_over().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(older.owned().all().is_empty(), "nor does it take what nobody has");
}
