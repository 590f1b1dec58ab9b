//! Whose turn it is: Tasks with ready Steps, round robin within a priority (P16).
//!
//! A turn is worth an equal share of the free credits, or what the pool hands out in a moment if
//! that is more. So Tasks with long Steps alternate Step by Step, and Tasks with short Steps get
//! many at once: their reports then share appends, and the next Task waits no longer than a moment.
//!
//! There is a line for each set of groups of workers that serve the sessions of its Tasks (DISP-20), and
//! each set of workers that fit none of their ready Steps. The Tasks of one priority in all lines that free
//! workers fit take turns as if they stood in one; a line that no free worker fits is passed over as a whole,
//! however long it is, and whatever priorities its Tasks have. So a Task is tried once with each worker. Where more
//! lines would be needed than there may be, Tasks are looked at one by one, a few in each pass (`overflow`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tenure_core::id::{AgentId, Millis, SessionId, StepId};
use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;
use tokio::time::Instant;

use super::Left;
use super::groups::GroupSet;
use super::sample::SeenSteps;
use crate::task::address::Address;

mod line;
mod overflow;
mod pace;
mod regroup;
mod unfit;
mod withheld;

use self::line::{
    LINES_MAX, Lane, LineKey, Place, WaitingLine, WaitingLines, first_of, lane_below,
};
use self::overflow::{LookedAt, OverflowTasks};
use self::pace::Pace;
use self::unfit::UnfitLists;
use self::withheld::WithheldTasks;

/// So many Tasks without ready Steps may stand in a line before they are taken out of it.
const SPENT_MAX: usize = 64;

/// A Task with a place in a line. A Task without ready Steps stays until its turn comes, so that it
/// never has two places.
#[derive(Debug)]
struct LaneEntry {
    has: Left,
    /// How many credits are left of its turn; 0 before its turn begins.
    left: usize,
    /// Its line.
    line: LineKey,
    /// Its place among all lines. It keeps that in another line too.
    place: Place,
    /// Where it is among the Tasks of overflow lines, if it stands in one.
    look: Option<LookedAt>,
}

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

    /// How often a worker without free credits came to have some, up to now.
    fn arrivals(&self) -> u64;

    /// Whether a worker of these groups has free credits and is none of these (sorted). If at so many
    /// arrivals none had, it checks only who arrived later; 0: all.
    fn has_fit(&self, unfit: &[AgentId], groups: GroupSet, none_at: u64) -> bool;

    /// Takes up to so many credits of these groups, and none of workers that do not fit (sorted). Answers
    /// how many it took.
    fn take(&mut self, wanted: usize, unfit: &[AgentId], groups: GroupSet) -> (usize, Self::Taken);
}

/// The Tasks that wait for a worker.
#[derive(Debug)]
pub(super) struct Turns {
    lines: WaitingLines,
    entries: IdMap<TaskKey, LaneEntry>,
    /// Workers that fit none of a Task's ready Steps, until the Task has others. They are stored
    /// apart from the Task's entry, which is removed while all that is known to be ready is lent to
    /// it.
    unfit: UnfitLists,
    /// The Tasks of overflow lines.
    overflow: OverflowTasks,
    /// Tasks that wait and take no credits for now. They are in no line.
    withheld: WithheldTasks,
    pace: Pace,
    /// The place of the next Task that goes to the end of a line.
    next_place: u64,
    /// When all Tasks were put into other lines last.
    regrouped: Option<Instant>,
}

impl Turns {
    pub(super) fn new() -> Self {
        let (entries, unfit, overflow, withheld) = Default::default();
        let (lines, pace, next_place, regrouped) = (BTreeMap::new(), Pace::new(), 0, None);
        Self { lines, entries, unfit, overflow, withheld, pace, next_place, regrouped }
    }

    /// Whether a Task waits that a worker with free credits may fit. Drops lines in which none waits.
    pub(super) fn has_next(&mut self, supply: &impl Supply) -> bool {
        let open = supply.open();
        !open.is_empty() && (self.front(open, supply).is_some() || self.is_to_look(supply))
    }

