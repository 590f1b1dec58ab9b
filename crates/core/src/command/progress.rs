//! `append_task_progress`: progress, artifacts and delivery of the Task itself (PROG-05); and
//! `task_fact`: what a gateway keeps with it (FACT-01).

use alloc::boxed::Box;
use alloc::format;

use super::tx::Did;
use super::validate::names;
use super::{AppendProgress, KeepFact, Tx};
use crate::event::{Body, DeliveryUpdated, TaskFact, TaskProgress};
use crate::id::Ref;
use crate::reject::{Code, Rejection};

impl AppendProgress {
    /// Whether it sets nothing but the delivery state, which is accepted even after the Task's end
    /// (TERM-21).
    pub(super) fn is_delivery_only(&self) -> bool {
        self.delivery_state.is_some() && !self.has_progress()
    }

    fn has_progress(&self) -> bool {
        self.progress.is_some()
            || !self.artifacts.is_empty()
            || !self.evidence_refs.is_empty()
            || !self.input_refs.is_empty()
    }
}

impl Tx<'_, '_> {
    pub(super) fn append_progress(&mut self, given: &AppendProgress) -> Result<Did, Rejection> {
        if self.cx.caller.role == crate::status::Role::Worker {
            let message = "a worker reports progress on the step it holds";
            return Err(Rejection::new(Code::PermissionDenied, message));
        }
        if given.has_progress() {
            self.check_reported_on_task(&given.artifacts, given.progress.as_ref())?;
            self.check_inputs_fit(&given.input_refs)?;
            let evidence = &self.task.head.evidence_refs;
            self.check_list("evidence_refs", evidence, &given.evidence_refs)?;
            let event = TaskProgress {
                progress: given.progress.clone(),
                artifacts: given.artifacts.clone(),
                evidence_refs: given.evidence_refs.clone(),
                input_refs: given.input_refs.clone(),
            };
            self.emit(self.caller(), Body::TaskProgress(Box::new(event)))?;
        }
        if let Some(delivery_state) = given.delivery_state {
            let target_ref = given.target_ref.clone();
            let event = DeliveryUpdated { delivery_state, target_ref };
            self.emit(self.caller(), Body::TaskDeliveryUpdated(event))?;
        }
        Ok(Did::DONE)
    }

    /// P30: every claim has all of the Task's `input_refs`, so together they fit into a message.
    fn check_inputs_fit(&self, given: &[Ref]) -> Result<(), Rejection> {
        if given.is_empty() {
            return Ok(());
        }
        let all = self.task.head.input_refs.iter().chain(given).map(Ref::as_str);
        names("input_refs", all, 0, self.cx.limits).map_err(|refused| {
            let what = "each claim has those that the task has already, too";
            let to_do = "give one ref to a document that lists more, or go on in another task";
            let message = format!("{}; {what}: {to_do}", refused.message);
            Rejection { message, ..refused }
        })
    }

    pub(super) fn keep_fact(&mut self, given: &KeepFact) -> Result<(), Rejection> {
        let (key, payload) = (given.key.clone(), given.payload.clone());
        let event = Box::new(TaskFact { kind: given.kind, key, payload });
        self.emit(self.caller(), Body::TaskFact(event))
    }
}
