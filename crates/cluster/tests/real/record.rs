//! What was fixed when a cluster was made.

use tenure_cluster::leases::RedisOpenError;
use tenure_cluster::{
    JetStreamJournal, LogSettings, OtherCluster, RedisAt, RedisLeases, StreamOpenError,
};

use crate::journal::{connect, settings};
use crate::leases::owning;
use crate::servers::{nats, redis};

/// OWN-01: the number of partitions is fixed when the cluster is made.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_partitions_is_fixed() {
    let server = nats();
    let two = LogSettings { partitions: 2, ..settings("one") };
    JetStreamJournal::open(connect(&server).await, two.clone()).await.unwrap();
    let three = LogSettings { partitions: 3, ..two };
    let refused = JetStreamJournal::open(connect(&server).await, three).await.unwrap_err();
    assert!(
        matches!(refused, StreamOpenError::Other(OtherCluster::Partitions { given: 3, .. })),
        "{refused}"
    );
}

/// OWN-01: who makes a cluster gives a power of two; one that was made with another number keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_made_with_a_power_of_two() {
    let server = nats();
    let three = LogSettings { partitions: 3, ..settings("one") };
    let refused = JetStreamJournal::open(connect(&server).await, three.clone()).await.unwrap_err();
    assert!(
        matches!(refused, StreamOpenError::Other(OtherCluster::Uneven { given: 3 })),
        "{refused}"
    );
    assert_eq!(refused.advice(), "give --partitions 4");
    let context = async_nats::jetstream::new(connect(&server).await);
    assert!(context.get_stream("TENURE_WAL_0").await.is_err(), "nothing was made");
    for partition in 0..3 {
        let made = async_nats::jetstream::stream::Config {
            name: format!("TENURE_WAL_{partition}"),
            subjects: vec![format!("tenure.wal.{partition}")],
            metadata: [("tenure_partitions".to_owned(), "3, placement 2".to_owned())].into(),
            allow_direct: true,
            ..Default::default()
        };
        context.create_stream(&made).await.unwrap();
    }
    JetStreamJournal::open(connect(&server).await, three).await.unwrap();
}

/// OWN-01: a log that an older version placed is neither read nor written, and what to do is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_an_older_placement_is_refused() {
    let server = nats();
    let context = async_nats::jetstream::new(connect(&server).await);
    let made = async_nats::jetstream::stream::Config {
        name: "TENURE_WAL_0".into(),
        subjects: vec!["tenure.wal.0".into()],
        metadata: [("tenure_partitions".to_owned(), "2".to_owned())].into(),
        ..Default::default()
    };
    context.create_stream(&made).await.unwrap();
    let two = LogSettings { partitions: 2, ..settings("one") };
    let refused = JetStreamJournal::open(connect(&server).await, two).await.unwrap_err();
    let StreamOpenError::Other(OtherCluster::Placement(other)) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(other.found, 1);
    let advice = refused.advice();
    assert!(advice.contains("`tenure wal export --all") && advice.contains("import"), "{advice}");
    let found = context.get_stream("TENURE_WAL_0").await.unwrap();
    assert_eq!(found.cached_info().config.metadata["tenure_partitions"], "2", "as it was");
    assert!(context.get_stream("TENURE_WAL_1").await.is_err(), "nothing was made");
}

/// OWN-01: nodes that make a store at the same time agree on its id; a stream that is lost gets the id of the
/// others.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_has_one_id() {
    let server = nats();
    let opens = (0..4).map(async |_| {
        let journal = JetStreamJournal::open(connect(&server).await, settings("one")).await;
        journal.unwrap().store().to_owned()
    });
    let ids = futures::future::join_all(opens).await;
    assert!(ids[0].starts_with("TENURE, store "), "{ids:?}");
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let context = async_nats::jetstream::new(connect(&server).await);
    context.delete_stream("TENURE_WAL_0").await.unwrap();
    let journal = JetStreamJournal::open(connect(&server).await, settings("two")).await.unwrap();
    assert_eq!(journal.store(), ids[0]);
    let found = context.get_stream("TENURE_WAL_0").await.unwrap();
    assert_eq!(found.cached_info().config.metadata["tenure_cluster"], ids[0]);
}

