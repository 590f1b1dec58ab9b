//! `agent.task_query_steps`: a page of the Steps that a caller may see (QUERY).

use alloc::format;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Known;
use super::scope::Scope;
use super::step::StepView;
use super::summary::Diagnostics;
use crate::command::{Caller, Operator};
use crate::id::{AgentId, PoolId};
use crate::limits::Limits;
use crate::operation::{Query, TaskQuery};
use crate::read::{StepRef, View};
use crate::reject::{Code, Rejection};
use crate::status::{Role, RunState, StepStatus, TaskStatus};

/// Steps of a page by default (QUERY-08).
pub const PAGE_DEFAULT: usize = 50;
/// Steps of a page by default for a worker that looks for work (QUERY-12), as it can claim only one.
pub const WORK_DEFAULT: usize = 5;

/// The input of `task_query_steps`: which Steps to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueryInput {
    /// Only Steps that this worker holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_by_agent_id: Option<AgentId>,
    /// Whether to read completed, failed and cancelled ones, too (QUERY-07).
    pub include_terminal_steps: bool,
    /// How many Steps at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How many Steps to skip.
    pub offset: usize,
    /// Only Steps with one of these statuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = StepStatus::ALL.len()))]
    pub statuses: Option<Vec<StepStatus>>,
    /// Only Steps of this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_pool_id: Option<PoolId>,
}

impl Query for QueryInput {
    const NAME: &'static str = "task_query_steps";
    const TOOL: Operator = Operator::TaskQuerySteps;
    type Output = StepPage;

    fn shorten(&self, page: &mut StepPage) -> bool {
        page.halve(self.offset)
    }
}

impl TaskQuery for QueryInput {
    fn read(
        &self,
        task: &View<'_>,
        caller: &Caller,
        known: &Known<'_>,
        limits: &Limits,
    ) -> Result<StepPage, Rejection> {
        query_steps(task, caller, self, known, limits)
    }
}

/// A page of Steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepPage {
    /// The Steps.
    pub steps: Vec<StepView>,
    /// Where the next page begins, if there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<usize>,
    /// Whether there is more.
    pub truncated: bool,
    /// Version of the Task that was read.
    pub version: u64,
    /// `wal_seq` of the event by which orchestrators last changed what the Task is to do (OCC-07); absent for
    /// workers.
    #[serde(default, skip_serializing_if = "super::is_unknown")]
    pub spec_version: u64,
    /// For a worker that looks for work and finds none: whether its Run may end for that (DISP-12). If not,
    /// its Task gives out nothing at present, and the worker lets the Run go, to be offered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_step_available: Option<bool>,
    /// Native status of that Task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_status: Option<TaskStatus>,
    /// Diagnostics of the Task; absent for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Diagnostics>,
}

/// `agent.task_query_steps`. The cost is that of the Steps that it skips and returns; a worker that
/// looks for work skips only ready Steps of its pool.
///
/// # Errors
/// As [`Scope::of`]; `validation_error` for a limit of 0 or above the largest page, or for more
/// statuses than exist.
pub fn query_steps(
    view: &View<'_>,
    caller: &Caller,
    input: &QueryInput,
    cx: &Known<'_>,
    limits: &Limits,
) -> Result<StepPage, Rejection> {
    let scope = Scope::of(view, caller, Operator::TaskQuerySteps)?;
    input.check(limits)?;
    let looks_for_work = caller.role == Role::Worker
        && input.statuses.as_deref().is_some_and(|s| s.iter().all(|&s| s == StepStatus::Ready))
        && input.statuses.as_ref().is_some_and(|s| !s.is_empty());
    let default = if looks_for_work { WORK_DEFAULT } else { PAGE_DEFAULT };
    let limit = page_limit(input.limit, default, limits)?;
    let fits = |s: &StepRef<'_>| scope.sees(view, *s) && input.admits(view, *s);
    let page = match scope {
        Scope::Run { pos, run } if looks_for_work => {
            let who = Some(&caller.agent);
            let can = |s: &StepRef<'_>| view.obstacles(*s, Some(pos), who, cx.now).is_empty();
            // A Task that gives out nothing has none to look through.
            let ready = view.gives_out().then(|| view.ready_in_pool(&run.worker_pool_id));
            Page::cut(ready.into_iter().flatten().filter(can).filter(fits), input.offset, limit)
        }
        _ => Page::cut(view.steps().filter(fits), input.offset, limit),
    };
    let (shown, spec_version): (fn(&View<'_>, _, &Known<'_>) -> _, _) = match scope {
        Scope::Whole => (StepView::of, view.spec_version()),
        Scope::Run { .. } => (StepView::for_worker, 0),
    };
    let found_none = looks_for_work && page.rows.is_empty() && input.offset == 0;
    Ok(StepPage {
        steps: page.rows.into_iter().map(|s| shown(view, s, cx)).collect(),
        next_offset: page.more.then(|| input.offset + limit),
        truncated: page.more,
        version: view.version(),
        spec_version,
        no_step_available: found_none.then(|| view.gives_out()),
        task_status: (found_none && !view.gives_out()).then(|| view.status()),
        diagnostics: (caller.role != Role::Worker).then(|| Diagnostics::of(view, cx.now)),
    })
}

