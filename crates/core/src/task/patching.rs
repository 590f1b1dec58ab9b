//! Patches in the reducer: how `task_updated` changes content and topology (PATCH-14, PATCH-17).
//!
//! The reducer folds operations, in the given order, into a [`PatchDraft`]: the Steps that they touch,
//! as the patch leaves them, laid over the Task as it is. The command judges the same draft that the
//! reducer applies, so the two cannot differ. Nothing here costs more than what a patch touches,
//! except a change of the Task's own retry policy, which costs as much as there are Steps that wait.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::apply::{Applied, At};
use super::change::{Signals, Turn};
use super::undo::Note;
use super::{Step, StepState, Task};
use crate::event::TaskUpdated;
use crate::id::StepId;
use crate::patch::{Operation, StepInput};
use crate::record::{StepSpec, TaskSpec};
use crate::status::StepStatus;
use crate::table::{Pos, next_pos, replace};

/// An operation that does not fit the existing Steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It names a Step that does not exist, or no longer.
    UnknownStep(StepId),
    /// It adds a Step whose id another Step has or had (ID-05, ID-06).
    IdTaken(StepId),
    /// It removes a dependency that does not exist.
    UnknownEdge(StepId, StepId),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownStep(id) => write!(f, "step {id} does not exist"),
            Self::IdTaken(id) => write!(f, "step {id} exists already, or did"),
            Self::UnknownEdge(step, dep) => write!(f, "step {step} does not depend on {dep}"),
        }
    }
}

/// A patch while its operations are read.
#[derive(Debug)]
pub(crate) struct PatchDraft<'t> {
    task: &'t Task,
    patched: Patched,
    /// Dependencies of those Steps whose edges the patch edits one by one.
    edges: BTreeMap<Pos, EdgeList>,
}

/// The result of a patch: the Steps it touched and the Task's own content.
#[derive(Debug, Default)]
pub(crate) struct Patched {
    spec: Option<Box<TaskSpec>>,
    steps: BTreeMap<Pos, Touched>,
    /// Steps it adds; their positions follow those of the Task.
    added: BTreeMap<StepId, Pos>,
}

/// A Step as a patch leaves it.
#[derive(Debug)]
pub(crate) struct Touched {
    pub(crate) spec: StepSpec,
    pub(crate) removed: bool,
}

impl<'t> PatchDraft<'t> {
    pub(crate) fn of(task: &'t Task) -> Self {
        Self { task, patched: Patched::default(), edges: BTreeMap::new() }
    }

    /// The position of a Step, after the operations read so far.
    pub(crate) fn find(&self, id: &StepId) -> Option<Pos> {
        self.patched.find(self.task, id)
    }

    /// Reads one more operation. Operations that act through events of their own change nothing here.
    pub(crate) fn fold(&mut self, operation: &Operation) -> Result<(), Misfit> {
        match operation {
            Operation::UpdateTask(fields) => {
                let now = &self.task.head.spec;
                let spec = self.patched.spec.get_or_insert_with(|| Box::new(TaskSpec::clone(now)));
                fields.apply(spec);
            }
            Operation::AddStep { step, .. } => self.add(step)?,
            Operation::UpdateStep { step_id, fields, .. } => {
                let pos = self.existing(step_id)?;
                let spec = &mut self.touch(pos).spec;
                fields.apply(spec);
                if let Some(ids) = fields.depends_on_step_ids.value() {
                    spec.depends_on_step_ids = crate::patch::deduplicated(ids);
                    self.edges.remove(&pos);
                }
            }
            Operation::DeleteStep { step_id, .. } => {
                let pos = self.existing(step_id)?;
                self.touch(pos).removed = true;
            }
            Operation::AddDependency { step_id, depends_on_step_id, .. } => {
                self.edges_of(step_id)?.add(depends_on_step_id);
            }
            Operation::RemoveDependency { step_id, depends_on_step_id, .. } => {
                if !self.edges_of(step_id)?.remove(depends_on_step_id) {
                    return Err(Misfit::UnknownEdge(step_id.clone(), depends_on_step_id.clone()));
                }
            }
            Operation::CancelStep { .. }
            | Operation::ReopenStep { .. }
            | Operation::BlockTask { .. }
            | Operation::ReopenTask { .. } => {}
        }
        Ok(())
    }

    /// The whole patch, after the last operation.
    pub(crate) fn finish(mut self) -> Patched {
        for (pos, edges) in self.edges {
            if let Some(step) = self.patched.steps.get_mut(&pos) {
                step.spec.depends_on_step_ids = edges.into_ids();
            }
        }
        self.patched
    }