/// OWN-01: streams that an older version made name no store, and a node uses them as they are. A stream that the
/// node makes beside them belongs to the same store. If any stream names a store, all belong to that one.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_an_older_version_is_taken_as_it_is() {
    const OLDER: &str = "TENURE, made by an older version";
    let server = nats();
    let context = async_nats::jetstream::new(connect(&server).await);
    let made = |partition: u32, more: Option<(&str, &str)>| {
        let record = [("tenure_partitions", "2, placement 2")].into_iter().chain(more);
        async_nats::jetstream::stream::Config {
            name: format!("TENURE_WAL_{partition}"),
            subjects: vec![format!("tenure.wal.{partition}")],
            metadata: record.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            allow_direct: true,
            ..Default::default()
        }
    };
    let open = async || {
        let two = LogSettings { partitions: 2, ..settings("one") };
        let journal = JetStreamJournal::open(connect(&server).await, two).await.unwrap();
        journal.store().to_owned()
    };
    context.create_stream(&made(0, None)).await.unwrap();
    assert_eq!([open().await, open().await], [OLDER, OLDER], "the second stream is there then");
    let found = context.get_stream("TENURE_WAL_0").await.unwrap();
    assert_eq!(found.cached_info().config.metadata.get("tenure_cluster"), None, "as it was");
    context.delete_stream("TENURE_WAL_1").await.unwrap();
    let one = "TENURE, store one";
    context.create_stream(&made(1, Some(("tenure_cluster", one)))).await.unwrap();
    assert_eq!(open().await, one);
    // Now a node of an older version has made the second stream anew, and the first has a name.
    context.delete_stream("TENURE_WAL_0").await.unwrap();
    context.delete_stream("TENURE_WAL_1").await.unwrap();
    context.create_stream(&made(0, Some(("tenure_cluster", one)))).await.unwrap();
    context.create_stream(&made(1, None)).await.unwrap();
    assert_eq!(open().await, one);
}

/// OWN-01: a Redis belongs to the store that comes first, for each name of a cluster, and is refused to others.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_belongs_to_one_store() {
    let redis = redis(&[]);
    let at = RedisAt::from(format!("redis://127.0.0.1:{}", redis.port));
    let leases = RedisLeases::open(&at, "tenure", owning(1)).await.unwrap();
    for _ in 0..2 {
        leases.belong_to(&at, "tenure", "TENURE, store one").await.unwrap();
    }
    leases.belong_to(&at, "b", "b, store two").await.unwrap();
    for other in ["TENURE, store two", "TENURE, made by an older version"] {
        let refused = leases.belong_to(&at, "tenure", other).await.unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, RedisOpenError::OtherStore { .. }), "{said}");
        assert!(!refused.passes() && refused.advice().contains("--cluster"), "{said}");
        assert!(said.contains("TENURE, store one") && said.contains(other), "{said}");
    }
}

/// OWN-01: a node of a cluster whose Redis is full starts all the same, as Redis says whose it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_says_whose_it_is() {
    let redis = redis(&[]);
    let at = RedisAt::from(format!("redis://127.0.0.1:{}", redis.port));
    let leases = RedisLeases::open(&at, "tenure", owning(1)).await.unwrap();
    leases.belong_to(&at, "tenure", "TENURE, store one").await.unwrap();
    let client = ::redis::Client::open(format!("redis://127.0.0.1:{}", redis.port)).unwrap();
    let mut plain = client.get_connection().unwrap();
    let mut full = ::redis::cmd("CONFIG");
    let () = full.arg("SET").arg("maxmemory").arg("1").query(&mut plain).unwrap();
    leases.belong_to(&at, "tenure", "TENURE, store one").await.unwrap();
    let refused = leases.belong_to(&at, "b", "b, store two").await.unwrap_err();
    assert!(refused.passes(), "somebody may make room: {refused}");
}
