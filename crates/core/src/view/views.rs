//! The input of `task_views`, and which Tasks a view shows.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::normal::Normal;
use super::snapshot::Snapshot;
use super::view_name::ViewName;
use crate::id::Ref;
use crate::read::View;
use crate::reject::Rejection;
use crate::status::TaskStatus;

/// The input of `task_views`: which views, of which Tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ViewsInput {
    /// Names of views; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewName>,
    /// Only Tasks with these native statuses; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statuses: Option<Vec<TaskStatus>>,
    /// Whether the views are for users: then they leave out internal and hidden Tasks (VIEW-10).
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub user_facing: bool,
}

impl Snapshot {
    /// Leaves out Tasks whose statuses do not fit, by the view `tasks`, which must be there. The counts of
    /// `task_summary` do not depend on it.
    pub fn keep(&mut self, fits: impl Fn(TaskStatus, Normal) -> bool) {
        let records = self.tasks.iter_mut();
        records.for_each(|all| all.retain(|task| fits(task.native_status, task.status)));
        let records = self.tasks.iter().flatten();
        let kept: BTreeSet<SmolStr> = records.map(|task| task.task_id.as_str().into()).collect();
        if let Some(totals) = &mut self.task_summary {
            totals.recent_terminal.retain(|task| kept.contains(task.task_id.as_str()));
        }
        if let Some(graph) = &mut self.task_graph {
            // The Task at one end stores the relation.
            let is_kept = |of: &Ref| kept.contains(of.as_str());
            graph.retain(|it| is_kept(if it.derived { &it.edge.to } else { &it.edge.from }));
        }
        if let Some(attempts) = &mut self.attempts {
            attempts.active.retain(|attempt| kept.contains(attempt.task_id.as_str()));
            attempts.recent.retain(|attempt| kept.contains(attempt.task_id.as_str()));
        }
        if let Some(blocked) = &mut self.blocked_tasks {
            blocked.retain(|task| kept.contains(task.task_id.as_str()));
        }
        if let Some(delivery) = &mut self.delivery_state {
            delivery.retain(|task, _| kept.contains(task.as_str()));
        }
    }
}

impl ViewsInput {
    /// These views of all Tasks.
    pub fn of(views: &[ViewName]) -> Self {
        Self { views: views.to_vec(), ..Self::default() }
    }

    /// Checks the input.
    ///
    /// # Errors
    /// `validation_error` for more statuses than exist, as each Task is compared with each of them.
    pub fn check(&self) -> Result<(), Rejection> {
        super::list::check_statuses(self.statuses.as_deref())
    }

    /// An empty snapshot.
    pub fn begin(&self) -> Snapshot {
        Snapshot::asking(&self.views)
    }

    /// Whether the newest ended Tasks must be read: all views but VIEW-05 show them.
    pub fn shows_ended(&self) -> bool {
        let may_be_ended = |it: &Vec<TaskStatus>| it.iter().any(|status| status.is_terminal());
        let only_blocked =
            !self.views.is_empty() && self.views.iter().all(|view| *view == ViewName::BlockedTasks);
        !only_blocked && self.statuses.as_ref().is_none_or(may_be_ended)
    }

    /// The part of a snapshot for one Task. A Task that the index has counted is not counted again.
    pub fn of_task(&self, view: &View<'_>, known: &Known<'_>, is_counted: bool) -> Snapshot {
        let mut part = self.begin();
        if !is_counted {
            part.count(view, known);
        }
        if self.shows(view) {
            part.show(view, known);
        }
        part
    }

    /// Whether the views show a Task. The counts of `task_summary` do not depend on it.
    fn shows(&self, view: &View<'_>) -> bool {
        let is_asked_for = |it: &Vec<TaskStatus>| it.contains(&view.status());
        let is_for_users = view.head().spec.visibility.is_for_users();
        self.statuses.as_ref().is_none_or(is_asked_for) && (is_for_users || !self.user_facing)
    }
}