    fn add(&mut self, given: &StepInput) -> Result<(), Misfit> {
        let pos = next_pos(self.task.steps.len() + self.patched.added.len());
        let taken = self.task.steps.find(&given.step_id).is_some();
        match self.patched.added.entry(given.step_id.clone()) {
            Entry::Vacant(entry) if !taken => entry.insert(pos),
            _ => return Err(Misfit::IdTaken(given.step_id.clone())),
        };
        let spec = given.filled_in(&self.task.head.spec.default_worker_pool_id);
        self.patched.steps.insert(pos, Touched { spec, removed: false });
        Ok(())
    }

    fn existing(&self, id: &StepId) -> Result<Pos, Misfit> {
        self.find(id).ok_or_else(|| Misfit::UnknownStep(id.clone()))
    }

    fn touch(&mut self, pos: Pos) -> &mut Touched {
        self.patched.steps.entry(pos).or_insert_with(|| {
            let spec = StepSpec::clone(&self.task.steps[pos].spec);
            Touched { spec, removed: false }
        })
    }

    fn edges_of(&mut self, id: &StepId) -> Result<&mut EdgeList, Misfit> {
        let pos = self.existing(id)?;
        self.touch(pos);
        let Self { patched, edges, .. } = self;
        let ids = patched.steps.get(&pos).map(|step| &step.spec.depends_on_step_ids);
        Ok(edges.entry(pos).or_insert_with(|| EdgeList::of(ids.map_or(&[], Vec::as_slice))))
    }
}

/// Dependencies in order, with a fast search by id: a patch may add and remove as many as a Task has Steps.
#[derive(Debug)]
struct EdgeList {
    places: BTreeMap<StepId, usize>,
    next: usize,
}

impl EdgeList {
    fn of(ids: &[StepId]) -> Self {
        Self { places: ids.iter().cloned().zip(0..).collect(), next: ids.len() }
    }

    /// An edge that exists stays where it is (PATCH-11).
    fn add(&mut self, id: &StepId) {
        self.places.entry(id.clone()).or_insert(self.next);
        self.next += 1;
    }

    fn remove(&mut self, id: &StepId) -> bool {
        self.places.remove(id).is_some()
    }

    fn into_ids(self) -> Vec<StepId> {
        let mut ids: Vec<(usize, StepId)> =
            self.places.into_iter().map(|(id, at)| (at, id)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }
}

/// Edges that a patch adds and removes, by the Step that is depended on. Ascending.
#[derive(Debug, Default)]
pub(crate) struct EdgeChanges {
    pub(crate) by_dependency: BTreeMap<Pos, EdgeChange>,
    /// Steps whose dependencies change, with all their dependencies after the patch.
    pub(crate) waiting: BTreeMap<Pos, Vec<Pos>>,
}

/// Steps that begin to wait for one Step, and Steps that cease to.
#[derive(Debug, Default)]
pub(crate) struct EdgeChange {
    pub(crate) gained: Vec<Pos>,
    pub(crate) lost: Vec<Pos>,
}

impl EdgeChanges {
    fn record(&mut self, pos: Pos, before: &[Pos], now: Vec<Pos>) {
        for dep in now.iter().filter(|dep| before.binary_search(dep).is_err()) {
            self.by_dependency.entry(*dep).or_default().gained.push(pos);
        }
        for dep in before.iter().filter(|dep| now.binary_search(dep).is_err()) {
            self.by_dependency.entry(*dep).or_default().lost.push(pos);
        }
        self.waiting.insert(pos, now);
    }
}

impl Patched {
    /// Every Step that the patch touched, in creation order.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (Pos, &Touched)> {
        self.steps.iter().map(|(&pos, step)| (pos, step))
    }

    /// A Step that the patch touched.
    pub(crate) fn step(&self, pos: Pos) -> Option<&Touched> {
        self.steps.get(&pos)
    }

    /// Number of Steps that the patch adds, including those that it deletes again.
    pub(crate) fn added(&self) -> usize {
        self.added.len()
    }

    /// Whether a Step is deleted after the patch.
    pub(crate) fn is_removed(&self, task: &Task, pos: Pos) -> bool {
        match self.steps.get(&pos) {
            Some(step) => step.removed,
            None => task.steps.get(pos).is_none_or(|step| step.state.removed),
        }
    }

    /// The position of a Step after the patch.
    pub(crate) fn find(&self, task: &Task, id: &StepId) -> Option<Pos> {
        self.row(task, id).filter(|&pos| !self.is_removed(task, pos))
    }

    /// The row of an id, also of a deleted Step: no id ever has two rows.
    pub(crate) fn row(&self, task: &Task, id: &StepId) -> Option<Pos> {
        self.added.get(id).copied().or_else(|| task.steps.find(id))
    }

