//! `agent.task_get`: a whole Task, or as much of it as a worker's Run may see (GET).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::artifact::{ArtifactView, relationships};
use super::budget::Reference;
use super::claim::DependencyResult;
use super::normal::{Facts, Normal};
use super::run::{AttemptView, RunView};
use super::scope::Scope;
use super::step::StepView;
use super::summary::TaskSummary;
use super::{Known, LeaseFact};
use crate::command::{Caller, Operator};
use crate::id::{AgentId, Millis, PoolId, Ref, RunId, StepId, TaskId};
use crate::limits::Limits;
use crate::operation::{Query, TaskQuery};
use crate::read::{StepRef, View};
use crate::record::{Acceptance, Coverage, Edge, Object, Reason, RetryPolicy, Value, is_default};
use crate::reject::{Code, Rejection};
use crate::status::{AcceptanceState, OnFailure, ParentClose, TaskStatus};
use crate::table::Pos;

/// A whole Task (2.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskView {
    /// Header, counts, progress, diagnostics.
    #[serde(flatten)]
    pub task: TaskSummary,
    /// For people.
    pub summary: SmolStr,
    /// What the Task shall reach; the summary if the creator wrote nothing else.
    pub objective: String,
    /// Conversation linkage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<SmolStr>,
    /// Conversation linkage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<SmolStr>,
    /// Pool of Steps that name no pool.
    pub default_worker_pool_id: PoolId,
    /// The creator's Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by_run_id: Option<RunId>,
    /// Attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<AgentId>,
    /// The only principal whose workers may claim Steps that name none of their own (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_only_by: Option<AgentId>,
    /// What it does when it is failing (POL-05), if its creator or orchestrator said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// How long it waits for optional Steps, in milliseconds, if its creator or orchestrator said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional_wait_ms: Option<u64>,
    /// Retry policy of its Steps, where they have none of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Classification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_family: Option<SmolStr>,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Object>,
    /// Opaque except for `deadline_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Object>,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_profile: Option<Object>,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// What other software keeps with it (EVOLVE-03).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ext: Option<Object>,
    /// The working directory, if it was made from a file (STORE-17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<SmolStr>,
    /// The job that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<SmolStr>,
    /// `a2a`, `macp` or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_protocol: Option<SmolStr>,
    /// The ended Task that it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TaskId>,
    /// Criteria of completion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<Acceptance>,
    /// Criteria met or waived, of all (PROG-09).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance_coverage: Option<Coverage>,
    /// The result, if it has completed with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The Step whose output that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_from: Option<StepId>,
    /// What becomes of it if its parent completes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parent_close: ParentClose,
    /// How many facts gateways keep with it: `task_facts` lists them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub facts_count: usize,
    /// Late input.
    pub input_refs: Arc<Vec<Ref>>,
    /// Late input of the completed Task that no completed Attempt has seen (CTRL-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_input_refs: Option<Arc<Vec<Ref>>>,
    /// Evidence.
    pub evidence_refs: Arc<Vec<Ref>>,
    /// The most recent Attempt or Task error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Arc<Reason>>,
    /// When it was archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Millis>,
    /// Steps without dependencies, in creation order.
    pub root_step_ids: Vec<StepId>,
    /// The DAG, in creation order.
    pub steps: Vec<StepView>,
    /// Runs that have not ended.
    pub active_run_ids: Vec<RunId>,
    /// All Runs, oldest first.
    pub runs: Vec<RunView>,
    /// All Attempts, oldest first, including those of deleted Steps.
    pub attempts: Vec<AttemptView>,
    /// All artifacts, oldest first.
    pub artifacts: Vec<ArtifactView>,
    /// Stored and derived relations.
    pub relationships: Vec<Edge>,
    /// Where to read the lists above, if they are left out here (CTRL-06).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Reference>,
}

/// A Task as a worker sees it: the header, its own Run, the Steps that it may see, and the results
/// of their direct dependencies (GET-04).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerTask {
    /// The Task.
    pub task_id: TaskId,
    /// For people.
    pub title: SmolStr,
    /// For people.
    pub summary: SmolStr,
    /// Normalized status.
    pub status: Normal,
    /// Native status.
    pub native_status: TaskStatus,
    /// `wal_seq` of its last event.
    pub version: u64,
    /// The worker's Run.
    pub run: RunView,
    /// The Steps that the worker may see, in creation order; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepView>>,
    /// Results of those Steps' direct dependencies; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Vec<DependencyResult>>,
}

