//! Shortens answers to the caller's limit (CTRL-06).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::read::View;

/// Where to read what did not fit into an answer: with `agent.task_get`, or with `replay_task` for
/// a Task as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// The operation that returns all of it.
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

    /// A reference to a Task, read at this version.
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

/// An answer that loses more and more parts until it fits `max_bytes`, or has no more to lose. `size`
/// gives its size as it will be sent; `shorten` removes the next part, and returns whether there was one.
pub fn fit<T>(
    max_bytes: usize,
    mut answer: T,
    size: impl Fn(&T) -> usize,
    mut shorten: impl FnMut(&mut T) -> bool,
) -> T {
    while size(&answer) > max_bytes && shorten(&mut answer) {}
    answer
}
