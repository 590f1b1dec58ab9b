//! Changes of records. Each change first notes the old record, so that it can be undone, takes the record
//! out of the indexes and puts it in again. It then updates the Steps that depend on a changed Step.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::undo::Note;
use super::{Attempt, Run, StepState, Task, Volatile};
use crate::status::StepStatus;
use crate::table::Pos;

impl Task {
    pub(crate) fn change_attempt(&mut self, pos: Pos, change: impl FnOnce(&mut Attempt)) {
        self.note_attempt(pos);
        let before = self.attempts[pos].completed_step();
        change(&mut self.attempts[pos]);
        self.judge_announced(pos, before);
    }

    pub(super) fn change_run(&mut self, pos: Pos, change: impl FnOnce(&mut Run)) {
        self.note(|task| Note::Run(pos, Box::new(task.runs[pos].clone())));
        self.run_out(pos);
        change(&mut self.runs[pos]);
        self.run_in(pos);
    }

    /// Changes what the owner's memory knows of a Run.
    pub(crate) fn change_memory<T>(
        &mut self,
        pos: Pos,
        change: impl FnOnce(&mut Volatile) -> T,
    ) -> T {
        self.run_out(pos);
        let changed = change(&mut self.volatile);
        self.run_in(pos);
        changed
    }

    pub(super) fn add_run(&mut self, run: Run) -> Pos {
        self.note(|_| Note::RunAdded);
        let pos = self.runs.push(run);
        self.run_in(pos);
        pos
    }

    /// Changes a Step's state, updates the indexes, and then updates the Steps that depend on it.
    pub(crate) fn change(&mut self, pos: Pos, change: impl FnOnce(&mut StepState)) {
        let before = Signals::of(&self.steps[pos].state);
        self.change_alone(pos, change);
        self.spread(pos, before);
    }

    pub(crate) fn change_alone(&mut self, pos: Pos, change: impl FnOnce(&mut StepState)) {
        self.note_step(pos);
        self.index_out(pos);
        self.change_state(pos, change);
        self.index_in(pos);
    }

    /// Changes a Step's state alone, and notes since when it stands as a failure (POL-05).
    pub(super) fn change_state(&mut self, pos: Pos, change: impl FnOnce(&mut StepState)) {
        let (state, version) = (&mut self.steps[pos].state, self.mark.version);
        let before = state.standing();
        change(state);
        let now = state.standing();
        if now != before {
            state.standing_since = if now.is_some() { version } else { 0 };
        }
    }

    /// Updates the dependents of a Step that became completed, dead, fatal or stuck, or ceased to be so.
    fn spread(&mut self, pos: Pos, before: Signals) {
        let now = Signals::of(&self.steps[pos].state);
        if now == before || self.steps[pos].dependents.is_empty() {
            return;
        }
        self.spread_all(&[Turn { pos, before }]);
    }

    /// Updates the dependents of changed Steps, and in turn theirs, as far as anything changes. It
    /// uses a worklist, not recursion, because chains may be long. The last of `turns` is done
    /// first, with all that follows but the other turns: a Step that has a turn of its own may change
    /// again before it, and its dependents then learn of both changes together.
    pub(crate) fn spread_all(&mut self, turns: &[Turn]) {
        let mut work: Vec<Pos> = turns.iter().map(|turn| turn.pos).collect();
        // For each Step of the worklist, the signals that its dependents count.
        let mut counted: BTreeMap<Pos, Signals> =
            turns.iter().map(|turn| (turn.pos, turn.before)).collect();
        while let Some(pos) = work.pop() {
            let now = Signals::of(&self.steps[pos].state);
            let Some(before) = counted.remove(&pos).filter(|before| *before != now) else {
                continue;
            };
            for i in 0..self.steps[pos].dependents.len() {
                let dependent = self.steps[pos].dependents[i];
                let then = Signals::of(&self.steps[dependent].state);
                self.change_alone(dependent, |s| {
                    s.unmet = shift(s.unmet, !before.completed, !now.completed);
                    s.dead = shift(s.dead, before.dead, now.dead);
                    s.fatal = shift(s.fatal, before.fatal, now.fatal);
                    s.stuck = shift(s.stuck, before.stuck, now.stuck);
                });
                if Signals::of(&self.steps[dependent].state) != then
                    && let Entry::Vacant(place) = counted.entry(dependent)
                {
                    place.insert(then);
                    work.push(dependent);
                }
            }
        }
    }

    /// Makes a Step of a new Task wait for its dependencies.
    pub(super) fn link(&mut self, pos: Pos) {
        let spec = Arc::clone(&self.steps[pos].spec);
        let (mut unmet, mut dead, mut fatal, mut stuck) = (0, 0, 0, 0);
        for id in &spec.depends_on_step_ids {
            let Some(dep) = self.find_step(id) else { continue };
            let on = &mut self.steps[dep];
            if let Err(place) = on.dependents.binary_search(&pos) {
                on.dependents.insert(place, pos);
            }
            unmet += u32::from(on.state.status != StepStatus::Completed);
            dead += u32::from(on.state.is_dead());
            fatal += u32::from(on.state.is_fatal());
            stuck += u32::from(on.state.is_stuck());
        }
        let state = &mut self.steps[pos].state;
        (state.unmet, state.dead, state.fatal, state.stuck) = (unmet, dead, fatal, stuck);
    }
}

/// What the dependents of a Step need to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signals {
    pub(crate) completed: bool,
    pub(crate) dead: bool,
    /// Never without `dead`.
    pub(crate) fatal: bool,
    /// Never missing with `dead`.
    pub(crate) stuck: bool,
}

impl Signals {
    pub(crate) fn of(state: &StepState) -> Self {
        let completed = state.status == StepStatus::Completed;
        let (dead, fatal) = (state.is_dead(), state.is_fatal());
        Self { completed, dead, fatal, stuck: state.is_stuck() }
    }

    /// How much keeps the Step from completing: a fatal Step is also dead, and a dead one is also stuck.
    pub(crate) fn weight(self) -> u8 {
        u8::from(self.stuck) + u8::from(self.dead) + u8::from(self.fatal)
    }
}

/// A Step whose signals have changed, while its dependents still count the old ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) pos: Pos,
    /// The signals that the dependents count.
    pub(crate) before: Signals,
}

fn shift(count: u32, was: bool, is: bool) -> u32 {
    count + u32::from(is) - u32::from(was)
}
