//! A scheduler node of a cluster.
//!
//! A [`Node`] keeps partitions, by leases in Redis, and serves them: it reads their live Tasks from
//! the log in JetStream, answers commands, dispatches Steps to workers and publishes what happened,
//! all over NATS. Any number of nodes share the partitions. If one dies, others take its partitions
//! within seconds; one that stops gives its partitions away.
//!
//! | Module | What it is |
//! |---|---|
//! | [`settings`] | where the servers are, and with which logins to reach them |
//! | [`doctor`] | whether everything is set up as it must be |
//! | `gate` | receives the messages of callers and workers, and answers them |
//! | `links` | the way to each worker: a window of deliveries, repeated until acknowledged |
//! | `refused` | workers that have no link as their messages cannot be accepted |
//! | `events` | publishes hints and public events to watchers |
//! | `partitions` | what a node does when it takes or leaves a partition |
//! | `start` | waits for what a node needs before it can begin |
//! | `rival` | asks whether another node serves a partition that this one is about to take |
//!
//! What is deliberately absent: any rule of the domain, and any state that a restart would miss.

mod bus;
pub mod doctor;
mod events;
mod fence;
mod gate;
mod heartbeats;
mod intake;
mod lanes;
mod links;
mod log_usage;
mod malformed;
mod node;
mod outage;
mod partitions;
mod peers;
mod published;
mod rates;
mod read_threads;
mod refused;
mod rival;
pub mod settings;
mod start;
mod window;

pub use bus::Fault;
pub use lanes::ReadLimits;
pub use node::Node;
pub use rates::RateSettings;
pub use settings::{Login, Nats, Settings};
pub use start::StartError;
pub use tenure_cluster::RedisAt;

/// The scheduler of a node.
pub type ClusterScheduler =
    tenure_scheduler::Scheduler<tenure_cluster::JetStreamJournal, tenure_cluster::RedisLeases>;

/// A worker's link, as its node has it.
type NodeWorkerLink =
    tenure_scheduler::WorkerLink<tenure_cluster::JetStreamJournal, tenure_cluster::RedisLeases>;
