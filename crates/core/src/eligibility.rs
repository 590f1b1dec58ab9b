//! Why a Step is not running: one function decides it for claims, queries and `explain`.

use crate::id::{AgentId, HandlerName, PoolId};
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
        /// The log of its Task takes no writes.
        LogUnavailable = "log_unavailable",
        /// The store of leases does not answer.
        LeasesUnavailable = "leases_unavailable",
        /// Its pool has no worker that may claim it.
        NoWorkerInPool = "no_worker_in_pool",
        /// No worker of its pool has its handler.
        NoWorkerWithHandler = "no_worker_with_handler",
        /// The given Run may not claim it, or not any more.
        ScopeExcludes = "scope_excludes",
        /// All workers of its pool that could run it are busy.
        PoolSaturated = "pool_saturated",
        /// Nothing stands in the way.
        RunnableNow = "runnable_now",
    }
}

/// A set of obstacles, iterated in order of decisiveness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Obstacles(u32);

impl Obstacles {
    /// Adds an obstacle if it exists.
    pub(crate) fn add(&mut self, obstacle: Obstacle, stands: bool) {
        self.0 |= u32::from(stands) << obstacle as u32;
    }

    /// Whether the set has this obstacle.
    pub const fn has(self, obstacle: Obstacle) -> bool {
        self.0 & (1 << obstacle as u32) != 0
    }

    /// Whether there is no obstacle.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All obstacles, most decisive first.
    pub fn iter(self) -> impl Iterator<Item = Obstacle> {
        Obstacle::ALL.iter().copied().filter(move |&o| self.has(o))
    }

    /// The first of them, or `runnable_now`.
    pub fn headline(self) -> Obstacle {
        self.iter().next().unwrap_or(Obstacle::RunnableNow)
    }
}

/// What a Step requires of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted<'a> {
    /// The worker's pool.
    pub pool: &'a PoolId,
    /// The handler that the worker must have.
    pub handler: &'a HandlerName,
    /// Workers that it must be, all of them: the assignees of Task and Step, and the worker that
    /// the caller asks about.
    only: [Option<&'a AgentId>; 3],
}

impl<'a> Wanted<'a> {
    /// The requirement for any worker of a pool that has a handler.
    pub const fn any(pool: &'a PoolId, handler: &'a HandlerName) -> Self {
        Self { pool, handler, only: [None; 3] }
    }

    /// What this Step requires.
    pub fn of(head: &'a Head, spec: &'a StepSpec) -> Self {
        let only = [head.spec.assignee.as_ref(), spec.assignee.as_ref(), None];
        Self { only, ..Self::any(&spec.worker_pool_id, &spec.handler) }
    }

    /// The same requirement, and that it be this worker.
    #[must_use]
    pub fn by(self, worker: Option<&'a AgentId>) -> Self {
        let [task, step, _] = self.only;
        Self { only: [task, step, worker], ..self }
    }

    /// The one worker that may take the Step, if not every one may.
    pub fn only(&self) -> Option<&'a AgentId> {
        self.only.iter().rev().find_map(|only| *only)
    }

    /// CLAIM-13: whether this worker may take the Step.
    pub fn admits(&self, worker: &AgentId) -> bool {
        self.only.iter().flatten().all(|only| *only == worker)
    }
}

/// DISP-14: whether a worker has a handler. A worker that has named no handlers counts as having all.
pub fn has_handler(handlers: Option<&[HandlerName]>, wanted: &HandlerName) -> bool {
    handlers.is_none_or(|handlers| handlers.contains(wanted))
}

/// Counts of the workers of a pool that may take a Step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Workers in the pool.
    pub workers: u32,
    /// Those of them that have its handler.
    pub able: u32,
    /// Steps that these would take now.
    pub free: u32,
}

impl WorkerCounts {
    /// The obstacle that the pool is for a ready Step, if it is one.
    pub const fn obstacle(self) -> Option<Obstacle> {
        match (self.workers, self.able, self.free) {
            (0, _, _) => Some(Obstacle::NoWorkerInPool),
            (_, 0, _) => Some(Obstacle::NoWorkerWithHandler),
            (_, _, 0) => Some(Obstacle::PoolSaturated),
            _ => None,
        }
    }

    /// Counts one more worker that may take the Step.
    pub fn add(&mut self, is_able: bool, free: u64) {
        self.workers = self.workers.saturating_add(1);
        if is_able {
            self.able = self.able.saturating_add(1);
            self.free = self.free.saturating_add(u32::try_from(free).unwrap_or(u32::MAX));
        }
    }
}

/// The Run or the worker for which the question is asked, if any.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asker<'a> {
    /// The Run that would claim.
    pub run: Option<&'a Run>,
    /// The worker that would claim.
    pub worker: Option<&'a AgentId>,
}

/// Everything that keeps the asker from claiming a Step now.
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
    if found.is_empty() && state.status != StepStatus::Ready {
        // Pending with no obstacle: it becomes ready in the commit that is being made.
        found.add(O::DependencyPending, true);
    }
    found
}

/// CLAIM-13: whether the assignee of Task or Step is another worker.
pub fn is_assigned_elsewhere(head: &Head, spec: &StepSpec, worker: &AgentId) -> bool {
    !Wanted::of(head, spec).admits(worker)
}

/// Whether a Run has not claimed yet, and the Step is in its scope.
fn may_claim(run: &Run, spec: &StepSpec) -> bool {
    run.state == RunState::Dispatched && run.attempt.is_none() && is_in_scope(run, spec)
}

/// DISP-10: pool and `allowed_step_ids` are a hard scope.
pub fn is_in_scope(run: &Run, spec: &StepSpec) -> bool {
    run.worker_pool_id == spec.worker_pool_id
        && run.allowed_step_ids.as_ref().is_none_or(|ids| ids.contains(&spec.step_id))
}
