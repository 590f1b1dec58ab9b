//! Settings of a scheduler node, with their reasons.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Limits;
use tenure_core::id::PoolId;
use tenure_ports::{BlobStore, Observer};

use crate::clock::{Machine, ThisMachine};
use crate::live::LiveTaskLimits;
use crate::reading::ReadTurns;

/// How many commands may be in flight before the scheduler answers `unavailable`. This bounds
/// memory, not throughput.
pub(crate) const COMMANDS_IN_FLIGHT: usize = 8_192;

/// How many of these creates leave to commands on Tasks that exist.
pub(crate) const KEPT_FROM_CREATES: usize = COMMANDS_IN_FLIGHT / 4;

/// How many reports, releases and cancels may be in flight. They free resources, so
/// they have permits of their own and are never refused because of new work (mechanisms 16).
pub(crate) const REPORTS_IN_FLIGHT: usize = 16_384;

/// How many commands are decided for one append at most: bounds how long a single append can get.
pub(crate) const BATCH_MAX: usize = 1_024;

/// How many commands that write nothing a Task decides before it lets other work run: a caller may repeat one
/// thousands of times, and all of them together would hold up everything else in the node.
pub(crate) const ANSWERED_AT_ONCE: usize = 256;

/// How many waiting commands go into an append at once: enough that a sync costs each of them
/// little.
pub(crate) const BATCH_SOON: usize = 128;

/// How much longer than its append the leases of its claims may take, before they count as slow.
pub(crate) const HOLDS_UP: Duration = Duration::from_millis(3);

/// How many commits a subscriber may lag behind before it has to read the log.
pub(crate) const EVENTS_KEPT: usize = 16_384;

/// How many runtime events a listener may lag behind before it misses some.
pub(crate) const RUNTIME_KEPT: usize = 1_024;

/// Settings of a node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Limits and durations of the domain.
    pub limits: Limits,
    /// The pool of Steps that name none.
    pub default_worker_pool_id: PoolId,
    /// How often the node scans for ended leases (LEASE-16).
    pub tick: Duration,
    /// Open Attempts of workers that this process does not know belong to an earlier boot, and end
    /// at once as `host_restarted` (LEASE-15). True where scheduler, workers and log are one
    /// process.
    pub embedded: bool,
    /// Into how many partitions the Tasks are divided; each has a supervisor.
    pub partitions: u32,
    /// The source of the time.
    pub machine: Arc<dyn Machine>,
    /// Bounds of the Tasks that have not ended.
    pub live: LiveTaskLimits,
    /// Stores what is too large for a log. Without it, values stay below the inline limit (VALUE-01).
    pub blobs: Option<Arc<dyn BlobStore>>,
    /// Gets what happens. Without one that costs nothing.
    pub observer: Option<Arc<dyn Observer>>,
    /// Gives callers their turns to have logs read (LIVE-04). Without it nobody waits.
    pub turns: Option<Arc<dyn ReadTurns>>,
}

impl Config {
    /// Settings of a process that has all in it: scheduler, workers and log.
    pub fn embedded(default_worker_pool_id: PoolId) -> Self {
        Self {
            limits: Limits::default(),
            default_worker_pool_id,
            tick: Duration::from_secs(1),
            embedded: true,
            partitions: 8,
            machine: Arc::new(ThisMachine::new()),
            live: LiveTaskLimits::default(),
            blobs: None,
            observer: None,
            turns: None,
        }
    }
}
