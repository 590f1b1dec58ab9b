//! What was fixed when a cluster was made.

use tenure_cluster::{JetStreamJournal, LogSettings, OtherCluster, StreamOpenError};

use crate::journal::{connect, settings};
use crate::servers::nats;

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
