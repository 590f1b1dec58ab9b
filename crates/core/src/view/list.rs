//! `agent.task_list`: which Tasks belong to a page, and how pages are joined, as pure functions (LIST).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::query::{PAGE_DEFAULT, Page, page_limit};
use super::scope::Scope;
use super::summary::TaskSummary;
use super::task::WorkerTask;
use crate::command::{Caller, Operator};
use crate::id::TaskId;
use crate::limits::Limits;
use crate::operation::{Query, Reads};
use crate::read::View;
use crate::record::Labels;
use crate::reject::Rejection;
use crate::status::{TaskStatus, Visibility};

/// Live Tasks of a page by default, if ended ones are left out (LIST-06).
pub const LIVE_DEFAULT: usize = 500;

/// The input of `task_list`: which Tasks to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListInput {
    /// Whether to list archived Tasks, too (LIST-09).
    pub include_archived: bool,
    /// Whether to list ended Tasks, too (LIST-02).
    pub include_terminal: bool,
    /// Only Tasks that have all of these labels (LABEL-01).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::command::labels::schema")]
    pub labels: Labels,
    /// How many Tasks at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How many Tasks to skip.
    pub offset: usize,
    /// Only Tasks with one of these native statuses (LIST-05).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TaskStatus::ALL.len()))]
    pub statuses: Option<Vec<TaskStatus>>,
    /// Whether the list is for users: then it leaves out internal and hidden Tasks (VIEW-10).
    pub user_facing: bool,
}

impl Query for ListInput {
    const NAME: &'static str = "task_list";
    const TOOL: Operator = Operator::TaskList;
    const READS: Reads = Reads::Partition;
    type Output = TaskPage;

    fn shorten(&self, page: &mut TaskPage) -> bool {
        page.halve(self.offset)
    }
}

/// Refuses more statuses than exist, as each Task is compared with each of them.
pub(super) fn check_statuses(given: Option<&[TaskStatus]>) -> Result<(), Rejection> {
    let (given, most) = (given.map_or(0, <[_]>::len), TaskStatus::ALL.len());
    if given > most {
        let message = alloc::format!("{given} statuses are given, and there are {most}");
        return Err(Rejection::invalid("statuses", message).with("limit", most));
    }
    Ok(())
}

/// A page of Tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct TaskPage<T = TaskSummary> {
    /// The Tasks.
    pub tasks: Vec<T>,
    /// Where the next page begins, if there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<usize>,
    /// Whether there is more, or whether a partition did not answer.
    pub truncated: bool,
    /// Partitions that did not answer (OWN-08).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_partitions: Vec<SmolStr>,
    /// Tasks that may belong to the page, but whose logs cannot be read (VIEW-07).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<TaskId>,
}

/// What a list needs to know of a Task to leave it out: an index of ended Tasks has no more than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Native status.
    pub status: TaskStatus,
    /// Whether it is archived.
    pub archived: bool,
    /// Who sees it.
    pub visibility: Visibility,
    /// Its labels.
    pub labels: &'a Labels,
}

impl Visibility {
    /// Whether user-facing listings show such a Task (VIEW-10).
    pub const fn is_for_users(self) -> bool {
        matches!(self, Self::Foreground | Self::Background)
    }
}

impl TaskSummary {
    /// What a list needs to know of this Task.
    pub fn listed(&self) -> Listed<'_> {
        let (status, archived) = (self.native_status, self.archived);
        Listed { status, archived, visibility: self.visibility, labels: &self.labels }
    }
}

impl ListInput {
    /// Whether a Task belongs to the list.
    pub fn admits(&self, task: Listed<'_>) -> bool {
        (self.include_terminal || !task.status.is_terminal())
            && (self.include_archived || !task.archived)
            && self.statuses.as_ref().is_none_or(|s| s.contains(&task.status))
            && (!self.user_facing || task.visibility.is_for_users())
            && self.asks_for(task.labels)
    }

