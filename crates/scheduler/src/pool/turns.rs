//! Whose turn it is: Tasks with ready Steps, round robin within a priority (P16).
//!
//! A turn is worth an equal share of the free credits, or what the pool hands out in a moment if
//! that is more. So Tasks with long Steps alternate Step by Step, and Tasks with short Steps get
//! many at once: their reports then share appends, and the next Task waits no longer than a moment.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure_core::id::{AgentId, HandlerName, Millis, StepId};
use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;
use tokio::time::Instant;

use super::Left;
use crate::task::address::Address;

/// The moment that a turn lasts where Steps are short.
const MOMENT: Duration = Duration::from_millis(5);

/// A Task with a place in a lane. A Task without ready Steps stays until its turn comes, so that it
/// never has two places.
#[derive(Debug)]
struct LaneEntry {
    has: Left,
    /// How many credits are left of its turn; 0 before its turn begins.
    left: usize,
}

/// The Tasks that wait for a worker.
#[derive(Debug)]
pub(super) struct Turns {
    lanes: BTreeMap<Reverse<i32>, VecDeque<TaskKey>>,
    entries: IdMap<TaskKey, LaneEntry>,
    /// Workers that fit none of a Task's ready Steps, until the Task has others. They are stored
    /// apart from the Task's entry, which is removed while all that is known to be ready is lent to
    /// it.
    unfit: IdMap<TaskKey, Vec<AgentId>>,
    pace: Pace,
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
        Self { lanes: BTreeMap::new(), entries: IdMap::default(), unfit: IdMap::default(), pace }
    }

    /// Whether a Task waits. Drops lanes in which none does.
    pub(super) fn has_next(&mut self) -> bool {
        self.front().is_some()
    }

    /// How many Steps and Runs are ready, in all Tasks that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.entries.values().map(|entry| entry.has.ready as u64).sum()
    }

    /// The ready Steps of all Tasks that wait, by handler. This is an estimate: when a Task is lent
    /// credits, it is not known yet for which of its Steps it uses them.
    pub(super) fn steps(&self) -> BTreeMap<&HandlerName, u64> {
        let mut steps: BTreeMap<&HandlerName, u64> = BTreeMap::new();
        for entry in self.entries.values() {
            let mut left = entry.has.ready;
            for (handler, count) in &entry.has.steps {
                let waiting = (*count).min(left);
                left -= waiting;
                *steps.entry(handler).or_default() += waiting as u64;
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
        let of_tasks = self.entries.iter().filter(|(key, _)| is_meant(key));
        let waiting = of_tasks.filter(|(_, entry)| entry.has.ready > 0);
        let next = waiting.filter_map(|(key, entry)| Some((key, entry.has.next.as_ref()?)));
        next.min_by_key(|(key, (since, _))| (*since, *key))
    }

    /// Notes how many ready Steps a Task has. They may be new, so they may fit any worker.
    pub(super) fn put(&mut self, key: TaskKey, has: Left) {
        self.unfit.remove(&key);
        self.place(key, has);
    }

    /// Notes that nothing that a Task has left fits a worker.
    pub(super) fn put_unfit(&mut self, key: TaskKey, has: Left, worker: &AgentId) {
        if has.ready == 0 {
            self.unfit.remove(&key);
        } else {
            self.unfit.entry(key.clone()).or_default().push(worker.clone());
        }
        self.place(key, has);
    }

    /// A worker may fit Steps that it did not fit before, as it has a new link or its place is
    /// free.
    pub(super) fn may_fit(&mut self, worker: &AgentId) {
        self.unfit.values_mut().for_each(|unfit| unfit.retain(|other| other != worker));
    }

    /// A Task that waits already keeps its place, unless its priority has changed.
    fn place(&mut self, key: TaskKey, has: Left) {
        if let Some(entry) = self.entries.get_mut(&key) {
            let (old, new) = (Reverse(entry.has.priority), Reverse(has.priority));
            entry.has = has;
            if old != new {
                entry.left = 0;
                self.lanes.entry(old).or_default().retain(|waits| *waits != key);
                self.lanes.entry(new).or_default().push_back(key);
            }
        } else if has.ready > 0 {
            self.lanes.entry(Reverse(has.priority)).or_default().push_back(key.clone());
            self.entries.insert(key, LaneEntry { has, left: 0 });
        }
    }

    /// Notes that a Task no longer waits.
    pub(super) fn remove(&mut self, key: &TaskKey) {
        self.unfit.remove(key);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.has.ready = 0;
        }
    }

    /// Serves the Task whose turn it is. `take` gets how many credits the Task may have, and the
    /// workers that do not fit it; it answers how many credits it took. Serves nobody if `free` is
    /// 0 or no free worker fits any Task.
    pub(super) fn serve<T>(
        &mut self,
        free: usize,
        mut take: impl FnMut(usize, &[AgentId]) -> (usize, T),
    ) -> Option<(TaskKey, Address, T)> {
        if free == 0 {
            return None;
        }
        let lanes: Vec<Reverse<i32>> = self.lanes.keys().copied().collect();
        lanes.into_iter().find_map(|lane| self.serve_lane(lane, free, &mut take))
    }

    fn serve_lane<T>(
        &mut self,
        lane: Reverse<i32>,
        free: usize,
        take: &mut impl FnMut(usize, &[AgentId]) -> (usize, T),
    ) -> Option<(TaskKey, Address, T)> {
        let in_lane = self.lanes.get(&lane).map_or(0, VecDeque::len);
        for _ in 0..in_lane {
            let key = self.lanes.get_mut(&lane)?.pop_front()?;
            let others = self.lanes.get(&lane).map_or(0, VecDeque::len);
            let weight = self.weight(&key, others, free);
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if entry.has.ready == 0 {
                self.entries.remove(&key);
                continue;
            }
            let task = entry.has.task.clone();
            let unfit = self.unfit.get(&key).map_or(&[][..], Vec::as_slice);
            let (given, taken) = take(weight.min(entry.has.ready), unfit);
            self.spend(&key, lane, weight, given);
            if given > 0 {
                return Some((key, task, taken));
            }
        }
        self.lanes.retain(|_, lane| !lane.is_empty());
        None
    }

    /// The weight of a Task's turn, with `others` more Tasks in its lane.
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
    fn spend(&mut self, key: &TaskKey, lane: Reverse<i32>, weight: usize, given: usize) {
        self.pace.note(given);
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.has.ready = entry.has.ready.saturating_sub(given);
        entry.left = if given == 0 { 0 } else { weight.saturating_sub(given) };
        let lane = self.lanes.entry(lane).or_default();
        if entry.left > 0 {
            lane.push_front(key.clone());
        } else {
            lane.push_back(key.clone());
        }
    }

    /// Serves a Task that is about to use credits for `steps` ready Steps, without waiting for its
    /// turn. If no Task waits, it gets up to so many; if it has the turn, up to its weight; else
    /// none.
    pub(super) fn serve_at_once<T: Default>(
        &mut self,
        key: &TaskKey,
        steps: usize,
        free: usize,
        take: impl FnOnce(usize, &[AgentId]) -> (usize, T),
    ) -> T {
        let Some((lane, front)) = self.front() else {
            let (given, taken) = take(steps, &[]);
            self.pace.note(given);
            return taken;
        };
        if front != *key {
            return T::default();
        }
        let Some(queue) = self.lanes.get_mut(&lane) else { return T::default() };
        queue.pop_front();
        let others = queue.len();
        let weight = self.weight(key, others, free);
        let unfit = self.unfit.get(key).map_or(&[][..], Vec::as_slice);
        let (given, taken) = take(weight.min(steps), unfit);
        self.spend(key, lane, weight, given);
        taken
    }

    /// The Task whose turn it is, and its lane.
    fn front(&mut self) -> Option<(Reverse<i32>, TaskKey)> {
        let entries = &mut self.entries;
        self.lanes.retain(|_, lane| {
            while let Some(key) = lane.front()
                && entries.get(key).is_none_or(|entry| entry.has.ready == 0)
            {
                entries.remove(key);
                lane.pop_front();
            }
            !lane.is_empty()
        });
        let (lane, queue) = self.lanes.iter().next()?;
        Some((*lane, queue.front()?.clone()))
    }
}
