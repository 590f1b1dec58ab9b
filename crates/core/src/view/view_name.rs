//! The views that `task_views` can be asked for.

use crate::status::names;

names! {
    /// The views that can be asked for.
    ViewName {
        /// VIEW-01.
        TaskSummary = "task_summary",
        /// VIEW-02.
        Tasks = "tasks",
        /// VIEW-03.
        TaskGraph = "task_graph",
        /// VIEW-04.
        Attempts = "attempts",
        /// VIEW-05.
        BlockedTasks = "blocked_tasks",
        /// VIEW-06.
        DeliveryState = "delivery_state",
    }
}
