//! Leases: who is alive, never what happened (law 5).

use std::future::Future;
use std::time::Duration;

use tenure_core::id::AttemptId;

use crate::journal::TaskKey;

/// A lease as the store keeps it: liveness of one open Attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The Task of the Attempt.
    pub task: TaskKey,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// How long from now, in milliseconds of the store's own clock.
    pub duration_ms: u64,
}

/// A lease that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredLease {
    /// The Task of the Attempt.
    pub task: TaskKey,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// How long ago, by the store's own clock.
    pub late: Duration,
}

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Leases that have ended, oldest end first.
    pub ended: Vec<ExpiredLease>,
    /// What the store says of ends is not to be believed: it has lost what it was told, or its clock
    /// and this node's moved apart. Leases of open Attempts are to be raised.
    pub doubtful: bool,
}

/// A store of leases with a clock of its own.
///
/// Every call is idempotent. After an error nothing is known: the caller claims nothing and
/// expires nothing until the store answers again.
pub trait Leases: Send + Sync + 'static {
    /// Takes leases, whatever an unlogged claim left there.
    fn acquire(&self, leases: Vec<Lease>) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Makes leases end `duration_ms` from now; one that is not there is made.
    fn renew(&self, leases: Vec<Lease>) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Makes sure of leases after a time in which nobody could renew them: one that is there lasts at
    /// least half of `duration_ms` from now and at most all of it, one that is not is made with all of
    /// it (LEASE-15).
    fn raise(&self, leases: Vec<Lease>) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Makes leases that are not there, with all of `duration_ms`, and leaves others as they are: a
    /// store may lose single ones in silence, and what has no lease would never end (LEASE-15).
    fn ensure(&self, leases: Vec<Lease>) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Drops leases.
    fn release(
        &self,
        attempts: Vec<AttemptId>,
    ) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Leases that have ended, oldest end first. They stay until released, so a scan may be repeated.
    fn expired(&self) -> impl Future<Output = Result<Scan, LeaseError>> + Send;

    /// Milliseconds until a lease ends that was set here, 0 if it has; none if it was not, or was
    /// released. For those who look, who never wait for a store: what ends a lease is a scan.
    fn left_ms(&self, attempt: AttemptId) -> Option<u64>;
}

/// The store did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("leases are unavailable: {0}")]
pub struct LeaseError(pub String);
