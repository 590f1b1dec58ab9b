//! `agent.task_update`: judges a patch and turns it into events (PATCH).
//!
//! A patch is judged twice, in this order (5.1). First each operation at its turn, on the draft
//! that the ones before it left: whether its Step exists, whether the status allows it, and whether
//! it may name its fields. Then the final DAG, in `topology`. The first failing check decides and
//! names its operation; nothing has been written by then.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::close::reason_or;
use super::inputs::needs_second;
use super::report::{immutable, in_progress};
use super::topology::{Found, Topology};
use super::tx::Did;
use super::{Tx, invalid_transition};
use crate::creation::Creation;
use crate::event::{Body, Moved, StepCancelled, StepReopened, TaskUpdated};
use crate::id::{Ref, StepId};
use crate::patch::{Change, Operation, ReasonInput, StepFields};
use crate::record::RetryPolicy;
use crate::reject::{Code, Rejection};
use crate::rules::Rules;
use crate::status::{StepStatus, TaskStatus};
use crate::table::{Pos, next_pos};
use crate::task::Task;
use crate::task::patching::{Misfit, PatchDraft};

impl Tx<'_, '_> {
    pub(super) fn update(&mut self, operations: &[Operation]) -> Result<Did, Rejection> {
        let coming = self.task.unfinished();
        let operations: Arc<[Operation]> =
            operations.iter().map(|operation| self.task.as_stored(operation)).collect();
        let Found { demoted, edited, touched } = judge(self.task, &operations, self.cx.limits)?;
        let event = TaskUpdated {
            operations: Arc::clone(&operations),
            updated_after_dispatch: self.task.ids_at(&edited),
            demoted_step_ids: self.task.ids_at(&demoted),
        };
        touched.into_iter().for_each(|pos| self.touched(pos));
        self.emit(self.caller(), Body::TaskUpdated(event))?;
        operations.iter().try_for_each(|operation| self.act(operation))?;
        coming.map_or(Ok(()), |coming| self.part_came(coming.creation))?;
        Ok(Did::DONE)
    }

    /// IDEM-08: the part that completes a creation submits the Task, unless the creator asked for a draft.
    fn part_came(&mut self, creation: Creation) -> Result<(), Rejection> {
        let here = next_pos(self.task.steps.len());
        if here > creation.steps {
            let message = format!("{here} steps; the creation has {}", creation.steps);
            return Err(Rejection::invalid("operations", message));
        }
        if here < creation.steps {
            return Ok(());
        }
        let parts = self.task.parts_here(creation).chain([self.cx.digest]).flatten();
        if Creation::digest_of(parts) != creation.digest {
            let message = "what has come is not what the digest of the creation is of";
            return Err(Rejection::invalid("creation.digest", message));
        }
        if creation.draft {
            return Ok(());
        }
        self.submit_as(Moved { from: TaskStatus::Draft, reason: None })
    }

    /// PATCH-18: carries out an operation that acts through its own event, if its Step still exists
    /// at the end.
    fn act(&mut self, operation: &Operation) -> Result<(), Rejection> {
        match operation {
            Operation::CancelStep { step_id, reason } => match self.task.find_step(step_id) {
                Some(pos) => self.cancel_step(pos, reason.as_ref()),
                None => Ok(()),
            },
            Operation::ReopenStep { step_id, reason, input_refs } => {
                match self.task.find_step(step_id) {
                    Some(pos) => self.reopen_step(pos, reason.as_ref(), input_refs),
                    None => Ok(()),
                }
            }
            Operation::BlockTask { reason } => self.block_task(reason.as_ref()),
            Operation::ReopenTask { reason } => self.unblock_task(reason.as_ref()),
            Operation::UpdateTask(_)
            | Operation::AddStep { .. }
            | Operation::UpdateStep { .. }
            | Operation::DeleteStep { .. }
            | Operation::AddDependency { .. }
            | Operation::RemoveDependency { .. } => Ok(()),
        }
    }

    fn cancel_step(&mut self, pos: Pos, reason: Option<&ReasonInput>) -> Result<(), Rejection> {
        let event = StepCancelled {
            attempt_id: None,
            outcome: None,
            reason: reason.map(|r| reason_or(Some(r), "cancelled")),
            report: None,
        };
        self.emit_on(self.caller(), pos, Body::StepCancelled(event))
    }

    fn reopen_step(
        &mut self,
        pos: Pos,
        reason: Option<&ReasonInput>,
        input_refs: &[Ref],
    ) -> Result<(), Rejection> {
        let event = StepReopened {
            from: self.task.steps[pos].state.status,
            reason: reason_or(reason, "reopened"),
            not_before: None,
            input_refs: input_refs.to_vec(),
            counters_reset: true,
        };
        self.emit_on(self.caller(), pos, Body::StepReopened(Box::new(event)))
    }
}

