//! `agent.task_create`: makes a new Task from a whole DAG.
//!
//! Step 5 of the walk in docs/architecture.md.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

pub use super::family::{Parent, ParentEnd};
use super::inputs::{check_new, needs_second};
use super::relate::{edge, kept};
use super::tx::Did;
use super::{Cx, KeepFact, Operator, Outcome, Tx, check_principal, check_tool};
use crate::creation::Creation;
use crate::dag::find_cycle;
use crate::event::{Body, Event, StepTakenOver, TaskCreated};
use crate::id::{AgentId, Millis, PoolId, Ref, StepId, TaskId, WalName};
use crate::limits::Limits;
use crate::patch::{ReasonInput, StepInput};
use crate::record::{Acceptance, Edge, Labels, Object, RetryPolicy, StepSpec, TaskSpec};
use crate::reject::{Code, Rejection};
use crate::rules::Rules;
use crate::status::{
    DeliveryState, EdgeKind, OnFailure, ParentClose, Policy, TaskStatus, Visibility,
};
use crate::table::{Pos, next_pos};
use crate::task::Task;

/// `agent.task_create` and `create_task`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["task_id"]))] // Required on the bus; a client library may make the id.
pub struct CreateTask {
    /// Criteria of completion.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<Acceptance>,
    /// Attribution (CLAIM-13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    /// The only principal whose workers may claim Steps that name none of their own (CLAIM-13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_only_by: Option<AgentId>,
    /// Who ends the Task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<Policy>,
    /// Set if the creation comes in parts: a draft with some of the Steps now; patches add the
    /// others (IDEM-07).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    /// Opaque except for `deadline_at`, and `deadline_ms`, which counts from the creation (POL-11).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Object>,
    /// The working directory, if the Task is made from a file: embedded runs of `exec` Steps begin there
    /// (STORE-17).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<SmolStr>,
    /// Pool of Steps that name no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_worker_pool_id: Option<PoolId>,
    /// Who gives out Steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Policy>,
    /// Whether it waits for `submit_task`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<bool>,
    /// What other software keeps with it: opaque, at most 4 KiB, not for workers (EVOLVE-03).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ext: Option<Object>,
    /// What a gateway keeps with the Task from the first (FACT-02).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)] // For gateways alone, which have it from this crate.
    pub facts: Vec<KeepFact>,
    /// A repeated create with the same key and content gets the answer of the first, whoever asks. With a
    /// key the `task_id` is the one that is made from it (IDEM-03).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<SmolStr>,
    /// Opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<SmolStr>,
    /// Names and values by which listings find the Task: at most 16, of 63 and 128 characters (LABEL-01).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::labels::schema")]
    pub labels: Labels,
    /// Opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// `a2a`, `macp` or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_protocol: Option<SmolStr>,
    /// What the Task shall reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// What it does when it is failing (POL-05).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// How long it waits for optional Steps, in milliseconds (POL-06).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional_wait_ms: Option<u64>,
    /// The Step whose output becomes the Task's when that completes by itself, default the only one on
    /// which nothing depends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_from: Option<StepId>,
    /// Attribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    /// What becomes of this Task if its parent completes, default that it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_close: Option<ParentClose>,
    /// The Task that makes this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<TaskId>,
    /// Hint between Tasks, higher first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Attribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<AgentId>,
    /// The ended Task that this one runs again (RETRY-12).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TaskId>,
    /// Retry policy of Steps that have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Why the Task is run again, stored with the `retry_of` edge. No operation takes it as an input field.
    #[serde(skip)]
    pub retry_reason: Option<ReasonInput>,
    /// Opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Object>,
    /// The DAG.
    pub steps: Vec<StepInput>,
    /// For people.
    pub summary: SmolStr,
    /// Completed Steps of the Task in `retry_of` that are not run again. No operation takes it as an
    /// input field.
    #[serde(skip)]
    pub taken_over: Vec<(StepId, StepTakenOver)>,
    /// Classification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_family: Option<SmolStr>,
    /// Unique in the session; the client library makes one if the user does not (U15).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// Classification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_kind: Option<SmolStr>,
    /// Opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_profile: Option<Object>,
    /// Conversation linkage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<SmolStr>,
    /// For people.
    pub title: SmolStr,
    /// Conversation linkage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<SmolStr>,
    /// Who sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Visibility>,
    /// Alias of `wal_name` (STORE-11).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_filename: Option<WalName>,
    /// Name of the WAL, default the `task_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_name: Option<WalName>,
}

