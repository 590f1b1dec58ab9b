//! What a worker may read of the Task of its Run (5.2, PERM-13), by operation.

use alloc::boxed::Box;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WorkerTask;
use super::board::task_lines;
use super::list::worker_page;
use super::query::query_steps;
use super::task::get_task;
use super::{BoardInput, Known, ListInput, QueryInput, StepPage, TaskLines, TaskPage, TaskRead};
use crate::command::Caller;
use crate::command::not_its_runs;
use crate::limits::Limits;
use crate::read::View;
use crate::reject::Rejection;

/// A worker's query, with its input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", content = "input", rename_all = "snake_case")]
pub enum Look {
    /// `agent.task_get`: [`Looked::Task`].
    #[serde(alias = "agent.task_get", alias = "get_task")]
    TaskGet,
    /// `agent.task_list`: [`Looked::List`], with at most the Run's Task (LIST-08).
    #[serde(alias = "agent.task_list", alias = "list_tasks")]
    TaskList(ListInput),
    /// `agent.task_query_steps`: [`Looked::Steps`].
    #[serde(alias = "agent.task_query_steps")]
    TaskQuerySteps(QueryInput),
    /// `task_board_summary`: [`Looked::Board`].
    TaskBoardSummary(BoardInput),
}

/// The answer, with no more than the Run may see.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Looked {
    /// The Task.
    Task(Box<WorkerTask>),
    /// The Task as a line of a list.
    List(TaskPage<WorkerTask>),
    /// Some of its Steps.
    Steps(StepPage),
    /// The Task as lines of text (PROMPT-06).
    Board(TaskLines),
}

impl Look {
    /// Checks the input, before any Task is read, so that the refusal shows nothing of a Task (PERM-16).
    ///
    /// # Errors
    /// `validation_error` for the input.
    pub fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        match self {
            Self::TaskGet => Ok(()),
            Self::TaskList(input) => input.limit(limits).map(drop),
            Self::TaskQuerySteps(input) => input.check(limits),
            Self::TaskBoardSummary(input) => input.budget(limits).map(drop),
        }
    }
}

/// Answers a worker's query.
///
/// # Errors
/// As [`Scope::of`](super::Scope::of), or `validation_error` for the input.
pub fn look(
    view: &View<'_>,
    caller: &Caller,
    look: &Look,
    known: &Known<'_>,
    limits: &Limits,
) -> Result<Looked, Rejection> {
    Ok(match look {
        Look::TaskGet => match get_task(view, caller, known)? {
            TaskRead::Worker(task) => Looked::Task(task),
            TaskRead::Whole(_) => return Err(not_its_runs()),
        },
        Look::TaskList(input) => {
            Looked::List(worker_page(Some(view), caller, input, known, limits)?)
        }
        Look::TaskQuerySteps(input) => {
            Looked::Steps(query_steps(view, caller, input, known, limits)?)
        }
        Look::TaskBoardSummary(input) => {
            let tokens = input.budget(limits)?;
            Looked::Board(task_lines(view, caller, known)?.within(tokens))
        }
    })
}
