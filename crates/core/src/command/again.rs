//! `retry_task` of an ended Task: makes it again (RETRY-12), and may take over what is completed (RETRY-15).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::create::CreateTask;
use super::tx::By;
use super::{RetryEnded, Tx};
use crate::event::{Body, StepTakenOver};
use crate::id::{AgentId, StepId, TaskId};
use crate::patch::StepInput;
use crate::read::{StepRef, View};
use crate::record::{Acceptance, RetryPolicy, StepSpec, TaskSpec, Value};
use crate::reject::{Code, Rejection};
use crate::rules::Rules;
use crate::status::{AcceptanceState, OnFailure, Policy, StepStatus};
use crate::table::Pos;
use crate::value::Blob;

/// Whether a Step that is about to be made gets the input that another got, which may be a blob by now.
fn is_same_input(new: Option<&Value>, old: Option<&Value>) -> bool {
    let (Some(new), Some(old)) = (new, old) else { return new.is_none() && old.is_none() };
    let is_alike = new.content_type == old.content_type && new.encoding == old.encoding;
    let is_same_blob = || old.blob().is_some_and(|blob| Some(blob) == new.data().map(Blob::of));
    new == old || (is_alike && is_same_blob())
}

impl View<'_> {
    /// RETRY-12: the input that creates the same DAG again, with all Steps pending. With
    /// `keep_completed`, completed Steps are taken over (RETRY-15). `rules` are those of the new Task: what the
    /// old one means by the first edition, the input says in words of the second.
    ///
    /// # Errors
    /// `invalid_transition` while the old Task lives.
    pub fn retry_input(
        &self,
        task_id: TaskId,
        how: &RetryEnded,
        rules: Rules,
    ) -> Result<CreateTask, Rejection> {
        self.check_ended()?;
        let spec = TaskSpec::clone(&self.head().spec);
        let metadata = spec.metadata.clone();
        let constraints = super::deadline::again(&spec, self.head().created_at, how);
        let fresh = |a: Acceptance| Acceptance { state: AcceptanceState::Unknown, ..a };
        let is_translated = self.head().rules == Rules::First && rules >= Rules::Second;
        let policy = match (is_translated, &spec.retry_policy) {
            (true, Some(policy)) => Some(Arc::new(policy.spelled_out())),
            // RETRY-01: its policy was taken away, so that failed Steps stay failed.
            (true, None) => Some(Arc::new(RetryPolicy::of_completion(Policy::Manual))),
            (false, policy) => policy.clone(),
        };
        let on_failure = is_translated.then_some(OnFailure::Stop); // POL-05
        // CLAIM-13: in a Task of rules 1 the assignee alone may claim.
        let claimer = |assignee: &Option<AgentId>| {
            assignee.as_ref().filter(|_| is_translated).map(principal_of)
        };
        let as_input = |spec: &StepSpec| {
            let mut input = as_input(self.task_id(), spec);
            if is_translated {
                input.claim_only_by = input.claim_only_by.or(claimer(&spec.assignee));
                input.retry_policy = input.retry_policy.map(|own| Arc::new(own.spelled_out()));
            }
            input
        };
        Ok(CreateTask {
            acceptance: spec.acceptance.into_iter().map(fresh).collect(),
            claim_only_by: spec.claim_only_by.or(claimer(&spec.assignee)),
            assignee: spec.assignee,
            completion: Some(spec.completion),
            constraints,
            cwd: spec.cwd,
            default_worker_pool_id: Some(spec.default_worker_pool_id),
            dispatch: Some(spec.dispatch),
            ext: spec.ext,
            job_id: spec.job_id,
            labels: spec.labels,
            metadata,
            native_protocol: spec.native_protocol,
            objective: spec.objective,
            on_failure: spec.on_failure.or(on_failure),
            optional_wait_ms: spec.optional_wait_ms,
            output_from: spec.output_from,
            owner: spec.owner,
            priority: Some(spec.priority).filter(|p| *p != 0),
            requested_by: spec.requested_by,
            retry_of: Some(spec.task_id),
            retry_policy: policy,
            retry_reason: Some(how.reason.clone()),
            scope: spec.scope,
            steps: self.steps().map(|s| as_input(s.spec)).collect(),
            summary: spec.summary,
            taken_over: if how.keep_completed { self.taken_over(|_| true) } else { Vec::new() },
            task_family: spec.task_family,
            task_id: Some(task_id),
            task_kind: spec.task_kind,
            task_profile: spec.task_profile,
            thread_id: spec.thread_id,
            title: spec.title,
            turn_id: spec.turn_id,
            visibility: Some(spec.visibility),
            wal_name: how.wal_name.clone(),
            ..CreateTask::default()
        })
    }

    /// RETRY-15: has a Task that is written anew, and is not made yet, take over the completed Steps of this one
    /// that it has unchanged: with the same handler, input and dependencies.
    ///
    /// # Errors
    /// `invalid_transition` while this Task lives.
    pub fn take_over_into(&self, new: &mut CreateTask) -> Result<(), Rejection> {
        self.check_ended()?;
        let by_id: BTreeMap<&StepId, &StepInput> =
            new.steps.iter().map(|step| (&step.step_id, step)).collect();
        let is_unchanged = |step: &StepRef<'_>| {
            let was = as_input(self.task_id(), step.spec);
            by_id.get(step.id()).is_some_and(|is| {
                is.handler == was.handler
                    && is_same_input(is.input.as_ref(), step.spec.input.as_ref())
                    && is.depends_on_step_ids == was.depends_on_step_ids
                    && is.inputs_from == was.inputs_from
            })
        };
        new.taken_over = self.taken_over(is_unchanged);
        new.retry_of = Some(self.task_id().clone());
        Ok(())
    }

    fn check_ended(&self) -> Result<(), Rejection> {
        if self.status().is_terminal() {
            return Ok(());
        }
        let message = "the task is live; retry its failed steps instead";
        Err(Rejection::new(Code::InvalidTransition, message))
    }

    /// The completed Steps that fit and whose dependencies are taken over, too, each behind these. One that was
    /// changed while its Attempt was at work did not do what it says now.
    pub(super) fn taken_over(
        &self,
        fits: impl Fn(&StepRef<'_>) -> bool,
    ) -> Vec<(StepId, StepTakenOver)> {
        let mut unmet: BTreeMap<Pos, usize> = BTreeMap::new();
        let mut dependents: BTreeMap<Pos, Vec<Pos>> = BTreeMap::new();
        let mut next = BTreeSet::new();
        let is_as_it_ran = |step: &StepRef<'_>| {
            let last = self.attempts_of(*step).next().filter(|last| last.completed_step());
            last.is_none_or(|last| step.state.redefined_seq < last.fencing_token)
        };
        let done = self.steps().filter(|step| step.status() == StepStatus::Completed);
        for step in done.filter(is_as_it_ran).filter(fits) {
            let on = &step.spec.depends_on_step_ids;
            unmet.insert(step.pos, on.len());
            if on.is_empty() {
                next.insert(step.pos);
            }
            for on in on.iter().filter_map(|id| self.step(id)) {
                dependents.entry(on.pos).or_default().push(step.pos);
            }
        }
        let mut taken = Vec::new();
        while let Some(step) = next.pop_first().and_then(|pos| self.step_at(pos)) {
            taken.push((step.id().clone(), self.handed_over(step)));
            for dependent in dependents.remove(&step.pos).unwrap_or_default() {
                let left = unmet.entry(dependent).or_default();
                *left -= 1;
                if *left == 0 {
                    next.insert(dependent);
                }
            }
        }
        taken
    }

    /// What another Task gets of a completed Step.
    fn handed_over(&self, step: StepRef<'_>) -> StepTakenOver {
        let facts = step.facts();
        let own = || {
            let last = self.attempts_of(step).next();
            (self.task_id().clone(), last.filter(|a| a.completed_step()).map(|a| a.attempt_id))
        };
        let origin = facts.taken_over_from.as_ref();
        let (from_task_id, from_attempt_id) =
            origin.map_or_else(own, |origin| (origin.task_id.clone(), origin.attempt_id));
        let artifacts = facts.artifact_ids.iter().filter_map(|id| self.artifact(id));
        StepTakenOver {
            from_task_id,
            from_attempt_id,
            output: facts.output.as_ref().map(|value| value.seen_from_outside(self.task_id())),
            result_summary: facts.result_summary.as_deref().map(Into::into),
            artifacts: artifacts.map(|artifact| artifact.given.clone()).collect(),
        }
    }
}

