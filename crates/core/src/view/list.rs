//! `agent.task_list`: the pure part of paging over live and ended Tasks (LIST).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::query::{PAGE_DEFAULT, Page, page_limit};
use super::read::View;
use super::scope::Scope;
use super::summary::TaskSummary;
use super::task::WorkerTask;
use crate::command::{Caller, Operator};
use crate::limits::Limits;
use crate::reject::Rejection;
use crate::status::{TaskStatus, Visibility};

/// Live Tasks of a page when none is asked for and ended ones are left out (LIST-06).
pub const LIVE_DEFAULT: usize = 500;

/// Which Tasks are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListInput {
    /// Archived Tasks too (LIST-09).
    pub include_archived: bool,
    /// Ended Tasks too (LIST-02).
    pub include_terminal: bool,
    /// At most so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// From this one on.
    pub offset: usize,
    /// Only those in one of these native statuses (LIST-05).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statuses: Option<Vec<TaskStatus>>,
    /// For the eyes of a user: internal and hidden Tasks are left out (VIEW-10).
    pub user_facing: bool,
}

/// A page of Tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskPage<T = TaskSummary> {
    /// The Tasks.
    pub tasks: Vec<T>,
    /// Where the next page begins, if there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<usize>,
    /// Whether there is more, or a partition did not answer.
    pub truncated: bool,
    /// Partitions that did not answer (OWN-08).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_partitions: Vec<SmolStr>,
}

/// What a list needs to know of a Task to leave it out: an index of ended Tasks holds no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Native status.
    pub status: TaskStatus,
    /// Whether it was put away.
    pub archived: bool,
    /// Who sees it.
    pub visibility: Visibility,
}

impl Visibility {
    /// Whether user-facing listings show such a Task (VIEW-10).
    pub const fn is_for_users(self) -> bool {
        matches!(self, Self::Foreground | Self::Background)
    }
}

impl TaskSummary {
    /// What a list needs to know of it.
    pub fn listed(&self) -> Listed {
        let (status, archived) = (self.native_status, self.archived);
        Listed { status, archived, visibility: self.visibility }
    }
}

impl ListInput {
    /// Whether a Task belongs into the list.
    pub fn admits(&self, task: Listed) -> bool {
        (self.include_terminal || !task.status.is_terminal())
            && (self.include_archived || !task.archived)
            && self.statuses.as_ref().is_none_or(|s| s.contains(&task.status))
            && (!self.user_facing || task.visibility.is_for_users())
    }

    /// The `limit` in force (LIST-06).
    ///
    /// # Errors
    /// `validation_error` for a limit of 0 or above the largest page.
    pub fn limit(&self, limits: &Limits) -> Result<usize, Rejection> {
        let default = if self.include_terminal { PAGE_DEFAULT } else { LIVE_DEFAULT };
        page_limit(self.limit, default, limits)
    }
}

/// A page over live Tasks, oldest first, then ended ones, newest first (LIST-06).
///
/// `live` may come in any order and unfiltered. `terminal` answers rows `offset..offset + limit` of
/// the ended Tasks that [`ListInput::admits`], newest `updated_at` first, ties by `task_id`; it is
/// asked once, for no more than the page still needs (LIST-07).
///
/// # Errors
/// As [`ListInput::limit`].
pub fn page_tasks(
    live: Vec<TaskSummary>,
    terminal: impl FnOnce(usize, usize) -> Vec<TaskSummary>,
    input: &ListInput,
    limits: &Limits,
) -> Result<TaskPage, Rejection> {
    let limit = input.limit(limits)?;
    let mut live: Vec<TaskSummary> =
        live.into_iter().filter(|t| input.admits(t.listed())).collect();
    live.sort_by(|a, b| (a.created_at, &a.task_id).cmp(&(b.created_at, &b.task_id)));
    let passed = live.len();
    let Page { mut rows, mut more } = Page::cut(live.into_iter(), input.offset, limit);
    if input.include_terminal && !more {
        let wanted = limit - rows.len();
        let ended = terminal(input.offset.saturating_sub(passed), wanted + 1);
        let ended = Page::cut(ended.into_iter(), 0, wanted);
        more = ended.more || more;
        rows.extend(ended.rows);
    }
    let next_offset = more.then_some(input.offset + limit);
    Ok(TaskPage { tasks: rows, next_offset, truncated: more, missing_partitions: Vec::new() })
}

/// A line of the list for this caller: none where the caller may not see the Task.
///
/// # Errors
/// As [`Scope::of`].
pub fn list_entry(
    view: &View<'_>,
    caller: &Caller,
    known: &Known<'_>,
) -> Result<TaskSummary, Rejection> {
    match Scope::of(view, caller, Operator::TaskList)? {
        Scope::Whole => Ok(TaskSummary::of(view, known)),
        Scope::Run { .. } => Err(Rejection::new(
            crate::reject::Code::PermissionDenied,
            "a worker lists the task of its run only",
        )),
    }
}

/// The list of a worker: at most its Run's Task (LIST-08). `task` is the Task of the Run that its
/// envelope names, if there is one.
///
/// # Errors
/// As [`Scope::of`] and [`ListInput::limit`].
pub fn worker_page(
    task: Option<&View<'_>>,
    caller: &Caller,
    input: &ListInput,
    known: &Known<'_>,
    limits: &Limits,
) -> Result<TaskPage<WorkerTask>, Rejection> {
    input.limit(limits)?;
    let mut tasks = Vec::new();
    if let Some(view) = task {
        let scope = Scope::of(view, caller, Operator::TaskList)?;
        let head = view.head();
        let (archived, visibility) = (head.archived_at.is_some(), head.spec.visibility);
        if input.admits(Listed { status: head.status, archived, visibility }) && input.offset == 0 {
            tasks.extend(WorkerTask::header(view, scope, known));
        }
    }
    Ok(TaskPage { tasks, next_offset: None, truncated: false, missing_partitions: Vec::new() })
}
