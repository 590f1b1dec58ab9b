//! What only the owner's memory holds of a Task, and a replay does not restore; and how long unused Runs wait.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use super::undo::Note;
use super::{Head, Run, Task};
use crate::id::{AgentId, CommandId, Digest, Millis, PoolId, system_agent};
use crate::record::Reason;
use crate::status::{RunState, TaskStatus};
use crate::table::{Pos, Table};

/// What only the owner's memory holds: no event in the log says it, and a new owner does not know
/// it (2.3, DISP-16, RUN-08). It is not part of the state that replay restores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Volatile {
    /// Who took an unclaimed Run.
    pub taken: BTreeMap<Pos, Taken>,
    /// Runs with a Step that ended while their Task is closing (RUN-08).
    pub gone: BTreeSet<Pos>,
    /// Runs asked to stop while they hold a Step.
    pub stopping: BTreeMap<Pos, Stopping>,
    /// The final outputs of dispatched Runs, for their dispatchers (DISP-13).
    pub results: BTreeMap<Pos, Arc<str>>,
    /// Runs that a worker may take, by pool: unused, and not taken by any worker.
    pub to_take: BTreeMap<PoolId, BTreeSet<Pos>>,
    /// Steps whose grants no worker acknowledged: the ordinal of the last such claim, and how many
    /// in a row.
    pub unacknowledged: BTreeMap<Pos, (u32, u32)>,
    /// How far open Attempts have seen the Task's `input_refs`, as heartbeats said it (CTRL-12). The next
    /// report takes it into the log.
    pub input_seen: BTreeMap<Pos, u32>,
    /// When unused Runs end by themselves (DISP-02).
    pub run_expiry: BTreeSet<(Millis, Pos)>,
    /// Until when no Step fails by its own time limits, on the steady line.
    pub steps_spared_until: Millis,
    /// How far the steady line is ahead of the clock.
    pub steady_ahead: Millis,
}

/// How many results of Runs are remembered, of the newest Runs: at most some 2 MiB per Task.
const RESULTS_MAX: usize = 256;

/// Who took an unclaimed Run (5.4 `take_run`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The worker.
    pub by: AgentId,
    /// When the scheduler offers the Run again if the worker says nothing until then, on the steady
    /// line of the node (which is not the Task's).
    pub until: Millis,
}

/// A `cancel_run` of a Run that holds a Step (5.4).
#[derive(Debug, Clone, PartialEq)]
pub struct Stopping {
    /// The command, which the final event will carry.
    pub command: Option<(CommandId, Option<Digest>)>,
    /// Why, in the orchestrator's words.
    pub reason: Option<Reason>,
    /// When the command came.
    pub requested_at: Millis,
    /// How long the run may take, on the steady line.
    pub deadline_at: Millis,
}

impl Volatile {
    pub(super) fn offer(&mut self, pos: Pos, run: &Run, head: &Head) {
        if !run.is_unused() {
            return;
        }
        self.run_expiry.extend(head.run_expiry(run).map(|at| (at, pos)));
        if !self.taken.contains_key(&pos) {
            self.to_take.entry(run.worker_pool_id.clone()).or_default().insert(pos);
        }
    }

    pub(super) fn withdraw(&mut self, pos: Pos, run: &Run, head: &Head) {
        if let Some(at) = head.run_expiry(run) {
            self.run_expiry.remove(&(at, pos));
        }
        let Some(pool) = self.to_take.get_mut(&run.worker_pool_id) else { return };
        pool.remove(&pos);
        if pool.is_empty() {
            self.to_take.remove(&run.worker_pool_id);
        }
    }

    /// Whether the indexes of unused Runs are those that follow from the Runs.
    pub(crate) fn agrees_with(&self, runs: &Table<Run>, head: &Head) -> bool {
        let (to_take, run_expiry) = (BTreeMap::new(), BTreeSet::new());
        let mut fresh = Self { to_take, run_expiry, ..self.clone() };
        (0..).zip(runs.iter()).for_each(|(pos, run)| fresh.offer(pos, run, head));
        (&fresh.to_take, &fresh.run_expiry) == (&self.to_take, &self.run_expiry)
    }

    /// Records, or removes, the request that a Run stop. Returns what was recorded before.
    pub(crate) fn put_stopping(
        &mut self,
        run: Pos,
        stopping: Option<Stopping>,
    ) -> Option<Stopping> {
        match stopping {
            Some(stopping) => self.stopping.insert(run, stopping),
            None => self.stopping.remove(&run),
        }
    }
}

impl Run {
    /// Whether a dispatcher made it (DISP-02), and not the scheduler.
    pub fn is_dispatched(&self) -> bool {
        self.dispatched_by != system_agent()
    }

