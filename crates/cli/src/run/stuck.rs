//! What keeps a Task from going on by itself, in words.

use tenure_core::Task;
use tenure_core::id::Millis;

use super::args::RunArgs;
use super::hint;
use crate::answer::{Exit, Failure};
use crate::show::WaitReason;

/// The failure of a command that ran all it could of a Task that has not ended.
pub(super) fn failure(args: &RunArgs, task: &Task, now: Millis) -> Failure {
    let id = task.task_id();
    let reason = WaitReason::of(&task.durable(), now);
    let why = reason.as_ref().map(|it| format!(": {}", it.text)).unwrap_or_default();
    let message = format!("nothing of task `{id}` can run by itself, and it has not ended{why}");
    let explain = hint::explain(args, id);
    let ways = reason.as_ref().map(WaitReason::ways).unwrap_or_default();
    Failure::new(Exit::Conflict, message).help(format!("{ways}`{explain}` says more"))
}

/// Adds to a refusal to run a Task what would change that, if the refusal does not say it.
pub(super) fn with_ways(refused: Failure, args: &RunArgs, task: &Task, now: Millis) -> Failure {
    if refused.help.is_some() {
        return refused;
    }
    let ways = WaitReason::of(&task.durable(), now).as_ref().map(WaitReason::ways);
    let explain = hint::explain(args, task.task_id());
    refused.help(format!("{}`{explain}` says more", ways.unwrap_or_default()))
}
