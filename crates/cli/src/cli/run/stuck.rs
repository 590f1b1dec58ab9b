//! What keeps a Task from going on by itself, in words.

use tenure_core::Task;
use tenure_core::id::Millis;
use tenure_core::view::explain::{ForWhom, Remedy};
use tenure_core::view::{Known, View, explain_task};

use super::args::RunArgs;
use super::hint;
use crate::cli::answer::{Exit, Failure};
use crate::cli::task::describe;

/// How many remedies a line names.
const REMEDIES_MAX: usize = 3;

/// The most decisive of the reasons for which no Step runs.
#[derive(Debug)]
pub(super) struct StuckReason {
    /// The reason.
    pub(super) text: String,
    remedies: Vec<Remedy>,
}

impl StuckReason {
    /// Finds it; `None` if nothing is in the way, or if it cannot be said.
    pub(super) fn of(task: &View<'_>, now: Millis) -> Option<Self> {
        let known = Known::new(now, &|_| None);
        let told = explain_task(task, ForWhom::default(), &known).ok()?;
        if let Some(first) = told.hindrances.into_iter().next() {
            return Some(Self { text: first.text, remedies: first.remedies });
        }
        let first = told.groups.into_iter().next()?.example.reasons.into_iter().next()?;
        Some(Self { text: first.text, remedies: first.remedies })
    }

    /// The operations that would change it, as the beginning of a sentence.
    fn ways(&self) -> String {
        let ways: Vec<String> = self.remedies.iter().take(REMEDIES_MAX).map(describe).collect();
        match ways.is_empty() {
            true => String::new(),
            false => format!("this would change it: {}; ", ways.join("; or ")),
        }
    }
}

/// The failure of a command that ran all it could of a Task that has not ended.
pub(super) fn failure(args: &RunArgs, task: &Task, now: Millis) -> Failure {
    let id = task.task_id();
    let reason = StuckReason::of(&task.durable(), now);
    let why = reason.as_ref().map(|it| format!(": {}", it.text)).unwrap_or_default();
    let message = format!("nothing of task `{id}` can run by itself, and it has not ended{why}");
    let explain = hint::explain(args, id);
    let ways = reason.as_ref().map(StuckReason::ways).unwrap_or_default();
    Failure::new(Exit::Conflict, message).help(format!("{ways}`{explain}` says more"))
}

/// Adds to a refusal to run a Task what would change that, if the refusal does not say it.
pub(super) fn with_ways(refused: Failure, args: &RunArgs, task: &Task, now: Millis) -> Failure {
    if refused.help.is_some() {
        return refused;
    }
    let ways = StuckReason::of(&task.durable(), now).as_ref().map(StuckReason::ways);
    let explain = hint::explain(args, task.task_id());
    refused.help(format!("{}`{explain}` says more", ways.unwrap_or_default()))
}
