//! The limits and durations of P30, all in one place, and the edition of the contract for new Tasks.

use crate::record::RetryPolicy;
use crate::rules::Rules;

/// Limits and durations that the core uses. All durations in milliseconds, all sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The edition of the contract by which new Tasks live (EVOLVE-01).
    pub rules: Rules,
    /// The newest edition of which the log may hold anything (EVOLVE-02); `rules` is no newer.
    pub edition: Rules,
    /// Steps that a Task may hold, including deleted ones.
    pub steps_max: usize,
    /// Inline `input`, `output` or artifact data.
    pub value_bytes_max: usize,
    /// A blob, and so any value (VALUE-01).
    pub blob_bytes_max: u64,
    /// The inline payload of a fact (FACT-01).
    pub fact_bytes_max: usize,
    /// `result_summary`, reason text and the progress of one report.
    pub progress_bytes_max: usize,
    /// Titles, summaries and other prose.
    pub text_bytes_max: usize,
    /// What a worker is sent of a Step or a Run: texts, input, and the ids of dependencies or of a
    /// scope, with two more bytes for each id. It fits into a message of the bus with the fields
    /// around it. The names that one report lists may take as much.
    pub told_bytes_max: usize,
    /// Operations of one patch.
    pub operations_max: usize,
    /// Lease of a claim (`task.step_lease_timeout_ms`).
    pub lease_ms: u64,
    /// The shortest lease, also if a policy asks for less.
    pub lease_ms_min: u64,
    /// The shortest lease that a policy may ask for: less acts as this (LEASE-02). A Step with a shorter one
    /// would be given out and lost again many times a second.
    pub heartbeat_ms_least: u64,
    /// From the retry of this number on, a Step waits a second at least between two of them (RETRY-06).
    pub fast_retries: u32,
    /// How many Attempts of a Step in a row may end with their host after they had started (RETRY-13).
    pub max_host_deaths: u32,
    /// How long closing waits for runs to stop (`agents.child_cancel_timeout_ms`), where no retry policy
    /// says it (POL-12).
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
            rules: Rules::NEWEST,
            edition: Rules::NEWEST,
            steps_max: 100_000,
            value_bytes_max: 64 * 1024,
            blob_bytes_max: 16 << 20,
            fact_bytes_max: 4 * 1024,
            progress_bytes_max: 8 * 1024,
            text_bytes_max: 64 * 1024,
            told_bytes_max: 960 * 1024,
            operations_max: 100_000,
            lease_ms: 30_000,
            lease_ms_min: 0,
            heartbeat_ms_least: 1_000,
            fast_retries: 20,
            max_host_deaths: 10,
            cancel_wait_ms: 10_000,
            run_ttl_ms: 300_000,
            page_max: 500,
            board_tokens: 2_000,
        }
    }
}

impl Limits {
    /// The same for a log that may hold nothing but what the first edition has.
    #[must_use]
    pub fn of_first_edition(mut self) -> Self {
        (self.rules, self.edition) = (Rules::First, Rules::First);
        self
    }

    /// The limits for a log that several servers replicate: appends stop for 4 to 10 s while the
    /// servers elect a leader, and no lease should end in that time (P30).
    #[must_use]
    pub fn on_replicated_log(mut self) -> Self {
        self.lease_ms_min = self.lease_ms_min.max(15_000);
        self.lease_ms = self.lease_ms.max(self.lease_ms_min);
        self
    }

    /// How long a Run may take to stop under the policy of its Attempt (POL-12).
    pub fn grace_ms_under(&self, policy: Option<&RetryPolicy>) -> u64 {
        policy.and_then(|policy| policy.cancel_grace_ms).unwrap_or(self.cancel_wait_ms)
    }

    /// How long a lease lasts under a policy (LEASE-02).
    pub fn lease_ms_under(&self, policy: Option<&RetryPolicy>) -> u64 {
        let asked_for = policy.and_then(|policy| policy.heartbeat_ms);
        let asked_for = asked_for.map(|ms| ms.max(self.heartbeat_ms_least));
        asked_for.unwrap_or(self.lease_ms).max(self.lease_ms_min)
    }

    /// The least wait before the retry of this number, counted from 1 (RETRY-06).
    pub const fn retry_ms_least(&self, retry: u32) -> u64 {
        if retry < self.fast_retries { 0 } else { 1_000 }
    }
}
