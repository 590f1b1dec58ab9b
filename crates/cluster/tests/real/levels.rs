//! In which version of what is stored a partition is written (mechanisms 17).

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Connection, cmd};
use async_nats::jetstream::stream::Stream;
use tenure_cluster::ownership::{Keeper, OwnershipOptions};
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_testkit::conformance::History;
use tenure_wire::stored::frame::{Header, decode};

use crate::journal::{assert_holds, connect, create, owner, settings, work};
use crate::ownership::until;
use crate::servers::{Server, nats, redis};

/// A node of one partition that reads up to a version.
fn reading(node: &str, reads: u32) -> LogSettings {
    LogSettings { partitions: 1, reads, ..settings(node) }
}

async fn stream(server: &Server) -> Stream {
    let context = async_nats::jetstream::new(connect(server).await);
    context.get_stream("TENURE_WAL_0").await.unwrap()
}

/// The version that an owner record names.
async fn level_at(stream: &Stream, at: u64) -> u32 {
    let message = stream.get_raw_message(at).await.unwrap();
    match decode(&message.payload).unwrap().header {
        Header::Owner { write_level, .. } => write_level,
        other => panic!("no owner record: {other:?}"),
    }
}

async fn last_seq(stream: &Stream) -> u64 {
    stream.get_info().await.unwrap().state.last_sequence
}

/// Mechanisms 17: an owner writes what all live nodes read, and no more than it can itself. What is there
/// stays as it is: who reads the newest record knows whether it reads the partition.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_names_what_all_live_nodes_read() {
    let server = nats();
    let client = connect(&server).await;
    let journal = JetStreamJournal::open(client, reading("one", 3)).await.unwrap();
    let stream = stream(&server).await;
    for (lowest, level) in [(1, 1), (2, 2), (9, 3), (1, 3)] {
        let epoch = journal.take_at(0, lowest).await.unwrap();
        assert_eq!(level_at(&stream, epoch).await, level, "all read up to {lowest}");
    }
}

/// Mechanisms 17: who cannot read what is written does not take the partition, with or without a
/// checkpoint, and says why; it has changed nothing there.
#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_read_a_partition_does_not_take_it() {
    let server = nats();
    let newer = owner(&server, reading("newer", 2)).await;
    let mut history = History::of("s", "t");
    create(&newer, &mut history).await;
    let client = connect(&server).await;
    let older = JetStreamJournal::open(client, reading("older", 1)).await.unwrap();
    let stream = stream(&server).await;
    for has_checkpoint in [false, true] {
        if has_checkpoint {
            newer.checkpoint(0).await.unwrap();
        }
        let before = last_seq(&stream).await;
        let refused = older.take(0).await.unwrap_err().to_string();
        assert!(refused.contains("version 2") && refused.contains("up to 1"), "{refused}");
        assert_eq!(last_seq(&stream).await, before);
        assert_eq!(older.owned().epoch(0), None);
    }
    work(&newer, &mut history, 1).await.unwrap();
    assert_holds(&owner(&server, reading("next", 2)).await, &history).await;
}

fn plain(redis: &Server) -> Connection {
    let url = format!("redis://127.0.0.1:{}", redis.port);
    ::redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn field(redis: &Server, hash: &str, field: &str) -> Option<String> {
    let hash = format!("tenure:{{own}}:{hash}");
    cmd("HGET").arg(hash).arg(field).query(&mut plain(redis)).unwrap()
}

/// Has a node register that does nothing else. One of an older program does not say what it reads.
fn register(redis: &Server, node: &str, reads: Option<u32>) {
    let mut redis = plain(redis);
    let mut add = cmd("ZADD");
    let () = add.arg("tenure:{own}:nodes").arg(9e12).arg(node).query(&mut redis).unwrap();
    if let Some(reads) = reads {
        let mut set = cmd("HSET");
        let () = set.arg("tenure:{own}:reads").arg(node).arg(reads).query(&mut redis).unwrap();
    }
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

/// Mechanisms 17: nodes register what they read; one that does not say reads the first version.
#[tokio::test(flavor = "multi_thread")]
async fn the_lowest_of_the_live_nodes_counts() {
    for (others, level) in [(Some(7), 3), (Some(2), 2), (None, 1)] {
        let (nats, redis) = (nats(), redis(&[]));
        register(&redis, "another", others);
        let (journal, _keeper) = keep(&nats, &redis, reading("one", 3)).await;
        let stream = stream(&nats).await;
        until(Duration::from_secs(20), "it takes the partition", || {
            journal.owned().epoch(0).is_some()
        })
        .await;
        assert_eq!(level_at(&stream, 1).await, level, "beside one that reads {others:?}");
        let own = field(&redis, "reads", "one");
        assert_eq!(own.as_deref(), Some("3"), "it has said what it reads itself");
    }
}

/// Mechanisms 17: an older node that comes is handed nothing that it cannot read: no partition is
/// without an owner for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_node_is_handed_nothing_that_it_cannot_read() {
    let (nats, redis) = (nats(), redis(&[]));
    let settings = |node: &str, reads| LogSettings { partitions: 8, ..reading(node, reads) };
    let (newer, keeper) = keep(&nats, &redis, settings("newer", 2)).await;
    until(Duration::from_secs(20), "it takes everything", || newer.owned().all().len() == 8).await;
    let epochs = newer.owned().all();
    let (older, _keeper) = keep(&nats, &redis, settings("older", 1)).await;
    until(Duration::from_secs(20), "it is there", || {
        field(&redis, "reads", "older").as_deref() == Some("1")
    })
    .await;
    // It would have been handed its share within four polls.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(newer.owned().all(), epochs);
    keeper.hand_over().await;
    until(Duration::from_secs(20), "it tries", || {
        field(&redis, "owners", "0").as_deref() == Some("older")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(older.owned().all().is_empty(), "nor does it take what nobody has");
}