/// What a worker reads that looks for work under its Run: the ready Steps from `offset` on.
///
/// # Errors
/// As [`query_steps`]; `run_ended` under a Run that has ended, as nothing can be claimed under it (QUERY-16).
pub fn query_ready(
    view: &View<'_>,
    caller: &Caller,
    offset: usize,
    cx: &Known<'_>,
    limits: &Limits,
) -> Result<StepPage, Rejection> {
    let ready = Some(alloc::vec![StepStatus::Ready]);
    let input = QueryInput { statuses: ready, offset, ..QueryInput::default() };
    let page = query_steps(view, caller, &input, cx, limits)?;
    let run = caller.run_id.and_then(|id| view.find_run(id)).map(|pos| view.run_at(pos));
    match run.is_some_and(|run| run.state == RunState::Ended) {
        true => Err(Rejection::new(Code::RunEnded, "the run has ended")),
        false => Ok(page),
    }
}

impl StepPage {
    /// Removes the second half of a page that begins at `offset`. Returns whether it had more than
    /// one Step (CTRL-06).
    pub fn halve(&mut self, offset: usize) -> bool {
        let kept = self.steps.len() / 2;
        if kept == 0 {
            return false;
        }
        self.steps.truncate(kept);
        (self.next_offset, self.truncated) = (Some(offset + kept), true);
        true
    }
}

impl QueryInput {
    /// Checks the input, before any Task is read.
    ///
    /// # Errors
    /// `validation_error` for the limit, or for more statuses than exist, as each Step is compared
    /// with each.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        page_limit(self.limit, PAGE_DEFAULT, limits)?;
        let (given, most) = (self.statuses.as_ref().map_or(0, Vec::len), StepStatus::ALL.len());
        if given > most {
            let message = format!("{given} statuses are given, and there are {most}");
            return Err(Rejection::invalid("statuses", message).with("limit", most));
        }
        Ok(())
    }

    /// Whether the page shows a Step (QUERY-06, QUERY-07). Positions follow `created_at`, so
    /// QUERY-09's order is the creation order.
    fn admits(&self, view: &View<'_>, step: StepRef<'_>) -> bool {
        let holds = |who: &AgentId| view.current(step).is_some_and(|a| a.worker_id == *who);
        (self.include_terminal_steps || !step.status().is_settled())
            && self.statuses.as_ref().is_none_or(|s| s.contains(&step.status()))
            && self.worker_pool_id.as_ref().is_none_or(|pool| *pool == step.spec.worker_pool_id)
            && self.claimed_by_agent_id.as_ref().is_none_or(holds)
    }
}

/// A part of a sequence.
pub(super) struct Page<T> {
    pub(super) rows: Vec<T>,
    pub(super) more: bool,
}

impl<T> Page<T> {
    pub(super) fn cut(all: impl Iterator<Item = T>, offset: usize, limit: usize) -> Self {
        let mut rest = all.skip(offset);
        let rows: Vec<T> = rest.by_ref().take(limit).collect();
        let more = rows.len() == limit && rest.next().is_some();
        Self { rows, more }
    }
}

/// The `limit` in force.
pub(super) fn page_limit(
    given: Option<usize>,
    default: usize,
    limits: &Limits,
) -> Result<usize, Rejection> {
    let max = limits.page_max;
    match given {
        None => Ok(default.min(max)),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(limit) => {
            Err(Rejection::invalid("limit", format!("limit is {limit}; it goes from 1 to {max}"))
                .with("limit", max))
        }
    }
}