impl CreateTask {
    /// The name of the WAL; refuses two aliases with different values (STORE-11).
    pub fn wal_name(&self) -> Result<WalName, Rejection> {
        match (&self.wal_name, &self.wal_filename) {
            (Some(a), Some(b)) if a != b => {
                Err(Rejection::invalid("wal_name", "wal_name and wal_filename differ"))
            }
            (Some(name), _) | (None, Some(name)) => Ok(name.clone()),
            (None, None) => self.task_id().map(WalName::from),
        }
    }

    /// The id, which the scheduler never makes (ID-01).
    pub fn task_id(&self) -> Result<&TaskId, Rejection> {
        self.task_id.as_ref().ok_or_else(|| Rejection::invalid("task_id", "task_id is missing"))
    }
}

/// Values that a create takes from the scheduler's settings.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// `dispatch` and `completion` if the input does not give them, by entry point (POL-01).
    pub policy: Policy,
    /// The orchestrator's configured pool.
    pub worker_pool_id: PoolId,
}

impl Task {
    /// Decides a create: the new Task with its first commit, which the caller appends before it answers.
    pub fn create(
        cx: &Cx<'_>,
        given: &CreateTask,
        defaults: &Defaults,
        parent: Option<&Parent>,
    ) -> Result<(Self, Outcome), Rejection> {
        let made = Self::first_of(cx, given, defaults, parent);
        Operator::TaskCreate.check_refusal(&made);
        made
    }

    fn first_of(
        cx: &Cx<'_>,
        given: &CreateTask,
        defaults: &Defaults,
        parent: Option<&Parent>,
    ) -> Result<(Self, Outcome), Rejection> {
        check_principal(cx.caller)?;
        check_tool(cx.caller, Operator::TaskCreate)?;
        given.validate(cx.limits)?;
        super::edition::check_create(cx, given, &defaults.worker_pool_id)?;
        given.check_key(&cx.caller.session_id)?;
        let created = created(cx, given, defaults, parent)?;
        let event = Event {
            actor: cx.caller.agent.clone(),
            run: cx.caller.run_id,
            step_id: None,
            body: Body::TaskCreated(created.clone()),
        };
        let mut task = Self::empty(&event, &created, cx.stamp.commit_id, cx.stamp.now);
        task.head.trace = cx.trace.cloned();
        let mut tx = Tx::begin(&mut task, cx);
        tx.emit(tx.caller(), event.body)?;
        tx.take_over(&given.taken_over)?;
        given.facts.iter().try_for_each(|fact| tx.keep_fact(fact))?;
        tx.task.check_first_references()?;
        let outcome = tx.finish(Did::DONE)?;
        Ok((task, outcome))
    }
}

/// The event of a create, if the input is valid.
pub(super) fn created(
    cx: &Cx<'_>,
    given: &CreateTask,
    defaults: &Defaults,
    parent: Option<&Parent>,
) -> Result<TaskCreated, Rejection> {
    let wal_name = given.wal_name()?;
    let rules = cx.limits.rules;
    let steps = plan_steps(given, defaults, rules)?;
    if let Some(id) = &given.parent_task_id {
        let parent = parent.ok_or_else(|| {
            Rejection::new(Code::TaskNotFound, format!("the parent {id} does not exist"))
                .with("task_id", id.as_str())
        })?;
        parent.check(id)?;
    }
    let spec = spec_of(cx, given, defaults, parent, wal_name, steps)?;
    if given.retry_reason.is_some() {
        super::deadline::not_passed(&spec, cx.stamp.now)?;
    }
    let idempotency_key = given.idempotency_key.clone();
    Ok(TaskCreated { task: Arc::new(spec), creation: given.creation, idempotency_key, rules })
}

/// ID-03: the id exists in the session.
pub fn task_id_conflict(id: &TaskId) -> Rejection {
    Rejection::new(Code::TaskIdConflict, format!("task {id} exists in this session"))
        .with("task_id", id.as_str())
}

