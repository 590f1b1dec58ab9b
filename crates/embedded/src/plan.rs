//! Turns a task file into a create command.
//!
//! Step 1 of the walk in docs/architecture.md.

use std::sync::Arc;

use serde_json::Value as Json;
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{AgentId, HandlerName, PoolId, StepId, TaskId};
use tenure_core::patch::StepInput;
use tenure_core::record::{Backoff, DEADLINE_AT, DEADLINE_MS, Object, RetryPolicy, Value};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{LeaseDoubt, OnFailure, Policy};
use tenure_taskfile::{
    Deadline, DoubtMode, HANDLER_EXEC, Mode, Plan, PlanStep, RetryPlan, WhenFailing,
};

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
    let standard = RetryPlan::standard(plan.completion);
    let retry = plan.retry.unwrap_or_else(|| standard.clone());
    Ok(CreateTask {
        claim_only_by: plan.claim_only_by.map(AgentId::new).transpose()?,
        completion: Some(policy(&plan.completion)),
        constraints,
        default_worker_pool_id: plan.pool.map(PoolId::new).transpose()?,
        dispatch: Some(policy(&plan.dispatch)),
        labels: plan.labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        output_from: plan.output_from.map(StepId::new).transpose()?,
        metadata: (!plan.metadata.is_empty()).then_some(plan.metadata),
        priority: plan.priority,
        on_failure: plan.on_failure.map(on_failure),
        optional_wait_ms: plan.optional_wait_ms,
        retry_policy: Some(Arc::new(retry_policy(&retry, &standard))),
        steps: plan.steps.into_iter().map(|it| step(it, &retry)).collect::<Result<_, _>>()?,
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

/// What a Task does when it is failing, as the core names it.
pub fn on_failure(plan: WhenFailing) -> OnFailure {
    match plan {
        WhenFailing::Stop => OnFailure::Stop,
        WhenFailing::Drain => OnFailure::Drain,
        WhenFailing::Finish => OnFailure::Finish,
    }
}

/// `of_task` is the policy of the Steps that have none.
fn step(mut step: PlanStep, of_task: &RetryPlan) -> Result<StepInput, Rejection> {
    let grace_ms = step.retry.as_ref().unwrap_or(of_task).cancel_grace_ms;
    if let (Some(ms), HANDLER_EXEC, Some(Json::Object(input))) =
        (grace_ms, step.handler.as_str(), &mut step.input)
    {
        input.entry("grace_ms").or_insert_with(|| ms.into()); // Between SIGTERM and SIGKILL.
    }
    let input = step.input.as_ref().map(serde_json::to_vec).transpose();
    let input = input.map_err(|error| Rejection::invalid("input", error.to_string()))?;
    let retry = step.retry.map(|own| retry_policy(&own, of_task)).map(|mut retry| {
        if step.handler == HANDLER_EXEC
            && let Some(Limit::Of(ms)) = &mut retry.start_to_close_ms
        {
            *ms += TIMEOUT_SLACK_MS;
        }
        Arc::new(retry)
    });
    let ids = |names: Vec<String>| names.iter().map(StepId::new).collect::<Result<Vec<_>, _>>();
    let inputs_from = step.inputs_from.map(ids).transpose()?;
    Ok(StepInput {
        assignee: None,
        claim_only_by: step.claim_only_by.map(AgentId::new).transpose()?,
        ext: None,
        depends_on_step_ids: ids(step.depends_on)?,
        handler: Some(HandlerName::new(step.handler)?),
        input: input.map(Value::json),
        inputs_from,
        required: Some(step.required),
        retry_policy: retry,
        step_id: StepId::new(step.id)?,
        summary: SmolStr::new(step.summary),
        title: SmolStr::new(step.title),
        worker_pool_id: step.pool.map(PoolId::new).transpose()?,
    })
}

/// The policy that a file means. What it leaves out comes from another policy (RETRY-02, RETRY-14), `above`: so
/// where that has a limit and this one has none, it says so.
fn retry_policy(retry: &RetryPlan, above: &RetryPlan) -> RetryPolicy {
    fn limit<T>(own: Option<T>, above: Option<T>) -> Option<Limit<T>> {
        own.map(Limit::Of).or_else(|| above.map(|_| Limit::Unlimited))
    }
    let backoff = Backoff {
        initial_ms: retry.backoff.initial_ms,
        factor: retry.backoff.factor,
        max_ms: retry.backoff.max_ms,
        jitter: retry.backoff.jitter,
    };
    RetryPolicy {
        max_attempts: limit(retry.max_attempts, above.max_attempts),
        max_lost: limit(retry.max_lost, above.max_lost),
        backoff: Some(backoff.into()),
        non_retryable: Some(retry.non_retryable.iter().map(SmolStr::from).collect()),
        schedule_to_start_ms: limit(retry.schedule_to_start_ms, above.schedule_to_start_ms),
        start_to_close_ms: limit(retry.start_to_close_ms, above.start_to_close_ms),
        schedule_to_close_ms: limit(retry.schedule_to_close_ms, above.schedule_to_close_ms),
        blocked_ms: limit(retry.blocked_ms, above.blocked_ms),
        cancel_grace_ms: retry.cancel_grace_ms,
        heartbeat_ms: retry.heartbeat_ms,
        on_lease_doubt: retry.on_lease_doubt.map(|doubt| match doubt {
            DoubtMode::Stop => LeaseDoubt::Stop,
            DoubtMode::Finish => LeaseDoubt::Finish,
        }),
        accept_late: retry.accept_late,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;
    use tenure_taskfile::{ReadOptions, parse};

    use super::*;

    fn create(text: &str) -> CreateTask {
        let plan = parse(text.as_bytes(), "f.yaml", &ReadOptions::default()).expect("a task file");
        into_create(plan).unwrap()
    }

    /// RETRY-02: a file that says nothing of retries has the default that docs/task-file.md names, and not
    /// that of the API.
    #[test]
    fn a_file_keeps_its_documented_default() {
        let policy = create("steps: {a: {run: x}}").retry_policy.unwrap();
        assert_eq!(
            (policy.max_attempts, policy.max_lost),
            (Some(Limit::Of(3)), Some(Limit::Of(3)))
        );
        assert_eq!(policy.backoff(), Backoff::default());
        let policy = create("completion: manual\nsteps: {a: {run: x}}").retry_policy.unwrap();
        let limits = (policy.max_attempts, policy.max_lost);
        assert_eq!(limits, (Some(Limit::Of(1)), None));
    }

    /// RETRY-14: what a file leaves out of a step's policy comes from its defaults, and null is no limit: the
    /// policy that is handed in says so where the Task's has one.
    #[test]
    fn a_steps_policy_is_handed_in_whole() {
        let text = "defaults: {retry: {schedule_to_start: 1m}}\nsteps: {a: {run: x, retry: {max_lost: null}}}";
        let policy = create(text).steps[0].retry_policy.clone().unwrap();
        assert_eq!(policy.max_lost, Some(Limit::Unlimited));
        assert_eq!(policy.schedule_to_start_ms, Some(Limit::Of(60_000)));
        assert_eq!(policy.start_to_close_ms, None, "the task has none either");
    }

    /// The same file is the same Task, whatever version reads it: what a file does not say is not in its digest.
    #[test]
    fn what_a_file_does_not_say_is_not_in_its_digest() {
        let text = "steps: {a: {run: x, retry: {max_attempts: 2}}}";
        let plan = parse(text.as_bytes(), "f.yaml", &ReadOptions::default()).unwrap();
        let plan = serde_json::to_value(&plan).unwrap();
        let fields = |value: &Json| {
            let mut names: Vec<&String> = value.as_object().unwrap().keys().collect();
            names.sort_unstable();
            names.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        let of_task =
            "completion deadline dispatch metadata pool priority retry steps summary task_id title";
        assert_eq!(fields(&plan), of_task);
        let step = &plan["steps"][0];
        assert_eq!(fields(step), "depends_on handler id input pool required retry summary title");
        let of_retry = "backoff heartbeat_ms max_attempts max_lost non_retryable schedule_to_start_ms start_to_close_ms";
        assert_eq!(fields(&step["retry"]), of_retry);
    }

    /// EVOLVE-02: a plain file names nothing that only the second edition knows.
    #[test]
    fn a_plain_file_is_taken_while_an_older_node_lives() {
        let plain =
            "completion: manual\nsteps: {a: {run: x}, b: {run: x, retry: {max_attempts: 2}}}";
        for text in ["steps: {a: {run: x}}", plain] {
            let policy = create(text);
            let told = serde_json::to_value(&policy).unwrap().to_string();
            for new in ["unlimited", "blocked_ms", "schedule_to_close_ms", "cancel_grace_ms"] {
                assert!(!told.contains(new), "{new}: {told}");
            }
        }
    }

    /// POL-12: the grace of a command is also the time between SIGTERM and SIGKILL.
    #[test]
    fn a_command_has_the_grace_of_its_step() {
        let text = "defaults: {retry: {grace: 20s}}\nsteps: {a: {run: x}, b: {run: x, retry: {grace: 5s}}}";
        let made = create(text);
        assert_eq!(made.retry_policy.unwrap().cancel_grace_ms, Some(20_000));
        let graces = made.steps.iter().map(|step| {
            let input: Json = serde_json::from_slice(step.input.as_ref()?.data()?).ok()?;
            Some(input["grace_ms"].clone())
        });
        assert_eq!(graces.collect::<Vec<_>>(), [Some(json!(20_000)), Some(json!(5_000))]);
    }

    /// POL-05
    #[test]
    fn a_file_says_what_a_failing_task_does() {
        assert_eq!(create("steps: {a: {run: x}}").on_failure, None);
        let made = create("on_failure: stop\noptional_wait: 2m\nsteps: {a: {run: x}}");
        assert_eq!(
            (made.on_failure, made.optional_wait_ms),
            (Some(OnFailure::Stop), Some(120_000))
        );
    }
}