/// The answer of `agent.task_get`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TaskRead {
    /// For orchestrators and observers.
    Whole(alloc::boxed::Box<TaskView>),
    /// For workers.
    Worker(alloc::boxed::Box<WorkerTask>),
}

/// `agent.task_get`: a Task as it stands, for orchestrators and observers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetInput {}

impl Query for GetInput {
    const NAME: &'static str = "task_get";
    const TOOL: Operator = Operator::TaskGet;
    type Output = TaskView;

    fn shorten(&self, task: &mut TaskView) -> bool {
        task.shorten()
    }
}

impl TaskQuery for GetInput {
    fn read(
        &self,
        task: &View<'_>,
        caller: &Caller,
        known: &Known<'_>,
        _: &Limits,
    ) -> Result<TaskView, Rejection> {
        match get_task(task, caller, known)? {
            TaskRead::Whole(task) => Ok(*task),
            TaskRead::Worker(_) => {
                Err(Rejection::new(Code::PermissionDenied, "a worker reads within its run"))
            }
        }
    }

    /// Without the lists of a Task that is certainly too long. The cost is then that of its header.
    fn read_within(
        &self,
        task: &View<'_>,
        caller: &Caller,
        known: &Known<'_>,
        limits: &Limits,
        max_bytes: usize,
    ) -> Result<TaskView, Rejection> {
        let whole = matches!(Scope::of(task, caller, Operator::TaskGet)?, Scope::Whole);
        match whole && TaskView::bytes_min(task) > max_bytes {
            true => Ok(TaskView::in_short(task, known)),
            false => self.read(task, caller, known, limits),
        }
    }
}

/// How many bytes a Step, a Run or an Attempt has at least in an answer: the names of its fields alone have more.
const ROW_BYTES_MIN: usize = 120;

/// `agent.task_get` on a loaded Task, be it live or read from the log of an ended one.
///
/// # Errors
/// As [`Scope::of`].
pub fn get_task(
    view: &View<'_>,
    caller: &Caller,
    known: &Known<'_>,
) -> Result<TaskRead, Rejection> {
    let scope = Scope::of(view, caller, Operator::TaskGet)?;
    Ok(match scope {
        Scope::Whole => TaskRead::Whole(TaskView::of(view, known).into()),
        Scope::Run { pos, .. } => {
            TaskRead::Worker(WorkerTask::with_steps(view, pos, scope, known).into())
        }
    })
}

impl TaskView {
    /// `replay_task`: a Task that was replayed up to some event, by its log alone: with the leases
    /// in the log, at the time of that event.
    pub fn as_it_was(view: &View<'_>) -> Self {
        let now = view.updated_at();
        let lease = |id| {
            let expires_at = view.attempt(id)?.lease_expires_at;
            Some(LeaseFact { expires_at, valid: expires_at > now })
        };
        Self::of(view, &Known::new(now, &lease))
    }

    /// The whole Task of a view.
    pub fn of(view: &View<'_>, known: &Known<'_>) -> Self {
        let is_root = |s: &StepRef<'_>| s.spec.depends_on_step_ids.is_empty();
        Self {
            root_step_ids: view.steps().filter(is_root).map(|s| s.id().clone()).collect(),
            steps: view.steps().map(|s| StepView::of(view, s, known)).collect(),
            active_run_ids: active_run_ids(view),
            runs: view.runs().map(|(pos, _)| RunView::of(view, pos)).collect(),
            attempts: view.attempts().map(|a| AttemptView::of(view, a, known)).collect(),
            artifacts: view.artifacts().map(|a| ArtifactView::of(view, a)).collect(),
            relationships: relationships(view),
            ..Self::header(view, known)
        }
    }

    /// How many bytes the whole Task of a view has at least.
    fn bytes_min(view: &View<'_>) -> usize {
        let steps = usize::try_from(view.tally().steps()).unwrap_or(usize::MAX);
        steps.saturating_add(view.attempts_len()).saturating_mul(ROW_BYTES_MIN)
    }

    /// The Task of a view as [`shorten`](Self::shorten) leaves it. The cost is that of the summary.
    fn in_short(view: &View<'_>, known: &Known<'_>) -> Self {
        Self { left_out: Some(Reference::to(view)), ..Self::header(view, known) }
    }

