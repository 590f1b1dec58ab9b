//! One claim of one Step by one Run.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Written, is_zero};
use crate::event::{LeaseEnd, ReleaseReason, StepSnapshot};
use crate::id::{AgentId, AttemptId, Millis, Ref, RunId, StepId};
use crate::record::{Reason, RemoteRef, RetryPolicy, WorkerOrigin};
use crate::status::{AttemptStatus, Outcome, WaitKind};
use crate::table::Pos;

/// One claim of one Step by one Run (2.4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Unique id.
    pub attempt_id: AttemptId,
    /// The Step, by position.
    pub step: Pos,
    /// The Step, by id.
    pub step_id: StepId,
    /// The Run, by position.
    pub run: Pos,
    /// The Run, by id.
    pub run_id: RunId,
    /// The worker.
    pub worker_id: AgentId,
    /// Where the worker runs and what it is, if its `hello` said it (ATT-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<WorkerOrigin>>,
    /// Its number among the Attempts of the Step, from 1.
    pub ordinal: u32,
    /// `wal_seq` of the claim.
    pub fencing_token: u64,
    /// Claimed, running or ended.
    pub status: AttemptStatus,
    /// Exactly when ended.
    pub outcome: Option<Outcome>,
    /// What its Step waited for when it ended as `blocked`.
    pub waited_for: Option<WaitKind>,
    /// Why it ended badly.
    pub error: Option<Arc<Reason>>,
    /// Fixed at the claim.
    pub input_refs: Arc<[Ref]>,
    /// How many entries of the Task's `input_refs` it has seen, by its claim or its reports (CTRL-12).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_seen: u32,
    /// Refs that it reported; the list grows while it is open.
    pub output_refs: Arc<Vec<Ref>>,
    /// Checkpoints that it reported; the list grows while it is open.
    pub checkpoint_refs: Arc<Vec<Ref>>,
    /// `result_summary` of the report that ended it.
    pub completion_summary: Option<Arc<str>>,
    /// The policy in force at the claim.
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Since when the Step had been ready at the claim.
    pub ready_at: Millis,
    /// The Step at the claim.
    pub step_snapshot: Arc<StepSnapshot>,
    /// Whether the Step was edited after the claim (STEP-27).
    pub updated_after_dispatch: bool,
    /// The peer that does the work.
    pub remote: Option<Arc<RemoteRef>>,
    /// When it was claimed.
    pub started_at: Millis,
    /// When its worker said that work had begun (S05).
    pub begun_at: Option<Millis>,
    /// When it ended.
    pub ended_at: Option<Millis>,
    /// How long each lease lasts, in milliseconds (LEASE-02).
    pub lease_ms: u64,
    /// Whether an orchestrator claimed for its worker, which has no link (CLAIM-16).
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub on_behalf: bool,
    /// End of the lease as the log says it (LEASE-05).
    pub lease_expires_at: Millis,
    /// Time of the last report that the log has (PROG-08).
    pub progress_at: Option<Millis>,
    /// The Attempt of the same Step before this one.
    pub previous: Option<Pos>,
    /// Where the event that ended it stands, or adopted its late result (REPORT-16).
    pub ended_in: Option<Written>,
    /// Set if its Step took over its result after it was lost (REPORT-14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Arc<Adopted>>,
}

/// How the result of a lost Attempt was taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// When.
    pub at: Millis,
    /// The reason in its report.
    pub reason: Option<Reason>,
}

/// The key under which the details of an Attempt's error say why its worker gave it back.
pub(super) const RELEASE_REASON: &str = "release_reason";

impl Attempt {
    /// Whether a next run of its Step would be a retry of this Attempt (7.2): it failed, was lost
    /// or abandoned, and its worker did not give it back.
    pub fn ended_badly(&self) -> bool {
        match self.outcome {
            Some(Outcome::Failed | Outcome::TimedOut | Outcome::Lost) => true,
            Some(Outcome::Abandoned) => !self.was_released(),
            _ => false,
        }
    }

    /// Why it failed. Not what its Step waits for, nor why it was cancelled or given back.
    pub fn failure(&self) -> Option<&Reason> {
        self.error.as_deref().filter(|_| self.ended_badly())
    }

    /// Whether its Step was given back: that is no failure, and no try (LEASE-18).
    pub fn was_released(&self) -> bool {
        self.was_abandoned_for(LeaseEnd::Released)
    }

    /// Whether it ended with its embedded host (LEASE-15).
    pub(crate) fn died_with_host(&self) -> bool {
        self.was_abandoned_for(LeaseEnd::HostRestarted)
    }

    fn was_abandoned_for(&self, end: LeaseEnd) -> bool {
        let code = self.error.as_ref().map(|error| error.code.as_str());
        self.outcome == Some(Outcome::Abandoned) && code == Some(end.as_str())
    }

    /// Whether it completed its Step: then what it announced has to be delivered (TERM-10).
    pub fn completed_step(&self) -> bool {
        self.outcome == Some(Outcome::Completed) || self.adopted.is_some()
    }

    /// Whether nobody delivers any more what it announced (ART-08).
    pub fn gave_up(&self) -> bool {
        let may_deliver = matches!(self.outcome, None | Some(Outcome::Blocked));
        !may_deliver && !self.completed_step()
    }

    /// Whether its worker gave the Step back as not fit for it (LEASE-18).
    pub fn was_unfit(&self) -> bool {
        self.release_reason() == Some(ReleaseReason::Unfit)
    }

    /// Why its worker gave the Step back, if it did and the log says why (LEASE-18).
    pub fn release_reason(&self) -> Option<ReleaseReason> {
        let details = self.error.as_ref().and_then(|error| error.details.as_ref());
        let said = details.and_then(|details| details.get(RELEASE_REASON));
        let said = said.filter(|_| self.outcome == Some(Outcome::Abandoned))?;
        said.as_str().and_then(ReleaseReason::from_name)
    }
}
