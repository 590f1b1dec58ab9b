//! The numbers of P30: one place, one reason each.

/// Limits and durations the core judges by. All durations in milliseconds, all sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Steps a Task may hold, deleted ones included.
    pub steps_max: usize,
    /// Inline `input`, `output` or artifact data.
    pub value_bytes_max: usize,
    /// `result_summary`, reason text and the progress of one report.
    pub progress_bytes_max: usize,
    /// Titles, summaries and other prose.
    pub text_bytes_max: usize,
    /// Operations of one patch.
    pub operations_max: usize,
    /// Lease of a claim (`task.step_lease_timeout_ms`).
    pub lease_ms: u64,
    /// How long closing waits for runs to stop (`agents.child_cancel_timeout_ms`).
    pub cancel_wait_ms: u64,
    /// Life of an unused dispatched Run (`agents.run_ttl_ms`).
    pub run_ttl_ms: u64,
    /// Largest `limit` of a page.
    pub page_max: usize,
    /// Tokens of a board summary (`context.task_board_token_budget`).
    pub board_tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps_max: 100_000,
            value_bytes_max: 64 * 1024,
            progress_bytes_max: 8 * 1024,
            text_bytes_max: 64 * 1024,
            operations_max: 100_000,
            lease_ms: 30_000,
            cancel_wait_ms: 10_000,
            run_ttl_ms: 300_000,
            page_max: 500,
            board_tokens: 2_000,
        }
    }
}
