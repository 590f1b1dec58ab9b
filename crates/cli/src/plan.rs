//! Turns a task file into a create command.

use std::sync::Arc;

use serde_json::Value as Json;
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{HandlerName, PoolId, StepId, TaskId};
use tenure_core::patch::StepInput;
use tenure_core::record::{Backoff, DEADLINE_AT, DEADLINE_MS, Object, RetryPolicy, Value};
use tenure_core::status::Policy;
use tenure_taskfile::{Deadline, HANDLER_EXEC, Mode, Plan, PlanStep, RetryPlan};

/// How much longer than the command's own timeout the scheduler waits: normally the worker ends the
/// command first and reports it; this is for a worker that does not.
const TIMEOUT_SLACK_MS: u64 = 30_000;

/// The command that makes the Task of a file: the same for the same file, whenever it is made.
///
/// # Errors
/// An id that the reader let pass is not one.
pub fn into_create(plan: Plan) -> Result<CreateTask, Rejection> {
    let constraints = plan.deadline.map(|deadline| {
        let (key, ms) = match deadline {
            Deadline::AfterMs(ms) => (DEADLINE_MS, Json::from(ms)),
            Deadline::AtMs(at) => (DEADLINE_AT, Json::from(at)),
        };
        Object::from_iter([(key.to_owned(), ms)])
    });
    Ok(CreateTask {
        completion: Some(policy(&plan.completion)),
        constraints,
        default_worker_pool_id: plan.pool.map(PoolId::new).transpose()?,
        dispatch: Some(policy(&plan.dispatch)),
        metadata: (!plan.metadata.is_empty()).then_some(plan.metadata),
        priority: plan.priority,
        retry_policy: plan.retry.map(|retry| Arc::new(retry_policy(retry))),
        steps: plan.steps.into_iter().map(step).collect::<Result<_, _>>()?,
        summary: SmolStr::new(plan.summary),
        task_id: plan.task_id.map(TaskId::new).transpose()?,
        title: SmolStr::new(plan.title),
        ..CreateTask::default()
    })
}

fn policy(mode: &Mode) -> Policy {
    match mode {
        Mode::Auto => Policy::Auto,
        Mode::Manual => Policy::Manual,
    }
}

fn step(step: PlanStep) -> Result<StepInput, Rejection> {
    let input = step.input.as_ref().map(serde_json::to_vec).transpose();
    let input = input.map_err(|error| Rejection::invalid("input", error.to_string()))?;
    let retry = step.retry.map(retry_policy).map(|mut retry| {
        if step.handler == HANDLER_EXEC {
            retry.start_to_close_ms = retry.start_to_close_ms.map(|ms| ms + TIMEOUT_SLACK_MS);
        }
        Arc::new(retry)
    });
    Ok(StepInput {
        assignee: None,
        depends_on_step_ids: step.depends_on.iter().map(StepId::new).collect::<Result<_, _>>()?,
        handler: Some(HandlerName::new(step.handler)?),
        input: input.map(Value::json),
        required: Some(step.required),
        retry_policy: retry,
        step_id: StepId::new(step.id)?,
        summary: SmolStr::new(step.summary),
        title: SmolStr::new(step.title),
        worker_pool_id: step.pool.map(PoolId::new).transpose()?,
    })
}

fn retry_policy(retry: RetryPlan) -> RetryPolicy {
    RetryPolicy {
        max_attempts: retry.max_attempts,
        max_lost: retry.max_lost,
        backoff: Backoff {
            initial_ms: retry.backoff.initial_ms,
            factor: retry.backoff.factor,
            max_ms: retry.backoff.max_ms,
            jitter: retry.backoff.jitter,
        },
        non_retryable: retry.non_retryable.into_iter().map(SmolStr::from).collect(),
        schedule_to_start_ms: retry.schedule_to_start_ms,
        start_to_close_ms: retry.start_to_close_ms,
        heartbeat_ms: retry.heartbeat_ms,
    }
}
