//! What has to be settled before a Step or a Task is complete, and how an orchestrator settles it in a
//! worker's place (REPORT-19, STEP-34, STEP-36).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::close::ids_json;
use super::{StepReport, Tx};
use crate::event::{Body, StepReopened};
use crate::id::StepId;
use crate::record::{Reason, RemoteRef};
use crate::reject::{Code, Rejection};
use crate::status::{ArtifactState, StepStatus};
use crate::table::Pos;
use crate::task::{Step, Task};

impl Tx<'_, '_> {
    /// STEP-36: a blocked or failed Step that the orchestrator writes off as completed is reopened first, and
    /// nobody is offered it in between.
    pub(super) fn reopen_marked(&mut self, pos: Pos) -> Result<(), Rejection> {
        let (from, spec) = (self.task.steps[pos].state.status, &self.task.steps[pos].spec);
        if !matches!(from, StepStatus::Blocked | StepStatus::Failed) {
            return Ok(());
        }
        let is_open = |id: &&StepId| {
            self.task.step(id).is_none_or(|step| step.state.status != StepStatus::Completed)
        };
        let unmet: Vec<StepId> = spec.depends_on_step_ids.iter().filter(is_open).cloned().collect();
        if !unmet.is_empty() {
            let message = "the step's dependencies are not completed, so it cannot be either";
            return Err(Rejection::new(Code::StepNotReady, message)
                .with("step_id", spec.step_id.as_str())
                .with("depends_on_step_ids", ids_json(&unmet)));
        }
        let event = StepReopened {
            from,
            reason: Reason::code("marked"),
            not_before: None,
            input_refs: Vec::new(),
            counters_reset: true,
        };
        self.emit_on(self.caller(), pos, Body::StepReopened(Box::new(event)))
    }

    /// STEP-34: what the orchestrator may still report of a completed Step: that facts which were open
    /// are settled.
    pub(super) fn settle_facts(&mut self, pos: Pos, report: &StepReport) -> Result<(), Rejection> {
        let remote = self.task.settled_peer(pos, report)?;
        self.check_reported(pos, report)?;
        self.note_progress(pos, &StepReport { remote, ..report.clone() })
    }
}

impl Task {
    /// STEP-34: the peer of a completed Step, with its facts stored, if a report says so. The report may name
    /// nothing else but artifacts of the Step that are pending, and their last state.
    fn settled_peer(&self, pos: Pos, report: &StepReport) -> Result<Option<RemoteRef>, Rejection> {
        let Step { spec, state, .. } = &self.steps[pos];
        let may_say = StepReport {
            remote: report.remote.clone(),
            artifacts: report.artifacts.clone(),
            attempt_id: report.attempt_id,
            fencing_token: report.fencing_token,
            ..StepReport::on(report.step_id.clone())
        };
        if *report != may_say || (report.remote.is_none() && report.artifacts.is_empty()) {
            return Err(not_open());
        }
        for given in &report.artifacts {
            let known = self.artifacts.by_key(&given.artifact_id);
            let known = known.filter(|known| known.step_id.as_ref() == Some(&spec.step_id));
            let is_open = known.is_some_and(|known| known.given.state == ArtifactState::Pending);
            if !is_open || given.state == ArtifactState::Pending {
                return Err(not_open().with("artifact_id", given.artifact_id.as_str()));
            }
        }
        let Some(given) = &report.remote else { return Ok(None) };
        let open = state.peer().filter(|peer| !peer.reconciled);
        let settled = open.map(|peer| RemoteRef { reconciled: true, ..peer.clone() });
        let in_short = RemoteRef { reconciled: true, ..RemoteRef::default() };
        let is_it = settled.as_ref() == Some(given) || *given == in_short;
        settled.filter(|_| is_it).map(Some).ok_or_else(|| not_open().with("field", "remote"))
    }
}

/// REPORT-19: no Attempt completes its Step while the facts of its peer are not stored here. The peer is
/// that of the report, else `known`.
pub(super) fn check_peer(report: &StepReport, known: Option<&RemoteRef>) -> Result<(), Rejection> {
    let Some(peer) = report.remote.as_ref().or(known).filter(|peer| !peer.reconciled) else {
        return Ok(());
    };
    let message = "the facts of the step's peer are not stored here: report them, and `remote` with \
                   `reconciled` true, or end as `blocked` with `wait_kind` dependency";
    Err(Rejection::new(Code::FactsUnreconciled, message)
        .with("step_id", report.step_id.as_str())
        .with("remote_task_id", peer.remote_task_id.as_str()))
}

fn not_open() -> Rejection {
    let message = "the step is completed, its results do not change: a report settles what is open, `remote` to \
                   reconciled and pending `artifacts` to available or missing, and says nothing else";
    Rejection::new(Code::StepHistoryImmutable, message)
}