    /// The id of a Step.
    pub(crate) fn id_of<'a>(&'a self, task: &'a Task, pos: Pos) -> &'a StepId {
        match self.steps.get(&pos) {
            Some(step) => &step.spec.step_id,
            None => &task.steps[pos].spec.step_id,
        }
    }

    /// Number of Steps after the patch, without deleted ones.
    pub(crate) fn live_steps(&self, task: &Task) -> usize {
        let existing = |pos: Pos| (pos as usize) < task.steps.len();
        let gone = self.steps().filter(|(pos, s)| s.removed && existing(*pos)).count();
        let new = self.steps().filter(|(pos, s)| !s.removed && !existing(*pos)).count();
        task.tally().steps() as usize + new - gone
    }

    /// How the patch changes edges. Unknown dependencies are left out.
    pub(crate) fn edge_changes(&self, task: &Task) -> EdgeChanges {
        let mut changes = EdgeChanges::default();
        for (pos, step) in self.steps() {
            let before = task.steps.get(pos).map(|s| s.spec.depends_on_step_ids.as_slice());
            let now = step.spec.depends_on_step_ids.as_slice();
            if step.removed || before != Some(now) {
                let before = self.rows(task, before.unwrap_or(&[]));
                let now = if step.removed { Vec::new() } else { self.rows(task, now) };
                changes.record(pos, &before, now);
            }
        }
        changes
    }

    fn rows(&self, task: &Task, ids: &[StepId]) -> Vec<Pos> {
        let mut rows: Vec<Pos> = ids.iter().filter_map(|id| self.row(task, id)).collect();
        rows.sort_unstable();
        rows
    }
}

impl Task {
    /// Applies the content and topology of `task_updated`. Steps that the patch cancels, reopens or
    /// blocks change by other events of the same commit.
    pub(super) fn apply_patch(&mut self, p: &TaskUpdated, at: At) -> Applied {
        let mut draft = PatchDraft::of(self);
        for operation in p.operations.iter() {
            draft.fold(operation).map_err(|misfit| misfit.to_string())?;
        }
        let patched = draft.finish();
        self.check_patched(&patched)?;
        let edges = patched.edge_changes(self);
        let first_new = next_pos(self.steps.len());
        self.take_content(patched, at);
        self.take_edges(&edges);
        self.recount(&edges, first_new);
        p.demoted_step_ids.iter().try_for_each(|id| self.demote(id, at))?;
        self.check_ready(&edges)?;
        p.updated_after_dispatch.iter().try_for_each(|id| self.note_edited(id))
    }

    /// Refuses edges that lead to no Step: such a log is not a history of this Task.
    fn check_patched(&self, patched: &Patched) -> Applied {
        for (_, step) in patched.steps().filter(|(_, step)| !step.removed) {
            let ids = &step.spec.depends_on_step_ids;
            if let Some(missing) = ids.iter().find(|id| patched.find(self, id).is_none()) {
                let id = &step.spec.step_id;
                return Err(format!("step {id} depends on unknown {missing}").into());
            }
        }
        let removed = patched.steps().filter(|(_, step)| step.removed);
        for (pos, step) in removed {
            let dependents = self.steps.get(pos).map_or(&[][..], |s| &s.dependents);
            // The loop above has checked the touched ones.
            if dependents.iter().any(|&d| patched.step(d).is_none()) {
                return Err(format!("step {} is depended on", step.spec.step_id).into());
            }
        }
        Ok(())
    }

    /// Applies texts, fields, new and deleted rows. Edges follow when all rows exist.
    fn take_content(&mut self, patched: Patched, at: At) {
        if let Some(spec) = patched.spec {
            self.take_task_spec(*spec);
        }
        for (pos, step) in patched.steps {
            if (pos as usize) < self.steps.len() {
                self.take_step(pos, step, at);
            } else {
                self.add_step(step, at);
            }
        }
    }

    fn take_task_spec(&mut self, spec: TaskSpec) {
        if *self.head.spec == spec {
            return;
        }
        if spec.deadline_at() != self.head.spec.deadline_at() {
            let now = self.mark.updated_at;
            self.head_mut().paused.restart(now);
        }
        let spec = Arc::new(spec);
        if self.head.spec.retry_policy == spec.retry_policy {
            self.head_mut().spec = spec;
        } else {
            self.change_policy(|task| task.head_mut().spec = spec);
        }
    }

    fn take_step(&mut self, pos: Pos, step: Touched, at: At) {
        let redefined = !does_the_same(&self.steps[pos].spec, &step.spec);
        if *self.steps[pos].spec != step.spec {
            self.note(|task| Note::Spec(pos, Arc::clone(&task.steps[pos].spec)));
            self.index_out(pos);
            self.steps[pos].spec = Arc::new(step.spec);
            self.index_in(pos);
        } else if !step.removed {
            return;
        }
        self.change_alone(pos, |s| {
            s.removed = step.removed;
            if redefined {
                s.redefined_seq = at.seq;
            }
            s.updated_at = at.time;
        });
    }

