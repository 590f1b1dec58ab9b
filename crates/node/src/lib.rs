//! A scheduler node of a cluster.
//!
//! A [`Node`] keeps partitions, by leases in Redis, and serves them: it reads their live Tasks from
//! the log in JetStream, answers commands, hands Steps to workers and publishes what happened, all
//! over NATS. Any number of nodes share the partitions; one that dies is replaced by the others
//! within seconds, one that stops hands its partitions over.
//!
//! | Module | What it is |
//! |---|---|
//! | [`settings`] | where the servers are, and as whom to speak to them |
//! | [`doctor`] | whether everything is set up as it must be |
//! | `gate` | what callers and workers say, and what they are answered |
//! | `links` | the way to each worker: a window of deliveries that are repeated until heard |
//! | `refused` | workers that have no link as what they say cannot be taken |
//! | `events` | hints of changes, for whoever watches |
//! | `partitions` | what a node does when it takes or leaves a partition |
//! | `start` | what a node needs before it can begin, and waits for |
//! | `rival` | whether another node answers for a partition that this one is about to take |
//!
//! What is deliberately absent: any rule of the domain, and any state that a restart would miss.

mod bus;
pub mod doctor;
mod events;
mod fence;
mod gate;
mod links;
mod node;
mod partitions;
mod peers;
mod published;
mod refused;
mod rival;
pub mod settings;
mod start;
mod window;

pub use bus::Fault;
pub use node::Node;
pub use settings::{Login, Nats, Settings};
pub use start::StartError;
pub use tenure_cluster::RedisAt;

/// The scheduler of a node.
pub type ClusterScheduler =
    tenure_scheduler::Scheduler<tenure_cluster::JetStreamJournal, tenure_cluster::RedisLeases>;

/// A worker as its node knows it.
type NodeWorkerLink =
    tenure_scheduler::WorkerLink<tenure_cluster::JetStreamJournal, tenure_cluster::RedisLeases>;
