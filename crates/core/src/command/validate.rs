//! K3: checks shapes, types and limits of input, before any state.

use alloc::format;
use alloc::string::String;

use super::{Command, Cx, StepReport};
use crate::event::Bindings;
use crate::id::{ArtifactId, NAME_MAX, Ref, StepId, system_agent};
use crate::limits::Limits;
use crate::patch::{Change, Operation, ReasonInput, StepInput};
use crate::record::{ArtifactInput, Progress, RetryPolicy, Value};
use crate::reject::Rejection;
use crate::status::{Role, StepStatus};

impl Command {
    pub(super) fn validate(&self, cx: &Cx<'_>) -> Result<(), Rejection> {
        let limits = cx.limits;
        match self {
            Self::TaskUpdate { operations } => patch(operations, limits),
            Self::TaskUpdateStep(report) => step_report(report, cx),
            Self::TaskComplete(complete) => {
                long_text("result_summary", complete.result_summary.as_deref(), limits)?;
                complete.artifacts.iter().try_for_each(|a| artifact(a, limits))
            }
            Self::TaskFail(close) | Self::TaskCancel(close) => {
                reason(close.reason.as_ref(), limits)
            }
            Self::SubmitTask(why)
            | Self::PauseTask(why)
            | Self::ResumeTask(why)
            | Self::BlockTask(why)
            | Self::ReopenTask(why)
            | Self::ArchiveTask(why) => reason(why.reason.as_ref(), limits),
            Self::RetryTask(retry) => reason(Some(&retry.reason), limits),
            Self::EndRun(end) => long_text("result", end.result.as_deref(), limits),
            Self::DeclineRun(run) | Self::CancelRun(run) => reason(run.reason.as_ref(), limits),
            Self::LinkTasks(link) => long_text("reason", link.reason.as_deref(), limits),
            Self::UnlinkTasks(unlink) => long_text("reason", unlink.reason.as_deref(), limits),
            Self::GrantStep(grant) if grant.worker_id == system_agent() => {
                Err(Rejection::invalid("worker_id", "the name `system` is the scheduler's own"))
            }
            Self::DispatchWorker(dispatch) => match &dispatch.allowed_step_ids {
                Some(ids) if ids.is_empty() => Err(Rejection::invalid(
                    "allowed_step_ids",
                    "allowed_step_ids is empty; leave it out to allow every step",
                )),
                ids => {
                    let ids = ids.iter().flatten().map(StepId::as_str);
                    let beside = dispatch.instructions.as_ref().map_or(0, String::len);
                    names("allowed_step_ids", ids, beside, limits)?;
                    if let Some(bindings) = &dispatch.bindings {
                        let Bindings { thread_id, environment_ref } = bindings;
                        long_text("bindings.thread_id", thread_id.as_deref(), limits)?;
                        long_text("bindings.environment_ref", environment_ref.as_deref(), limits)?;
                    }
                    long_text("instructions", dispatch.instructions.as_deref(), limits)
                }
            },
            Self::AppendTaskProgress(given) => {
                if *given == super::AppendProgress::default() {
                    return Err(Rejection::invalid("progress", "nothing is reported"));
                }
                if let Some(delta) = &given.progress {
                    progress(delta, limits)?;
                }
                given.artifacts.iter().try_for_each(|a| artifact(a, limits))
            }
            _ => Ok(()),
        }
    }
}

fn patch(operations: &[Operation], limits: &Limits) -> Result<(), Rejection> {
    if operations.is_empty() {
        return Err(Rejection::invalid("operations", "a patch needs at least one operation"));
    }
    if operations.len() > limits.operations_max {
        let message = format!("{} operations; at most {}", operations.len(), limits.operations_max);
        return Err(Rejection::invalid("operations", message));
    }
    for (at, operation) in operations.iter().enumerate() {
        validate_operation(operation, limits)
            .and_then(|()| reason(operation.reason(), limits))
            .map_err(|rejection| rejection.with("op_index", at))?;
    }
    Ok(())
}

