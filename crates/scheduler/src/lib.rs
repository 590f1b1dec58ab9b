//! The actors of Tenure, generic over the ports.
//!
//! A node is a tree of actors: the node supervises partitions and pools, and a partition supervises
//! the Tasks that are busy. A Task's actor decides, appends, applies and answers; a pool's actor
//! pairs ready Steps with workers that have capacity. Actors only send each other messages, and never
//! wait for an answer. A handler waits for I/O only where it reads a Task from its log.
//!
//! [`Scheduler`] is the handle: cheap to clone, bounded at the edge. Deliberately absent: any rule of
//! the domain. A refusal comes from the core, and is passed on as the answer.

mod admit;
mod ask;
mod blobs;
mod cache;
mod client;
mod clock;
mod config;
mod count;
mod directory;
mod edge;
mod failed;
mod fair;
mod follow;
mod gaps;
mod handle;
mod health;
mod held;
mod leases;
mod live;
mod node;
mod partition;
mod peers;
mod pool;
mod pool_names;
mod reading;
mod relations;
mod renewed;
mod rounds;
mod scan;
mod snapshots;
mod task;
mod watched;
mod worker;

pub use admit::ImportPermit;
pub use ask::{Done, Envelope, WriteAnswer};
pub use blobs::named_by_log;
pub use client::ClientLink;
pub use clock::{Machine, ThisMachine};
pub use config::Config;
pub use fair::{FairPermit, FairPermits};
pub use follow::Follower;
pub use handle::{Scheduler, overloaded};
pub use live::LiveTaskLimits;
pub use node::Appended;
pub use peers::{FamilyNotice, Peers};
pub use pool::{WaitingStep, Worker};
pub use reading::{ReadHold, ReadTurns, read_holding};
pub use task::open::{load, load_until, unreadable};
pub use worker::{Answering, WorkerLink};
