//! Why a Step is not running: one function decides it for claims, queries and `explain`.

use alloc::collections::BTreeSet;

use crate::id::{AgentId, HandlerName, Millis, PoolId, SessionId, StepId};
use crate::read::{StepRef, View};
use crate::record::StepSpec;
use crate::rules::Rules;
use crate::status::{StepStatus, TaskStatus, names};
use crate::table::Pos;
use crate::task::derived::Tally;
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
        /// The Task is failing and gives out no more Steps.
        TaskFailing = "task_failing",
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
        /// Its Task gives nothing out by itself, and there is no Run that may claim it.
        NeedsDispatch = "needs_dispatch",
        /// Its pool has no worker that may claim it.
        NoWorkerInPool = "no_worker_in_pool",
        /// No worker of its pool serves its session.
        NoWorkerServesSession = "no_worker_serves_session",
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
    /// The session that the worker must serve (DISP-20).
    pub session: &'a SessionId,
    /// The principal that its worker must be of.
    principal: Option<&'a AgentId>,
    /// Workers that it must be, all of them: in Tasks of rules 1 the assignees of Task and Step, and the
    /// worker that the caller asks about.
    only: [Option<&'a AgentId>; 3],
}

impl<'a> Wanted<'a> {
    /// The requirement for any worker of a pool that has a handler and serves a session.
    pub const fn any(pool: &'a PoolId, handler: &'a HandlerName, session: &'a SessionId) -> Self {
        Self { pool, handler, session, principal: None, only: [None; 3] }
    }

    /// What this Step requires (CLAIM-13).
    pub fn of(head: &'a Head, spec: &'a StepSpec) -> Self {
        let principal = spec.claim_only_by.as_ref().or(head.spec.claim_only_by.as_ref());
        let only = match head.rules {
            Rules::First => [head.spec.assignee.as_ref(), spec.assignee.as_ref(), None],
            Rules::Second => [None; 3],
        };
        let session = &head.spec.session_id;
        let any = Self::any(&spec.worker_pool_id, &spec.handler, session);
        Self { only, ..any.of_principal(principal) }
    }

    /// The same requirement, and that the worker be of this principal.
    #[must_use]
    pub fn of_principal(self, principal: Option<&'a AgentId>) -> Self {
        Self { principal, ..self }
    }

    /// The same requirement, and that it be this worker.
    #[must_use]
    pub fn by(self, worker: Option<&'a AgentId>) -> Self {
        let [task, step, _] = self.only;
        Self { only: [task, step, worker], ..self }
    }

    /// The one worker, or the principal whose workers alone may take the Step, if not every one may.
    pub fn only(&self) -> Option<&'a AgentId> {
        self.only.iter().rev().find_map(|only| *only).or(self.principal)
    }

    /// Everything that [`admits`](Self::admits) looks at: the principal, and the workers.
    pub fn whom(&self) -> (Option<AgentId>, [Option<AgentId>; 3]) {
        (self.principal.cloned(), self.only.map(Option::<&AgentId>::cloned))
    }

    /// CLAIM-13: whether this worker may take the Step.
    pub fn admits(&self, worker: &AgentId) -> bool {
        let is_of = |principal: &&AgentId| principal.as_str() == principal_of(worker);
        self.only.iter().flatten().all(|only| *only == worker) && self.principal.iter().all(is_of)
    }
}

/// CLAIM-13: the principal of a worker. What follows the last dot of a worker's id is its boot.
pub fn principal_of(worker: &AgentId) -> &str {
    worker.as_str().rsplit_once('.').map_or(worker.as_str(), |(principal, _)| principal)
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
    /// Those of them that serve its session.
    pub serving: u32,
    /// Those of these that have its handler.
    pub able: u32,
    /// Steps that these would take now.
    pub free: u32,
}

impl WorkerCounts {
    /// The obstacle that the pool is for a ready Step, if it is one.
    pub const fn obstacle(self) -> Option<Obstacle> {
        match (self.workers, self.serving, self.able, self.free) {
            (0, _, _, _) => Some(Obstacle::NoWorkerInPool),
            (_, 0, _, _) => Some(Obstacle::NoWorkerServesSession),
            (_, _, 0, _) => Some(Obstacle::NoWorkerWithHandler),
            (_, _, _, 0) => Some(Obstacle::PoolSaturated),
            _ => None,
        }
    }

