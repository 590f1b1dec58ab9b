//! [`Leases`], the port to the store of leases, which say who is alive, never what happened (law 5).

use std::future::Future;
use std::time::Duration;

use tenure_core::id::AttemptId;

use crate::journal::TaskKey;

/// A lease as the store holds it: the liveness of one open Attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The Task of the Attempt.
    pub task: TaskKey,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// How long it lasts from now, in milliseconds of the store's own clock.
    pub duration_ms: u64,
}

/// A lease that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredLease {
    /// The Task of the Attempt.
    pub task: TaskKey,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// How long ago it ended, by the store's own clock.
    pub late: Duration,
}

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Leases that have ended, oldest end first.
    pub ended: Vec<ExpiredLease>,
    /// Whether the caller must not trust the ended leases: the store has lost leases that it was given,
    /// or its clock and this node's moved apart. The caller then raises the leases of open Attempts.
    pub doubtful: bool,
}

/// A store of leases with a clock of its own.
///
/// Every call is idempotent. After an error the caller does not know whether the call had an
/// effect: it claims nothing and expires nothing until the store answers again.
pub trait Leases: Send + Sync + 'static {
    /// Takes leases, and overwrites those that a claim without a log entry left.
    fn acquire(&self, leases: Vec<Lease>) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Makes leases end `duration_ms` from now, and creates those that are missing.
    fn renew(&self, leases: Vec<Lease>) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Makes sure of leases after a time in which nobody could renew them. A lease that exists then
    /// lasts at least half of `duration_ms` from now and at most all of it; a missing one is
    /// created with all of it (LEASE-15).
    fn raise(&self, leases: Vec<Lease>) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Creates missing leases with all of `duration_ms`, and leaves others as they are. A store may
    /// lose single leases without a sign, and an Attempt without a lease would never expire (LEASE-15).
    fn ensure(&self, leases: Vec<Lease>) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Drops leases.
    fn release(
        &self,
        attempts: Vec<AttemptId>,
    ) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// The leases that have ended, oldest end first. They stay until released, so a caller may scan again.
    fn expired(&self) -> impl Future<Output = Result<Scan, LeaseError>> + Send;

    /// Milliseconds until a lease ends that was set here, 0 if it has ended; `None` if it was not set here,
    /// or was released. It is for queries, which never wait for a store: only a scan ends an Attempt.
    fn left_ms(&self, attempt: AttemptId) -> Option<u64>;

    /// Where the store is, for the log, without logins; `None` if it is in this process.
    fn place(&self) -> Option<&str> {
        None
    }
}

/// The store did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("leases are unavailable: {0}")]
pub struct LeaseError(pub String);
