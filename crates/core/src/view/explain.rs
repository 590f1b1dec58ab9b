//! Why a Step is not running, with evidence, and with the operations that would change it.
//!
//! It is built on [`eligibility`](crate::eligibility), which also decides claims: a claim by a Run
//! succeeds exactly if the explanation for that Run says `runnable_now`. What a claim needs beside
//! the Task ([`Means`](super::Means)) is a reason as far as the caller knows it.

mod evidence;
mod frontier;
mod groups;
mod remedies;
mod words;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Known;
use super::normal::{self, Normal};
use crate::command::{Caller, Operator};
use crate::eligibility::{Obstacle, Obstacles, OpenedByRuns, Wanted, WorkerCounts};
use crate::id::{AgentId, RunId, StepId};
use crate::limits::Limits;
use crate::operation::{Query, TaskQuery};
use crate::read::{StepRef, View};
use crate::reject::{Code, Rejection};
use crate::status::{Policy, StepStatus};
use crate::table::Pos;
use crate::task::Task;

pub use crate::remedy::Remedy;
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

/// Why a Step is not running, for a Run, a worker, or in general.
///
/// It is for callers who see the whole Task: the evidence names other Steps. The cost is at most that of
/// a copy of the Task, on which remedies are tried.
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
    facts: &'v RefCell<CaseFacts<'a>>,
}

/// What was found out for one Step and holds for the others.
#[derive(Debug, Default)]
struct CaseFacts<'a> {
    /// Counts of workers: many Steps require the same.
    workers: BTreeMap<Wanted<'a>, WorkerCounts>,
    /// What the Runs open.
    opened: Option<OpenedByRuns<'a>>,
    /// The Task, for trials.
    copy: Option<Task>,
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
        let (step, now) = (self.step, self.known.now);
        let Some(run) = self.run else {
            let mut found = self.view.obstacles(step, None, self.whom.worker, now);
            found.add(
                Obstacle::NeedsDispatch,
                step.status() == StepStatus::Ready && !self.is_open(),
            );
            return found;
        };
        let holder = self.view.run_at(run).worker_id.as_ref();
        let worker = self.whom.worker.or(holder).or(self.view.memory_of(run).taken_by);
        self.view.obstacles(step, Some(run), worker, now)
    }

    /// Whether the Step needs no dispatch, or has had one (READY-07).
    fn is_open(&self) -> bool {
        if self.view.head().spec.dispatch == Policy::Auto {
            return true;
        }
        let fresh = || self.view.opened(self.whom.worker, self.known.now);
        self.facts.borrow_mut().opened.get_or_insert_with(fresh).has(self.step.spec)
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
        let facts = known.workers.entry(wanted).or_insert_with(|| (means.workers)(self.wanted()));
        Some(*facts)
    }

    fn why(&self, code: Obstacle) -> ExplainedReason {
        let evidence = self.evidence(code);
        let text = self.words(code, &evidence);
        ExplainedReason { code, text, remedies: self.remedies(code, &evidence), evidence }
    }
}
