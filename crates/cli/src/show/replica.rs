//! The replica of a Task for its display, to which each commit is applied.

use std::sync::Arc;

use tenure_core::view::Stage;
use tenure_core::{Commit, Task};

use super::seen::{SeenCommit, Show};
use crate::answer::{Exit, Failure};

/// Shows commits that follow the replica's state; no replica if they begin with the Task's
/// creation.
pub(crate) fn show_all(
    replica: &mut Option<Box<Task>>,
    commits: &[Arc<Commit>],
    show: &mut dyn Show,
) -> Result<(), Failure> {
    for commit in commits {
        let (task, stages) = apply(replica, commit)?;
        show.commit(&SeenCommit { commit, stages: &stages, view: task.durable() })?;
    }
    show.flush()
}

/// Applies one commit to the replica.
fn apply<'a>(
    replica: &'a mut Option<Box<Task>>,
    commit: &Commit,
) -> Result<(&'a Task, Vec<Stage>), Failure> {
    let illegal = |error: tenure_core::task::apply::Illegal| {
        Failure::new(Exit::Unavailable, format!("the log contradicts itself: {error}"))
    };
    let stages = match replica {
        Some(task) => task.replay_traced(commit).map_err(illegal)?,
        None => {
            let (task, stages) = Task::restore_traced(commit).map_err(illegal)?;
            *replica = Some(Box::new(task));
            stages
        }
    };
    match replica {
        Some(task) => Ok((task, stages)),
        None => unreachable!("it was just made"),
    }
}
