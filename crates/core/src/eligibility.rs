//! Why a Step is not running: the one judgement that claim, query and `explain` share.

use crate::id::AgentId;
use crate::record::StepSpec;
use crate::status::{RunState, StepStatus, TaskStatus, names};
use crate::task::{Head, Run, StepState};

names! {
    /// Why a Step cannot be claimed, most decisive first; the first one is the headline.
    Obstacle {
        /// The Task has ended.
        TaskTerminal = "task_terminal",
        /// The Task is being closed.
        TaskCancelling = "task_cancelling",
        /// The Task is not submitted.
        TaskDraft = "task_draft",
        /// The Task was blocked by its orchestrator.
        TaskBlocked = "task_blocked",
        /// The Task was paused by its orchestrator.
        TaskPaused = "task_paused",
        /// The Step is completed or cancelled.
        StepTerminal = "step_terminal",
        /// The Step failed.
        StepFailed = "step_failed",
        /// The Step waits for its orchestrator.
        StepBlocked = "step_blocked",
        /// Only another worker may claim it.
        AssignedElsewhere = "assigned_elsewhere",
        /// A dependency is cancelled or failed, directly or through others.
        DependencyUnsatisfiable = "dependency_unsatisfiable",
        /// A dependency is not completed yet.
        DependencyPending = "dependency_pending",
        /// The backoff has not passed.
        NotBefore = "not_before",
        /// An Attempt holds it.
        Held = "held",
        /// No worker of its pool is there.
        NoWorkerInPool = "no_worker_in_pool",
        /// The Run named may not, or no longer, claim it.
        ScopeExcludes = "scope_excludes",
        /// All workers of its pool are busy.
        PoolSaturated = "pool_saturated",
        /// Nothing stands in the way.
        RunnableNow = "runnable_now",
    }
}

/// A set of obstacles, iterated in order of decisiveness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Obstacles(u32);

impl Obstacles {
    /// Adds one, if it stands.
    pub(crate) fn add(&mut self, obstacle: Obstacle, stands: bool) {
        self.0 |= u32::from(stands) << obstacle as u32;
    }

    /// Whether this one stands.
    pub const fn has(self, obstacle: Obstacle) -> bool {
        self.0 & (1 << obstacle as u32) != 0
    }

    /// Whether none stands.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All that stand, most decisive first.
    pub fn iter(self) -> impl Iterator<Item = Obstacle> {
        Obstacle::ALL.iter().copied().filter(move |&o| self.has(o))
    }

    /// The first of them, or `runnable_now`.
    pub fn headline(self) -> Obstacle {
        self.iter().next().unwrap_or(Obstacle::RunnableNow)
    }
}

/// What is known of the workers of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFacts {
    /// Workers that asked for work.
    pub workers: u32,
    /// Steps they would take now.
    pub free: u32,
}

impl PoolFacts {
    /// What keeps a ready Step of the pool waiting, if it is the pool.
    pub const fn obstacle(self) -> Option<Obstacle> {
        match (self.workers, self.free) {
            (0, _) => Some(Obstacle::NoWorkerInPool),
            (_, 0) => Some(Obstacle::PoolSaturated),
            _ => None,
        }
    }
}

/// For whom the question is asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asker<'a> {
    /// The Run that would claim.
    pub run: Option<&'a Run>,
    /// The worker that would claim.
    pub worker: Option<&'a AgentId>,
    /// The Step's pool; counts only where no Run is named.
    pub pool: Option<PoolFacts>,
}

/// Everything that keeps a Step from being claimed by the asker now.
pub fn obstacles(head: &Head, spec: &StepSpec, state: &StepState, asker: Asker<'_>) -> Obstacles {
    use Obstacle as O;
    let mut found = Obstacles::default();
    let closing = head.cancel_requested.is_some();
    found.add(O::TaskTerminal, head.status.is_terminal());
    found.add(O::TaskCancelling, closing && !head.status.is_terminal());
    found.add(O::TaskDraft, head.status == TaskStatus::Draft);
    found.add(O::TaskBlocked, head.status == TaskStatus::Blocked);
    found.add(O::TaskPaused, head.status == TaskStatus::Paused);
    let terminal = matches!(state.status, StepStatus::Completed | StepStatus::Cancelled);
    found.add(O::StepTerminal, terminal);
    found.add(O::StepFailed, state.status == StepStatus::Failed);
    found.add(O::StepBlocked, state.status == StepStatus::Blocked);
    let elsewhere = asker.worker.is_some_and(|who| is_assigned_elsewhere(head, spec, who));
    found.add(O::AssignedElsewhere, elsewhere);
    let pending = state.status == StepStatus::Pending;
    found.add(O::DependencyUnsatisfiable, pending && state.dead > 0);
    found.add(O::DependencyPending, pending && state.unmet > 0 && state.dead == 0);
    found.add(O::NotBefore, pending && state.not_before.is_some());
    found.add(O::Held, state.status.is_held());
    found.add(O::ScopeExcludes, asker.run.is_some_and(|run| !may_claim(run, spec)));
    if asker.run.is_none()
        && let Some(of_pool) = asker.pool.and_then(PoolFacts::obstacle)
    {
        found.add(of_pool, true);
    }
    if found.is_empty() && state.status != StepStatus::Ready {
        // Pending with nothing in the way: it becomes ready in the commit being made.
        found.add(O::DependencyPending, true);
    }
    found
}

/// CLAIM-13: whether `assignee` of Task or Step names somebody else than `worker`.
pub fn is_assigned_elsewhere(head: &Head, spec: &StepSpec, worker: &AgentId) -> bool {
    [&head.spec.assignee, &spec.assignee].into_iter().flatten().any(|only| only != worker)
}

/// Whether a Run has its claim left, and the Step is in its scope.
fn may_claim(run: &Run, spec: &StepSpec) -> bool {
    run.state == RunState::Dispatched && run.attempt.is_none() && is_in_scope(run, spec)
}

/// DISP-10: pool and `allowed_step_ids` are a hard scope.
pub fn is_in_scope(run: &Run, spec: &StepSpec) -> bool {
    run.worker_pool_id == spec.worker_pool_id
        && run.allowed_step_ids.as_ref().is_none_or(|ids| ids.contains(&spec.step_id))
}
