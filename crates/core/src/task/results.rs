//! What completed Steps hand on: results that come from another Task (RETRY-15), and joins behind which
//! there is nothing (STEP-37).

use alloc::format;
use alloc::vec::Vec;

use super::apply::{Applied, At};
use super::{Step, StepOrigin, Task, text};
use crate::event::StepTakenOver;
use crate::status::StepStatus;
use crate::table::Pos;

impl Task {
    pub(super) fn take_over(&mut self, pos: Pos, p: &StepTakenOver, at: At) -> Applied {
        let step_id = self.steps[pos].spec.step_id.clone();
        if self.steps[pos].state.unmet > 0 {
            return Err(format!("step {step_id} is taken over before its dependencies").into());
        }
        let mut ids = Vec::with_capacity(p.artifacts.len());
        for artifact in &p.artifacts {
            self.add_artifact(artifact, Some(&step_id), None, at.time)?;
            ids.push(artifact.artifact_id.clone());
        }
        self.change(pos, |s| {
            s.status = StepStatus::Completed;
            s.updated_at = at.time;
            let facts = s.facts_mut();
            facts.output.clone_from(&p.output);
            facts.result_summary = p.result_summary.as_deref().map(text);
            facts.artifact_ids = ids;
            let (task_id, attempt_id) = (p.from_task_id.clone(), p.from_attempt_id);
            facts.taken_over_from = Some(StepOrigin { task_id, attempt_id });
        });
        self.note_join(pos);
        Ok(())
    }

    /// Notes if a Step that has completed joins nothing: then no claim ever has to look behind it, however
    /// many such Steps there are.
    pub(super) fn note_join(&mut self, pos: Pos) {
        let is_nothing = |step: &Step| {
            step.state.status == StepStatus::Completed
                && (step.state.joins_nothing
                    || !step.state.facts().has_results() && !step.state.only_joins(&step.spec))
        };
        let step = &self.steps[pos];
        let mut inputs = step.spec.inputs().iter().filter_map(|id| self.find_step(id));
        if step.state.only_joins(&step.spec) && inputs.all(|on| is_nothing(&self.steps[on])) {
            // No index depends on this.
            self.note_step(pos);
            self.steps[pos].state.joins_nothing = true;
        }
    }
}
