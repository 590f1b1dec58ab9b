//! Whose turn it is: Tasks with ready Steps, round robin within a priority (P16).
//!
//! A turn is worth an equal share of the free credits, or what the pool hands out in a moment if
//! that is more. So Tasks with long Steps alternate Step by Step, and Tasks with short Steps get
//! many at once: their reports then share appends, and the next Task waits no longer than a moment.
//!
//! Within a priority there is a line for each set of groups of workers that serve the sessions of its
//! Tasks (DISP-20). The Tasks of all lines that free workers serve take turns as if they stood in one;
//! a line that no free worker serves is passed over as a whole, however long it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure_core::id::{AgentId, HandlerName, Millis, SessionId, StepId};
use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;
use tokio::time::Instant;

use super::Left;
use super::groups::GroupSet;
use crate::task::address::Address;

mod withheld;

use self::withheld::WithheldTasks;

/// The moment that a turn lasts where Steps are short.
const MOMENT: Duration = Duration::from_millis(5);

/// So many Tasks without ready Steps may stand in a line before they are taken out of it.
const SPENT_MAX: usize = 64;

/// A Task with a place in a line. A Task without ready Steps stays until its turn comes, so that it
/// never has two places.
#[derive(Debug)]
struct LaneEntry {
    has: Left,
    /// How many credits are left of its turn; 0 before its turn begins.
    left: usize,
    /// The groups of workers that serve its session.
    groups: GroupSet,
    /// Its place among all lines of its priority.
    place: u64,
}

/// Tasks of one priority whose sessions the same groups of workers serve.
#[derive(Debug, Default)]
struct WaitingLine {
    tasks: VecDeque<TaskKey>,
    /// How many Steps and Runs are ready in them.
    ready: u64,
    /// How many of them have any.
    live: usize,
}

type PriorityLane = BTreeMap<GroupSet, WaitingLine>;

/// Where credits for Tasks come from.
pub(super) trait Supply {
    /// What is taken.
    type Taken: Default;

    /// The groups of workers with free credits.
    fn open(&self) -> GroupSet;

    /// The groups of workers that serve a session.
    fn serving(&self, session: &SessionId) -> GroupSet;

    /// The free credits of these groups.
    fn free_in(&self, groups: GroupSet) -> usize;

    /// Takes up to so many credits of these groups, and none of workers that do not fit. Answers how many
    /// it took.
    fn take(&mut self, wanted: usize, unfit: &[AgentId], groups: GroupSet) -> (usize, Self::Taken);
}

/// The Tasks that wait for a worker.
#[derive(Debug)]
pub(super) struct Turns {
    lanes: BTreeMap<Reverse<i32>, PriorityLane>,
    entries: IdMap<TaskKey, LaneEntry>,
    /// Workers that fit none of a Task's ready Steps, until the Task has others. They are stored
    /// apart from the Task's entry, which is removed while all that is known to be ready is lent to
    /// it.
    unfit: IdMap<TaskKey, Vec<AgentId>>,
    /// Tasks that wait and take no credits for now. They are in no line.
    withheld: WithheldTasks,
    pace: Pace,
    /// The place of the next Task that goes to the end of a line.
    next_place: u64,
}

/// How many credits were handed out in the current and in the last moment.
#[derive(Debug)]
struct Pace {
    since: Instant,
    now: usize,
    before: usize,
}

impl Pace {
    fn roll(&mut self) {
        let passed = self.since.elapsed();
        if passed >= 2 * MOMENT {
            *self = Self { since: Instant::now(), now: 0, before: 0 };
        } else if passed >= MOMENT {
            *self = Self { since: self.since + MOMENT, now: 0, before: self.now };
        }
    }

    fn note(&mut self, given: usize) {
        self.roll();
        self.now += given;
    }

    fn in_a_moment(&mut self) -> usize {
        self.roll();
        self.now.max(self.before)
    }
}

impl Turns {
    pub(super) fn new() -> Self {
        let pace = Pace { since: Instant::now(), now: 0, before: 0 };
        let (entries, unfit, withheld) = Default::default();
        Self { lanes: BTreeMap::new(), entries, unfit, withheld, pace, next_place: 0 }
    }

    /// Whether a Task waits that these groups of workers serve. Drops lines in which none does.
    pub(super) fn has_next(&mut self, open: GroupSet) -> bool {
        !open.is_empty() && self.front(open).is_some()
    }

    /// Whether nothing is ready in any Task.
    pub(super) fn is_empty(&self) -> bool {
        self.withheld.is_empty() && self.lines().all(|(_, line)| line.live == 0)
    }

    fn lines(&self) -> impl Iterator<Item = (GroupSet, &WaitingLine)> {
        self.lanes.values().flatten().map(|(groups, line)| (*groups, line))
    }

