//! What a test says: the DAG notation, ids, callers and commands.

use serde_json::{Value as Json, json};
use tenure_core::command::create::CreateTask;
use tenure_core::command::{RetryEnded, StepReport};
use tenure_core::id::{AgentId, PoolId, RunId, SessionId, StepId, TaskId};
use tenure_core::patch::{Operation, ReasonInput, StepInput};
use tenure_core::status::{Role, StepStatus};
use tenure_core::{Caller, Command};

use super::{Held, ORCHESTRATOR};

/// Steps from the one-line notation: `a b? c@gpu<-a,b`.
pub fn dag(notation: &str) -> Vec<StepInput> {
    notation.split_whitespace().map(step_input).collect()
}

/// One Step from the notation.
pub fn step_input(notation: &str) -> StepInput {
    let (name, deps) = notation.split_once("<-").unwrap_or((notation, ""));
    let (name, pool) = name.split_once('@').map_or((name, None), |(n, p)| (n, Some(p)));
    let (name, optional) = name.strip_suffix('?').map_or((name, false), |n| (n, true));
    StepInput {
        assignee: None,
        claim_only_by: None,
        ext: None,
        depends_on_step_ids: deps.split(',').filter(|d| !d.is_empty()).map(id).collect(),
        handler: None,
        input: None,
        inputs_from: None,
        required: optional.then_some(false),
        retry_policy: None,
        step_id: id(name),
        summary: format!("summary of {name}").into(),
        title: format!("title of {name}").into(),
        worker_pool_id: pool.map(pool_id),
    }
}

/// A create command with these Steps, policies left to the entry point.
pub fn create_input(notation: &str) -> CreateTask {
    CreateTask {
        steps: dag(notation),
        task_id: Some("t".parse().unwrap()),
        title: "title".into(),
        summary: "summary".into(),
        ..CreateTask::default()
    }
}

/// The id of a Task that is created with this key.
pub fn keyed_id(key: &str) -> TaskId {
    TaskId::of_key(&orchestrator().session_id, key)
}

/// The orchestrator.
pub fn orchestrator() -> Caller {
    caller(ORCHESTRATOR, Role::Orchestrator)
}

/// The scheduler.
pub fn system() -> Caller {
    Caller::system(session())
}

/// Anybody without a Run.
pub fn caller(agent: &str, role: Role) -> Caller {
    let agent = agent_id(agent);
    Caller { agent, role, session_id: session(), run_id: None, worker_pool_id: None, origin: None }
}

/// A worker of a pool, acting under a Run.
pub fn worker(agent: &str, pool: &str, run_id: Option<RunId>) -> Caller {
    let worker_pool_id = Some(pool_id(pool));
    Caller { run_id, worker_pool_id, ..caller(agent, Role::Worker) }
}

impl Held {
    /// The holder, as the transport knows it.
    pub fn caller(&self) -> Caller {
        worker(&self.worker, &self.pool, Some(self.run_id))
    }

    /// A report of this Attempt that says nothing yet.
    pub fn says(&self) -> StepReport {
        StepReport {
            attempt_id: Some(self.attempt_id),
            fencing_token: Some(self.token),
            ..StepReport::on(id(&self.step_id))
        }
    }

    /// A report of this Attempt with a status.
    pub fn reports(&self, status: StepStatus) -> Command {
        Command::TaskUpdateStep(StepReport { status: Some(status), ..self.says() })
    }
}

/// A patch from its JSON form.
pub fn patch(operations: Json) -> Command {
    let operations: Vec<Operation> = serde_json::from_value(operations).expect("operations");
    Command::TaskUpdate { operations }
}

/// A claim.
pub fn claim_command(run_id: RunId, step: &str) -> Command {
    Command::TaskClaimStep { run_id, step_id: id(step) }
}

/// A status without anything else, as the orchestrator writes it.
pub fn write_command(step: &str, status: StepStatus) -> Command {
    Command::TaskUpdateStep(StepReport { status: Some(status), ..StepReport::on(id(step)) })
}

/// A reason as callers give it.
pub fn reason(code: &str, message: &str) -> ReasonInput {
    serde_json::from_value(json!({"code": code, "message": message})).expect("a reason")
}

/// `retry_task` on the Task of a fixture, which has ended.
pub fn made_again(reason: &ReasonInput) -> RetryEnded {
    let retry_of = "t".parse().expect("a task id");
    let (deadline_at, deadline_ms, keep_completed, wal_name) = (None, None, false, None);
    let reason = reason.clone();
    RetryEnded { deadline_at, deadline_ms, keep_completed, reason, retry_of, wal_name }
}

/// The same, with what is completed taken over.
pub fn gone_on(reason: &ReasonInput) -> RetryEnded {
    RetryEnded { keep_completed: true, ..made_again(reason) }
}

/// A Step's id.
pub fn id(step: &str) -> StepId {
    StepId::new(step).expect("a step id")
}

/// A pool's id.
pub fn pool_id(pool: &str) -> PoolId {
    PoolId::new(pool).expect("a pool id")
}

/// A principal's id.
pub fn agent_id(agent: &str) -> AgentId {
    AgentId::new(agent).expect("an agent id")
}

/// The session of every fixture.
pub fn session() -> SessionId {
    SessionId::new("s").expect("a session id")
}
