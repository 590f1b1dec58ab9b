//! The facts that prove a reason.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Case;
use crate::eligibility::{Obstacle, WorkerCounts, named_claimer};
use crate::id::{AgentId, AttemptId, HandlerName, Millis, PoolId, RunId, StepId};
use crate::read::{StepRef, View};
use crate::record::Reason;
use crate::status::{EndReason, Intent, RunState, StepStatus, TaskStatus, WaitKind};
use crate::table::Pos;
use crate::task::standing_reason;
use crate::view::step::Holder;

/// How many Steps one list in the evidence names.
const NAMED_MAX: usize = 20;

/// The facts that prove a reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Evidence {
    /// A held Step: by whom, since when, under which lease.
    Held {
        /// Its worker, Run, Attempt and lease.
        holder: Holder,
        /// The time of the claim.
        since: Millis,
    },
    /// Dependencies that are not completed, and the Steps that the waiting comes down to.
    Dependencies {
        /// Direct dependencies that are not completed.
        unmet: Vec<DependencyState>,
        /// The first causes, directly or through others.
        roots: Vec<DependencyState>,
        /// How many more causes there are.
        more_roots: usize,
    },
    /// A backoff.
    Until {
        /// Its end.
        not_before: Millis,
        /// How long from now, in milliseconds.
        in_ms: u64,
    },
    /// The workers of the Step's pool that may claim it.
    Pool {
        /// The pool.
        worker_pool_id: PoolId,
        /// The handler that the Step needs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handler: Option<HandlerName>,
        /// The only worker that was counted, or the principal whose workers alone were: who alone may
        /// claim the Step, or the worker in the question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker_id: Option<AgentId>,
        /// Workers in the pool.
        workers: u32,
        /// Those of them that have the handler.
        #[serde(default)]
        able: u32,
        /// Steps that these would take now.
        free: u32,
    },
    /// The Run in the question.
    Run {
        /// The Run.
        run_id: RunId,
        /// Its state, by the log and the owner's memory.
        run_state: RunState,
        /// How it ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end_reason: Option<EndReason>,
        /// The pool it is for.
        run_pool_id: PoolId,
        /// The Steps it may claim, if restricted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        allowed_step_ids: Option<Arc<[StepId]>>,
        /// How many more such Steps there are.
        #[serde(default, skip_serializing_if = "is_zero")]
        more_allowed: usize,
        /// The Attempt that used it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt_id: Option<AttemptId>,
        /// The pool the Step is for.
        step_pool_id: PoolId,
    },
    /// Something that the Task's owner cannot use at the moment.
    Trouble {
        /// Why, in words.
        trouble: SmolStr,
    },
    /// Who alone may claim it.
    Assigned {
        /// The principal; in Tasks of rules 1 the worker.
        claim_only_by: AgentId,
    },
    /// The closing of the Task.
    Closing {
        /// Whether closing cancels or fails the Task.
        intent: Intent,
        /// Until when Runs may take to stop.
        deadline_at: Millis,
    },
    /// The Step's status, and why.
    Step {
        /// Its status.
        step_status: StepStatus,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        /// What it waits for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_kind: Option<WaitKind>,
        /// Its newest Attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_attempt_id: Option<AttemptId>,
    },
    /// The Task's status, and why.
    Task {
        /// Its status.
        task_status: TaskStatus,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<Reason>>,
    },
}

/// A dependency as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DependencyState {
    /// The Step.
    pub step_id: StepId,
    /// Its status.
    pub status: StepStatus,
    /// Whether it cannot complete as things stand.
    pub dead: bool,
    /// Code of its reason, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<SmolStr>,
}

impl DependencyState {
    fn of(step: StepRef<'_>) -> Self {
        Self {
            step_id: step.id().clone(),
            status: step.status(),
            dead: step.state.is_dead(),
            code: step.facts().status_reason.as_ref().map(|r| r.code.clone()),
        }
    }
}

impl Case<'_, '_> {
    pub(super) fn evidence(&self, code: Obstacle) -> Evidence {
        use Obstacle as O;
        let found = match code {
            O::TaskCancelling => self.closing(),
            O::AssignedElsewhere => self.assigned(),
            O::DependencyUnsatisfiable => Some(self.dependencies(true)),
            O::DependencyPending => Some(self.dependencies(false)),
            O::NotBefore => self.until(),
            O::Held => self.holder(),
            O::NoWorkerInPool
            | O::NoWorkerServesSession
            | O::NoWorkerWithHandler
            | O::PoolSaturated => self.workers(),
            O::LogUnavailable => self.known.means.and_then(|means| means.log_trouble).map(trouble),
            O::LeasesUnavailable => Some(trouble("the store of leases takes none")),
            O::ScopeExcludes => self.run_asked(),
            O::StepTerminal
            | O::StepFailed
            | O::StepBlocked
            | O::NeedsDispatch
            | O::RunnableNow => Some(self.stands()),
            O::TaskFailing => self.failing(),
            O::TaskTerminal | O::TaskDraft | O::TaskBlocked | O::TaskPaused => None,
        };
        found.unwrap_or_else(|| Evidence::Task {
            task_status: self.view.status(),
            reason: self.view.head().status_reason.clone(),
        })
    }

