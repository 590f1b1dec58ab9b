//! Where Tasks are, and how a command gets at them: a directory or a cluster.
//!
//! | Module | What it does |
//! |---|---|
//! | [`args`] | what a command is told of the place, and of one Task there |
//! | [`cluster`] | connects to a cluster, as somebody |
//! | [`data`] | looks at Tasks: finds them by name and folds their logs |
//! | [`session`] | takes commands on a Task to its cluster, or to a scheduler of this process |
//! | [`fleet`] | asks all nodes of a cluster at once |
//! | [`here`] | runs Tasks of a directory in this process |
//! | [`live`] | follows a Task |
//! | [`fetch`] | fetches a log of a cluster |
//! | [`scan`] | reads a log line by line |
//! | [`host`] | finds out who is at work on a directory |
//! | [`names`] | finds the Task or Run that a short name means |
//!
//! Whoever looks takes no lock, so it works beside a process that is running Tasks on the same
//! directory; it cuts nothing off and repairs nothing; and it starts no scheduler, so looking never
//! moves a Task. What it shows is the log (law 1), folded by the same reducer that the scheduler runs.
//!
//! What the log does not say is said to be unknown: a lease is renewed in the memory of the process
//! at work, so whether a claimed Step is alive is judged by whether there is such a process. Of a cluster,
//! whose owners say how long leases last, the logs that are asked for are fetched first, and then looked
//! at in the same way.

mod args;
mod cluster;
mod data;
mod fetch;
mod fleet;
mod here;
mod host;
mod live;
pub(crate) mod names;
pub(crate) mod scan;
mod session;

pub(crate) use self::args::{DataDir, OfTask, PlaceArgs, ViewArgs};
pub(crate) use self::cluster::{ClusterArgs, ClusterUser, LookArgs, Looker, NatsArgs};
pub(crate) use self::data::{Indexed, Loaded, TaskReader, me};
pub(crate) use self::fetch::{Cluster, Fetched, fetch};
pub(crate) use self::fleet::{FleetArgs, nobody_answers, warn_of_missing};
pub(crate) use self::here::open_here;
pub(crate) use self::host::Host;
pub(crate) use self::live::LiveTask;
pub(crate) use self::session::CallerSession;
