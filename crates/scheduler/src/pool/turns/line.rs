//! A line of Tasks that the same workers may take, so that what a free worker cannot take is passed over as a
//! whole, however long it is.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::id::AgentId;
use tenure_ports::journal::TaskKey;

use super::super::groups::GroupSet;
use super::Supply;

/// So many lines a priority has for Tasks that some workers do not fit. Where a Task would need one more, it
/// stands with those that everybody may fit: it is then tried in vain now and then, and never lost.
pub(super) const LINES_MAX: usize = 256;

/// Workers that fit none of a Task's ready Steps, sorted. The Tasks of a line share the list.
#[derive(Debug, Clone, Default)]
pub(super) struct UnfitWorkers(Option<Arc<[AgentId]>>);

impl UnfitWorkers {
    pub(super) fn all(&self) -> &[AgentId] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn has(&self, worker: &AgentId) -> bool {
        self.all().binary_search(worker).is_ok()
    }

    /// These workers and this one.
    pub(super) fn with(&self, worker: &AgentId) -> Self {
        let Err(at) = self.all().binary_search(worker) else { return self.clone() };
        let (before, after) = self.all().split_at(at);
        Self(Some(before.iter().chain([worker]).chain(after).cloned().collect()))
    }

    /// These workers but this one.
    pub(super) fn without(&self, worker: &AgentId) -> Self {
        let others: Arc<[AgentId]> =
            self.all().iter().filter(|other| *other != worker).cloned().collect();
        Self((!others.is_empty()).then_some(others))
    }

    /// Whether both are one list in memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Ord for UnfitWorkers {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_same(other) {
            return Ordering::Equal;
        }
        let (one, other) = (self.all(), other.all());
        one.len().cmp(&other.len()).then_with(|| one.cmp(other))
    }
}

impl PartialOrd for UnfitWorkers {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for UnfitWorkers {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for UnfitWorkers {}

/// What the Tasks of a line have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineKey {
    /// The groups of workers that serve their sessions.
    pub(super) groups: GroupSet,
    /// Those of their workers that are known not to fit.
    pub(super) unfit: UnfitWorkers,
}

/// The lines of one priority.
pub(super) type PriorityLane = BTreeMap<LineKey, WaitingLine>;

/// Tasks of one priority that the same workers may take.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    /// By their places among all lines.
    pub(super) tasks: BTreeMap<u64, TaskKey>,
    /// How many Steps and Runs are ready in them.
    pub(super) ready: u64,
    /// How many of them have any.
    pub(super) live: usize,
    /// How many workers had come to have credits when none that had any did fit; 0: one did, or nobody looked.
    unserved_at: Cell<u64>,
}

impl WaitingLine {
    /// Notes that a Task in the line has another number of ready Steps and Runs than before.
    pub(super) fn count(&mut self, before: usize, after: usize) {
        self.ready = self.ready - before as u64 + after as u64;
        self.live = self.live - usize::from(before > 0) + usize::from(after > 0);
    }

    /// Puts a Task with so many ready Steps and Runs at its place.
    pub(super) fn insert(&mut self, place: u64, key: TaskKey, ready: usize) {
        self.tasks.insert(place, key);
        self.count(0, ready);
    }

    /// Takes a Task with so many ready Steps and Runs out.
    pub(super) fn remove(&mut self, place: u64, ready: usize) -> Option<TaskKey> {
        let key = self.tasks.remove(&place)?;
        self.count(ready, 0);
        Some(key)
    }

    /// Whether a worker with free credits may take its Tasks. As long as none may, only workers are looked at
    /// that came to have credits since.
    pub(super) fn is_served(&self, key: &LineKey, supply: &impl Supply) -> bool {
        if !key.groups.meets(supply.open()) || key.unfit.is_empty() {
            return key.groups.meets(supply.open());
        }
        let is_served = supply.has_fit(key.unfit.all(), key.groups, self.unserved_at.get());
        self.unserved_at.set(if is_served { 0 } else { supply.arrivals() });
        is_served
    }
}

/// The Task with the first place in a lane, of the lines that some of these groups serve and free workers fit.
pub(super) fn first_of<'a>(
    lane: &'a PriorityLane,
    open: GroupSet,
    supply: &impl Supply,
) -> Option<(&'a LineKey, &'a TaskKey)> {
    let mut first: Option<(u64, &LineKey, &TaskKey)> = None;
    for (line_key, line) in lane.iter().filter(|(key, _)| key.groups.meets(open)) {
        let Some((place, key)) = line.tasks.first_key_value() else { continue };
        let is_earlier = first.is_none_or(|(earliest, ..)| *place < earliest);
        if is_earlier && line.is_served(line_key, supply) {
            first = Some((*place, line_key, key));
        }
    }
    first.map(|(_, line, key)| (line, key))
}
