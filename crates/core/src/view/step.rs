//! A Step as readers get it (2.2).

use alloc::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::normal::{self, Normal};
use super::{Known, LeaseFact};
use crate::id::{AgentId, AttemptId, Millis, RunId};
use crate::read::{StepRef, View};
use crate::record::StepSpec;
use crate::rules::Rules;
use crate::status::{StepStatus, WaitKind, names};
use crate::table::Pos;
use crate::task::{Attempt, StepFacts, StepState};

names! {
    /// Whether a lease can be shown to be in force.
    LeaseState {
        /// It is shown to be in force.
        Valid = "valid",
        /// It is not: it is lost or unknown, or the lease store does not answer.
        Unconfirmed = "unconfirmed",
    }
}

/// A Step: its content, its state and its results. It is cheap to make, as texts and values are
/// shared with the Task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepView {
    /// Content and topology.
    #[serde(flatten)]
    pub spec: Arc<StepSpec>,
    /// Native status.
    pub status: StepStatus,
    /// The same as a portable status.
    pub normalized_status: Normal,
    /// What a blocked Step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<WaitKind>,
    /// End of the backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Millis>,
    /// Since when it has been ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Millis>,
    /// Who holds it, exactly while claimed or running.
    #[serde(flatten)]
    pub holder: Option<Holder>,
    /// Results and reasons.
    #[serde(flatten, with = "shared_facts")]
    #[schemars(with = "StepFacts")]
    pub facts: Option<Arc<StepFacts>>,
    /// Attempts that count for `max_attempts`.
    pub attempt_count: u32,
    /// Attempts that count for `max_lost`.
    pub lost_count: u32,
    /// Creation order, from 0.
    pub position: Pos,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

/// Who holds a Step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// The worker.
    pub claimed_by_agent_id: AgentId,
    /// Its Run.
    pub claimed_by_run_id: RunId,
    /// Its Attempt.
    pub current_attempt_id: AttemptId,
    /// Its token.
    pub fencing_token: u64,
    /// End of the lease, by the lease store if it answers, else by the log (LEASE-05).
    pub lease_expires_at: Millis,
    /// Whether the lease is shown to be in force.
    pub lease_state: LeaseState,
}

impl Holder {
    /// The holder of an open Attempt.
    pub fn of(attempt: &Attempt, known: &Known<'_>) -> Self {
        let lease = known.lease(attempt);
        Self {
            claimed_by_agent_id: attempt.worker_id.clone(),
            claimed_by_run_id: attempt.run_id,
            current_attempt_id: attempt.attempt_id,
            fencing_token: attempt.fencing_token,
            lease_expires_at: lease.map_or(attempt.lease_expires_at, |l| l.expires_at),
            lease_state: LeaseState::of(lease),
        }
    }
}

impl LeaseState {
    /// The state of a lease by this fact, or by its absence.
    pub fn of(lease: Option<LeaseFact>) -> Self {
        match lease {
            Some(LeaseFact { valid: true, .. }) => Self::Valid,
            _ => Self::Unconfirmed,
        }
    }
}

impl StepView {
    /// A Step of a view.
    pub fn of(view: &View<'_>, step: StepRef<'_>, known: &Known<'_>) -> Self {
        let state = step.state;
        let current = state.current.map(|at| view.attempt_at(at));
        Self {
            spec: Arc::clone(step.spec),
            status: state.status,
            normalized_status: normal::of_step(state),
            wait_kind: state.wait_kind,
            not_before: state.not_before,
            ready_at: state.ready_at,
            holder: current.map(|attempt| Holder::of(attempt, known)),
            facts: shown(view.head().rules, state),
            attempt_count: state.attempt_count,
            lost_count: state.lost_count,
            position: step.pos,
            created_at: state.created_at,
            updated_at: state.updated_at,
        }
    }

    /// As [`of`](Self::of), without what is not for workers (EVOLVE-03).
    pub fn for_worker(view: &View<'_>, step: StepRef<'_>, known: &Known<'_>) -> Self {
        let mut shown = Self::of(view, step, known);
        if shown.spec.ext.is_some() {
            Arc::make_mut(&mut shown.spec).ext = None;
        }
        shown
    }
}

/// STEP-33: the facts, without the peer of an earlier try.
fn shown(rules: Rules, state: &StepState) -> Option<Arc<StepFacts>> {
    let mut facts = state.facts.clone();
    if rules >= Rules::Second && state.remote_left {
        Arc::make_mut(facts.get_or_insert_default()).remote = None;
    }
    facts
}

/// Writes the fields of [`StepFacts`] beside the others, even if there are no facts yet.
mod shared_facts {
    use alloc::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::task::StepFacts;

    #[allow(clippy::ref_option)] // The shape serde asks for.
    pub(super) fn serialize<S: Serializer>(
        facts: &Option<Arc<StepFacts>>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        facts.as_deref().unwrap_or(&StepFacts::NONE).serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Arc<StepFacts>>, D::Error> {
        let facts = StepFacts::deserialize(d)?;
        Ok((facts != StepFacts::NONE).then(|| Arc::new(facts)))
    }
}
