//! Undoes changes that are not durable, and lets readers see the last durable state (mechanisms 2).
//!
//! While an append is in flight, and while commands are decided for it, the state is ahead of the
//! log. Every change first notes the record as it was, including what only the owner's memory
//! knows. If the append fails, the Task applies the notes backwards and the state is exactly what
//! it was; if it succeeds, the Task drops the notes. Readers see the last durable state through
//! `Before`, an overlay made from the notes.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::derived::Tally;
use super::{Attempt, Head, Mark, Run, StepState, Stopping, Task};
use crate::record::{Artifact, Edge, Fact, StepSpec};
use crate::table::{Pos, replace};

/// Notes of changes, oldest first.
#[derive(Debug, Clone, Default)]
pub struct UndoLog {
    notes: Vec<Note>,
    recording: bool,
    /// Whether the head was noted since the last savepoint: one note is enough, however many events
    /// of a commit change the head.
    head_noted: bool,
    /// The counts when the first note was made, which readers see while the state is ahead.
    tally: Tally,
}

#[derive(Debug, Clone)]
pub(crate) enum Note {
    /// The whole Task, before another creation took its place (IDEM-10).
    Anew(Box<Task>),
    Mark(Mark),
    Head(Box<Head>),
    Step(Pos, Box<StepState>),
    Spec(Pos, Arc<StepSpec>),
    StepAdded,
    /// Dependents to add to a Step's list and to remove from it, to undo a change of edges.
    Dependents {
        of: Pos,
        gained: Box<[Pos]>,
        lost: Box<[Pos]>,
    },
    Attempt(Pos, Box<Attempt>),
    AttemptAdded,
    Run(Pos, Box<Run>),
    RunAdded,
    Artifact(Pos, Arc<Artifact>),
    ArtifactAdded,
    Edge(usize, Box<Edge>),
    EdgeAdded,
    FactAdded(u64),
    FactRemoved(Box<Fact>),
    CommandAdded,
    /// A Run that the memory did not know to have ended (RUN-08).
    Gone(Pos),
    /// A Run that had no final output yet, and the output that was forgotten for it.
    Result(Pos, Option<(Pos, Arc<str>)>),
    /// How a Run had been asked to stop.
    Stopping(Pos, Option<Box<Stopping>>),
    /// What the memory knew of unacknowledged grants of a Step.
    Unacknowledged(Pos, Option<(u32, u32)>),
}

/// A point in the notes to return to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint(usize);

/// Capacity for notes that is kept for the next append; less is freed, as a small Task gets it
/// again at once.
const NOTES_KEPT: usize = 64;

impl Task {
    /// Whether all is as it was, including what only memory holds: a refusal leaves the Task so (WAL-11).
    pub fn is_untouched_since(&self, before: &Self) -> bool {
        self == before && self.volatile == before.volatile
    }

