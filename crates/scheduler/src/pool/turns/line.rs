//! A line of Tasks that the same workers may take, so that what a free worker cannot take is passed over as a
//! whole, however long it is.

use std::cell::Cell;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tenure_core::id::AgentId;
use tenure_ports::journal::TaskKey;

use super::super::groups::GroupSet;
use super::Supply;

/// A pool has at most so many lines for Tasks that some workers do not fit. A Task that would need one more stands in
/// an overflow line, whose Tasks are looked at one by one.
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
    /// Each of its Tasks has another list of workers that do not fit, and `unfit` is empty.
    pub(super) is_overflow: bool,
}

impl LineKey {
    /// The line of the Tasks that all workers of these groups may fit.
    pub(super) fn for_all(groups: GroupSet) -> Self {
        Self { groups, unfit: UnfitWorkers::default(), is_overflow: false }
    }

    /// The line of the Tasks of these groups for which no line is left.
    pub(super) fn overflow(groups: GroupSet) -> Self {
        Self { is_overflow: true, ..Self::for_all(groups) }
    }

    /// Whether all workers may fit its Tasks.
    pub(super) fn is_for_all(&self) -> bool {
        self.unfit.is_empty() && !self.is_overflow
    }
}

/// The lines of a pool. Whoever makes Tasks chooses their priorities, so there is no line for each of these.
pub(super) type WaitingLines = BTreeMap<LineKey, WaitingLine>;

/// A priority: the higher one comes first.
pub(super) type Lane = Reverse<i32>;

/// Where a Task stands: those with a higher priority come first, and of equal ones that with the lower number.
pub(super) type Place = (Lane, u64);

/// Tasks that the same workers may take.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    /// By their places among all lines.
    tasks: BTreeMap<Place, TaskKey>,
    /// How many of them have each priority.
    lanes: BTreeMap<Lane, usize>,
    /// How many Steps and Runs are ready in them.
    pub(super) ready: u64,
    /// How many of them have any.
    pub(super) live: usize,
    /// How many workers had come to have credits ([`Supply::arrivals`]) when none with credits fitted the Tasks of
    /// this line; 0: one fitted, or nobody has looked.
    unserved_at: Cell<u64>,
}

impl WaitingLine {
    /// How many Tasks stand in it.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// How many Tasks of a priority stand in it.
    pub(super) fn len_of(&self, lane: Lane) -> usize {
        self.lanes.get(&lane).copied().unwrap_or(0)
    }

    /// The first Task of a priority, or of the highest one.
    fn first(&self, lane: Option<Lane>) -> Option<(&Place, &TaskKey)> {
        match lane {
            None => self.tasks.first_key_value(),
            Some(lane) => self.tasks.range((lane, 0)..=(lane, u64::MAX)).next(),
        }
    }

    /// The highest priority that some Task has, or the highest below another.
    fn lane_below(&self, above: Option<Lane>) -> Option<Lane> {
        let from = above.map_or(Bound::Unbounded, Bound::Excluded);
        self.lanes.range((from, Bound::Unbounded)).next().map(|(lane, _)| *lane)
    }

    /// Notes that a Task in the line has another number of ready Steps and Runs than before.
    pub(super) fn count(&mut self, before: usize, after: usize) {
        self.ready = self.ready - before as u64 + after as u64;
        self.live = self.live - usize::from(before > 0) + usize::from(after > 0);
    }

    /// Puts a Task with so many ready Steps and Runs at its place.
    pub(super) fn insert(&mut self, place: Place, key: TaskKey, ready: usize) {
        if self.tasks.insert(place, key).is_none() {
            *self.lanes.entry(place.0).or_default() += 1;
        }
        self.count(0, ready);
    }

    /// Takes a Task with so many ready Steps and Runs out.
    pub(super) fn remove(&mut self, place: Place, ready: usize) -> Option<TaskKey> {
        let key = self.tasks.remove(&place)?;
        self.leave(place.0);
        self.count(ready, 0);
        Some(key)
    }

    /// A Task goes to another place.
    pub(super) fn replace(&mut self, from: Place, to: Place) -> bool {
        let Some(key) = self.remove(from, 0) else { return false };
        self.insert(to, key, 0);
        true
    }

    fn leave(&mut self, lane: Lane) {
        if let Some(count) = self.lanes.get_mut(&lane) {
            *count -= 1;
            if *count == 0 {
                self.lanes.remove(&lane);
            }
        }
    }

    /// Takes Tasks without ready Steps from the front, of one priority or of all. Answers whether there was any.
    pub(super) fn drop_spent(
        &mut self,
        lane: Option<Lane>,
        mut is_spent: impl FnMut(&TaskKey) -> bool,
    ) -> bool {
        let before = self.tasks.len();
        while self.live < self.tasks.len()
            && let Some((place, key)) = self.first(lane)
            && is_spent(key)
        {
            let place = *place;
            self.remove(place, 0);
        }
        self.tasks.len() < before
    }

    /// Takes all Tasks without ready Steps out.
    pub(super) fn drop_all_spent(&mut self, mut is_spent: impl FnMut(&TaskKey) -> bool) {
        let spent = self.tasks.iter().filter(|(_, key)| is_spent(key)).map(|(place, _)| *place);
        for place in spent.collect::<Vec<_>>() {
            self.remove(place, 0);
        }
    }

    /// Whether a worker with free credits may take its Tasks. As long as none may, this looks only at workers that
    /// came to have credits since it last looked. The Tasks of an overflow line are looked at elsewhere.
    pub(super) fn is_served(&self, key: &LineKey, supply: &impl Supply) -> bool {
        if key.is_overflow {
            return false;
        }
        if !key.groups.meets(supply.open()) || key.unfit.is_empty() {
            return key.groups.meets(supply.open());
        }
        let is_served = supply.has_fit(key.unfit.all(), key.groups, self.unserved_at.get());
        self.unserved_at.set(if is_served { 0 } else { supply.arrivals() });
        is_served
    }
}

/// The Task with the first place of a priority, or of all, of the lines that some of these groups serve and free
/// workers fit.
pub(super) fn first_of<'a>(
    lines: &'a WaitingLines,
    lane: Option<Lane>,
    open: GroupSet,
    supply: &impl Supply,
) -> Option<(Place, &'a LineKey, &'a TaskKey)> {
    let mut first: Option<(Place, &LineKey, &TaskKey)> = None;
    for (line_key, line) in lines.iter().filter(|(key, _)| key.groups.meets(open)) {
        let Some((place, key)) = line.first(lane) else { continue };
        let is_earlier = first.is_none_or(|(earliest, ..)| *place < earliest);
        if is_earlier && line.is_served(line_key, supply) {
            first = Some((*place, line_key, key));
        }
    }
    first
}

/// The highest priority that a Task of a line has which some of these groups serve, or the highest below another.
pub(super) fn lane_below(
    lines: &WaitingLines,
    above: Option<Lane>,
    open: GroupSet,
    supply: &impl Supply,
) -> Option<Lane> {
    let served = lines.iter().filter(|(key, _)| key.groups.meets(open));
    let served = served.filter(|(key, line)| line.is_served(key, supply));
    served.filter_map(|(_, line)| line.lane_below(above)).min()
}
