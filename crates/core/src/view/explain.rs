//! Why a Step is not running, with evidence, and with the operations that would change it.
//!
//! It is built on [`eligibility`](crate::eligibility), which also decides claims: a claim by a Run
//! succeeds exactly if the explanation for that Run says `runnable_now`. What a claim needs beside
//! the Task ([`Means`](super::Means)) is a reason as far as the caller knows it.

mod evidence;
mod frontier;
mod groups;
mod words;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::normal::{self, Normal};
use crate::command::{Caller, Operator};
use crate::eligibility::{Asker, Obstacle, Obstacles, Wanted, WorkerCounts, obstacles};
use crate::id::{AgentId, RunId, StepId};
use crate::limits::Limits;
use crate::operation::{Query, TaskQuery};
use crate::read::{StepRef, View};
use crate::reject::{Code, Rejection};
use crate::status::{RunState, StepStatus};
use crate::table::Pos;

pub use evidence::{DependencyState, Evidence};
pub use frontier::Root;
pub use groups::{EndedStep, ExplainTaskInput, Group, TaskExplanation, explain_task};

/// The input of `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainInput {
    /// Ask whether this Run could claim it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The Step.
    pub step_id: StepId,
    /// Ask whether this worker could claim it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AgentId>,
}

impl ExplainInput {
    /// The question about a Step, for no particular Run or worker.
    pub const fn about(step_id: StepId) -> Self {
        Self { run_id: None, step_id, worker_id: None }
    }
}

impl Query for ExplainInput {
    const NAME: &'static str = "explain";
    const TOOL: Operator = Operator::InspectTask;
    const REFUSALS: &'static [Code] = &[Code::StepNotFound, Code::RunNotFound];
    type Output = Explanation;
}

impl TaskQuery for ExplainInput {
    fn read(
        &self,
        task: &View<'_>,
        _: &Caller,
        known: &Known<'_>,
        _: &Limits,
    ) -> Result<Explanation, Rejection> {
        let whom = ForWhom { run_id: self.run_id, worker: self.worker_id.as_ref() };
        explain(task, &self.step_id, whom, known)
    }
}

/// The Run or worker for which the question is asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct ForWhom<'a> {
    /// The Run that would claim; absent: any worker to which the pool would give the Step.
    pub run_id: Option<RunId>,
    /// The worker that would claim; absent: the one that has the Run, if one has.
    pub worker: Option<&'a AgentId>,
}

/// Why a Step is not running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The Step.
    pub step_id: StepId,
    /// Its native status.
    pub status: StepStatus,
    /// The same as a portable status.
    pub normalized_status: Normal,
    /// The most decisive reason.
    pub headline: Obstacle,
    /// The headline in words.
    pub text: String,
    /// All reasons, most decisive first; only `runnable_now` if there is no obstacle.
    pub reasons: Vec<ExplainedReason>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedReason {
    /// Its code.
    pub code: Obstacle,
    /// The reason in words, on one line.
    pub text: String,
    /// The facts behind it.
    pub evidence: Evidence,
    /// Operations that would change it, best first; empty: only time would change it, or nothing.
    pub remedies: Vec<Remedy>,
}

/// An operation that would change a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// Its name, as a command or as an operation of a patch.
    pub operation: SmolStr,
    /// The Step on which to call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The Run on which to call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The dependency that it would remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on_step_id: Option<StepId>,
}

impl Remedy {
    fn new(operation: &'static str) -> Self {
        let operation = SmolStr::new_static(operation);
        Self { operation, step_id: None, run_id: None, depends_on_step_id: None }
    }

    fn on_step(operation: &'static str, id: &StepId) -> Self {
        Self { step_id: Some(id.clone()), ..Self::new(operation) }
    }

    fn on_run(operation: &'static str, id: RunId) -> Self {
        Self { run_id: Some(id), ..Self::new(operation) }
    }
}