    /// How many Steps and Runs are ready, in all Tasks that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.lines().map(|(_, line)| line.ready).sum::<u64>() + self.withheld.ready()
    }

    /// How many Steps and Runs wait for groups that have workers, and none with free credits.
    pub(super) fn waiting_for_credits(&self, manned: GroupSet, open: GroupSet) -> u64 {
        let waits = |groups: GroupSet| groups.meets(manned) && !groups.meets(open);
        self.lines().filter(|(groups, _)| waits(*groups)).map(|(_, line)| line.ready).sum()
    }

    /// The ready Steps of all Tasks that wait, by the groups that serve them and by handler. This is an
    /// estimate: when a Task is lent credits, it is not known yet for which of its Steps it uses them.
    pub(super) fn steps(&self) -> BTreeMap<(GroupSet, &HandlerName), u64> {
        let mut steps: BTreeMap<(GroupSet, &HandlerName), u64> = BTreeMap::new();
        let in_lines = self.entries.values().map(|entry| (entry.groups, &entry.has));
        for (groups, has) in in_lines.chain(self.withheld.all()) {
            let mut left = has.ready;
            for (handler, count) in &has.steps {
                let waiting = (*count).min(left);
                left -= waiting;
                *steps.entry((groups, handler)).or_default() += waiting as u64;
            }
        }
        steps
    }

    /// Of the Steps next in line of the chosen Tasks, the one that has waited longest, and since
    /// when.
    pub(super) fn oldest(
        &self,
        is_meant: impl Fn(&TaskKey) -> bool,
    ) -> Option<(&TaskKey, &(Millis, StepId))> {
        let in_lines = self.entries.iter().map(|(key, entry)| (key, &entry.has));
        let of_tasks = in_lines.chain(self.withheld.by_key()).filter(|(key, _)| is_meant(key));
        let waiting = of_tasks.filter(|(_, has)| has.ready > 0);
        let next = waiting.filter_map(|(key, has)| Some((key, has.next.as_ref()?)));
        next.min_by_key(|(key, (since, _))| (*since, *key))
    }

    /// Notes how many ready Steps a Task has. They may be new, so they may fit any worker.
    pub(super) fn put(&mut self, key: TaskKey, has: Left, supply: &impl Supply) {
        self.unfit.remove(&key);
        if has.is_withheld {
            return self.withhold(key, has, supply);
        }
        self.withheld.remove(&key);
        self.place(key, has, supply);
    }

    /// Takes a Task out of its line that wants no credits for now. It waits on, and stays counted.
    fn withhold(&mut self, key: TaskKey, has: Left, supply: &impl Supply) {
        self.remove(&key);
        if has.ready > 0 {
            let groups = supply.serving(&key.session_id);
            self.withheld.put(key, has, groups);
        }
    }

    /// Notes that nothing that a Task has left fits a worker.
    pub(super) fn put_unfit(
        &mut self,
        key: TaskKey,
        has: Left,
        worker: &AgentId,
        supply: &impl Supply,
    ) {
        if has.is_withheld {
            return self.put(key, has, supply);
        }
        self.withheld.remove(&key);
        if has.ready == 0 {
            self.unfit.remove(&key);
        } else {
            self.unfit.entry(key.clone()).or_default().push(worker.clone());
        }
        self.place(key, has, supply);
    }

    /// A worker may fit Steps that it did not fit before, as it has a new link or its place is
    /// free.
    pub(super) fn may_fit(&mut self, worker: &AgentId) {
        self.unfit.values_mut().for_each(|unfit| unfit.retain(|other| other != worker));
    }

    /// Puts every Task into the line of the groups that serve it now. The cost is that of all Tasks that
    /// wait; it is only due when a worker comes that serves other sessions than any before it.
    pub(super) fn regroup(&mut self, supply: &impl Supply) {
        let mut places: Vec<(u64, TaskKey)> =
            self.entries.iter().map(|(key, entry)| (entry.place, key.clone())).collect();
        places.sort_unstable();
        self.withheld.regroup(|key| supply.serving(&key.session_id));
        self.lanes.clear();
        for (_, key) in places {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.groups = supply.serving(&key.session_id);
            let lane = self.lanes.entry(Reverse(entry.has.priority)).or_default();
            let line = lane.entry(entry.groups).or_default();
            line.count(0, entry.has.ready);
            line.tasks.push_back(key);
        }
    }

    /// A Task that waits already keeps its place, unless its priority has changed.
    fn place(&mut self, key: TaskKey, has: Left, supply: &impl Supply) {
        let Some(entry) = self.entries.get_mut(&key) else {
            if has.ready > 0 {
                let groups = supply.serving(&key.session_id);
                self.enter(key, LaneEntry { has, left: 0, groups, place: 0 });
            }
            return;
        };
        let (groups, old, new) = (entry.groups, Reverse(entry.has.priority), Reverse(has.priority));
        if old == new {
            let before = std::mem::replace(&mut entry.has, has).ready;
            let after = entry.has.ready;
            if let Some(line) = self.line(old, groups) {
                line.count(before, after);
            }
            self.sweep(old, groups);
            return;
        }
        let before = entry.has.ready;
        self.entries.remove(&key);
        if let Some(line) = self.line(old, groups) {
            line.count(before, 0);
            line.tasks.retain(|waits| *waits != key);
        }
        if has.ready > 0 {
            self.enter(key, LaneEntry { has, left: 0, groups, place: 0 });
        }
    }

    /// A Task goes to the end of its line.
    fn enter(&mut self, key: TaskKey, entry: LaneEntry) {
        let place = self.take_place();
        let lane = self.lanes.entry(Reverse(entry.has.priority)).or_default();
        let line = lane.entry(entry.groups).or_default();
        line.count(0, entry.has.ready);
        line.tasks.push_back(key.clone());
        self.entries.insert(key, LaneEntry { place, ..entry });
    }

    fn take_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }

    fn line(&mut self, lane: Reverse<i32>, groups: GroupSet) -> Option<&mut WaitingLine> {
        self.lanes.get_mut(&lane)?.get_mut(&groups)
    }

    /// Takes Tasks without ready Steps out of a line in which most have none: where no worker comes, no
    /// turn would. The cost is shared by the Tasks that came to have none.
    fn sweep(&mut self, lane: Reverse<i32>, groups: GroupSet) {
        let Some(line) = self.lanes.get_mut(&lane).and_then(|lane| lane.get_mut(&groups)) else {
            return;
        };
        if line.tasks.len() <= 2 * line.live + SPENT_MAX {
            return;
        }
        let entries = &mut self.entries;
        line.tasks.retain(|key| {
            let is_live = entries.get(key).is_some_and(|entry| entry.has.ready > 0);
            if !is_live {
                entries.remove(key);
            }
            is_live
        });
    }

    /// Notes that a Task no longer waits.
    pub(super) fn remove(&mut self, key: &TaskKey) {
        self.unfit.remove(key);
        self.withheld.remove(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let before = std::mem::take(&mut entry.has.ready);
        let (lane, groups) = (Reverse(entry.has.priority), entry.groups);
        if let Some(line) = self.line(lane, groups) {
            line.count(before, 0);
        }
        self.sweep(lane, groups);
    }

    /// Serves the Task whose turn it is, with what the supply gives. Serves nobody if no credit is free or
    /// no free worker fits any Task.
    pub(super) fn serve<S: Supply>(
        &mut self,
        supply: &mut S,
    ) -> Option<(TaskKey, Address, S::Taken)> {
        if supply.open().is_empty() {
            return None;
        }
        let lanes: Vec<Reverse<i32>> = self.lanes.keys().copied().collect();
        lanes.into_iter().find_map(|lane| self.serve_lane(lane, supply))
    }

    fn serve_lane<S: Supply>(
        &mut self,
        lane: Reverse<i32>,
        supply: &mut S,
    ) -> Option<(TaskKey, Address, S::Taken)> {
        for _ in 0..self.in_lane(lane, supply.open()) {
            let (groups, key) = self.pop(lane, supply.open())?;
            let others = self.in_lane(lane, groups);
            let open = groups.both(supply.open());
            let weight = self.weight(&key, others, supply.free_in(open));
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if entry.has.ready == 0 {
                self.entries.remove(&key);
                continue;
            }
            let task = entry.has.task.clone();
            let unfit = self.unfit.get(&key).map_or(&[][..], Vec::as_slice);
            let (given, taken) = supply.take(weight.min(entry.has.ready), unfit, open);
            self.spend(&key, weight, given);
            if given > 0 {
                return Some((key, task, taken));
            }
        }
        self.drop_empty();
        None
    }

    /// How many Tasks of a lane are in lines that some of these groups serve.
    fn in_lane(&self, lane: Reverse<i32>, groups: GroupSet) -> usize {
        let lines = self.lanes.get(&lane).into_iter().flatten();
        lines.filter(|(of, _)| of.meets(groups)).map(|(_, line)| line.tasks.len()).sum()
    }

    /// Takes the Task with the first place out of the lines that some of these groups serve.
    fn pop(&mut self, lane: Reverse<i32>, open: GroupSet) -> Option<(GroupSet, TaskKey)> {
        let groups = first_of(self.lanes.get(&lane)?, &self.entries, open)?;
        let key = self.line(lane, groups)?.tasks.pop_front()?;
        Some((groups, key))
    }

    /// The weight of a Task's turn, with `others` more Tasks that want the same credits.
    fn weight(&mut self, key: &TaskKey, others: usize, free: usize) -> usize {
        let full = free.div_ceil(others + 1).max(self.pace.in_a_moment()).max(1);
        // A turn that began while Steps were short loses weight when they no longer are.
        self.entries.get(key).map_or(full, |entry| match entry.left {
            0 => full,
            left => left.min(full),
        })
    }

    /// Notes that a Task got `given` credits. The Task keeps the turn while some of its weight is
    /// left.
    fn spend(&mut self, key: &TaskKey, weight: usize, given: usize) {
        self.pace.note(given);
        let place = self.take_place();
        let Some(entry) = self.entries.get_mut(key) else { return };
        let before = entry.has.ready;
        entry.has.ready = before.saturating_sub(given);
        entry.left = if given == 0 { 0 } else { weight.saturating_sub(given) };
        let keeps_turn = entry.left > 0;
        if !keeps_turn {
            entry.place = place;
        }
        let lane = self.lanes.entry(Reverse(entry.has.priority)).or_default();
        let line = lane.entry(entry.groups).or_default();
        line.count(before, entry.has.ready);
        match keeps_turn {
            true => line.tasks.push_front(key.clone()),
            false => line.tasks.push_back(key.clone()),
        }
    }

    /// Serves a Task that is about to use credits for `steps` ready Steps, without waiting for its
    /// turn. If no Task waits for the same credits, it gets up to so many; if it has the turn, up to its
    /// weight; else none.
    pub(super) fn serve_at_once<S: Supply>(
        &mut self,
        key: &TaskKey,
        steps: usize,
        supply: &mut S,
    ) -> S::Taken {
        let known = self.entries.get(key).map(|entry| entry.groups);
        let groups = known.unwrap_or_else(|| supply.serving(&key.session_id));
        let open = groups.both(supply.open());
        if open.is_empty() {
            return S::Taken::default();
        }
        let Some((lane, line, front)) = self.front(open) else {
            let (given, taken) = supply.take(steps, &[], open);
            self.pace.note(given);
            return taken;
        };
        if front != *key {
            return S::Taken::default();
        }
        let Some(queue) = self.line(lane, line) else { return S::Taken::default() };
        queue.tasks.pop_front();
        let others = self.in_lane(lane, groups);
        let weight = self.weight(key, others, supply.free_in(open));
        let unfit = self.unfit.get(key).map_or(&[][..], Vec::as_slice);
        let (given, taken) = supply.take(weight.min(steps), unfit, open);
        self.spend(key, weight, given);
        taken
    }

    /// The Task whose turn it is of those that some of these groups serve, its lane and its line.
    fn front(&mut self, open: GroupSet) -> Option<(Reverse<i32>, GroupSet, TaskKey)> {
        let entries = &mut self.entries;
        for line in self.lanes.values_mut().flat_map(BTreeMap::values_mut) {
            while let Some(key) = line.tasks.front()
                && entries.get(key).is_none_or(|entry| entry.has.ready == 0)
            {
                entries.remove(key);
                line.tasks.pop_front();
            }
        }
        self.drop_empty();
        self.lanes.iter().find_map(|(lane, lines)| {
            let groups = first_of(lines, &self.entries, open)?;
            Some((*lane, groups, lines.get(&groups)?.tasks.front()?.clone()))
        })
    }

    fn drop_empty(&mut self) {
        self.lanes.retain(|_, lane| {
            lane.retain(|_, line| !line.tasks.is_empty());
            !lane.is_empty()
        });
    }
}

impl WaitingLine {
    /// Notes that a Task in the line has another number of ready Steps and Runs than before.
    fn count(&mut self, before: usize, after: usize) {
        self.ready = self.ready - before as u64 + after as u64;
        self.live = self.live - usize::from(before > 0) + usize::from(after > 0);
    }
}

/// The line of a lane with the first place, of those that some of these groups serve.
fn first_of(
    lane: &PriorityLane,
    entries: &IdMap<TaskKey, LaneEntry>,
    open: GroupSet,
) -> Option<GroupSet> {
    let lines = lane.iter().filter(|(groups, _)| groups.meets(open));
    let fronts = lines.filter_map(|(groups, line)| Some((*groups, line.tasks.front()?)));
    // A Task that has gone goes first: then it is out of the way.
    let place = |key: &TaskKey| entries.get(key).map_or(0, |entry| entry.place);
    fronts.min_by_key(|(_, key)| place(key)).map(|(groups, _)| groups)
}

#[cfg(test)]
mod tests;