    /// Adds a row. It enters the indexes when its edges are counted.
    fn add_step(&mut self, step: Touched, at: At) {
        self.note(|_| Note::StepAdded);
        let state = StepState { removed: step.removed, ..StepState::new(at.time) };
        self.steps.push(Step { spec: Arc::new(step.spec), state, dependents: Vec::new() });
    }

    fn take_edges(&mut self, edges: &EdgeChanges) {
        for (&of, EdgeChange { gained, lost }) in &edges.by_dependency {
            self.note(|_| Note::Dependents {
                of,
                gained: lost.as_slice().into(),
                lost: gained.as_slice().into(),
            });
            replace(&mut self.steps[of].dependents, gained, lost);
        }
    }

    /// Counts anew for the Steps whose dependencies changed, then updates their dependents. All
    /// counts use the signals from before the patch, and the changes of signals spread afterwards,
    /// so that nothing counts twice.
    fn recount(&mut self, edges: &EdgeChanges, first_new: Pos) {
        let counts: Vec<(Pos, DependencyCounts)> = edges
            .waiting
            .iter()
            .filter(|(pos, _)| !self.steps[**pos].state.removed)
            .map(|(&pos, on)| (pos, self.counts(on)))
            .collect();
        let mut turns: Vec<Turn> = Vec::new();
        for (pos, DependencyCounts { unmet, dead, fatal, stuck }) in counts {
            let before = Signals::of(&self.steps[pos].state);
            let set = |s: &mut StepState| {
                (s.unmet, s.dead, s.fatal, s.stuck) = (unmet, dead, fatal, stuck);
            };
            if pos < first_new {
                self.change_alone(pos, set);
            } else {
                self.change_state(pos, set);
                self.index_in(pos);
            }
            turns.push(Turn { pos, before });
        }
        // The last is done first: signals that rise before signals that fall, so that few Steps
        // change more than twice.
        turns.sort_by_key(|turn| {
            Signals::of(&self.steps[turn.pos].state).weight() >= turn.before.weight()
        });
        self.spread_all(&turns);
    }

    fn counts(&self, on: &[Pos]) -> DependencyCounts {
        let mut counts = DependencyCounts::default();
        for &dep in on {
            let means = Signals::of(&self.steps[dep].state);
            counts.unmet += u32::from(!means.completed);
            counts.dead += u32::from(means.dead);
            counts.fatal += u32::from(means.fatal);
            counts.stuck += u32::from(means.stuck);
        }
        counts
    }

    /// S03: a ready Step with open dependencies becomes pending again.
    fn demote(&mut self, id: &StepId, at: At) -> Applied {
        let pos = self.find_step(id).ok_or_else(|| format!("unknown step {id}"))?;
        let state = &self.steps[pos].state;
        if state.status != StepStatus::Ready || state.unmet == 0 {
            return Err(format!("step {id} is {} and cannot be demoted", state.status).into());
        }
        self.change(pos, |s| {
            s.status = StepStatus::Pending;
            s.ready_at = None;
            s.updated_at = at.time;
        });
        Ok(())
    }

    fn check_ready(&self, edges: &EdgeChanges) -> Applied {
        let waits = |pos: &&Pos| {
            let state = &self.steps[**pos].state;
            !state.removed && state.status == StepStatus::Ready && state.unmet > 0
        };
        match edges.waiting.keys().find(waits) {
            Some(&pos) => Err(format!(
                "step {} stays ready with open dependencies",
                self.steps[pos].spec.step_id
            )
            .into()),
            None => Ok(()),
        }
    }

    /// STEP-27: notes that the claimed or running Step was edited.
    fn note_edited(&mut self, id: &StepId) -> Applied {
        let held = self.find_step(id).and_then(|pos| self.steps[pos].state.current);
        let attempt = held.ok_or_else(|| format!("step {id} is not claimed or running"))?;
        self.change_attempt(attempt, |a| a.updated_after_dispatch = true);
        Ok(())
    }
}

/// Whether a run of the Step is the same work under both: what else a patch may change makes no result
/// wrong (REPORT-14).
fn does_the_same(before: &StepSpec, now: &StepSpec) -> bool {
    before.handler == now.handler
        && before.input == now.input
        && before.depends_on_step_ids == now.depends_on_step_ids
        && before.inputs_from == now.inputs_from
}

/// How many dependencies of a Step are open, cannot complete, count for POL-06, and need the orchestrator.
#[derive(Debug, Default)]
struct DependencyCounts {
    unmet: u32,
    dead: u32,
    fatal: u32,
    stuck: u32,
}