    /// The Task of a view without its lists.
    fn header(view: &View<'_>, known: &Known<'_>) -> Self {
        let head = view.head();
        let spec = &head.spec;
        Self {
            task: TaskSummary::of(view, known),
            summary: spec.summary.clone(),
            objective: spec.objective.clone().unwrap_or_else(|| spec.summary.as_str().into()),
            thread_id: spec.thread_id.clone(),
            turn_id: spec.turn_id.clone(),
            default_worker_pool_id: spec.default_worker_pool_id.clone(),
            created_by_run_id: head.created_by_run_id,
            requested_by: spec.requested_by.clone(),
            on_failure: spec.on_failure,
            optional_wait_ms: spec.optional_wait_ms,
            claim_only_by: spec.claim_only_by.clone(),
            retry_policy: spec.retry_policy.clone(),
            task_family: spec.task_family.clone(),
            scope: spec.scope.clone(),
            constraints: spec.constraints.clone(),
            task_profile: spec.task_profile.clone(),
            metadata: spec.metadata.clone(),
            ext: spec.ext.clone(),
            cwd: spec.cwd.clone(),
            job_id: spec.job_id.clone(),
            native_protocol: spec.native_protocol.clone(),
            retry_of: spec.retry_of.clone(),
            acceptance: spec.acceptance.clone(),
            acceptance_coverage: coverage(&spec.acceptance),
            output: view.output().cloned(),
            output_from: head.output_from.clone(),
            parent_close: spec.parent_close,
            facts_count: view.facts_len(),
            input_refs: Arc::clone(&head.input_refs),
            unread_input_refs: head.unread_input_refs.clone(),
            evidence_refs: Arc::clone(&head.evidence_refs),
            last_error: head.last_error.clone(),
            archived_at: head.archived_at,
            root_step_ids: Vec::new(),
            steps: Vec::new(),
            active_run_ids: Vec::new(),
            runs: Vec::new(),
            attempts: Vec::new(),
            artifacts: Vec::new(),
            relationships: Vec::new(),
            left_out: None,
        }
    }

    /// Replaces its Steps, Runs, Attempts, artifacts and relations by a reference to where they
    /// are. Returns whether they were still there (CTRL-06).
    pub fn shorten(&mut self) -> bool {
        self.shorten_for(Reference::at(&self.task.task_id, self.task.version))
    }

    /// As [`shorten`](Self::shorten), for a replayed Task: the reference names the version, as the
    /// Task has changed.
    pub fn shorten_as_it_was(&mut self) -> bool {
        self.shorten_for(Reference::as_it_was(&self.task.task_id, self.task.version))
    }

    fn shorten_for(&mut self, reference: Reference) -> bool {
        if self.left_out.is_some() {
            return false;
        }
        (self.root_step_ids, self.steps) = Default::default();
        (self.active_run_ids, self.runs, self.attempts) = Default::default();
        (self.artifacts, self.relationships) = Default::default();
        self.left_out = Some(reference);
        true
    }
}

impl WorkerTask {
    /// The header alone, which a worker finds in a list (LIST-08). `None` if the scope is not a Run's.
    pub fn header(view: &View<'_>, scope: Scope<'_>, known: &Known<'_>) -> Option<Self> {
        let Scope::Run { pos, .. } = scope else { return None };
        Some(Self::of(view, pos, known))
    }

    fn with_steps(view: &View<'_>, run: Pos, scope: Scope<'_>, known: &Known<'_>) -> Self {
        let visible: Vec<StepRef<'_>> = view.steps().filter(|&s| scope.sees(view, s)).collect();
        let dependencies = DependencyResult::of_dependencies(view, visible.iter().copied());
        let steps = visible.into_iter().map(|s| StepView::for_worker(view, s, known));
        Self {
            steps: Some(steps.collect()),
            dependencies: Some(dependencies),
            ..Self::of(view, run, known)
        }
    }

    fn of(view: &View<'_>, run: Pos, known: &Known<'_>) -> Self {
        let spec = &view.head().spec;
        Self {
            task_id: spec.task_id.clone(),
            title: spec.title.clone(),
            summary: spec.summary.clone(),
            status: Facts::of(view, known).status(),
            native_status: view.status(),
            version: view.version(),
            run: RunView::of(view, run),
            steps: None,
            dependencies: None,
        }
    }
}

/// Runs that have not ended (2.1).
pub fn active_run_ids(view: &View<'_>) -> Vec<RunId> {
    view.live_runs().map(|(_, run)| run.run_id).collect()
}

/// PROG-09: the coverage; `None` if there are no criteria.
pub fn coverage(acceptance: &[Acceptance]) -> Option<Coverage> {
    let met = |a: &&Acceptance| matches!(a.state, AcceptanceState::Met | AcceptanceState::Waived);
    let met = acceptance.iter().filter(met).count() as u64;
    (!acceptance.is_empty()).then_some(Coverage { met, total: acceptance.len() as u64 })
}