    /// Whether it has neither claimed nor ended.
    pub fn is_unused(&self) -> bool {
        self.state == RunState::Dispatched
    }

    /// How long it waits to be used, in milliseconds; `None`: for ever.
    fn life_ms(&self) -> Option<Millis> {
        self.expires_at.map(|at| at.saturating_sub(self.created_at))
    }
}

impl Head {
    /// When a Run ends by itself if nobody uses it, by the time of events; `None`: never. DISP-02: its
    /// time rests while the Task is blocked or paused, and begins anew with a reopen or resume.
    pub fn expires_at(&self, run: &Run) -> Option<Millis> {
        if !run.is_unused() {
            return run.expires_at;
        }
        let begun = run.created_at.max(self.resumed_at.unwrap_or(Millis::MIN));
        let life = run.life_ms().filter(|_| self.counts_run_time());
        life.map(|ms| begun.saturating_add(ms))
    }

    /// The same for an unused Run, on the steady line, and whether or not its time rests.
    pub(crate) fn run_expiry(&self, run: &Run) -> Option<Millis> {
        let made = run.created_at.saturating_add(run.shift);
        let resumed = self.resumed_at.map(|at| at.saturating_add(self.resumed_shift));
        run.life_ms().map(|ms| made.max(resumed.unwrap_or(Millis::MIN)).saturating_add(ms))
    }

    /// Whether the time of unused Runs passes (DISP-02).
    pub(crate) const fn counts_run_time(&self) -> bool {
        !matches!(self.status, TaskStatus::Blocked | TaskStatus::Paused)
    }
}

impl Task {
    /// Whether an Attempt is open, or the owner's memory alone holds something of the Task, however much its clocks
    /// differ from the log's: then the owner may not drop it from memory. This looks at no Step.
    pub fn is_at_work(&self) -> bool {
        let Volatile { taken, gone, stopping, results, unacknowledged, .. } = &self.volatile;
        let is_bare = taken.is_empty()
            && gone.is_empty()
            && stopping.is_empty()
            && results.is_empty()
            && unacknowledged.is_empty();
        !is_bare || self.open_attempts().next().is_some()
    }

    /// Whether a replay of the log gives all that the owner's memory holds of the Task, so that the owner may drop it
    /// from memory. No Attempt of such a Task is open, so nothing matters any more of what heartbeats said.
    pub fn is_all_in_log(&self) -> bool {
        let head = &self.head;
        let head_shifts =
            [head.resumed_shift, head.drained_shift, head.required_done_shift, head.closing_shift];
        let is_shifted = head_shifts.iter().any(|shift| *shift != 0)
            || head.paused.is_shifted()
            || head.resting.is_shifted()
            || self.steps.iter().any(|step| step.state.shift != 0)
            || self.runs.iter().any(|run| run.shift != 0);
        !self.is_at_work() && !is_shifted && !self.is_ahead()
    }

    /// Records that a Run with a Step has ended although the log does not say so (RUN-08).
    pub(crate) fn mark_gone(&mut self, run: Pos) {
        if self.volatile.gone.insert(run) {
            self.note(|_| Note::Gone(run));
        }
    }

    /// Records the first final output of a dispatched Run; nobody waits for the output of a Run
    /// that the scheduler made. Returns whether it is the first, as far as the memory knows.
    pub(crate) fn keep_result(&mut self, run: Pos, result: &Arc<str>) -> bool {
        if self.volatile.results.contains_key(&run) {
            return false;
        }
        if self.runs[run].is_dispatched() {
            let results = &mut self.volatile.results;
            results.insert(run, Arc::clone(result));
            let is_over = results.len() > RESULTS_MAX;
            let forgotten = is_over.then(|| results.pop_first()).flatten();
            self.note(|_| Note::Result(run, forgotten));
        }
        true
    }

    /// Records that no worker acknowledged the current grant of the Step. Returns how often in a row.
    pub(crate) fn note_unacknowledged(&mut self, step: Pos) -> u32 {
        let ordinal = self.steps[step].state.ordinal;
        let before = self.volatile.unacknowledged.get(&step).copied();
        let in_a_row = match before {
            Some((last, count)) if last + 1 == ordinal => count.saturating_add(1),
            _ => 1,
        };
        self.note(|_| Note::Unacknowledged(step, before));
        self.volatile.unacknowledged.insert(step, (ordinal, in_a_row));
        in_a_row
    }

    /// Records, or removes, the request that a Run stop. Returns what was recorded before.
    pub(crate) fn set_stopping(
        &mut self,
        run: Pos,
        stopping: Option<Stopping>,
    ) -> Option<Stopping> {
        let before = self.volatile.put_stopping(run, stopping);
        self.note(|_| Note::Stopping(run, before.clone().map(Box::new)));
        before
    }
}
