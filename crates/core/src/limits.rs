//! The numbers of P30: one place, one reason each.

use crate::record::RetryPolicy;

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
    /// What a worker is told of a Step or of a Run by whoever wrote it: texts, input, and the ids of dependencies
    /// or of a scope, counting two bytes more for each. A message of the bus, but for what goes around it. Names that
    /// one report lists may have as much.
    pub told_bytes_max: usize,
    /// Operations of one patch.
    pub operations_max: usize,
    /// Lease of a claim (`task.step_lease_timeout_ms`).
    pub lease_ms: u64,
    /// The shortest lease: a policy that asks for less has this.
    pub lease_ms_min: u64,
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
            told_bytes_max: 960 * 1024,
            operations_max: 100_000,
            lease_ms: 30_000,
            lease_ms_min: 0,
            cancel_wait_ms: 10_000,
            run_ttl_ms: 300_000,
            page_max: 500,
            board_tokens: 2_000,
        }
    }
}

impl Limits {
    /// The same where several servers keep the log: appends stop while they elect, for 4 to 10 s, and no
    /// lease is to end in that (P30).
    #[must_use]
    pub fn on_replicated_log(mut self) -> Self {
        self.lease_ms_min = self.lease_ms_min.max(15_000);
        self.lease_ms = self.lease_ms.max(self.lease_ms_min);
        self
    }

    /// How long a lease lasts under a policy (LEASE-02).
    pub fn lease_ms_under(&self, policy: Option<&RetryPolicy>) -> u64 {
        let asked_for = policy.and_then(|policy| policy.heartbeat_ms);
        asked_for.unwrap_or(self.lease_ms).max(self.lease_ms_min)
    }
}