/// The principal of an agent: what stands before the boot of a worker.
fn principal_of(agent: &AgentId) -> AgentId {
    let principal = agent.as_str().rsplit_once('.').map(|(principal, _)| principal);
    principal.and_then(|principal| AgentId::new(principal).ok()).unwrap_or_else(|| agent.clone())
}

/// A Step as input for a new Task: references to artifacts of this Task name this Task.
fn as_input(task_id: &TaskId, spec: &StepSpec) -> StepInput {
    StepInput {
        assignee: spec.assignee.clone(),
        claim_only_by: spec.claim_only_by.clone(),
        depends_on_step_ids: spec.depends_on_step_ids.clone(),
        ext: spec.ext.clone(),
        handler: Some(spec.handler.clone()),
        input: spec.input.as_ref().map(|value| value.seen_from_outside(task_id)),
        inputs_from: spec.inputs_from.clone(),
        required: Some(spec.required),
        retry_policy: spec.retry_policy.clone(),
        step_id: spec.step_id.clone(),
        summary: spec.summary.clone(),
        title: spec.title.clone(),
        worker_pool_id: Some(spec.worker_pool_id.clone()),
    }
}

impl Tx<'_, '_> {
    pub(super) fn take_over(&mut self, steps: &[(StepId, StepTakenOver)]) -> Result<(), Rejection> {
        for (id, taken) in steps {
            let pos = self.task.step_or_reject(id)?;
            self.emit_on(By::system(), pos, Body::StepTakenOver(Box::new(taken.clone())))?;
        }
        Ok(())
    }
}
