//! The causes of the waiting of many Steps: the few Steps that have to move next, and how many
//! others wait for each of them.

use alloc::vec;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::id::StepId;
use crate::read::{StepRef, View};
use crate::status::StepStatus;
use crate::table::Pos;

/// How many causes are named. Each costs a walk over the Steps that wait for it.
const ROOTS_MAX: usize = 10;

/// A Step that others wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Root {
    /// The Step.
    pub step_id: StepId,
    /// Its status.
    pub status: StepStatus,
    /// Code of its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<SmolStr>,
    /// Steps that wait for it, directly or through others.
    pub waiting: usize,
}

/// The Steps of a Task, with the Steps that depend on each.
pub(super) struct Frontier<'v, 'a> {
    view: &'v View<'a>,
    /// The dependents of each Step, by its position.
    dependents: Vec<Vec<Pos>>,
}

impl<'v, 'a> Frontier<'v, 'a> {
    pub(super) fn of(view: &'v View<'a>) -> Self {
        let mut dependents: Vec<Vec<Pos>> = Vec::new();
        for step in view.steps() {
            for dependency in step.spec.depends_on_step_ids.iter().filter_map(|id| view.step(id)) {
                let at = dependency.pos as usize;
                dependents.resize_with(dependents.len().max(at + 1), Vec::new);
                dependents[at].push(step.pos);
            }
        }
        Self { view, dependents }
    }

    /// Steps that others wait for, that may still complete, and that wait for no other Step.
    pub(super) fn moving(&self) -> (Vec<Root>, usize) {
        self.roots(|step| match step.status() {
            StepStatus::Pending => step.state.unmet == 0,
            StepStatus::Completed | StepStatus::Failed | StepStatus::Cancelled => false,
            _ => true,
        })
    }

    /// Steps that others wait for, and that will not complete as things stand.
    pub(super) fn dead(&self) -> (Vec<Root>, usize) {
        self.roots(|step| matches!(step.status(), StepStatus::Failed | StepStatus::Cancelled))
    }

    fn roots(&self, is_root: impl Fn(&StepRef<'_>) -> bool) -> (Vec<Root>, usize) {
        let waited_for =
            |step: &StepRef<'_>| self.behind(step.pos).iter().any(|&next| self.waits(next));
        let mut roots = self.view.steps().filter(is_root).filter(waited_for);
        let named = roots.by_ref().take(ROOTS_MAX).map(|step| self.root(step)).collect();
        (named, roots.count())
    }

    fn root(&self, step: StepRef<'_>) -> Root {
        Root {
            step_id: step.id().clone(),
            status: step.status(),
            code: step.facts().status_reason.as_ref().map(|reason| reason.code.clone()),
            waiting: self.waiting(step.pos),
        }
    }

    /// Steps that depend on this one.
    fn behind(&self, at: Pos) -> &[Pos] {
        self.dependents.get(at as usize).map_or(&[], Vec::as_slice)
    }

    fn waits(&self, at: Pos) -> bool {
        self.view.step_at(at).is_some_and(|step| step.status() == StepStatus::Pending)
    }

    /// How many Steps wait for `root`. It uses a worklist, not recursion, because chains may be as
    /// long as a Task is large.
    fn waiting(&self, root: Pos) -> usize {
        let mut seen =
            vec![false; self.view.steps().last().map_or(0, |last| last.pos as usize + 1)];
        let mut work = vec![root];
        let mut count = 0;
        while let Some(at) = work.pop() {
            for &next in self.behind(at).iter().filter(|&&next| self.waits(next)) {
                if !core::mem::replace(&mut seen[next as usize], true) {
                    count += 1;
                    work.push(next);
                }
            }
        }
        count
    }
}
