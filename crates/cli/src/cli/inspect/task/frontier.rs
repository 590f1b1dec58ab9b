//! What the waiting of many Steps comes down to: the few that have to move next, and how many
//! others wait for each.

use std::collections::HashMap;

use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::id::StepId;
use tenure_core::status::StepStatus;
use tenure_core::view::{StepRef, View};

/// Causes that are named. Each costs a walk over what waits for it.
const ROOTS_MAX: usize = 10;

/// A Step that others wait for.
#[derive(Debug, Serialize)]
pub(super) struct Root {
    pub(super) step_id: StepId,
    pub(super) status: StepStatus,
    /// Code of its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<SmolStr>,
    /// Steps that wait for it, directly or through others.
    pub(super) waiting: usize,
}

/// The Steps of a Task with what waits for each.
pub(super) struct Frontier<'a> {
    steps: Vec<StepRef<'a>>,
    dependents: Vec<Vec<usize>>,
}

impl<'a> Frontier<'a> {
    pub(super) fn of(view: &View<'a>) -> Self {
        let steps: Vec<StepRef<'a>> = view.steps().collect();
        let places: HashMap<&StepId, usize> =
            steps.iter().enumerate().map(|(at, step)| (step.id(), at)).collect();
        let mut dependents = vec![Vec::new(); steps.len()];
        for (at, step) in steps.iter().enumerate() {
            for id in &step.spec.depends_on_step_ids {
                if let Some(&dependency) = places.get(id) {
                    dependents[dependency].push(at);
                }
            }
        }
        Self { steps, dependents }
    }

    /// Steps that may still complete, and are waited for while they wait for no other.
    pub(super) fn moving(&self) -> (Vec<Root>, usize) {
        self.roots(|step| match step.status() {
            StepStatus::Pending => step.state.unmet == 0,
            StepStatus::Completed | StepStatus::Failed | StepStatus::Cancelled => false,
            _ => true,
        })
    }

    /// Steps that will not complete as things stand.
    pub(super) fn dead(&self) -> (Vec<Root>, usize) {
        self.roots(|step| matches!(step.status(), StepStatus::Failed | StepStatus::Cancelled))
    }

    fn roots(&self, is_root: impl Fn(&StepRef<'_>) -> bool) -> (Vec<Root>, usize) {
        let waited_for = |at: &usize| self.dependents[*at].iter().any(|&next| self.waits(next));
        let roots = (0..self.steps.len()).filter(|at| is_root(&self.steps[*at]));
        let mut roots = roots.filter(waited_for);
        let named = roots.by_ref().take(ROOTS_MAX).map(|at| self.root(at)).collect();
        (named, roots.count())
    }

    fn root(&self, at: usize) -> Root {
        let step = &self.steps[at];
        Root {
            step_id: step.id().clone(),
            status: step.status(),
            code: step.facts().status_reason.as_ref().map(|reason| reason.code.clone()),
            waiting: self.waiting(at),
        }
    }

    fn waits(&self, at: usize) -> bool {
        self.steps[at].status() == StepStatus::Pending
    }

    /// A worklist, not recursion: chains may be as long as a Task is large.
    fn waiting(&self, root: usize) -> usize {
        let mut seen = vec![false; self.steps.len()];
        let mut work = vec![root];
        let mut count = 0;
        while let Some(at) = work.pop() {
            for &next in self.dependents[at].iter().filter(|&&next| self.waits(next)) {
                if !std::mem::replace(&mut seen[next], true) {
                    count += 1;
                    work.push(next);
                }
            }
        }
        count
    }
}
