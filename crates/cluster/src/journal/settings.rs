//! How the log lies in JetStream.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::event::SCHEMA_VERSION;
use tenure_ports::Observer;

/// How the log lies in JetStream.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// What names of streams begin with; their subjects begin with it in lower case.
    pub name: String,
    /// Partitions of the cluster: fixed when it is made (OWN-01).
    pub partitions: u32,
    /// Servers that keep each stream.
    pub replicas: usize,
    /// Bytes that a stream may take; none: as many as the server has. A full one refuses appends.
    pub max_bytes: Option<u64>,
    /// This node, in owner records.
    pub node: String,
    /// The newest version of what is stored that this node reads, and can write.
    pub reads: u32,
    /// How long to wait for a server before asking again.
    pub timeout: Duration,
    /// Bytes of a message; what is longer goes in chunks. At most what the server takes.
    pub message_bytes: usize,
    /// Bytes of commits of a partition that may wait, or be on their way, at a time: creates that would
    /// pass three quarters of it are refused, and other commands that would pass it (mechanisms 16).
    pub in_flight_bytes: u32,
    /// Commits of a partition after which a checkpoint of its index is written.
    pub checkpoint_commits: u64,
    /// How long it is not, while there are any.
    pub checkpoint_every: Duration,
    /// Ended Tasks of a partition of which everything that lists say is in memory.
    pub ended_rows: usize,
    /// Who is told what is written; none: nobody.
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
            reads: u32::from(SCHEMA_VERSION),
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

    /// The stream of checkpoints.
    pub(crate) fn index_stream(&self) -> String {
        format!("{}_INDEX", self.name)
    }

    /// What their subjects begin with.
    pub(crate) fn index_subject(&self) -> String {
        format!("{}.index", self.name.to_lowercase())
    }
}
