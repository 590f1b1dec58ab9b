//! Checks the final DAG of a patch: ids, dependencies, cycles, dependents (PATCH-15).
//!
//! The check covers only what the patch touched. A new cycle runs through a new edge, so the search
//! starts at the new edges and ends as soon as it has visited all Steps on one side of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use super::close::ids_json;
use super::create::dependency_cycle;
use super::validate::names;
use crate::Limits;
use crate::dag::find_cycle;
use crate::id::StepId;
use crate::patch::Operation;
use crate::record::Value;
use crate::reject::{Code, Rejection};
use crate::status::{StepStatus, TaskStatus};
use crate::table::Pos;
use crate::task::Task;
use crate::task::patching::{EdgeChanges, Patched, Touched};

/// What a valid patch does to Steps, by position.
pub(super) struct Found {
    /// Ready Steps that wait again (S03).
    pub(super) demoted: Vec<Pos>,
    /// Claimed or running Steps with other content (STEP-27).
    pub(super) edited: Vec<Pos>,
    /// Steps it adds or changes.
    pub(super) touched: Vec<Pos>,
}

/// A patch over its Task, after each operation was found legal at its turn.
pub(super) struct Topology<'a> {
    pub(super) task: &'a Task,
    pub(super) operations: &'a [Operation],
    pub(super) patched: &'a Patched,
}