fn validate_operation(operation: &Operation, limits: &Limits) -> Result<(), Rejection> {
    match operation {
        Operation::AddStep { step: given, .. } => step(given, limits),
        Operation::UpdateStep { fields, .. } => {
            may_clear(fields.wrongly_cleared())?;
            if let Change::Set(value) = &fields.input {
                inline("input", value, limits)?;
            }
            if let Change::Set(given) = &fields.retry_policy {
                policy("retry_policy", given)?;
            }
            fields.title.value().map_or(Ok(()), |t| text("title", t, limits))?;
            fields.summary.value().map_or(Ok(()), |t| text("summary", t, limits))
        }
        Operation::UpdateTask(fields) => {
            may_clear(fields.wrongly_cleared())?;
            if let Change::Set(given) = &fields.retry_policy {
                policy("retry_policy", given)?;
            }
            if let Change::Set(constraints) = &fields.constraints {
                super::deadline::later(constraints)?;
            }
            if let Change::Set(objective) = &fields.objective {
                text("objective", objective, limits)?;
            }
            fields.title.value().map_or(Ok(()), |t| text("title", t, limits))?;
            fields.summary.value().map_or(Ok(()), |t| text("summary", t, limits))
        }
        _ => Ok(()),
    }
}

/// PATCH-07, PATCH-09: null clears optional fields only.
fn may_clear(wrong: Option<&str>) -> Result<(), Rejection> {
    let Some(field) = wrong else { return Ok(()) };
    let message = format!("{field} always has a value: give a new one, or leave it out");
    Err(Rejection::invalid(field, message))
}

pub(super) fn step(given: &StepInput, limits: &Limits) -> Result<(), Rejection> {
    text("title", &given.title, limits)?;
    text("summary", &given.summary, limits)?;
    if let Some(value) = &given.input {
        inline("input", value, limits)?;
    }
    let input = given.input.as_ref().and_then(Value::data).map_or(0, <[u8]>::len);
    let beside = given.title.len() + given.summary.len() + input;
    let ids = given.depends_on_step_ids.iter().map(StepId::as_str);
    names("depends_on_step_ids", ids, beside, limits)?;
    given.retry_policy.as_deref().map_or(Ok(()), |p| policy("retry_policy", p))
}

pub(super) fn text(field: &str, given: &str, limits: &Limits) -> Result<(), Rejection> {
    if given.len() <= limits.text_bytes_max {
        return Ok(());
    }
    let message = format!("{field} has {} bytes; at most {}", given.len(), limits.text_bytes_max);
    Err(Rejection::invalid(field, message).with("limit", limits.text_bytes_max))
}

/// P30: a list of names, with `beside` bytes of other content, must fit into a message.
pub(super) fn names<'a>(
    field: &str,
    given: impl Iterator<Item = &'a str>,
    beside: usize,
    limits: &Limits,
) -> Result<(), Rejection> {
    let most = limits.told_bytes_max;
    let add = |(count, size): (usize, usize), name: &str| (count + 1, size + name.len() + 2);
    let (count, size) = given.fold((0, beside), add);
    if size <= most {
        return Ok(());
    }
    let message = format!(
        "{field} has {count} names, and {size} bytes with what goes with them; at most {most} fit a message"
    );
    Err(Rejection::invalid(field, message).with("limit", most).with("given", size))
}

fn long_text(field: &str, given: Option<&str>, limits: &Limits) -> Result<(), Rejection> {
    match given {
        Some(given) if given.len() > limits.progress_bytes_max => {
            let message =
                format!("{field} has {} bytes; at most {}", given.len(), limits.progress_bytes_max);
            Err(Rejection::invalid(field, message).with("limit", limits.progress_bytes_max))
        }
        _ => Ok(()),
    }
}

/// Message and details share one limit; a code is a name.
pub(super) fn reason(given: Option<&ReasonInput>, limits: &Limits) -> Result<(), Rejection> {
    let Some(given) = given else { return Ok(()) };
    if given.code.as_ref().is_some_and(|code| code.is_empty() || code.len() > NAME_MAX) {
        return Err(Rejection::invalid("reason.code", format!("a code has 1 to {NAME_MAX} bytes")));
    }
    let details = given.details.as_ref().map(serde_json::to_vec);
    let details = details.map_or(0, |written| written.map_or(usize::MAX, |bytes| bytes.len()));
    if details > limits.progress_bytes_max {
        let message =
            format!("details have {details} bytes; at most {}", limits.progress_bytes_max);
        return Err(
            Rejection::invalid("reason.details", message).with("limit", limits.progress_bytes_max)
        );
    }
    long_text("reason.message", Some(&given.message), limits)
}

fn inline(field: &str, value: &Value, limits: &Limits) -> Result<(), Rejection> {
    let size = value.data().map_or(0, <[u8]>::len);
    if size <= limits.value_bytes_max {
        return Ok(());
    }
    let message = format!(
        "{field} has {size} bytes; at most {} inline, store it and give a ref",
        limits.value_bytes_max
    );
    Err(Rejection::invalid(field, message).with("limit", limits.value_bytes_max))
}

