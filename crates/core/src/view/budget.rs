//! Answers within the caller's budget (CTRL-06).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::read::View;

/// Where an answer can be had that did not fit: `agent.task_get` resolves it; `replay_task` does for a
/// Task as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// The operation that answers in full.
    pub operation: smol_str::SmolStr,
    /// The Task.
    pub task_id: TaskId,
    /// The version that was read.
    pub version: u64,
}

impl Reference {
    /// A reference to a view.
    pub fn to(view: &View<'_>) -> Self {
        Self::at(view.task_id(), view.version())
    }

    /// A reference to a Task, of which this version was read.
    pub(super) fn at(task: &TaskId, version: u64) -> Self {
        Self::by("agent.task_get", task, version)
    }

    /// A reference to a Task as it was at this version.
    pub(super) fn as_it_was(task: &TaskId, version: u64) -> Self {
        Self::by("replay_task", task, version)
    }

    fn by(operation: &'static str, task: &TaskId, version: u64) -> Self {
        let operation = smol_str::SmolStr::new_static(operation);
        Self { operation, task_id: task.clone(), version }
    }
}

/// An answer that gives up more and more of itself until it fits `max_bytes`, or has no more to give up.
/// `size` says how large it is as it will be sent; `shorten` takes away the next part, and answers
/// whether there was one.
pub fn fit<T>(
    max_bytes: usize,
    mut answer: T,
    size: impl Fn(&T) -> usize,
    mut shorten: impl FnMut(&mut T) -> bool,
) -> T {
    while size(&answer) > max_bytes && shorten(&mut answer) {}
    answer
}
