//! Which ancestors may hand on their results to a Step (STEP-37): a Step names only Steps for which it
//! waits, directly or through others.
//!
//! A patch is checked where it can do harm: at the Steps whose own list or dependencies it changes, and
//! at those below a Step that no longer waits for another. From each of these the search goes up until
//! it has met all that the Step names.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use super::close::ids_json;
use super::topology::{FinalDag, Side, Topology};
use crate::dag::{Above, look_above};
use crate::id::StepId;
use crate::patch::Operation;
use crate::record::StepSpec;
use crate::reject::{Code, Rejection};
use crate::rules::Rules;
use crate::status::StepStatus;
use crate::table::Pos;
use crate::task::patching::EdgeChanges;

/// How many Steps and dependencies one command follows upwards, at most, so that no command takes long.
const FOLLOWED_MAX: usize = 1_000_000;

const FIELD: &str = "inputs_from";

/// Refuses what only Tasks of the second edition have (EVOLVE-01).
pub(super) fn needs_second(rules: Rules, field: &str, is_given: bool) -> Result<(), Rejection> {
    if !is_given || rules >= Rules::Second {
        return Ok(());
    }
    let message = format!("the task lives by rules 1, which have no {field}; leave it out");
    Err(Rejection::invalid(field, message))
}

/// STEP-37 for a new Task, whose dependencies are in order: `find` gives the place of a Step.
pub(super) fn check_new(
    steps: &[&StepSpec],
    depends_on: &[Vec<Pos>],
    find: impl Fn(&StepId) -> Option<Pos>,
) -> Result<(), Rejection> {
    let mut left = FOLLOWED_MAX;
    for (at, step) in steps.iter().enumerate() {
        let Some(named) = &step.inputs_from else { continue };
        let wrong = |no: Rejection| no.with("field", format!("steps[{at}].{FIELD}"));
        let place = |id: &StepId| find(id).ok_or_else(|| Wrong::Unknown.refusal(&step.step_id, id));
        let wanted: Result<Vec<Pos>, Rejection> = named.iter().map(place).collect();
        let of = |pos: Pos| Cow::Borrowed(depends_on[pos as usize].as_slice());
        match look_above(&depends_on[at], &wanted.map_err(wrong)?, &mut left, of) {
            Above::All => {}
            Above::TooFar => return Err(wrong(too_far(&step.step_id))),
            Above::Not(place) => {
                return Err(wrong(Wrong::NoAncestor.refusal(&step.step_id, &named[place])));
            }
        }
    }
    Ok(())
}

/// What is wrong with a Step that another names.
enum Wrong {
    Unknown,
    NoAncestor,
}

impl Wrong {
    fn refusal(self, step: &StepId, named: &StepId) -> Rejection {
        let what = match self {
            Self::Unknown => "which does not exist",
            Self::NoAncestor => "for which it does not wait, neither directly nor through others",
        };
        let message = format!("step {step} takes inputs from {named}, {what}");
        Rejection::invalid(FIELD, message)
            .with("step_id", step.as_str())
            .with("from_step_id", named.as_str())
    }
}

fn too_far(step: &StepId) -> Rejection {
    let message = format!(
        "the steps from which {step} takes inputs are not found among {FOLLOWED_MAX} of its \
         ancestors: make it depend on them directly, which changes nothing else"
    );
    Rejection::invalid(FIELD, message).with("step_id", step.as_str()).with("limit", FOLLOWED_MAX)
}