    /// Whether a Task with these labels has all that are asked for (LABEL-01).
    pub fn asks_for(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Whether an index can tell that a Task belongs to the list. The index knows of each Task
    /// whether and how it has ended, whether it is archived, and its labels; everything else is only in
    /// the log.
    pub fn is_settled_by_index(&self, is_ended: bool) -> bool {
        !self.user_facing && (is_ended || self.statuses.is_none())
    }

    /// The `limit` in force (LIST-06).
    ///
    /// # Errors
    /// `validation_error` for a limit of 0 or above the largest page, or for more statuses than exist.
    pub fn limit(&self, limits: &Limits) -> Result<usize, Rejection> {
        check_statuses(self.statuses.as_deref())?;
        crate::command::labels::check(&self.labels)?;
        let default = if self.include_terminal { PAGE_DEFAULT } else { LIVE_DEFAULT };
        page_limit(self.limit, default, limits)
    }
}

/// A page over live Tasks, oldest first, then ended ones, newest first (LIST-06).
///
/// `live` may come in any order and unfiltered. `terminal` returns rows `offset..offset + limit` of
/// the ended Tasks that [`ListInput::admits`], newest `updated_at` first, ties by `task_id`. It is
/// called once, for no more than the page still needs (LIST-07).
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
    let next_offset = more.then(|| input.offset + limit);
    Ok(TaskPage { tasks: rows, next_offset, truncated: more, ..TaskPage::default() })
}

impl<T> Default for TaskPage<T> {
    fn default() -> Self {
        let (tasks, next_offset, truncated) = Default::default();
        let (missing_partitions, unreadable) = Default::default();
        Self { tasks, next_offset, truncated, missing_partitions, unreadable }
    }
}

impl TaskPage {
    /// A page over all partitions (OWN-08). `self` has the first Tasks of each partition: as many
    /// as the page skips and shows, and one more, if the partition has so many.
    ///
    /// # Errors
    /// As [`ListInput::limit`].
    pub fn gathered(self, input: &ListInput, limits: &Limits) -> Result<Self, Rejection> {
        let is_live = |task: &TaskSummary| !task.native_status.is_terminal();
        let (live, mut ended): (Vec<_>, Vec<_>) = self.tasks.into_iter().partition(is_live);
        ended.sort_by(|a, b| {
            b.updated_at.cmp(&a.updated_at).then_with(|| a.task_id.cmp(&b.task_id))
        });
        let ended = |offset, limit| ended.into_iter().skip(offset).take(limit).collect();
        let page = page_tasks(live, ended, input, limits)?;
        let (missing_partitions, unreadable) = (self.missing_partitions, self.unreadable);
        let truncated = page.truncated || self.truncated || !missing_partitions.is_empty();
        Ok(Self { truncated, missing_partitions, unreadable, ..page })
    }

    /// Removes the Tasks after the first `kept` of a page that begins at `offset`.
    pub fn cut(&mut self, offset: usize, kept: usize) {
        self.tasks.truncate(kept);
        self.next_offset = Some(offset + kept);
        self.truncated = true;
    }

    /// Removes the second half. Returns whether there was more than one Task (CTRL-06).
    pub fn halve(&mut self, offset: usize) -> bool {
        let kept = self.tasks.len() / 2;
        if kept > 0 {
            self.cut(offset, kept);
        }
        kept > 0
    }
}

/// A line of the list for this caller.
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

/// The list of a worker: at most its Run's Task (LIST-08). `task` is the Task of the Run in its
/// envelope, if it exists.
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
        let labels = &head.spec.labels;
        let listed = Listed { status: head.status, archived, visibility, labels };
        if input.admits(listed) && input.offset == 0 {
            tasks.extend(WorkerTask::header(view, scope, known));
        }
    }
    Ok(TaskPage { tasks, ..TaskPage::default() })
}