    fn closing(&self) -> Option<Evidence> {
        let request = self.view.head().cancel_requested.as_ref()?;
        Some(Evidence::Closing { intent: request.intent, deadline_at: request.deadline_at })
    }

    /// The first standing failure.
    fn failing(&self) -> Option<Evidence> {
        let first = self.view.failing().min_by_key(|step| step.state.failing(step.spec))?;
        let reason = Some(Arc::new(standing_reason(first.id().as_str(), first.state)));
        Some(Evidence::Task { task_status: self.view.status(), reason })
    }

    fn assigned(&self) -> Option<Evidence> {
        let (named, _) = named_claimer(self.view.head(), self.step.spec)?;
        Some(Evidence::Assigned { claim_only_by: named.clone() })
    }

    fn until(&self) -> Option<Evidence> {
        let not_before = self.step.state.not_before?;
        let in_ms = u64::try_from(not_before.saturating_sub(self.known.now)).unwrap_or(0);
        Some(Evidence::Until { not_before, in_ms })
    }

    fn holder(&self) -> Option<Evidence> {
        let attempt = self.view.current(self.step)?;
        let holder = Holder::of(attempt, self.known);
        Some(Evidence::Held { holder, since: attempt.started_at })
    }

    fn workers(&self) -> Option<Evidence> {
        let WorkerCounts { workers, able, free, .. } = self.pool()?;
        let wanted = self.wanted();
        let (worker_pool_id, handler) = (wanted.pool.clone(), Some(wanted.handler.clone()));
        let worker_id = wanted.only().cloned();
        Some(Evidence::Pool { worker_pool_id, handler, worker_id, workers, able, free })
    }

    fn run_asked(&self) -> Option<Evidence> {
        let run = crate::view::RunView::of(self.view, self.run?);
        let all = run.allowed_step_ids;
        let more_allowed = all.as_ref().map_or(0, |ids| ids.len().saturating_sub(NAMED_MAX));
        let named = all.map(|ids| match more_allowed {
            0 => ids,
            _ => ids.iter().take(NAMED_MAX).cloned().collect(),
        });
        Some(Evidence::Run {
            run_id: run.run_id,
            run_state: run.state,
            end_reason: run.end_reason,
            run_pool_id: run.worker_pool_id,
            allowed_step_ids: named,
            more_allowed,
            attempt_id: run.attempt_id,
            step_pool_id: self.step.spec.worker_pool_id.clone(),
        })
    }

    fn stands(&self) -> Evidence {
        Evidence::Step {
            step_status: self.step.status(),
            reason: self.step.facts().status_reason.clone(),
            wait_kind: self.step.state.wait_kind,
            last_attempt_id: self.view.attempts_of(self.step).next().map(|a| a.attempt_id),
        }
    }

    fn dependencies(&self, dead: bool) -> Evidence {
        let unmet = unmet(self.view, self.step).filter(|d| !dead || d.state.is_dead());
        let unmet = unmet.take(NAMED_MAX).map(DependencyState::of).collect();
        let roots = roots(self.view, self.step, dead);
        let more_roots = roots.len().saturating_sub(NAMED_MAX);
        let roots = roots.into_iter().take(NAMED_MAX).map(DependencyState::of).collect();
        Evidence::Dependencies { unmet, roots, more_roots }
    }
}

fn trouble(why: &str) -> Evidence {
    Evidence::Trouble { trouble: why.lines().next().unwrap_or_default().into() }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape `skip_serializing_if` asks for.
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Direct dependencies that are not completed.
fn unmet<'a>(view: &'a View<'_>, step: StepRef<'a>) -> impl Iterator<Item = StepRef<'a>> {
    let all = step.spec.depends_on_step_ids.iter().filter_map(|id| view.step(id));
    all.filter(|s| s.status() != StepStatus::Completed)
}

/// The causes of a Step's waiting, in creation order: if it waits in vain (`dead`), failed and
/// cancelled Steps, else the Steps that have to move next. It uses a worklist, not recursion,
/// because chains may be as long as a Task is large.
fn roots<'a>(view: &'a View<'_>, step: StepRef<'a>, dead: bool) -> Vec<StepRef<'a>> {
    let mut seen: BTreeSet<Pos> = BTreeSet::new();
    let mut found: Vec<StepRef<'a>> = Vec::new();
    let mut work = Vec::from([step]);
    while let Some(at) = work.pop() {
        for next in unmet(view, at).filter(|d| !dead || d.state.is_dead()) {
            if !seen.insert(next.pos) {
                continue;
            }
            match is_root(next, dead) {
                true => found.push(next),
                false => work.push(next),
            }
        }
    }
    found.sort_unstable_by_key(|s| s.pos);
    found
}

/// Whether the cause of waiting is in this Step itself.
fn is_root(step: StepRef<'_>, dead: bool) -> bool {
    match step.status() {
        StepStatus::Failed | StepStatus::Cancelled => true,
        StepStatus::Pending => step.state.unmet == 0,
        StepStatus::Blocked => !dead,
        _ => true,
    }
}