fn judge(
    task: &Task,
    operations: &[Operation],
    limits: &crate::Limits,
) -> Result<Found, Rejection> {
    let mut judge = Judge::of(task);
    for (at, operation) in operations.iter().enumerate() {
        judge.operation(at, operation).map_err(|no| no.with("op_index", at))?;
    }
    let patched = judge.draft.finish();
    Topology { task, operations, patched: &patched }.judge(judge.taken, limits)
}

/// The Task after the operations so far, as far as the next one's legality depends on it.
struct Judge<'t> {
    task: &'t Task,
    draft: PatchDraft<'t>,
    /// Steps that the patch cancels or reopens.
    statuses: BTreeMap<Pos, StepStatus>,
    task_status: TaskStatus,
    /// The first added Step whose id is not free: ids are judged later, with the final DAG.
    taken: Option<(usize, StepId)>,
}

impl<'t> Judge<'t> {
    fn of(task: &'t Task) -> Self {
        let task_status = task.head.status;
        let (draft, statuses) = (PatchDraft::of(task), BTreeMap::new());
        Self { task, draft, statuses, task_status, taken: None }
    }

    fn operation(&mut self, at: usize, operation: &Operation) -> Result<(), Rejection> {
        self.check(operation)?;
        match self.draft.fold(operation) {
            Ok(()) => Ok(()),
            Err(Misfit::IdTaken(id)) => {
                self.taken.get_or_insert((at, id));
                Ok(())
            }
            Err(Misfit::UnknownStep(id)) => Err(step_not_found(&id)),
            Err(misfit @ Misfit::UnknownEdge(..)) => {
                Err(Rejection::invalid("depends_on_step_id", misfit.to_string()))
            }
        }
    }

    /// PATCH-14: existence and status legality, on the scratch copy at its turn.
    fn check(&mut self, operation: &Operation) -> Result<(), Rejection> {
        match operation {
            Operation::UpdateTask(_) => Ok(()),
            Operation::AddStep { step, .. } => self.check_inputs(step.inputs_from.is_some()),
            Operation::UpdateStep { step_id, fields, .. } => {
                self.check_inputs(!fields.inputs_from.is_keep())?;
                check_fields(self.task.head.rules, self.status(step_id)?.1, fields)
            }
            Operation::DeleteStep { step_id, .. } => check_deletable(self.status(step_id)?.1),
            Operation::AddDependency { step_id, .. }
            | Operation::RemoveDependency { step_id, .. } => {
                check_topology_may_change(self.status(step_id)?.1)
            }
            Operation::CancelStep { step_id, .. } => {
                let (pos, status) = self.status(step_id)?;
                self.check_submitted(status, StepStatus::Cancelled)?;
                check_cancellable(status)?;
                self.statuses.insert(pos, StepStatus::Cancelled);
                Ok(())
            }
            Operation::ReopenStep { step_id, .. } => {
                let (pos, status) = self.status(step_id)?;
                self.check_submitted(status, StepStatus::Pending)?;
                check_reopenable(status)?;
                self.statuses.insert(pos, StepStatus::Pending);
                Ok(())
            }
            Operation::BlockTask { .. } => {
                self.move_task(self.task_status.is_dispatchable(), TaskStatus::Blocked)
            }
            Operation::ReopenTask { .. } => {
                self.move_task(self.task_status == TaskStatus::Blocked, TaskStatus::Pending)
            }
        }
    }

    fn check_inputs(&self, is_given: bool) -> Result<(), Rejection> {
        needs_second(self.task.head.rules, "inputs_from", is_given)
    }

    /// A Step that exists at this turn, with its status after the operations so far.
    fn status(&self, id: &StepId) -> Result<(Pos, StepStatus), Rejection> {
        let pos = self.draft.find(id).ok_or_else(|| step_not_found(id))?;
        let unchanged = || self.task.steps.get(pos).map(|step| step.state.status);
        let status = self.statuses.get(&pos).copied().or_else(unchanged);
        Ok((pos, status.unwrap_or(StepStatus::Pending)))
    }

    /// TASK-03: in draft no Step leaves pending.
    fn check_submitted(&self, from: StepStatus, to: StepStatus) -> Result<(), Rejection> {
        if self.task_status != TaskStatus::Draft {
            return Ok(());
        }
        let no = invalid_transition(from.as_str(), to.as_str()).with("status", "draft");
        Err(Rejection { message: "the task is a draft; submit it first".to_string(), ..no })
    }

