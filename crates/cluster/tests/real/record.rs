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