impl Topology<'_> {
    /// K13, in its order: ids, existence, cycles, dependents; and that some Step is left.
    pub(super) fn judge(
        &self,
        taken: Option<(usize, StepId)>,
        limits: &Limits,
    ) -> Result<Found, Rejection> {
        if let Some((at, id)) = taken {
            return Err(id_taken(&id).with("op_index", at));
        }
        self.check_size(limits)?;
        let edges = self.patched.edge_changes(self.task);
        self.check_dependencies()?;
        self.check_names(limits)?;
        self.check_cycles(&edges)?;
        self.check_dependents(&edges)?;
        self.check_inputs(&edges)?;
        self.check_not_empty()?;
        Ok(self.found(&edges))
    }

    /// P30: a limit on the Steps of a Task, including deleted ones, so that its log cannot grow for ever.
    fn check_size(&self, limits: &Limits) -> Result<(), Rejection> {
        let given = self.task.steps.len() + self.patched.added();
        if given <= limits.steps_max || self.patched.added() == 0 {
            return Ok(());
        }
        let room = limits.steps_max.saturating_sub(self.task.steps.len());
        let adds = self.operations.iter().enumerate();
        let mut adds = adds.filter(|(_, op)| matches!(op, Operation::AddStep { .. }));
        let at = adds.nth(room).map_or(0, |(at, _)| at);
        let message = format!(
            "{given} steps, deleted ones included; at most {} fit a task",
            limits.steps_max
        );
        Err(Rejection::invalid("step", message)
            .with("limit", limits.steps_max)
            .with("given", given)
            .with("op_index", at))
    }

    /// DAG-06. If the patch deletes a Step on which another depended before, that counts as an
    /// illegal deletion ([`check_dependents`](Self::check_dependents)), not as an unknown dependency.
    fn check_dependencies(&self) -> Result<(), Rejection> {
        for (pos, step) in self.patched.steps().filter(|(_, step)| !step.removed) {
            let before = self.task.steps.get(pos).map(|s| &s.spec.depends_on_step_ids);
            for id in &step.spec.depends_on_step_ids {
                let there = self.patched.find(self.task, id).is_some();
                if !there && !before.is_some_and(|ids| ids.contains(id)) {
                    return Err(self.unknown_dependency(&step.spec.step_id, id));
                }
            }
        }
        Ok(())
    }

    /// P30: a claim names all dependencies of its Step, and the Steps from which it takes inputs, so
    /// their names must fit into a message.
    fn check_names(&self, limits: &Limits) -> Result<(), Rejection> {
        for (_, step) in self.patched.steps().filter(|(_, step)| !step.removed) {
            let input = step.spec.input.as_ref().and_then(Value::data).map_or(0, <[u8]>::len);
            let beside = step.spec.title.len() + step.spec.summary.len() + input;
            let ids =
                step.spec.depends_on_step_ids.iter().chain(step.spec.inputs_from.iter().flatten());
            let ids = ids.map(StepId::as_str);
            names("depends_on_step_ids", ids, beside, limits).map_err(|refused| {
                let id = &step.spec.step_id;
                let at = self.last(|op| names_edge(op, |s, _| s == id));
                refused.with("step_id", id.as_str()).with("op_index", at)
            })?;
        }
        Ok(())
    }

    fn unknown_dependency(&self, step: &StepId, missing: &StepId) -> Rejection {
        let message = format!("step {step} depends on {missing}, which does not exist");
        Rejection::invalid("depends_on_step_ids", message)
            .with("step_id", step.as_str())
            .with("depends_on_step_id", missing.as_str())
            .with("op_index", self.last(|op| names_edge(op, |s, d| s == step && d == missing)))
    }

    /// DAG-05: the patch closes no cycle.
    fn check_cycles(&self, edges: &EdgeChanges) -> Result<(), Rejection> {
        let graph = FinalDag { task: self.task, patched: self.patched, edges };
        let Some(cycle) = graph.new_cycle() else { return Ok(()) };
        let ids: Vec<StepId> =
            cycle.iter().map(|&pos| self.patched.id_of(self.task, pos).clone()).collect();
        let next = ids.iter().zip(ids.iter().cycle().skip(1));
        let next: BTreeMap<&StepId, &StepId> = next.collect();
        let closes = |op: &Operation| names_edge(op, |s, d| next.get(s).is_some_and(|n| *n == d));
        Err(dependency_cycle(&ids).with("op_index", self.last(closes)))
    }

    /// PATCH-20: no Step depends on a Step that the patch deletes.
    fn check_dependents(&self, edges: &EdgeChanges) -> Result<(), Rejection> {
        let graph = FinalDag { task: self.task, patched: self.patched, edges };
        for (pos, step) in self.patched.steps().filter(|(_, step)| step.removed) {
            let dependents = graph.dependents(pos);
            if !dependents.is_empty() {
                let id = &step.spec.step_id;
                let deletes = |op: &Operation| matches!(op, Operation::DeleteStep { step_id, .. } if step_id == id);
                return Err(self
                    .has_dependents(step, &dependents)
                    .with("op_index", self.last(deletes)));
            }
        }
        Ok(())
    }

    fn has_dependents(&self, step: &Touched, dependents: &[Pos]) -> Rejection {
        let ids: Vec<StepId> =
            dependents.iter().map(|&pos| self.patched.id_of(self.task, pos).clone()).collect();
        let id = &step.spec.step_id;
        let message = format!("{} steps depend on {id}; edit or delete them too", ids.len());
        Rejection::new(Code::StepHasDependents, message)
            .with("step_id", id.as_str())
            .with("step_ids", ids_json(&ids))
    }

    /// DAG-15: a Task that is no draft keeps at least one Step.
    fn check_not_empty(&self) -> Result<(), Rejection> {
        if self.task.head.status == TaskStatus::Draft || self.patched.live_steps(self.task) > 0 {
            return Ok(());
        }
        let deletes = |op: &Operation| matches!(op, Operation::DeleteStep { .. });
        Err(Rejection::invalid("operations", "a task needs at least one step")
            .with("op_index", self.last(deletes)))
    }

    fn found(&self, edges: &EdgeChanges) -> Found {
        let mut found = Found { demoted: Vec::new(), edited: Vec::new(), touched: Vec::new() };
        for (pos, touched) in self.patched.steps().filter(|(_, step)| !step.removed) {
            found.touched.push(pos);
            let Some(step) = self.task.steps.get(pos) else { continue };
            let status = step.state.status;
            if status.is_held() && touched.spec != *step.spec {
                found.edited.push(pos);
            }
            let waits =
                edges.waiting.get(&pos).is_some_and(|on| on.iter().any(|&d| self.is_open(d)));
            if status == StepStatus::Ready && waits {
                found.demoted.push(pos);
            }
        }
        found
    }

    /// Whether the Step is not completed. A patch completes nothing, so the Task's own state is right.
    fn is_open(&self, pos: Pos) -> bool {
        self.task.steps.get(pos).is_none_or(|s| s.state.status != StepStatus::Completed)
    }

    /// The last operation of a kind: the one that broke what was right before it.
    pub(super) fn last(&self, is: impl Fn(&Operation) -> bool) -> usize {
        self.operations.iter().rposition(is).unwrap_or(0)
    }
}