    /// Counts one more worker that may take the Step: whether it serves the session, and whether it has the
    /// handler.
    pub fn add(&mut self, serves: bool, has_handler: bool, free: u64) {
        self.workers = self.workers.saturating_add(1);
        self.serving = self.serving.saturating_add(u32::from(serves));
        if serves && has_handler {
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

/// Everything that keeps the asker from claiming a Step of a Task now.
pub fn obstacles(
    (head, tally): (&Head, &Tally),
    spec: &StepSpec,
    state: &StepState,
    asker: Asker<'_>,
) -> Obstacles {
    use Obstacle as O;
    let mut found = Obstacles::default();
    let closing = head.cancel_requested.is_some();
    found.add(O::TaskTerminal, head.status.is_terminal());
    found.add(O::TaskCancelling, closing && !head.status.is_terminal());
    found.add(O::TaskDraft, head.status == TaskStatus::Draft);
    found.add(O::TaskBlocked, head.status == TaskStatus::Blocked);
    found.add(O::TaskPaused, head.status == TaskStatus::Paused);
    found.add(O::TaskFailing, head.is_draining(tally));
    let terminal = matches!(state.status, StepStatus::Completed | StepStatus::Cancelled);
    found.add(O::StepTerminal, terminal);
    found.add(O::StepFailed, state.status == StepStatus::Failed);
    found.add(O::StepBlocked, state.status == StepStatus::Blocked);
    let elsewhere = asker.worker.is_some_and(|who| is_assigned_elsewhere(head, spec, who));
    found.add(O::AssignedElsewhere, elsewhere);
    let pending = state.status == StepStatus::Pending;
    let waits = pending || state.status == StepStatus::Blocked; // A blocked one too, once reopened (POL-07).
    found.add(O::DependencyUnsatisfiable, waits && state.dead > 0);
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

/// Where the name stands of who alone may claim a Step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// In the Step.
    Step,
    /// In its Task.
    Task,
}

/// CLAIM-13: who alone may claim a Step, if anybody is named.
pub fn named_claimer<'a>(head: &'a Head, spec: &'a StepSpec) -> Option<(&'a AgentId, NamedBy)> {
    let gates =
        |assignee: &'a Option<AgentId>| assignee.as_ref().filter(|_| head.rules == Rules::First);
    let by_step = spec.claim_only_by.as_ref().or(gates(&spec.assignee));
    let by_task = head.spec.claim_only_by.as_ref().or(gates(&head.spec.assignee));
    by_step.map(|named| (named, NamedBy::Step)).or(by_task.map(|named| (named, NamedBy::Task)))
}

/// CLAIM-13: whether only others may claim the Step.
pub fn is_assigned_elsewhere(head: &Head, spec: &StepSpec, worker: &AgentId) -> bool {
    !Wanted::of(head, spec).admits(worker)
}

/// Whether a Run has not claimed yet, and the Step is in its scope.
fn may_claim(run: &Run, spec: &StepSpec) -> bool {
    run.is_unused() && is_in_scope(run, spec)
}

impl<'a> View<'a> {
    /// Everything that keeps a worker, or any if none is named, from claiming a Step now, under a Run if
    /// one is named: for queries and explanations, which find what a claim would find (VIEW-16).
    pub(crate) fn obstacles(
        &self,
        step: StepRef<'_>,
        run: Option<Pos>,
        worker: Option<&AgentId>,
        now: Millis,
    ) -> Obstacles {
        let asker = Asker { run: run.map(|run| self.run_at(run)), worker };
        let task = (self.head(), self.tally());
        let mut found = obstacles(task, step.spec, step.state, asker);
        let is_over = run.is_some_and(|run| !self.may_claim_under(run, worker, now));
        found.add(Obstacle::ScopeExcludes, is_over);
        found
    }

    /// Whether a worker, or any if none is named, may still claim under a Run (CLAIM-01, CLAIM-03): nobody
    /// has used it, it has not ended by itself, and no other worker has taken it.
    fn may_claim_under(&self, at: Pos, worker: Option<&AgentId>, now: Millis) -> bool {
        let (run, taken_by) = (self.run_at(at), self.memory_of(at).taken_by);
        let is_others = worker.zip(taken_by).is_some_and(|(worker, by)| worker != by);
        let has_expired = self.head().expires_at(run).is_some_and(|at| at <= now);
        run.is_unused() && !is_others && !has_expired
    }

    /// What the Runs open to a worker, or to any if none is named. The cost is that of the live Runs
    /// with their scopes.
    pub(crate) fn opened(&self, worker: Option<&AgentId>, now: Millis) -> OpenedByRuns<'a> {
        let mut opened = OpenedByRuns::default();
        for (at, run) in self.live_runs() {
            if !self.may_claim_under(at, worker, now) {
                continue;
            }
            let pool = &run.worker_pool_id;
            match &run.allowed_step_ids {
                None => drop(opened.pools.insert(pool)),
                Some(ids) => opened.steps.extend(ids.iter().map(|id| (pool, id))),
            }
        }
        opened
    }
}

/// What the Runs of a Task open.
#[derive(Debug, Default)]
pub(crate) struct OpenedByRuns<'a> {
    /// Pools with a Run that is not restricted.
    pools: BTreeSet<&'a PoolId>,
    /// Steps that a Run of a pool names.
    steps: BTreeSet<(&'a PoolId, &'a StepId)>,
}

impl OpenedByRuns<'_> {
    /// Whether some Run has this Step in its scope (DISP-10).
    pub(crate) fn has(&self, spec: &StepSpec) -> bool {
        let pool = &spec.worker_pool_id;
        self.pools.contains(pool) || self.steps.contains(&(pool, &spec.step_id))
    }
}

/// DISP-10: pool and `allowed_step_ids` are a hard scope.
pub fn is_in_scope(run: &Run, spec: &StepSpec) -> bool {
    run.worker_pool_id == spec.worker_pool_id
        && run.allowed_step_ids.as_ref().is_none_or(|ids| ids.contains(&spec.step_id))
}