    /// Starts noting changes. Returns the point where it started.
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        self.undo.recording = true;
        if self.undo.notes.is_empty() {
            self.undo.tally = self.derived.tally;
        }
        self.undo.head_noted = false;
        let at = Savepoint(self.undo.notes.len());
        self.undo.notes.push(Note::Mark(self.mark));
        at
    }

    /// Undoes everything since `point`.
    pub(crate) fn rollback(&mut self, point: Savepoint) {
        while self.undo.notes.len() > point.0 {
            if let Some(note) = self.undo.notes.pop() {
                self.play_back(note);
            }
        }
        self.undo.recording = !self.undo.notes.is_empty();
        self.undo.head_noted = false;
    }

    /// Ends a decision without a commit. Notes of what only the memory learned stay with those of the commands decided
    /// in the same append: the caller is answered when the outcome of all is known.
    pub(crate) fn keep_unwritten(&mut self, point: Savepoint) {
        let has_learnt = self.undo.notes.len() > point.0 + 1;
        if !has_learnt {
            self.undo.notes.truncate(point.0);
        }
        self.undo.recording = !self.undo.notes.is_empty();
    }

    /// Whether the state is ahead of the log.
    pub fn is_ahead(&self) -> bool {
        !self.undo.notes.is_empty()
    }

    /// Drops the notes: everything decided so far is durable, and none of it will be undone.
    pub fn settle(&mut self) {
        self.undo.recording = false;
        self.undo.notes.clear();
        if self.undo.notes.capacity() < NOTES_KEPT {
            self.undo.notes = Vec::new();
        }
    }

    /// Returns exactly to the state of the last [`settle`](Self::settle): nothing decided since is
    /// in the log.
    pub fn abort(&mut self) {
        self.rollback(Savepoint(0));
        debug_assert_eq!(self.check_if_small(), Ok(()), "after a step back");
    }

    /// As [`abort`](Self::abort), for the Task under the overlay `before`. If another creation is
    /// about to replace that Task, its notes are elsewhere, and this takes them from the overlay.
    pub(crate) fn take_back(&mut self, before: &Before<'_>) {
        if self.undo.notes.len() != before.notes.len() {
            self.undo.notes = before.notes.to_vec();
        }
        self.abort();
    }

    pub(crate) fn note(&mut self, note: impl FnOnce(&Self) -> Note) {
        if self.undo.recording {
            let note = note(self);
            self.undo.notes.push(note);
        }
    }

    /// Notes a Step's state, unless it has just been noted.
    pub(crate) fn note_step(&mut self, pos: Pos) {
        if !self.is_noted(|note| matches!(note, Note::Step(noted, _) if *noted == pos)) {
            self.note(|task| Note::Step(pos, Box::new(task.steps[pos].state.clone())));
        }
    }

    /// Notes an Attempt, unless it has just been noted.
    pub(crate) fn note_attempt(&mut self, pos: Pos) {
        if !self.is_noted(|note| matches!(note, Note::Attempt(noted, _) if *noted == pos)) {
            self.note(|task| Note::Attempt(pos, Box::new(task.attempts[pos].clone())));
        }
    }

    /// Whether such a note is among the newest, with only notes of Steps and Runs after it: an
    /// event changes a record several times, and its first note is enough.
    fn is_noted(&self, same: impl Fn(&Note) -> bool) -> bool {
        let newest = self.undo.notes.iter().rev().take(4);
        for note in newest {
            match note {
                note if same(note) => return true,
                Note::Step(..) | Note::Run(..) => {}
                _ => return false,
            }
        }
        false
    }

    /// Notes the head, once per commit.
    pub(crate) fn note_head(&mut self) {
        if self.undo.recording && !self.undo.head_noted {
            self.undo.notes.push(Note::Head(Box::new(self.head.clone())));
            self.undo.head_noted = true;
        }
    }

    fn play_back(&mut self, note: Note) {
        match note {
            Note::Anew(before) => {
                let undo = core::mem::take(&mut self.undo);
                *self = *before;
                self.undo = undo;
            }
            Note::Mark(mark) => self.mark = mark,
            Note::Head(head) if head.spec.retry_policy != self.head.spec.retry_policy => {
                self.change_policy(|task| task.change_resumed_at(|task| task.head = *head));
            }
            Note::Head(head) if head.waits_since() != self.head.waits_since() => {
                self.change_resumed_at(|task| task.head = *head);
            }
            Note::Head(head) => self.head = *head,
            Note::Step(pos, state) => {
                self.index_out(pos);
                self.steps[pos].state = *state;
                self.index_in(pos);
            }
            Note::Spec(pos, spec) => {
                self.index_out(pos);
                self.steps[pos].spec = spec;
                self.index_in(pos);
            }
            Note::StepAdded => {
                self.index_out(crate::table::next_pos(self.steps.len() - 1));
                self.steps.pop();
            }
            Note::Dependents { of, gained, lost } => {
                replace(&mut self.steps[of].dependents, &gained, &lost);
            }
            Note::Attempt(pos, attempt) => {
                let before = self.attempts[pos].completed_step();
                self.attempts[pos] = *attempt;
                self.judge_announced(pos, before);
            }
            Note::AttemptAdded => drop(self.attempts.pop()),
            Note::Run(pos, run) => {
                self.run_out(pos);
                self.runs[pos] = *run;
                self.run_in(pos);
            }
            Note::RunAdded => {
                let pos = crate::table::next_pos(self.runs.len() - 1);
                self.run_out(pos);
                self.runs.pop();
                self.volatile.taken.remove(&pos);
            }
            Note::Artifact(pos, artifact) => {
                self.artifact_out(pos);
                self.artifacts[pos] = artifact;
                self.artifact_in(pos);
            }
            Note::ArtifactAdded => {
                self.artifact_out(crate::table::next_pos(self.artifacts.len() - 1));
                self.artifacts.pop();
            }
            Note::Edge(at, edge) => self.edges[at] = *edge,
            Note::EdgeAdded => drop(self.edges.pop()),
            Note::FactAdded(wal_seq) => drop(self.take_fact(wal_seq)),
            Note::FactRemoved(fact) => self.put_fact(*fact),
            Note::CommandAdded => drop(self.commands.pop()),
            Note::Gone(pos) => drop(self.volatile.gone.remove(&pos)),
            Note::Result(pos, forgotten) => {
                self.volatile.results.extend(forgotten);
                self.volatile.results.remove(&pos);
            }
            Note::Stopping(pos, stopping) => {
                self.volatile.put_stopping(pos, stopping.map(|stopping| *stopping));
            }
            Note::Unacknowledged(step, Some(before)) => {
                self.volatile.unacknowledged.insert(step, before);
            }
            Note::Unacknowledged(step, None) => drop(self.volatile.unacknowledged.remove(&step)),
        }
    }

    /// What readers see: the Task, and the older records to use instead of those that are ahead of the log.
    pub(crate) fn logged(&self) -> (&Self, Option<Before<'_>>) {
        let notes = &self.undo.notes;
        let anew = notes.iter().enumerate().find_map(|(at, note)| match note {
            Note::Anew(before) => Some((&**before, &notes[..at])),
            _ => None,
        });
        let (task, notes) = anew.unwrap_or((self, notes));
        (task, self.is_ahead().then(|| Before::of(task, notes, &self.undo.tally)))
    }
}

