//! Opens the place where Tasks are: a data directory or a cluster.
//!
//! | Module | What it does |
//! |---|---|
//! | [`args`] | the options that name the place, and one Task there |
//! | [`cluster`] | connects to a cluster, as one of its users |
//! | [`gateway`] | the options that name a gateway to a cluster |
//! | [`any`] | a client, over NATS or through a gateway |
//! | [`data`] | reads Tasks: finds them by name and folds their logs |
//! | [`session`] | sends commands on a Task to its cluster, its directory's process, or a scheduler here |
//! | [`socket`] | reaches the process at work on a directory |
//! | [`fleet`] | asks all nodes of a cluster at once |
//! | [`here`] | runs Tasks of a directory in this process |
//! | [`live`] | follows a Task |
//! | [`ended`] | waits for the end of a Task of a directory |
//! | [`fetch`] | fetches a log of a cluster |
//! | [`scan`] | reads a log line by line |
//! | [`index`] | reads which Tasks the index of a directory has |
//! | [`host`] | finds out who is at work on a directory |
//! | [`names`] | finds the Task or Run that a short name means |
//!
//! A command that only reads takes no lock, so it works beside a process that is running Tasks on
//! the same directory. It cuts nothing off and repairs nothing, and it starts no scheduler, so it
//! never affects a Task. It shows the log (law 1), folded by the same reducer that the scheduler
//! runs.
//!
//! Facts that are not in the log count as unknown. The process at work renews leases in its memory,
//! so a claimed Step counts as alive if there is such a process. For a cluster, whose owners say
//! how long leases last, the command first fetches the logs that it needs, and then reads them in
//! the same way.

mod any;
mod args;
mod cluster;
mod data;
mod ended;
mod fetch;
mod fleet;
mod gateway;
mod here;
mod host;
mod index;
mod live;
pub(crate) mod names;
pub(crate) mod scan;
mod session;
mod socket;
mod usage;

pub(crate) use self::any::AnyClient;
pub(crate) use self::args::{DataDir, OfTask, PlaceArgs, ViewArgs, files_of, is_of_environment};
pub(crate) use self::cluster::{ClusterArgs, ClusterUser, LookArgs, Looker, NatsArgs};
pub(crate) use self::data::{Loaded, TaskReader, is_default, me};
pub(crate) use self::ended::{LOOK, until_ended};
pub(crate) use self::fetch::{Cluster, Fetched, fetch, file_of, unwritten};
pub(crate) use self::fleet::{FleetArgs, exit_without, nobody_answers};
pub(crate) use self::gateway::GatewayArgs;
pub(crate) use self::here::open_here;
pub(crate) use self::host::Host;
pub(crate) use self::index::Indexed;
pub(crate) use self::live::LiveTask;
pub(crate) use self::session::CallerSession;
pub(crate) use self::socket::{socket_of, soon_at_work};