fn artifact(given: &ArtifactInput, limits: &Limits) -> Result<(), Rejection> {
    let size = given.data.as_ref().map_or(0, String::len);
    if size <= limits.value_bytes_max {
        return Ok(());
    }
    let message = format!("artifact data has {size} bytes; at most {}", limits.value_bytes_max);
    Err(Rejection::invalid("artifacts", message).with("limit", limits.value_bytes_max))
}

pub(super) fn policy(field: &str, given: &RetryPolicy) -> Result<(), Rejection> {
    let wrong = |name: &str, message: &str| {
        Err(Rejection::invalid(&format!("{field}.{name}"), format!("{name} {message}")))
    };
    let at_least_one = [("max_attempts", given.max_attempts), ("max_lost", given.max_lost)];
    for (name, value) in at_least_one {
        if value == Some(0) {
            return wrong(name, "counts from 1; leave it out for no limit");
        }
    }
    let times = [
        ("schedule_to_start_ms", given.schedule_to_start_ms),
        ("start_to_close_ms", given.start_to_close_ms),
        ("heartbeat_ms", given.heartbeat_ms),
    ];
    for (name, value) in times {
        if value == Some(0) {
            return wrong(name, "is 0; give a time or leave it out");
        }
    }
    let backoff = &given.backoff;
    if !(backoff.factor.is_finite() && (1.0..=1000.0).contains(&backoff.factor)) {
        return wrong("backoff.factor", "is from 1 to 1000");
    }
    if !(0.0..=1.0).contains(&backoff.jitter) {
        return wrong("backoff.jitter", "is from 0 to 1");
    }
    Ok(())
}

fn progress(given: &Progress, limits: &Limits) -> Result<(), Rejection> {
    if given.percent.is_some_and(|p| !(0.0..=100.0).contains(&p)) {
        return Err(Rejection::invalid("progress.percent", "percent is from 0 to 100"));
    }
    let size = serde_json::to_vec(given).map_or(usize::MAX, |bytes| bytes.len());
    if size <= limits.progress_bytes_max {
        return Ok(());
    }
    let message = format!(
        "progress has {size} bytes; at most {}, put large output in refs",
        limits.progress_bytes_max
    );
    Err(Rejection::invalid("progress", message).with("limit", limits.progress_bytes_max))
}

fn step_report(report: &StepReport, cx: &Cx<'_>) -> Result<(), Rejection> {
    let limits = cx.limits;
    let completes = report.status == Some(StepStatus::Completed);
    if report.output.is_some() && !completes {
        return Err(Rejection::invalid("output", "output goes with status completed only"));
    }
    if report.reply.is_some() && !completes {
        return Err(Rejection::invalid("reply", "reply goes with status completed only"));
    }
    if report.wait_kind.is_some() && report.status != Some(StepStatus::Blocked) {
        return Err(Rejection::invalid("wait_kind", "wait_kind goes with status blocked only"));
    }
    let reopens = report.status == Some(StepStatus::Pending) && cx.caller.role != Role::Worker;
    if !report.input_refs.is_empty() && !reopens {
        return Err(Rejection::invalid("input_refs", "input_refs go with a reopening only"));
    }
    if report.run_result.is_some() && !ends_run(report, cx) {
        let message = "run_result goes with a worker's final status only";
        return Err(Rejection::invalid("run_result", message));
    }
    if let Some(value) = &report.output {
        inline("output", value, limits)?;
    }
    long_text("result_summary", report.result_summary.as_deref(), limits)?;
    long_text("run_result", report.run_result.as_deref(), limits)?;
    names("artifact_ids", report.artifact_ids.iter().map(ArtifactId::as_str), 0, limits)?;
    for (field, refs) in [
        ("input_refs", &report.input_refs),
        ("output_refs", &report.output_refs),
        ("checkpoint_refs", &report.checkpoint_refs),
    ] {
        names(field, refs.iter().map(Ref::as_str), 0, limits)?;
    }
    reason(report.reason.as_ref(), limits)?;
    if let Some(delta) = &report.progress {
        progress(delta, limits)?;
    }
    report.artifacts.iter().try_for_each(|a| artifact(a, limits))
}

/// R06: whether a report ends the Run of its worker.
fn ends_run(report: &StepReport, cx: &Cx<'_>) -> bool {
    use StepStatus::{Blocked, Cancelled, Completed, Failed};
    let is_final = matches!(report.status, Some(Blocked | Cancelled | Completed | Failed));
    is_final && cx.caller.role == Role::Worker
}