/// Whether an operation names a dependency for which `is` holds, given as (dependent, dependency).
fn names_edge(operation: &Operation, is: impl Fn(&StepId, &StepId) -> bool) -> bool {
    match operation {
        Operation::AddStep { step, .. } => {
            step.depends_on_step_ids.iter().any(|dep| is(&step.step_id, dep))
        }
        Operation::UpdateStep { step_id, fields, .. } => {
            fields.depends_on_step_ids.value().into_iter().flatten().any(|dep| is(step_id, dep))
        }
        Operation::AddDependency { step_id, depends_on_step_id, .. } => {
            is(step_id, depends_on_step_id)
        }
        _ => false,
    }
}

fn id_taken(id: &StepId) -> Rejection {
    let message = format!("step {id} exists already, or did: an id is never used again");
    Rejection::invalid("step_id", message).with("step_id", id.as_str())
}

/// The DAG as the patch leaves it, without building it.
pub(super) struct FinalDag<'a> {
    pub(super) task: &'a Task,
    pub(super) patched: &'a Patched,
    pub(super) edges: &'a EdgeChanges,
}

impl FinalDag<'_> {
    /// A cycle through a new edge, if there is one.
    ///
    /// Each such cycle lies both above the Steps that get new dependents, and below those that get
    /// new dependencies. The search explores the two sides in turn. The side that it exhausts first
    /// contains every such cycle, and only that side is then searched for one.
    fn new_cycle(&self) -> Option<Vec<Pos>> {
        let gained =
            self.edges.by_dependency.iter().filter(|(_, change)| !change.gained.is_empty());
        let mut above = Side::from_iter(gained.clone().map(|(&on, _)| on));
        let mut below =
            Side::from_iter(gained.flat_map(|(_, change)| change.gained.iter().copied()));
        let closed = loop {
            let upwards = above.cost < below.cost;
            let side = if upwards { &mut above } else { &mut below };
            let Some(pos) = side.frontier.pop() else { break &side.seen };
            side.meet(if upwards { self.dependencies(pos) } else { self.dependents(pos) });
        };
        self.cycle_within(closed)
    }

    fn cycle_within(&self, steps: &BTreeSet<Pos>) -> Option<Vec<Pos>> {
        let rows: Vec<Pos> = steps.iter().copied().collect();
        let row = |pos: &Pos| rows.binary_search(pos).ok().map(crate::table::next_pos);
        let edges: Vec<Vec<Pos>> = rows
            .iter()
            .map(|&pos| self.dependencies(pos).iter().filter_map(row).collect())
            .collect();
        let cycle = find_cycle(&edges)?;
        Some(cycle.into_iter().map(|row| rows[row as usize]).collect())
    }

    pub(super) fn dependencies(&self, pos: Pos) -> Vec<Pos> {
        match self.edges.waiting.get(&pos) {
            Some(on) => {
                on.iter().copied().filter(|&d| !self.patched.is_removed(self.task, d)).collect()
            }
            None => {
                let ids = &self.task.steps[pos].spec.depends_on_step_ids;
                ids.iter().filter_map(|id| self.patched.find(self.task, id)).collect()
            }
        }
    }

    pub(super) fn dependents(&self, pos: Pos) -> Vec<Pos> {
        let change = self.edges.by_dependency.get(&pos);
        let lost = |d: &Pos| change.is_some_and(|c| c.lost.binary_search(d).is_ok());
        let before = self.task.steps.get(pos).map_or(&[][..], |s| &s.dependents);
        let kept = before.iter().copied().filter(|d| !lost(d));
        kept.chain(change.into_iter().flat_map(|c| c.gained.iter().copied())).collect()
    }
}

/// One side of the search.
pub(super) struct Side {
    seen: BTreeSet<Pos>,
    pub(super) frontier: Vec<Pos>,
    /// Edges followed.
    cost: usize,
}

impl FromIterator<Pos> for Side {
    fn from_iter<I: IntoIterator<Item = Pos>>(starts: I) -> Self {
        let seen: BTreeSet<Pos> = starts.into_iter().collect();
        Self { frontier: seen.iter().copied().collect(), seen, cost: 0 }
    }
}

impl Side {
    pub(super) fn meet(&mut self, steps: Vec<Pos>) {
        self.cost += 1 + steps.len();
        let new = steps.into_iter().filter(|&pos| self.seen.insert(pos));
        self.frontier.extend(new);
    }
}
