//! Tenure on servers: adapters of the ports for a cluster.
//!
//! | Module | What it is |
//! |---|---|
//! | [`blobs`] | what is too large for the log, in a stream of JetStream |
//! | [`doctor`] | whether the servers are set up as they must be |
//! | [`journal`] | the log in JetStream: a stream per partition, frames that carry the commits of many Tasks |
//! | [`leases`] | who is alive, in Redis: one script call for all that waits |
//! | [`owned`] | which partitions this node owns, and in which epoch |
//! | [`ownership`] | decides which partitions this node takes and gives away: leases in Redis |
//! | [`redis_at`] | the address of Redis: one server or a Redis Cluster |
//! | [`request`] | asking a server within a time, and why that failed |
//!
//! An append names the last sequence of its stream, so a partition has one writer whatever anybody
//! believes (law 4). Redis says who is alive, and never what happened (law 5). Every call to a
//! server has a timeout of our own.

mod append;
pub mod blobs;
mod clock;
pub mod doctor;
pub mod journal;
pub mod leases;
pub mod owned;
pub mod ownership;
pub mod redis_at;
pub mod request;

pub use blobs::JetStreamBlobs;
pub use journal::{
    JetStreamJournal, Leaving, LogSettings, OtherCluster, StreamOpenError, TakeError,
};

pub use leases::RedisLeases;
pub use owned::Owned;
pub use redis_at::RedisAt;
