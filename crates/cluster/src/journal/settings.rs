//! How the log is stored in JetStream.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::features::Features;
use tenure_ports::Observer;

/// How the log is stored in JetStream.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// The prefix of the names of streams; their subjects have it in lower case.
    pub name: String,
    /// Number of partitions of the cluster: fixed when the cluster is made (OWN-01).
    pub partitions: u32,
    /// How many servers store each stream.
    pub replicas: usize,
    /// How many bytes a stream may take; none: as many as the server has. A full stream refuses
    /// appends.
    pub max_bytes: Option<u64>,
    /// The name of this node, for owner records.
    pub node: String,
    /// The features that logs may hold and that this node can read and write (EVOLVE-02).
    pub features: Features,
    /// How long to wait for a server before asking again.
    pub timeout: Duration,
    /// How many bytes a message may have; longer ones go in chunks. At most what the server allows.
    pub message_bytes: usize,
    /// How many bytes of commits of a partition may wait or be in flight at a time. Creates that would
    /// pass three quarters of this are refused, and other commands that would pass it (mechanisms 16).
    pub in_flight_bytes: u32,
    /// After how many commits of a partition a checkpoint of its index is written.
    pub checkpoint_commits: u64,
    /// After how long a checkpoint is written at the latest, if there are any commits.
    pub checkpoint_every: Duration,
    /// How many ended Tasks of a partition keep in memory everything that lists show.
    pub ended_rows: usize,
    /// The observer, which gets what is written; none: nobody does.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            name: "TENURE".into(),
            partitions: 8,
            replicas: 1,
            max_bytes: None,
            node: "node".into(),
            features: Features::of_program().of_logs(),
            timeout: Duration::from_secs(5),
            message_bytes: 512 << 10,
            in_flight_bytes: 8 << 20,
            checkpoint_commits: 50_000,
            checkpoint_every: Duration::from_secs(60),
            ended_rows: 10_000,
            observer: None,
        }
    }
}

impl LogSettings {
    pub(crate) fn stream(&self, partition: u32) -> String {
        format!("{}_WAL_{partition}", self.name)
    }

    pub(super) fn subject(&self, partition: u32) -> String {
        format!("{}.wal.{partition}", self.name.to_lowercase())
    }

    /// The stream of blobs.
    pub(crate) fn blob_stream(&self) -> String {
        format!("{}_BLOB", self.name)
    }

    /// The prefix of the subjects of that stream.
    pub(crate) fn blob_subject(&self) -> String {
        format!("{}.blob", self.name.to_lowercase())
    }

    /// The stream of checkpoints.
    pub(crate) fn index_stream(&self) -> String {
        format!("{}_INDEX", self.name)
    }

    /// The prefix of the subjects of that stream.
    pub(crate) fn index_subject(&self) -> String {
        format!("{}.index", self.name.to_lowercase())
    }
}
