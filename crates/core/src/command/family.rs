//! Parents and children: how a child ends with its parent, and how the parent records the child
//! (CANCEL-03, CANCEL-04, REL-05, REL-09). Each Task decides only about itself; the scheduler carries the
//! facts from one to the other.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{Close, Command, Link};
use crate::id::{Ref, TaskId};
use crate::patch::ReasonInput;
use crate::read::View;
use crate::reject::{Code, Rejection};
use crate::status::{EdgeKind, EdgeStatus, Intent, ParentClose, TaskStatus, names};
use crate::task::Task;

/// What a Task, or one that is about to be created, needs to know of its parent, which another node
/// may own (REL-05, CANCEL-03, CANCEL-04).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parent {
    /// Its root.
    pub root_task_id: TaskId,
    /// Its status.
    pub status: TaskStatus,
    /// Whether it is being closed.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub closing: bool,
    /// Whether it cancels or fails its live children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_children: Option<Intent>,
    /// Whether it has not recorded this child yet, and would record it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub adopts: bool,
}

impl Parent {
    /// The facts that a child needs of this Task as its parent.
    pub fn of(task: &View<'_>, child: &TaskId) -> Self {
        Self {
            root_task_id: task.head().spec.root_task_id.clone(),
            status: task.status(),
            closing: task.is_closing(),
            closes_children: task.closes_children(),
            adopts: task.adopts(child).is_some(),
        }
    }

    /// The facts of a parent that has ended, without reading its log. No child is created below it
    /// any more, so its root does not matter.
    pub fn ended(task: TaskId, status: TaskStatus) -> Self {
        let closes_children = status.closes_children();
        Self { root_task_id: task, status, closing: false, closes_children, adopts: false }
    }

    /// What its children must know of its end (REL-09); `None` while it goes on.
    pub fn end(&self) -> Option<ParentEnd> {
        ParentEnd::of(self.closes_children, self.status)
    }

    pub(super) fn check(&self, id: &TaskId) -> Result<(), Rejection> {
        let (code, what) = match (self.status.is_terminal(), self.closing) {
            (true, _) => (Code::TaskTerminal, "has ended"),
            (false, true) => (Code::TaskCancelling, "is being closed"),
            (false, false) => return Ok(()),
        };
        Err(Rejection::new(code, format!("the parent {id} {what}")).with("task_id", id.as_str()))
    }
}

names! {
    /// How a parent ends or has ended, for its children (CANCEL-03, REL-09).
    ParentEnd {
        /// It is cancelled.
        Cancelled = "cancelled",
        /// It fails.
        Failed = "failed",
        /// It has completed.
        Completed = "completed",
    }
}

impl ParentEnd {
    fn of(closes_children: Option<Intent>, status: TaskStatus) -> Option<Self> {
        match closes_children {
            Some(Intent::Cancel) => Some(Self::Cancelled),
            Some(Intent::Fail) => Some(Self::Failed),
            None => (status == TaskStatus::Completed).then_some(Self::Completed),
        }
    }
}

impl View<'_> {
    /// What its children must know of the end of this Task.
    pub fn end_for_children(&self) -> Option<ParentEnd> {
        ParentEnd::of(self.closes_children(), self.status())
    }

    /// Whether this Task cancels or fails its live children: `None` while it goes on, and if it has
    /// completed.
    pub fn closes_children(&self) -> Option<Intent> {
        let intended = self.head().cancel_requested.as_ref().map(|closing| closing.intent);
        match self.status() {
            status if status.is_terminal() => status.closes_children(),
            _ => intended,
        }
    }

    /// Children that this Task has recorded.
    pub fn children(&self) -> Vec<TaskId> {
        let active = self.edges().filter(|edge| edge.status == EdgeStatus::Active);
        let children = active.filter(|edge| edge.kind == EdgeKind::Child);
        children.filter_map(|edge| TaskId::new(edge.to.as_str()).ok()).collect()
    }

    /// The command that records a child here (REL-05); `None` if the child is recorded, or the Task
    /// records nothing any more.
    pub fn adopts(&self, child: &TaskId) -> Option<Command> {
        if self.status().is_terminal() || self.is_closing() || self.children().contains(child) {
            return None;
        }
        let to = Ref::new(child.as_str()).ok()?;
        Some(Command::LinkTasks(Link { kind: EdgeKind::Child, reason: None, to }))
    }
}

impl TaskStatus {
    /// Whether a Task that ended with this status cancels or fails its live children.
    pub(super) const fn closes_children(self) -> Option<Intent> {
        match self {
            Self::Cancelled => Some(Intent::Cancel),
            Self::Failed => Some(Intent::Fail),
            _ => None,
        }
    }
}

impl Task {
    /// The command that records a child here, as [`View::adopts`], by the state with commits in flight.
    pub fn adopts(&self, child: &TaskId) -> Option<Command> {
        self.live().adopts(child)
    }

    /// Whether this Task goes on when its parent has completed (REL-09).
    pub fn outlives_parent(&self) -> bool {
        self.head().spec.parent_close == ParentClose::Abandon
    }

    /// The command that closes this Task because of its parent's end; `None` if it goes on, is closing
    /// or has ended. A draft is cancelled in any case, as nothing in it can fail.
    pub fn follows_parent(&self, end: ParentEnd) -> Option<Command> {
        let goes_on = end == ParentEnd::Completed && self.outlives_parent();
        if goes_on || self.is_terminal() || self.is_closing() {
            return None;
        }
        let (code, message) = match end {
            ParentEnd::Cancelled => ("parent_cancelled", "the parent task was cancelled"),
            ParentEnd::Failed => ("parent_failed", "the parent task failed"),
            ParentEnd::Completed => ("parent_completed", "the parent task has completed"),
        };
        let reason = ReasonInput {
            code: Some(SmolStr::new_static(code)),
            details: None,
            message: message.to_string(),
            retryable: None,
        };
        let close = Close { reason: Some(reason), wait: Some(false), ..Close::default() };
        Some(match end {
            ParentEnd::Failed if self.head().status != TaskStatus::Draft => {
                Command::TaskFail(close)
            }
            _ => Command::TaskCancel(close),
        })
    }
}