fn plan_steps(
    given: &CreateTask,
    defaults: &Defaults,
    rules: Rules,
) -> Result<Arc<[Arc<StepSpec>]>, Rejection> {
    needs_second(rules, "output_from", given.output_from.is_some())?;
    for (at, step) in given.steps.iter().enumerate() {
        if step.inputs_from.is_some() {
            needs_second(rules, &format!("steps[{at}].inputs_from"), true)?;
        }
    }
    if given.steps.is_empty() && !given.draft.unwrap_or(false) {
        return Err(Rejection::invalid("steps", "a task needs at least one step"));
    }
    let pool = given.default_worker_pool_id.as_ref().unwrap_or(&defaults.worker_pool_id);
    let planned = |step: &StepInput| {
        let mut spec = step.filled_in(pool);
        spec.retry_policy = spec.retry_policy.map(|own| own.of_step(rules));
        Arc::new(spec)
    };
    let specs: Vec<Arc<StepSpec>> = given.steps.iter().map(planned).collect();
    check_dag(&specs.iter().map(|s| &**s).collect::<Vec<_>>())?;
    if let Some(id) = given.output_from.as_ref().filter(|_| given.draft != Some(true)) {
        // A draft may get the Step later; if it never does, the Task has no output.
        if !specs.iter().any(|step| step.step_id == *id) {
            return Err(Rejection::invalid("output_from", format!("step {id} does not exist"))
                .with("step_id", id.as_str()));
        }
    }
    Ok(specs.into())
}

/// DAG-03, STEP-37: ids are unique, dependencies exist, there is no cycle, and inputs come from
/// ancestors. Cost: Steps plus edges, and the way up to those ancestors.
fn check_dag(steps: &[&StepSpec]) -> Result<(), Rejection> {
    let mut by_id: BTreeMap<&StepId, Pos> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        if by_id.insert(&step.step_id, next_pos(at)).is_some() {
            return Err(Rejection::invalid(
                &format!("steps[{at}].step_id"),
                format!("step {} is there twice", step.step_id),
            ));
        }
    }
    let mut edges = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let mut on = Vec::with_capacity(step.depends_on_step_ids.len());
        for id in &step.depends_on_step_ids {
            on.push(*by_id.get(id).ok_or_else(|| unknown_dependency(at, &step.step_id, id))?);
        }
        edges.push(on);
    }
    if let Some(cycle) = find_cycle(&edges) {
        let ids: Vec<StepId> =
            cycle.iter().map(|&pos| steps[pos as usize].step_id.clone()).collect();
        return Err(dependency_cycle(&ids));
    }
    check_new(steps, &edges, |id| by_id.get(id).copied())
}

fn unknown_dependency(at: usize, step: &StepId, missing: &StepId) -> Rejection {
    Rejection::invalid(
        &format!("steps[{at}].depends_on_step_ids"),
        format!("step {step} depends on {missing}, which does not exist"),
    )
    .with("step_id", step.as_str())
    .with("depends_on_step_id", missing.as_str())
}

/// DAG-05: the cycle by its ids, as a path that ends where it began.
pub(crate) fn dependency_cycle(ids: &[StepId]) -> Rejection {
    let mut path: Vec<&str> = ids.iter().map(StepId::as_str).collect();
    path.extend(ids.first().map(StepId::as_str));
    Rejection::new(
        Code::DependencyCycle,
        format!("dependencies form a cycle: {}", path.join(" -> ")),
    )
    .with("step_ids", super::close::ids_json(ids))
}