    /// T05, T06: whether the patch may block or reopen the Task now.
    fn move_task(&mut self, legal: bool, to: TaskStatus) -> Result<(), Rejection> {
        if !legal {
            return Err(invalid_transition(self.task_status.as_str(), to.as_str()));
        }
        self.task_status = to;
        Ok(())
    }
}

/// STEP-24, PATCH-22: whether `update_step` may change these fields of a Step with this status.
fn check_fields(rules: Rules, status: StepStatus, fields: &StepFields) -> Result<(), Rejection> {
    let names_work = !fields.handler.is_keep() || !fields.input.is_keep();
    match status {
        // STEP-35: nobody need wait for what never comes.
        StepStatus::Cancelled if rules >= Rules::Second && fields.only_make_optional() => Ok(()),
        StepStatus::Completed | StepStatus::Cancelled if !fields.name_more_than_texts() => Ok(()),
        StepStatus::Claimed | StepStatus::Running if names_work => {
            Err(in_progress("change handler or input of"))
        }
        _ => check_topology_may_change(status),
    }
}

/// PATCH-22: of a completed or cancelled Step only title and summary can change.
fn check_topology_may_change(status: StepStatus) -> Result<(), Rejection> {
    match status {
        StepStatus::Completed => Err(immutable()),
        StepStatus::Cancelled => {
            let message = "the step is cancelled: only its title and summary can be edited, and by rules 2 \
                           `required` be set to false";
            let no = invalid_transition("cancelled", "cancelled");
            Err(Rejection { message: message.to_string(), ..no })
        }
        _ => Ok(()),
    }
}

/// PATCH-19: whether a Step with this status may be deleted.
fn check_deletable(status: StepStatus) -> Result<(), Rejection> {
    match status {
        StepStatus::Pending | StepStatus::Ready | StepStatus::Cancelled => Ok(()),
        StepStatus::Claimed | StepStatus::Running => Err(in_progress("delete")),
        StepStatus::Completed => Err(immutable()),
        StepStatus::Blocked | StepStatus::Failed => {
            Err(invalid_transition(status.as_str(), "deleted"))
        }
    }
}

/// PATCH-21, STEP-17 to STEP-19: whether a Step with this status may be cancelled.
fn check_cancellable(status: StepStatus) -> Result<(), Rejection> {
    match status {
        StepStatus::Pending | StepStatus::Ready => Ok(()),
        StepStatus::Claimed | StepStatus::Running => Err(in_progress("cancel")),
        StepStatus::Completed => Err(immutable()),
        StepStatus::Blocked | StepStatus::Failed | StepStatus::Cancelled => {
            Err(invalid_transition(status.as_str(), "cancelled"))
        }
    }
}

/// PATCH-21: whether a Step with this status may be reopened.
fn check_reopenable(status: StepStatus) -> Result<(), Rejection> {
    match status {
        StepStatus::Blocked | StepStatus::Failed => Ok(()),
        _ => Err(invalid_transition(status.as_str(), "pending")),
    }
}

fn step_not_found(id: &StepId) -> Rejection {
    let code = Code::StepNotFound;
    Rejection::new(code, Misfit::UnknownStep(id.clone()).to_string()).with("step_id", id.as_str())
}

impl Task {
    /// An operation as its event carries it: as it was given, but with its policies as the Task
    /// stores them (RETRY-14).
    fn as_stored(&self, operation: &Operation) -> Operation {
        let (mut operation, rules) = (operation.clone(), self.head.rules);
        let of_step = |policy: &mut Arc<RetryPolicy>| *policy = Arc::clone(policy).of_step(rules);
        match &mut operation {
            Operation::AddStep { step, .. } => step.retry_policy.iter_mut().for_each(of_step),
            Operation::UpdateStep { fields, .. } => match &mut fields.retry_policy {
                Change::Set(policy) => of_step(policy),
                Change::Keep | Change::Clear => {}
            },
            Operation::UpdateTask(fields) => {
                let given = match &fields.retry_policy {
                    Change::Set(policy) => Some(policy),
                    Change::Clear if rules == Rules::Second => None,
                    Change::Keep | Change::Clear => return operation,
                };
                let policy = RetryPolicy::of_task(given, self.head.first_completion, rules);
                fields.retry_policy = policy.map_or(Change::Clear, Change::Set);
            }
            _ => {}
        }
        operation
    }

    fn ids_at(&self, positions: &[Pos]) -> Vec<StepId> {
        positions.iter().map(|&pos| self.steps[pos].spec.step_id.clone()).collect()
    }
}