/// Why a Step is not running, for a Run, a worker, or in general.
///
/// It is for callers who see the whole Task: the evidence names other Steps.
///
/// # Errors
/// `step_not_found`, `run_not_found`.
pub fn explain(
    view: &View<'_>,
    step_id: &StepId,
    whom: ForWhom<'_>,
    known: &Known<'_>,
) -> Result<Explanation, Rejection> {
    let step = view.step(step_id).ok_or_else(|| {
        Rejection::new(Code::StepNotFound, alloc::format!("step {step_id} does not exist"))
            .with("step_id", step_id.as_str())
    })?;
    let run = whom.run_id.map(|id| find_run(view, id)).transpose()?;
    Ok(Case { view, step, run, whom, known, facts: &RefCell::default() }.explain())
}

fn find_run(view: &View<'_>, id: RunId) -> Result<Pos, Rejection> {
    view.find_run(id).ok_or_else(|| {
        Rejection::new(Code::RunNotFound, alloc::format!("run {id} does not exist"))
            .with("run_id", alloc::format!("{id}"))
    })
}

/// One question about one Step.
#[derive(Debug, Clone, Copy)]
struct Case<'v, 'a> {
    view: &'v View<'a>,
    step: StepRef<'a>,
    run: Option<Pos>,
    whom: ForWhom<'v>,
    known: &'v Known<'v>,
    /// Counts of workers that were asked for before: many Steps require the same.
    facts: &'v RefCell<BTreeMap<Wanted<'a>, WorkerCounts>>,
}

impl Case<'_, '_> {
    fn explain(&self) -> Explanation {
        let mut found = self.of_task();
        self.add_means(&mut found);
        let mut reasons: Vec<ExplainedReason> = found.iter().map(|code| self.why(code)).collect();
        if reasons.is_empty() {
            reasons.push(self.why(Obstacle::RunnableNow));
        }
        Explanation {
            step_id: self.step.id().clone(),
            status: self.step.status(),
            normalized_status: normal::of_step(self.step.state),
            headline: found.headline(),
            text: reasons.first().map(|r| r.text.clone()).unwrap_or_default(),
            reasons,
        }
    }

    /// The first reason of [`explain`](Self::explain), without its evidence, which may cost the
    /// whole Task for each Step.
    fn headline(&self) -> Obstacle {
        let mut found = self.of_task();
        if found.headline() >= Obstacle::LogUnavailable {
            self.add_means(&mut found);
        }
        found.headline()
    }

    /// The obstacles by the Task and the owner's memory.
    fn of_task(&self) -> Obstacles {
        let run = self.run.map(|pos| self.view.run_at(pos));
        let memory = self.run.map(|pos| self.view.memory_of(pos)).unwrap_or_default();
        let holder = run.and_then(|r| r.worker_id.as_ref()).or(memory.taken_by);
        let worker = self.whom.worker.or(holder);
        let asker = Asker { run, worker };
        let mut found = obstacles(self.view.head(), self.step.spec, self.step.state, asker);
        let taken = memory.taken_by.is_some_and(|who| worker != Some(who));
        let expired = run.and_then(|r| r.expires_at).is_some_and(|at| at <= self.known.now);
        found.add(Obstacle::ScopeExcludes, taken || expired || memory.spent);
        found
    }

    /// Adds obstacles from outside the Task, for a Step that waits. A Run has its worker, and its
    /// claim succeeds even if the lease comes later.
    fn add_means(&self, found: &mut Obstacles) {
        let status = self.step.status();
        let waits = status.is_unfinished() && !status.is_held() && !self.view.is_terminal();
        let Some(means) = self.known.means.filter(|_| waits) else { return };
        found.add(Obstacle::LogUnavailable, means.log_trouble.is_some());
        if self.run.is_some() {
            return;
        }
        found.add(Obstacle::LeasesUnavailable, means.lacks_leases);
        let of_pool = self.pool().and_then(WorkerCounts::obstacle);
        if let Some(of_pool) = of_pool.filter(|_| !found.has(Obstacle::AssignedElsewhere)) {
            found.add(of_pool, true);
        }
    }

