//! Words that belong to one Step each, and who may read them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value as Json;
use tenure_core::id::{RunId, StepId};
use tenure_core::status::StepStatus;
use tenure_core::task::{Run, Step};
use tenure_core::{Caller, Rejection, Task};

use crate::common::*;

/// What a word of a Step is found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its id.
    Id,
    /// What its orchestrator wrote: texts, input, handler, policy.
    Text,
    /// What it hands on: output, result, artifacts.
    Made,
    /// What it keeps: reasons, progress, checkpoints.
    Kept,
}

/// Words of the Task that no worker reads: objective, metadata, reasons, results.
pub const OF_THE_TASK: &str = "ofthetask";

impl Kind {
    const ALL: [Self; 4] = [Self::Id, Self::Text, Self::Made, Self::Kept];

    const fn name(self) -> &'static str {
        match self {
            Self::Id => "step",
            Self::Text => "text",
            Self::Made => "made",
            Self::Kept => "kept",
        }
    }
}

/// The word of the `n`th Step ever made.
pub fn word(kind: Kind, n: usize) -> String {
    format!("{}{n:02}z", kind.name())
}

/// The id of the `n`th Step.
pub fn step_id(n: usize) -> StepId {
    id(&word(Kind::Id, n))
}

/// An id that no Step ever has.
pub fn nobody() -> StepId {
    step_id(99)
}

/// Which Steps' words a Run may read: QUERY-04, GET-04 and CLAIM-14, from the records alone.
#[derive(Debug, Default)]
pub struct May {
    pub see: BTreeSet<StepId>,
    /// Direct dependencies of those.
    pub depend_on: BTreeSet<StepId>,
    /// Those of them that are completed.
    pub get_from: BTreeSet<StepId>,
    /// Named by who dispatched the Run, claimed by it, or named in the question.
    pub name: BTreeSet<StepId>,
}

impl May {
    /// What a Run opens just now.
    pub fn of(task: &Task, run: &Run) -> Self {
        let mut may = Self::default();
        may.name.extend(run.allowed_step_ids.iter().flat_map(|ids| ids.iter().cloned()));
        may.name.extend(run.attempt.map(|at| task.attempt_at(at).step_id.clone()));
        for step in task.durable().steps().filter(|s| is_open(task, run, task.step_at(s.pos))) {
            may.see.insert(step.id().clone());
            may.depends(task, &step.spec.depends_on_step_ids);
        }
        may
    }

    /// A Step whose claim is told again: as it was then.
    pub fn of_claim(task: &Task, run: &Run) -> Self {
        let mut may = Self::of(task, run);
        if let Some(attempt) = run.attempt.map(|at| task.attempt_at(at)) {
            may.see.insert(attempt.step_id.clone());
            may.depends(task, &attempt.step_snapshot.depends_on_step_ids);
        }
        may
    }

    fn depends(&mut self, task: &Task, on: &[StepId]) {
        let completed =
            |id: &&StepId| task.step(id).is_some_and(|s| s.state.status == StepStatus::Completed);
        self.get_from.extend(on.iter().filter(completed).cloned());
        self.depend_on.extend(on.iter().cloned());
    }

    /// Also what it names itself.
    pub fn naming(mut self, step: &StepId) -> Self {
        self.name.insert(step.clone());
        self
    }

    fn read(&self, step: &StepId, kind: Kind) -> bool {
        let sees = self.see.contains(step);
        match kind {
            Kind::Id => sees || self.depend_on.contains(step) || self.name.contains(step),
            Kind::Made => sees || self.get_from.contains(step),
            Kind::Text | Kind::Kept => sees,
        }
    }

    /// Fails if an answer has a word that is not for this reader; as JSON for more of that kind.
    pub fn check<T: Serialize>(&self, answer: &T) -> Json {
        let answer = serde_json::to_value(answer).expect("it is JSON");
        self.check_text(&answer.to_string());
        answer
    }

    /// The same of a refusal, with what it says to people.
    pub fn check_refusal(&self, refused: &Rejection) -> Json {
        self.check_text(&format!("{refused} {refused:?}"));
        self.check(refused)
    }

    fn check_text(&self, text: &str) {
        assert!(!text.contains(OF_THE_TASK), "words of the task in {text}");
        for (kind, step) in words_in(text) {
            let may = self.read(&step, kind);
            assert!(may, "the {kind:?} of {step} is not for this run: {self:?}\n{text}");
        }
    }
}

/// The words of Steps in a text: four letters, two digits and a `z`.
fn words_in(text: &str) -> impl Iterator<Item = (Kind, StepId)> {
    text.as_bytes().windows(7).filter_map(|found| {
        let n = match found[4..] {
            [tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'z'] => (tens - b'0') * 10 + ones - b'0',
            _ => return None,
        };
        let kind = Kind::ALL.into_iter().find(|kind| kind.name().as_bytes() == &found[..4])?;
        Some((kind, step_id(usize::from(n))))
    })
}

/// DISP-10, QUERY-04: in pool and scope, or held by the Run.
fn is_open(task: &Task, run: &Run, step: &Step) -> bool {
    let held = step.state.current.is_some_and(|at| task.attempt_at(at).run_id == run.run_id);
    let named = run.allowed_step_ids.as_ref().is_none_or(|ids| ids.contains(&step.spec.step_id));
    held || (run.worker_pool_id == step.spec.worker_pool_id && named)
}

/// A caller under a Run: whoever claimed or took it, else anybody of its pool.
pub fn holder_of(task: &Task, run: RunId, anybody: &str) -> Caller {
    let view = task.durable();
    let pos = view.find_run(run).expect("it was dispatched");
    let run = view.run_at(pos);
    let who = run.worker_id.as_ref().or(view.memory_of(pos).taken_by);
    let who = who.map_or(anybody, |who| who.as_str());
    worker(who, run.worker_pool_id.as_str(), Some(run.run_id))
}

/// Steps with their records, by id, to find what a command has changed.
pub fn steps_of(task: &Task) -> BTreeMap<StepId, Step> {
    let view = task.durable();
    let all = view.steps().map(|s| (s.id().clone(), task.step_at(s.pos).clone()));
    all.collect()
}