/// The durable form of every record that is ahead of the log: the oldest note of each.
#[derive(Debug)]
pub(crate) struct Before<'a> {
    notes: &'a [Note],
    pub(crate) mark: Mark,
    pub(crate) tally: &'a Tally,
    pub(crate) head: Option<&'a Head>,
    pub(crate) steps: BTreeMap<Pos, &'a StepState>,
    pub(crate) specs: BTreeMap<Pos, &'a Arc<StepSpec>>,
    pub(crate) attempts: BTreeMap<Pos, &'a Attempt>,
    pub(crate) runs: BTreeMap<Pos, &'a Run>,
    pub(crate) artifacts: BTreeMap<Pos, &'a Arc<Artifact>>,
    pub(crate) edges: BTreeMap<usize, &'a Edge>,
    /// Facts that are no longer there.
    pub(crate) facts: Vec<&'a Fact>,
    /// Runs that the memory did not know to have ended.
    pub(crate) not_gone: BTreeSet<Pos>,
    /// Runs that had no final output yet.
    pub(crate) silent: BTreeSet<Pos>,
    /// How Runs had been asked to stop, if they had.
    pub(crate) stopping: BTreeMap<Pos, Option<&'a Stopping>>,
    pub(crate) steps_len: usize,
    pub(crate) attempts_len: usize,
    pub(crate) runs_len: usize,
    pub(crate) artifacts_len: usize,
    pub(crate) edges_len: usize,
}

impl<'a> Before<'a> {
    fn of(task: &'a Task, notes: &'a [Note], tally: &'a Tally) -> Self {
        let mut out = Self {
            notes,
            mark: task.mark,
            tally,
            head: None,
            steps: BTreeMap::new(),
            specs: BTreeMap::new(),
            attempts: BTreeMap::new(),
            runs: BTreeMap::new(),
            artifacts: BTreeMap::new(),
            edges: BTreeMap::new(),
            facts: Vec::new(),
            not_gone: BTreeSet::new(),
            silent: BTreeSet::new(),
            stopping: BTreeMap::new(),
            steps_len: task.steps.len(),
            attempts_len: task.attempts.len(),
            runs_len: task.runs.len(),
            artifacts_len: task.artifacts.len(),
            edges_len: task.edges.len(),
        };
        // Newest first, so that the oldest note of a record remains.
        notes.iter().rev().for_each(|note| out.see(note));
        out
    }

    fn see(&mut self, note: &'a Note) {
        match note {
            Note::Mark(mark) => self.mark = *mark,
            Note::Head(head) => self.head = Some(head),
            Note::Step(pos, state) => drop(self.steps.insert(*pos, state)),
            Note::Spec(pos, spec) => drop(self.specs.insert(*pos, spec)),
            Note::Attempt(pos, attempt) => drop(self.attempts.insert(*pos, attempt)),
            Note::Run(pos, run) => drop(self.runs.insert(*pos, run)),
            Note::Artifact(pos, artifact) => drop(self.artifacts.insert(*pos, artifact)),
            Note::Edge(at, edge) => drop(self.edges.insert(*at, edge)),
            Note::FactRemoved(fact) => self.facts.push(fact),
            Note::StepAdded => self.steps_len -= 1,
            Note::AttemptAdded => self.attempts_len -= 1,
            Note::RunAdded => self.runs_len -= 1,
            Note::ArtifactAdded => self.artifacts_len -= 1,
            Note::EdgeAdded => self.edges_len -= 1,
            Note::Gone(pos) => drop(self.not_gone.insert(*pos)),
            Note::Result(pos, _) => drop(self.silent.insert(*pos)),
            Note::Stopping(pos, before) => drop(self.stopping.insert(*pos, before.as_deref())),
            Note::Anew(_)
            | Note::Dependents { .. }
            | Note::FactAdded(_)
            | Note::CommandAdded
            | Note::Unacknowledged(..) => {}
        }
    }
}
