//! Which workers fit none of a Task's ready Steps, by Task.

use tenure_core::id::AgentId;
use tenure_ports::journal::TaskKey;
use tenure_ports::map::{IdMap, IdSet};

use super::Turns;
use super::line::UnfitWorkers;

/// A list for each Task that some worker does not fit, until the Task has other Steps.
#[derive(Debug, Default)]
pub(super) struct UnfitLists {
    by_task: IdMap<TaskKey, UnfitWorkers>,
    /// Whoever may be in a list. A worker that is not here is in none: no list is looked at when it comes or goes.
    named: IdSet<AgentId>,
}

impl UnfitLists {
    /// Whether no Task has a list.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_task.is_empty()
    }

    /// Whether a Task has a list.
    pub(super) fn has(&self, key: &TaskKey) -> bool {
        self.by_task.contains_key(key)
    }

    /// The list of a Task, if it has one.
    #[cfg(test)]
    pub(super) fn get(&self, key: &TaskKey) -> Option<&UnfitWorkers> {
        self.by_task.get(key)
    }

    /// The same, to have it share the memory of an equal one.
    pub(super) fn get_mut(&mut self, key: &TaskKey) -> Option<&mut UnfitWorkers> {
        self.by_task.get_mut(key)
    }

    /// The workers that do not fit a Task, sorted.
    pub(super) fn all(&self, key: &TaskKey) -> &[AgentId] {
        self.by_task.get(key).map_or(&[], UnfitWorkers::all)
    }

    /// Notes that a worker does not fit a Task.
    pub(super) fn add(&mut self, key: &TaskKey, worker: &AgentId) {
        if !self.named.contains(worker) {
            self.named.insert(worker.clone());
        }
        let unfit = self.by_task.entry(key.clone()).or_default();
        *unfit = unfit.with(worker);
    }

    /// Forgets the list of a Task.
    pub(super) fn remove(&mut self, key: &TaskKey) {
        if self.by_task.remove(key).is_some() && self.by_task.is_empty() {
            self.named = IdSet::default();
        }
    }

    /// Whether a worker may be in a list.
    pub(super) fn names(&self, worker: &AgentId) -> bool {
        self.named.contains(worker)
    }

    /// Takes a worker out of all lists. Answers the Tasks in whose lists it was. Where the worker may be in one, this
    /// costs as much as there are lists.
    pub(super) fn take_out(&mut self, worker: &AgentId) -> Vec<TaskKey> {
        let mut changed = Vec::new();
        if !self.named.remove(worker) {
            return changed;
        }
        let [mut from, mut others] = [UnfitWorkers::default(), UnfitWorkers::default()];
        self.by_task.retain(|key, unfit| {
            if !unfit.has(worker) {
                return true;
            }
            if !unfit.is_same(&from) {
                (others, from) = (unfit.without(worker), unfit.clone());
            }
            *unfit = others.clone();
            changed.push(key.clone());
            !unfit.is_empty()
        });
        changed
    }
}

impl Turns {
    /// A worker may fit Steps that it did not fit before, as it has a new link or its place is free; or it has left.
    pub(in crate::pool) fn may_fit(&mut self, worker: &AgentId) {
        for key in self.unfit.take_out(worker) {
            self.move_to_its_line(&key, 0);
        }
    }

    /// Whether a worker may be known not to fit some Task.
    pub(in crate::pool) fn is_unfit_for_some(&self, worker: &AgentId) -> bool {
        self.unfit.names(worker)
    }
}