    /// What the Step requires of a worker.
    fn wanted(&self) -> Wanted<'_> {
        Wanted::of(self.view.head(), self.step.spec).by(self.whom.worker)
    }

    /// Counts of the workers that may take the Step, if the caller knows them.
    fn pool(&self) -> Option<WorkerCounts> {
        let means = self.known.means?;
        let wanted = Wanted::of(self.view.head(), self.step.spec);
        let mut known = self.facts.borrow_mut();
        let facts = known.entry(wanted).or_insert_with(|| (means.workers)(self.wanted()));
        Some(*facts)
    }

    fn why(&self, code: Obstacle) -> ExplainedReason {
        let evidence = self.evidence(code);
        let text = self.words(code, &evidence);
        ExplainedReason { code, text, remedies: self.remedies(code, &evidence), evidence }
    }

    fn remedies(&self, code: Obstacle, evidence: &Evidence) -> Vec<Remedy> {
        use Obstacle as O;
        let id = self.step.id();
        match code {
            O::TaskTerminal => Vec::from([Remedy::new("retry_task")]),
            O::TaskDraft if self.view.unfinished().is_some() => {
                Vec::from([Remedy::new("task_create"), Remedy::new("agent.task_cancel")])
            }
            O::TaskDraft => Vec::from([Remedy::new("submit_task")]),
            O::TaskBlocked => Vec::from([Remedy::new("reopen_task")]),
            O::TaskPaused => Vec::from([Remedy::new("resume_task")]),
            O::StepTerminal if self.step.status() == StepStatus::Cancelled => {
                Vec::from([Remedy::new("add_step"), Remedy::on_step("delete_step", id)])
            }
            O::StepFailed | O::StepBlocked => Vec::from([Remedy::on_step("reopen_step", id)]),
            O::AssignedElsewhere => match &self.step.spec.assignee {
                Some(_) => Vec::from([Remedy::on_step("update_step", id)]),
                None => Vec::from([Remedy::new("update_task")]),
            },
            O::DependencyUnsatisfiable => self.unblocking(evidence),
            O::DependencyPending => self.answering(evidence),
            O::Held => {
                let run = self.view.current(self.step).map(|a| a.run_id);
                run.map(|id| Remedy::on_run("cancel_run", id)).into_iter().collect()
            }
            O::NoWorkerInPool | O::NoWorkerWithHandler => {
                Vec::from([Remedy::on_step("update_step", id)])
            }
            O::ScopeExcludes => Vec::from([Remedy::new("dispatch_worker")]),
            O::RunnableNow if self.needs_dispatch() => Vec::from([Remedy::new("dispatch_worker")]),
            O::TaskCancelling
            | O::StepTerminal
            | O::NotBefore
            | O::LogUnavailable
            | O::LeasesUnavailable
            | O::PoolSaturated
            | O::RunnableNow => Vec::new(),
        }
    }

    /// Whether the Step waits for a dispatch: a manual Task gives out no Steps by itself (READY-07).
    fn needs_dispatch(&self) -> bool {
        let manual = self.view.head().spec.dispatch == crate::status::Policy::Manual;
        let waits = |r: &crate::task::Run| r.state == RunState::Dispatched;
        manual && self.run.is_none() && !self.view.live_runs().any(|(_, r)| waits(r))
    }

    /// Operations that make a dead dependency possible again, or that remove it.
    fn unblocking(&self, evidence: &Evidence) -> Vec<Remedy> {
        let Evidence::Dependencies { unmet, roots, .. } = evidence else { return Vec::new() };
        let failed = roots.iter().filter(|r| r.status == StepStatus::Failed);
        let reopen = failed.map(|r| Remedy::on_step("reopen_step", &r.step_id));
        let detach = unmet.iter().filter(|d| d.dead).map(|d| Remedy {
            depends_on_step_id: Some(d.step_id.clone()),
            ..Remedy::on_step("remove_dependency", self.step.id())
        });
        reopen.chain(detach).collect()
    }

    /// Operations for the blocked Steps that a waiting Step depends on.
    fn answering(&self, evidence: &Evidence) -> Vec<Remedy> {
        let Evidence::Dependencies { roots, .. } = evidence else { return Vec::new() };
        let blocked = roots.iter().filter(|r| r.status == StepStatus::Blocked);
        blocked.map(|r| Remedy::on_step("reopen_step", &r.step_id)).collect()
    }
}