impl Topology<'_> {
    /// STEP-37, on the final DAG, which has no cycle.
    pub(super) fn check_inputs(&self, edges: &EdgeChanges) -> Result<(), Rejection> {
        let dag = FinalDag { task: self.task, patched: self.patched, edges };
        let mut left = FOLLOWED_MAX;
        let to_check = self.to_check(&dag);
        for &pos in &to_check {
            let spec = self.spec(pos);
            let Some(named) = &spec.inputs_from else { continue };
            let mut wanted = Vec::with_capacity(named.len());
            for id in named {
                let found = self.patched.find(self.task, id);
                wanted.push(found.ok_or_else(|| self.not_there(spec, id, &to_check))?);
            }
            if self.is_settled(pos) {
                continue; // It is claimed no more.
            }
            let of = |pos: Pos| Cow::Owned(dag.dependencies(pos));
            match look_above(&dag.dependencies(pos), &wanted, &mut left, of) {
                Above::All => {}
                Above::TooFar => {
                    return Err(too_far(&spec.step_id).with("op_index", self.cuts(spec, None)));
                }
                Above::Not(place) => {
                    let (id, named) = (&spec.step_id, &named[place]);
                    let at = self.cuts(spec, Some(named));
                    return Err(Wrong::NoAncestor.refusal(id, named).with("op_index", at));
                }
            }
        }
        Ok(())
    }

    /// The Steps that name others and whose ancestors the patch may have changed.
    fn to_check(&self, dag: &FinalDag<'_>) -> BTreeSet<Pos> {
        let touched = self.patched.steps().filter(|(pos, step)| {
            let before = self.task.steps.get(*pos).map(|s| &s.spec.inputs_from);
            !step.removed
                && (before != Some(&step.spec.inputs_from) || dag.edges.waiting.contains_key(pos))
        });
        let mut found: BTreeSet<Pos> = touched.map(|(pos, _)| pos).collect();
        if self.task.tally().choosing == 0 {
            return found;
        }
        let lost = dag.edges.by_dependency.values().flat_map(|change| &change.lost);
        let mut below = Side::from_iter(lost.copied());
        while let Some(pos) = below.frontier.pop() {
            if !self.patched.is_removed(self.task, pos) {
                found.insert(pos);
            }
            below.meet(dag.dependents(pos));
        }
        found
    }

    fn spec(&self, pos: Pos) -> &StepSpec {
        self.patched.step(pos).map_or_else(|| &*self.task.steps[pos].spec, |step| &step.spec)
    }

    /// Whether a Step is completed or cancelled. A patch completes nothing.
    fn is_settled(&self, pos: Pos) -> bool {
        let status = self.task.steps.get(pos).map(|step| step.state.status);
        matches!(status, Some(StepStatus::Completed | StepStatus::Cancelled))
    }

    /// The refusal of a named Step that does not exist: it never did, or this patch deletes it.
    fn not_there(&self, spec: &StepSpec, named: &StepId, checked: &BTreeSet<Pos>) -> Rejection {
        let is_deleted = self
            .patched
            .row(self.task, named)
            .is_some_and(|pos| self.patched.step(pos).is_some_and(|step| step.removed));
        if !is_deleted {
            let at = self.cuts(spec, Some(named));
            return Wrong::Unknown.refusal(&spec.step_id, named).with("op_index", at);
        }
        let specs = checked.iter().map(|&pos| self.spec(pos));
        let takers = specs.filter(|spec| spec.inputs().contains(named));
        let takers: Vec<StepId> = takers.map(|spec| spec.step_id.clone()).collect();
        let message =
            format!("{} steps take inputs from {named}; edit or delete them too", takers.len());
        let deletes = |op: &Operation| matches!(op, Operation::DeleteStep { step_id, .. } if step_id == named);
        Rejection::new(Code::StepHasDependents, message)
            .with("step_id", named.as_str())
            .with("step_ids", ids_json(&takers))
            .with("op_index", self.last(deletes))
    }

    /// The operation to blame: the last that names the Step as an input, else the last that takes away
    /// a dependency.
    fn cuts(&self, spec: &StepSpec, named: Option<&StepId>) -> usize {
        let names = |op: &Operation| {
            let ids = match op {
                Operation::AddStep { step, .. } if step.step_id == spec.step_id => {
                    step.inputs_from.as_ref()
                }
                Operation::UpdateStep { step_id, fields, .. } if *step_id == spec.step_id => {
                    fields.inputs_from.value()
                }
                _ => None,
            };
            ids.is_some_and(|ids| named.is_none_or(|named| ids.contains(named)))
        };
        let removes = |op: &Operation| match op {
            Operation::RemoveDependency { .. } | Operation::DeleteStep { .. } => true,
            Operation::UpdateStep { fields, .. } => !fields.depends_on_step_ids.is_keep(),
            _ => false,
        };
        let named = self.operations.iter().rposition(names);
        named.unwrap_or_else(|| self.last(removes))
    }
}
