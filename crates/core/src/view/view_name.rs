//! The views that callers can request with `task_views`.

use crate::status::names;

names! {
    /// The views that callers can request.
    ViewName {
        /// Counts, and the newest ended Tasks (VIEW-01).
        TaskSummary = "task_summary",
        /// A record per Task (VIEW-02).
        Tasks = "tasks",
        /// Relations between Tasks (VIEW-03).
        TaskGraph = "task_graph",
        /// Open Attempts, and the newest ended ones (VIEW-04).
        Attempts = "attempts",
        /// Tasks that wait for somebody (VIEW-05).
        BlockedTasks = "blocked_tasks",
        /// The delivery of results (VIEW-06).
        DeliveryState = "delivery_state",
    }
}
