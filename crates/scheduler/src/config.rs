//! Settings of a scheduler node, with their reasons.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Limits;
use tenure_core::id::PoolId;
use tenure_ports::Observer;

use crate::clock::{Machine, ThisMachine};

/// Commands in flight before intake answers `unavailable`: bounds memory, not throughput.
pub(crate) const COMMANDS_IN_FLIGHT: usize = 8_192;

/// What of that creates leave to commands on Tasks that are there.
pub(crate) const KEPT_FROM_CREATES: usize = COMMANDS_IN_FLIGHT / 4;

/// Reports, releases, cancels and heartbeats in flight. They free resources, so they have capacity of their
/// own and are never refused because of new work (mechanisms 16).
pub(crate) const REPORTS_IN_FLIGHT: usize = 16_384;

/// Commands decided for one append: bounds how long a single append can get.
pub(crate) const BATCH_MAX: usize = 1_024;

/// Commands that go into an append at once, if so many wait: enough that a sync costs each little.
pub(crate) const BATCH_SOON: usize = 128;

/// How much longer than its append the leases of claims in it may take.
pub(crate) const HOLDS_UP: Duration = Duration::from_millis(3);

/// Commits a slow subscriber may lag behind before it has to read the log.
pub(crate) const EVENTS_KEPT: usize = 16_384;

/// Runtime events a slow listener may lag behind before it misses some.
pub(crate) const RUNTIME_KEPT: usize = 1_024;

/// Settings of a node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Limits and durations of the domain.
    pub limits: Limits,
    /// Pool of Steps that name none.
    pub default_worker_pool_id: PoolId,
    /// How often ended leases are looked for (LEASE-16).
    pub tick: Duration,
    /// Open Attempts of workers that this process does not know belong to an earlier boot and end
    /// at once as `host_restarted` (LEASE-15): true where one process is everything.
    pub embedded: bool,
    /// Supervising partitions of Tasks.
    pub partitions: u32,
    /// Where the time comes from.
    pub machine: Arc<dyn Machine>,
    /// Is told what happens; none, and it costs nothing.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Config {
    /// Settings of a process that is everything: scheduler, workers and log.
    pub fn embedded(default_worker_pool_id: PoolId) -> Self {
        Self {
            limits: Limits::default(),
            default_worker_pool_id,
            tick: Duration::from_secs(1),
            embedded: true,
            partitions: 8,
            machine: Arc::new(ThisMachine::new()),
            observer: None,
        }
    }
}
