//! `retry_task` on a live Task: reopens failed Steps (RETRY-11).

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::close::reason_or;
use super::tx::Did;
use super::{RetrySteps, Tx, invalid_transition};
use crate::event::{Body, StepReopened};
use crate::reject::{Code, Rejection};
use crate::status::StepStatus;
use crate::table::Pos;

impl Tx<'_, '_> {
    pub(super) fn retry_steps(&mut self, retry: &RetrySteps) -> Result<Did, Rejection> {
        if self.task.is_terminal() {
            let message = format!("the task is {}; retry it as a new task", self.task.head.status);
            return Err(Rejection::new(Code::TaskTerminal, message)
                .with("status", self.task.head.status.as_str()));
        }
        let steps = self.steps_to_retry(retry)?;
        for pos in steps {
            let event = StepReopened {
                from: StepStatus::Failed,
                reason: reason_or(Some(&retry.reason), "retry_task"),
                not_before: None,
                input_refs: Vec::new(),
                counters_reset: true,
            };
            self.emit_on(self.caller(), pos, Body::StepReopened(Box::new(event)))?;
        }
        Ok(Did::DONE)
    }

    fn steps_to_retry(&self, retry: &RetrySteps) -> Result<Vec<Pos>, Rejection> {
        let task = &*self.task;
        let failed = |pos: Pos| task.steps[pos].state.status == StepStatus::Failed;
        let Some(ids) = &retry.step_ids else {
            let all: Vec<Pos> =
                task.positions().filter(|&p| !task.steps[p].state.removed && failed(p)).collect();
            if all.is_empty() {
                return Err(Rejection::invalid("step_ids", "no step has failed"));
            }
            return Ok(all);
        };
        let mut steps = Vec::new();
        for id in ids {
            let pos = task.step_or_reject(id)?;
            if !failed(pos) {
                return Err(invalid_transition(task.steps[pos].state.status.as_str(), "pending"));
            }
            steps.push(pos);
        }
        if steps.is_empty() {
            return Err(Rejection::new(Code::ValidationError, "step_ids is empty")
                .with("field", "step_ids"));
        }
        steps.sort_unstable();
        steps.dedup();
        Ok(steps)
    }
}