fn spec_of(
    cx: &Cx<'_>,
    given: &CreateTask,
    defaults: &Defaults,
    parent: Option<&Parent>,
    wal_name: WalName,
    steps: Arc<[Arc<StepSpec>]>,
) -> Result<TaskSpec, Rejection> {
    let task_id = given.task_id()?.clone();
    let completion = given.completion.unwrap_or(defaults.policy);
    let waited_for = given.parent_task_id.is_some() || given.thread_id.is_some();
    let root = parent.filter(|_| given.parent_task_id.is_some()).map(|p| p.root_task_id.clone());
    Ok(TaskSpec {
        session_id: cx.caller.session_id.clone(),
        wal_name,
        title: given.title.clone(),
        summary: given.summary.clone(),
        dispatch: given.dispatch.unwrap_or(defaults.policy),
        completion,
        default_worker_pool_id: given
            .default_worker_pool_id
            .clone()
            .unwrap_or_else(|| defaults.worker_pool_id.clone()),
        root_task_id: root.unwrap_or_else(|| task_id.clone()),
        delivery_state: match waited_for {
            true => DeliveryState::Pending,
            false => DeliveryState::NotApplicable,
        },
        visibility: given.visibility.unwrap_or(Visibility::Internal),
        thread_id: given.thread_id.clone(),
        turn_id: given.turn_id.clone(),
        parent_task_id: given.parent_task_id.clone(),
        parent_close: given.parent_close.unwrap_or_default(),
        output_from: given.output_from.clone(),
        objective: given.objective.clone(),
        requested_by: given.requested_by.clone(),
        owner: given.owner.clone(),
        assignee: given.assignee.clone(),
        claim_only_by: given.claim_only_by.clone(),
        retry_policy: RetryPolicy::of_task(
            given.retry_policy.as_ref(),
            completion,
            cx.limits.rules,
        ),
        task_kind: given.task_kind.clone(),
        task_family: given.task_family.clone(),
        priority: given.priority.unwrap_or(0),
        on_failure: given.on_failure,
        optional_wait_ms: given.optional_wait_ms,
        scope: given.scope.clone(),
        constraints: super::deadline::kept(given.constraints.as_ref(), cx.stamp.now),
        task_profile: given.task_profile.clone(),
        acceptance: given.acceptance.clone(),
        retry_of: given.retry_of.clone(),
        job_id: given.job_id.clone(),
        metadata: given.metadata.clone(),
        native_protocol: given.native_protocol.clone(),
        labels: given.labels.clone(),
        ext: given.ext.clone(),
        cwd: given.cwd.clone(),
        status: if given.draft.unwrap_or(false) { TaskStatus::Draft } else { TaskStatus::Pending },
        relationships: first_edges(given, &task_id, cx.stamp.now)?,
        steps,
        task_id,
    })
}

/// REL-04: the `parent` and `retry_of` edges are part of the new Task's creation.
fn first_edges(given: &CreateTask, task_id: &TaskId, at: Millis) -> Result<Vec<Edge>, Rejection> {
    let ends = [
        (EdgeKind::Parent, &given.parent_task_id, None),
        (EdgeKind::RetryOf, &given.retry_of, given.retry_reason.as_ref().map(kept)),
    ];
    let named =
        ends.into_iter().filter_map(|(kind, to, why)| to.as_ref().map(|to| (kind, to, why)));
    named.map(|(kind, to, why)| edge(kind, task_id, &Ref::new(to.as_str())?, why, at)).collect()
}

impl CreateTask {
    /// K3: texts, limits, durations.
    pub(super) fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        self.task_id()?;
        super::validate::text("title", &self.title, limits)?;
        super::validate::text("summary", &self.summary, limits)?;
        super::validate::reason(self.retry_reason.as_ref(), limits)?;
        super::validate::text("objective", self.objective.as_deref().unwrap_or(""), limits)?;
        if self.steps.len() > limits.steps_max {
            let message =
                format!("{} steps; at most {} fit a task", self.steps.len(), limits.steps_max);
            return Err(Rejection::invalid("steps", message)
                .with("limit", limits.steps_max)
                .with("given", self.steps.len()));
        }
        self.validate_creation(limits)?;
        super::follow::check_first(&self.facts, limits)?;
        super::labels::check(&self.labels)?;
        super::validate::ext(self.ext.as_ref())?;
        super::validate::text("cwd", self.cwd.as_deref().unwrap_or(""), limits)?;
        if let Some(policy) = &self.retry_policy {
            super::validate::policy("retry_policy", policy)?;
        }
        for (at, step) in self.steps.iter().enumerate() {
            super::validate::step(step, limits).map_err(|rejection| {
                let field = rejection.details.get("field").and_then(|f| f.as_str()).unwrap_or("");
                let field = format!("steps[{at}].{field}");
                rejection.with("field", field)
            })?;
        }
        super::deadline::first(self.constraints.as_ref())
    }

    /// IDEM-07: a creation in parts is a draft until it is whole, and has fewer Steps now than then.
    fn validate_creation(&self, limits: &Limits) -> Result<(), Rejection> {
        let Some(creation) = self.creation else { return Ok(()) };
        if self.draft != Some(true) {
            let message = "what comes in parts is a draft until it is whole";
            return Err(Rejection::invalid("draft", message));
        }
        let whole = creation.steps as usize;
        if whole <= self.steps.len() || whole > limits.steps_max {
            let message = format!(
                "{whole} steps in parts; at least one more than come with this, and at most {}",
                limits.steps_max
            );
            return Err(Rejection::invalid("creation.steps", message));
        }
        Ok(())
    }
}
