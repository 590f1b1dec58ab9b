//! Counts of what the logs record, for metrics and `tenure top`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{Body, Commit};
use crate::status::Outcome;

/// How often each thing has happened. Counts only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "NodeCounts")]
pub struct Counts {
    /// Steps that were given to workers.
    pub claims: u64,
    /// Attempts that completed their Step.
    pub completed: u64,
    /// Attempts that failed, or took too long.
    pub failed: u64,
    /// Attempts whose lease ended without a final report.
    pub lost: u64,
    /// Tasks that were made.
    pub tasks_created: u64,
    /// Tasks that completed, failed or were cancelled.
    pub tasks_ended: u64,
}

impl Counts {
    /// Counts the events of a commit.
    pub fn note(&mut self, commit: &Commit) {
        commit.events.iter().for_each(|event| self.note_event(&event.body));
        // A creation that replaces an unfinished one makes no other Task (IDEM-10).
        self.tasks_created += u64::from(commit.first_seq == 1);
    }

    /// Counts an event. A report without an Attempt is no work of a worker and does not count.
    fn note_event(&mut self, body: &Body) {
        let count = match body {
            Body::StepClaimed(_) => &mut self.claims,
            Body::StepCompleted(p) if p.attempt_id.is_some() => &mut self.completed,
            Body::StepFailed(p) if p.attempt_id.is_some() => &mut self.failed,
            Body::StepLeaseExpired(p) if p.reason.outcome() == Outcome::Lost => &mut self.lost,
            Body::TaskCompleted(_) | Body::TaskFailed(_) | Body::TaskCancelled(_) => {
                &mut self.tasks_ended
            }
            _ => return,
        };
        *count += 1;
    }

    /// The sums of both counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// What has happened since an earlier count.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            claims: each(self.claims, other.claims),
            completed: each(self.completed, other.completed),
            failed: each(self.failed, other.failed),
            lost: each(self.lost, other.lost),
            tasks_created: each(self.tasks_created, other.tasks_created),
            tasks_ended: each(self.tasks_ended, other.tasks_ended),
        }
    }
}
