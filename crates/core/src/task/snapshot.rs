//! A Task as its records, to be stored and restored: the other way to a state, beside the fold over
//! a whole log.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::apply::Contradiction;
use super::derived::Derived;
use super::undo::UndoLog;
use super::{Attempt, CommandRecord, Head, Mark, Run, Step, Task, Volatile};
use crate::record::{Artifact, Edge, Fact};
use crate::table::{Keyed as _, Pos, Table, next_pos};

/// All that a fold over a log has found, without derived indexes and without what only the owner's
/// memory holds.
///
/// Its stored form has a version, which rises when the content changes, or what the reducer makes
/// of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSnapshot {
    seed: u64,
    head: Head,
    mark: Mark,
    steps: Vec<Step>,
    attempts: Vec<Attempt>,
    runs: Vec<Run>,
    artifacts: Vec<Arc<Artifact>>,
    edges: Vec<Edge>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    facts: Vec<Fact>,
    commands: Vec<CommandRecord>,
}

impl TaskSnapshot {
    /// `wal_seq` of the last event in the records.
    pub fn version(&self) -> u64 {
        self.mark.version
    }

    /// Checks that each record that one names is there, so that a Task can be made of them, and that no two are the
    /// same.
    ///
    /// # Errors
    /// A message that names what is missing.
    pub fn check(&self) -> Result<(), Contradiction> {
        let lengths = [self.steps.len(), self.attempts.len(), self.runs.len()].map(next_pos);
        let [steps, attempts, runs] = lengths;
        let is_twice = has_twice(self.steps.iter().map(|step| &step.spec.step_id))
            || has_twice(self.attempts.iter().map(|attempt| attempt.attempt_id))
            || has_twice(self.runs.iter().map(|run| run.run_id))
            || has_twice(self.artifacts.iter().map(|artifact| artifact.key()))
            || has_twice(self.commands.iter().map(|command| command.key()));
        if is_twice {
            return Err("two records have one id".into());
        }
        for Step { spec, state, .. } in &self.steps {
            let mut named = [state.current, state.last_attempt].into_iter().flatten();
            if !named.all(|attempt| attempt < attempts) {
                return Err(format!("step {} names what is not there", spec.step_id).into());
            }
        }
        for (pos, attempt) in (0..).zip(&self.attempts) {
            // One that names itself, or a later one, would be read for ever.
            let is_first = attempt.previous.is_none_or(|previous| previous < pos);
            if attempt.step >= steps || attempt.run >= runs || !is_first {
                let id = attempt.attempt_id;
                return Err(format!("attempt {id} names what is not there").into());
            }
        }
        let of_runs = self.runs.iter().filter_map(|run| run.attempt);
        let of_artifacts = self.artifacts.iter().filter_map(|artifact| artifact.named_by);
        match of_runs.chain(of_artifacts).all(|attempt| attempt < attempts) {
            true => Ok(()),
            false => Err("a run or an artifact names an attempt that is not there".into()),
        }
    }
}

/// Whether a key comes twice.
fn has_twice<K: Ord>(keys: impl Iterator<Item = K>) -> bool {
    let mut keys: Vec<K> = keys.collect();
    keys.sort_unstable();
    keys.windows(2).any(|two| two[0] == two[1])
}

impl Task {
    /// The Task's records as the log has them; it first undoes what is not durable.
    pub fn into_snapshot(mut self) -> TaskSnapshot {
        self.abort();
        TaskSnapshot {
            seed: self.seed,
            head: self.head,
            mark: self.mark,
            steps: self.steps.into_rows(),
            attempts: self.attempts.into_rows(),
            runs: self.runs.into_rows(),
            artifacts: self.artifacts.into_rows(),
            edges: self.edges,
            facts: self.facts.into_values().collect(),
            commands: self.commands.into_rows(),
        }
    }

    /// The Task of these records, equal to a replay of the log up to them.
    ///
    /// # Panics
    /// The records are not those of a Task: one names another that does not exist ([`TaskSnapshot::check`]).
    pub fn of_snapshot(records: TaskSnapshot) -> Self {
        let seed = records.seed;
        let mut task = Self {
            head: records.head,
            mark: records.mark,
            steps: Table::of_rows(seed, records.steps),
            attempts: Table::of_rows(seed, records.attempts),
            runs: Table::of_rows(seed, records.runs),
            artifacts: Table::of_rows(seed, records.artifacts),
            edges: records.edges,
            facts: records.facts.into_iter().map(|fact| (fact.wal_seq, fact)).collect(),
            commands: Table::of_rows(seed, records.commands),
            derived: Derived::default(),
            undo: UndoLog::default(),
            volatile: Volatile::default(),
            no_refs: Arc::default(),
            seed,
        };
        for pos in 0..next_pos(task.steps.len()) {
            if !task.steps[pos].state.removed {
                task.link(pos);
            }
        }
        (0..next_pos(task.attempts.len())).for_each(|pos| task.share_no_refs(pos));
        task.derived = task.derive_again();
        for (pos, run) in (0..).zip(task.runs.iter()) {
            task.volatile.offer(pos, run, &task.head);
        }
        task
    }

    /// Makes an Attempt share its empty lists, as a new Attempt does, so that they take no memory.
    fn share_no_refs(&mut self, pos: Pos) {
        let (attempt, none) = (&mut self.attempts[pos], &self.no_refs);
        if attempt.input_refs.is_empty() {
            attempt.input_refs = Arc::default();
        }
        for refs in [&mut attempt.output_refs, &mut attempt.checkpoint_refs] {
            if refs.is_empty() {
                refs.clone_from(none);
            }
        }
    }
}