    /// Whether nothing is ready in any Task.
    pub(super) fn is_empty(&self) -> bool {
        self.withheld.is_empty() && self.lines.values().all(|line| line.live == 0)
    }

    /// Whether anything is known of a Task.
    pub(super) fn has(&self, key: &TaskKey) -> bool {
        self.entries.contains_key(key) || self.withheld.has(key)
    }

    /// How many Steps and Runs are ready, in all Tasks that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.lines.values().map(|line| line.ready).sum::<u64>() + self.withheld.ready()
    }

    /// How many Steps and Runs wait for groups that have workers, and none with free credits.
    pub(super) fn waiting_for_credits(&self, manned: GroupSet, open: GroupSet) -> u64 {
        let waits = |groups: GroupSet| groups.meets(manned) && !groups.meets(open);
        let lines = self.lines.iter().filter(|(key, _)| waits(key.groups));
        lines.map(|(_, line)| line.ready).sum()
    }

    /// The ready Steps of each Task in a line. This is an estimate: when a Task is lent credits, it is not known yet
    /// for which of its Steps it uses them.
    pub(super) fn seen_steps(&self) -> Vec<SeenSteps> {
        let waiting = self.entries.values().filter(|entry| entry.has.ready > 0);
        let seen = waiting.map(|LaneEntry { has, line, .. }| SeenSteps {
            groups: line.groups,
            ready: has.ready,
            steps: has.steps.clone(),
        });
        seen.collect()
    }

    /// How many ready Steps there are in Tasks that take no credits for now.
    pub(super) fn withheld_steps(&self) -> u64 {
        self.withheld.all().map(Left::ready_steps).sum()
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
            return self.withhold(key, has);
        }
        self.withheld.remove(&key);
        self.place(key, has, supply);
    }

    /// Takes a Task out of its line that wants no credits for now. It waits on, and stays counted.
    fn withhold(&mut self, key: TaskKey, has: Left) {
        self.remove(&key);
        if has.ready > 0 {
            self.withheld.put(key, has);
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
        if has.ready > 0 && !has.is_withheld {
            self.unfit.add(&key, worker);
        }
        self.put_back(key, has, supply);
    }

    /// Notes what a Task has left of what it had before: who did not fit it does not fit it now.
    pub(super) fn put_back(&mut self, key: TaskKey, has: Left, supply: &impl Supply) {
        if has.is_withheld || has.ready == 0 {
            return self.put(key, has, supply);
        }
        self.withheld.remove(&key);
        self.place(key, has, supply);
    }

    /// A Task that waits already keeps its place, unless its priority has changed.
    fn place(&mut self, key: TaskKey, has: Left, supply: &impl Supply) {
        let Some(entry) = self.entries.get_mut(&key) else {
            if has.ready > 0 {
                let groups = supply.serving(&key.session_id);
                self.enter(key, has, groups);
            }
            return;
        };
        if entry.has.priority == has.priority {
            let before = std::mem::replace(&mut entry.has, has).ready;
            let after = entry.has.ready;
            if let Some(line) = self.lines.get_mut(&entry.line) {
                line.count(before, after);
            }
            return self.move_to_its_line(&key, 0);
        }
        let groups = entry.line.groups;
        if let Some(gone) = self.entries.remove(&key) {
            gone.look.into_iter().for_each(|look| self.overflow.remove(look));
            if let Some(line) = self.lines.get_mut(&gone.line) {
                line.remove(gone.place, gone.has.ready);
            }
        }
        if has.ready > 0 {
            self.enter(key, has, groups);
        }
    }

    /// A Task goes to the end of its line.
    fn enter(&mut self, key: TaskKey, has: Left, groups: GroupSet) {
        let place = (Reverse(has.priority), self.take_number());
        let line = self.line_of(groups, &key);
        self.lines.entry(line.clone()).or_default().insert(place, key.clone(), has.ready);
        let look = line.is_overflow.then(|| self.overflow.put(key.clone(), 0));
        self.entries.insert(key, LaneEntry { has, left: 0, line, place, look });
    }

    /// The line for a Task, whose session these groups serve.
    fn line_of(&mut self, groups: GroupSet, key: &TaskKey) -> LineKey {
        let Some(unfit) = self.unfit.get_mut(key) else {
            return LineKey::for_all(groups);
        };
        let wanted = LineKey { unfit: unfit.clone(), ..LineKey::for_all(groups) };
        if let Some((known, _)) = self.lines.get_key_value(&wanted) {
            *unfit = known.unfit.clone(); // One list for all.
            return known.clone();
        }
        match self.lines.len() < LINES_MAX {
            true => wanted,
            false => LineKey::overflow(groups),
        }
    }

    /// A Task that other workers may fit than before goes to another line. It keeps its place. At so many arrivals it
    /// is known that no worker with credits fits it; 0: nobody has looked.
    fn move_to_its_line(&mut self, key: &TaskKey, none_at: u64) {
        let Some(entry) = self.entries.get(key) else { return };
        let groups = entry.line.groups;
        let line = self.line_of(groups, key);
        self.move_to(key, line, none_at);
    }

    fn move_to(&mut self, key: &TaskKey, line: LineKey, none_at: u64) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let (place, ready) = (entry.place, entry.has.ready);
        entry.look.take().into_iter().for_each(|look| self.overflow.remove(look));
        entry.look = line.is_overflow.then(|| self.overflow.put(key.clone(), none_at));
        let old = std::mem::replace(&mut entry.line, line.clone());
        if old != line
            && let Some(key) = self.lines.get_mut(&old).and_then(|it| it.remove(place, ready))
        {
            self.lines.entry(line).or_default().insert(place, key, ready);
        }
        self.sweep(&old);
    }

    fn take_number(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }

    /// Takes Tasks without ready Steps out of a line in which most have none: where no worker comes, no
    /// turn would. The cost is shared by the Tasks that came to have none.
    fn sweep(&mut self, key: &LineKey) {
        let Some(line) = self.lines.get_mut(key) else { return };
        if line.len() > 2 * line.live + SPENT_MAX {
            let (entries, overflow) = (&mut self.entries, &mut self.overflow);
            line.drop_all_spent(|key| drop_spent_entry(entries, overflow, key));
        }
        if line.is_empty() && !key.is_for_all() {
            self.lines.remove(key);
        }
    }

    /// Notes that a Task no longer waits.
    pub(super) fn remove(&mut self, key: &TaskKey) {
        self.unfit.remove(key);
        self.withheld.remove(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let before = std::mem::take(&mut entry.has.ready);
        let line_key = entry.line.clone();
        if let Some(line) = self.lines.get_mut(&line_key) {
            line.count(before, 0);
        }
        self.sweep(&line_key);
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
        self.look_at_some(supply);
        let mut tried = None;
        while let Some(lane) = lane_below(&self.lines, tried, supply.open(), supply) {
            let served = self.serve_lane(lane, supply);
            if served.is_some() {
                return served;
            }
            tried = Some(lane);
        }
        self.drop_empty();
        None
    }

    fn serve_lane<S: Supply>(
        &mut self,
        lane: Lane,
        supply: &mut S,
    ) -> Option<(TaskKey, Address, S::Taken)> {
        for _ in 0..self.in_lane(lane, supply.open(), supply) {
            let (_, line, key) = first_of(&self.lines, Some(lane), supply.open(), supply)?;
            let (line, key) = (line.clone(), key.clone());
            if self.drop_spent(lane, &line) {
                continue;
            }
            let others = self.in_lane(lane, line.groups, supply).saturating_sub(1);
            let open = line.groups.both(supply.open());
            let weight = self.weight(&key, others, supply.free_in(open));
            let entry = self.entries.get(&key)?;
            let task = entry.has.task.clone();
            let unfit = self.unfit.all(&key);
            let (given, taken) = supply.take(weight.min(entry.has.ready), unfit, open);
            self.spend(&key, weight, given);
            if given > 0 {
                return Some((key, task, taken));
            }
            // A Task that was given no credit goes to the line of those that no free worker fits.
            self.move_to_its_line(&key, supply.arrivals());
        }
        None
    }

    /// How many Tasks of a lane are in lines that some of these groups serve, without those that no free
    /// worker fits.
    fn in_lane(&self, lane: Lane, groups: GroupSet, supply: &impl Supply) -> usize {
        let is_meant = |key: &LineKey, line: &WaitingLine| {
            key.groups.meets(groups) && (key.is_for_all() || line.is_served(key, supply))
        };
        let lines = self.lines.iter().filter(|(key, line)| is_meant(key, line));
        lines.map(|(_, line)| line.len_of(lane)).sum()
    }

    /// Takes Tasks of a priority without ready Steps from the front of a line. Answers whether there was any.
    fn drop_spent(&mut self, lane: Lane, key: &LineKey) -> bool {
        let Self { lines, entries, overflow, .. } = self;
        let is_spent = |key: &TaskKey| drop_spent_entry(entries, overflow, key);
        lines.get_mut(key).is_some_and(|line| line.drop_spent(Some(lane), is_spent))
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
        let number = self.take_number();
        let Some(entry) = self.entries.get_mut(key) else { return };
        let before = entry.has.ready;
        entry.has.ready = before.saturating_sub(given);
        entry.left = if given == 0 { 0 } else { weight.saturating_sub(given) };
        let Some(line) = self.lines.get_mut(&entry.line) else { return };
        line.count(before, entry.has.ready);
        let last = (entry.place.0, number);
        if entry.left > 0 {
            return;
        }
        if line.replace(entry.place, last) {
            entry.place = last;
        }
        if given > 0 && self.overflow.had_turn(key) {
            self.move_to_its_line(key, 0);
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
        let known = self.entries.get(key).map(|entry| entry.line.groups);
        let groups = known.unwrap_or_else(|| supply.serving(&key.session_id));
        let open = groups.both(supply.open());
        if open.is_empty() {
            return S::Taken::default();
        }
        self.look_at_some(supply);
        let Some((lane, front)) = self.front(open, supply) else {
            if self.entries.get(key).is_some_and(|entry| entry.has.ready > 0) {
                return S::Taken::default(); // It waits for workers that fit.
            }
            let (given, taken) = supply.take(steps, &[], open);
            self.pace.note(given);
            return taken;
        };
        if front != *key {
            return S::Taken::default();
        }
        let others = self.in_lane(lane, groups, supply).saturating_sub(1);
        let weight = self.weight(key, others, supply.free_in(open));
        let (given, taken) = supply.take(weight.min(steps), self.unfit.all(key), open);
        self.spend(key, weight, given);
        taken
    }

    /// The Task whose turn it is of those that some of these groups serve and free workers fit, and its lane.
    fn front(&mut self, open: GroupSet, supply: &impl Supply) -> Option<(Lane, TaskKey)> {
        let Self { lines, entries, overflow, .. } = self;
        lines.retain(|_, line| {
            line.drop_spent(None, |key| drop_spent_entry(entries, overflow, key));
            !line.is_empty()
        });
        let ((lane, _), _, key) = first_of(lines, None, open, supply)?;
        Some((lane, key.clone()))
    }

    fn drop_empty(&mut self) {
        self.lines.retain(|_, line| !line.is_empty());
    }
}

/// Forgets a Task if it has no ready Steps. Answers whether it had none.
fn drop_spent_entry(
    entries: &mut IdMap<TaskKey, LaneEntry>,
    overflow: &mut OverflowTasks,
    key: &TaskKey,
) -> bool {
    let is_spent = entries.get(key).is_none_or(|entry| entry.has.ready == 0);
    if is_spent && let Some(look) = entries.remove(key).and_then(|entry| entry.look) {
        overflow.remove(look);
    }
    is_spent
}

#[cfg(test)]
mod tests;
