//! K3: checks shapes, types and limits of input, before any state.

use alloc::format;
use alloc::string::String;

use super::dispatch::one_step;
use super::{Command, Cx, Dispatch, GiveBack, KeepFact, OnBehalf, RunTtl, StepReport};
use crate::event::Bindings;
use crate::id::{ArtifactId, Ref, StepId, system_agent};
use crate::limits::Limits;
use crate::patch::{Change, Operation, ReasonInput, StepInput};
use crate::record::{ArtifactInput, Blob, Object, Progress, RetryPolicy, Value, ValueBody};
use crate::reject::{Code, Rejection};
use crate::retry_policy::Limit;
use crate::status::{Role, StepStatus};

/// The longest time that a worker may take to stop, in milliseconds: an hour (POL-12).
const GRACE_MS_MAX: u64 = 3_600_000;

/// How many encodings a value may have below base64.
const ENCODINGS_MAX: usize = 8;

/// How long the name of an encoding is at most, in bytes.
const ENCODING_BYTES_MAX: usize = 64;

impl Command {
    pub(super) fn validate(&self, cx: &Cx<'_>) -> Result<(), Rejection> {
        let limits = cx.limits;
        match self {
            Self::TaskUpdate { operations } => patch(operations, limits),
            Self::TaskUpdateStep(report) => step_report(report, cx),
            Self::TaskComplete(complete) => {
                long_text("result_summary", complete.result_summary.as_deref(), limits)?;
                complete.output.as_ref().map_or(Ok(()), |given| output(given, limits))?;
                complete.artifacts.iter().try_for_each(|a| artifact(a, limits))
            }
            Self::TaskFact(given) => fact(given, limits).and_then(|()| given.check_following(cx)),
            Self::TaskFail(close) | Self::TaskCancel(close) => {
                grace("grace_ms", close.grace_ms)?;
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
            Self::DispatchWorker(given) => dispatch(given, limits),
            Self::AppendTaskProgress(given) => {
                if *given == super::AppendProgress::default() {
                    return Err(Rejection::invalid("progress", "nothing is reported"));
                }
                if let Some(delta) = &given.progress {
                    progress(delta, limits)?;
                }
                for (field, refs) in
                    [("input_refs", &given.input_refs), ("evidence_refs", &given.evidence_refs)]
                {
                    names(field, refs.iter().map(Ref::as_str), 0, limits)?;
                }
                given.artifacts.iter().try_for_each(|a| artifact(a, limits))
            }
            _ => Ok(()),
        }
    }
}

/// The longest key of a fact, in bytes.
const KEY_MAX: usize = 128;

/// FACT-01: a key is short, and so is the payload.
pub(super) fn fact(given: &KeepFact, limits: &Limits) -> Result<(), Rejection> {
    if given.key.is_empty() || given.key.len() > KEY_MAX {
        return Err(Rejection::invalid("key", format!("a key has 1 to {KEY_MAX} bytes")));
    }
    let (size, most) = (given.payload.data().map_or(0, <[u8]>::len), limits.fact_bytes_max);
    if size <= most {
        return value("payload", &given.payload, limits);
    }
    let message = format!(
        "payload has {size} bytes; at most {most} inline, put it as a blob and give its ref"
    );
    Err(Rejection::invalid("payload", message).with("limit", most))
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
            if let Change::Set(given) = &fields.input {
                value("input", given, limits)?;
            }
            if let Change::Set(given) = &fields.retry_policy {
                policy("retry_policy", given)?;
            }
            ext(fields.ext.value())?;
            fields.title.value().map_or(Ok(()), |t| text("title", t, limits))?;
            fields.summary.value().map_or(Ok(()), |t| text("summary", t, limits))
        }
        Operation::UpdateTask(fields) => {
            may_clear(fields.wrongly_cleared())?;
            if let Change::Set(given) = &fields.retry_policy {
                policy("retry_policy", given)?;
            }
            ext(fields.ext.value())?;
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
    ext(given.ext.as_ref())?;
    if let Some(input) = &given.input {
        value("input", input, limits)?;
    }
    let input = given.input.as_ref().and_then(Value::data).map_or(0, <[u8]>::len);
    let beside = given.title.len() + given.summary.len() + input;
    let ids = given.depends_on_step_ids.iter().chain(given.inputs_from.iter().flatten());
    let ids = ids.map(StepId::as_str);
    names("depends_on_step_ids", ids, beside, limits)?;
    given.retry_policy.as_deref().map_or(Ok(()), |p| policy("retry_policy", p))
}

/// EVOLVE-03: the longest `ext`, as JSON.
const EXT_MAX: usize = 4 * 1024;

pub(super) fn ext(given: Option<&Object>) -> Result<(), Rejection> {
    let size = given.map(serde_json::to_vec).map_or(0, |it| it.map_or(usize::MAX, |it| it.len()));
    if size <= EXT_MAX {
        return Ok(());
    }
    let message = format!("ext has {size} bytes as JSON; at most {EXT_MAX}");
    Err(Rejection::invalid("ext", message).with("limit", EXT_MAX))
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

/// The longest code of a reason, in bytes.
const CODE_MAX: usize = 64;

/// Message and details share one limit; a code is a name.
pub(super) fn reason(given: Option<&ReasonInput>, limits: &Limits) -> Result<(), Rejection> {
    let Some(given) = given else { return Ok(()) };
    if given.code.as_ref().is_some_and(|code| code.is_empty() || code.len() > CODE_MAX) {
        return Err(Rejection::invalid("reason.code", format!("a code has 1 to {CODE_MAX} bytes")));
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

/// The output of a Step or a Task, which those who get it read by its media type.
fn output(given: &Value, limits: &Limits) -> Result<(), Rejection> {
    value("output", given, limits)?;
    json_is_text("output", given)
}

/// VALUE-05: bytes that are said to be JSON are text.
fn json_is_text(field: &str, given: &Value) -> Result<(), Rejection> {
    let media_type = given.content_type.split(';').next().unwrap_or_default().trim();
    let ValueBody::Data(data) = &given.body else { return Ok(()) };
    if media_type != Value::JSON || !given.encoding.names().is_empty() {
        return Ok(());
    }
    let Err(error) = core::str::from_utf8(data) else { return Ok(()) };
    let message = format!(
        "{field} is said to be {}, and byte {} of its data is no UTF-8: give the content_type that it has, such as \
         application/octet-stream",
        Value::JSON,
        error.valid_up_to()
    );
    Err(Rejection::invalid(&format!("{field}.data"), message))
}

/// VALUE-01 to VALUE-03: the size of a value, inline or in a blob, and the names of its encodings.
fn value(field: &str, given: &Value, limits: &Limits) -> Result<(), Rejection> {
    let names = given.encoding.names();
    if names.len() > ENCODINGS_MAX
        || names.iter().any(|it| it.is_empty() || it.len() > ENCODING_BYTES_MAX)
    {
        let message = format!(
            "encoding has at most {ENCODINGS_MAX} names of 1 to {ENCODING_BYTES_MAX} bytes each"
        );
        return Err(Rejection::invalid(&format!("{field}.encoding"), message));
    }
    match &given.body {
        ValueBody::Data(data) if data.len() > limits.value_bytes_max => {
            let (size, most) = (data.len(), limits.value_bytes_max);
            let message = format!(
                "{field} has {size} bytes; at most {most} inline, put it as a blob and give its ref"
            );
            Err(Rejection::invalid(field, message).with("limit", most))
        }
        ValueBody::Blob(blob) => blob_size(field, *blob, limits),
        ValueBody::Ref(reference) if reference.as_str().starts_with(Blob::PREFIX) => {
            let message = format!(
                "{field} names a blob: its ref is `{}` and 64 hex digits in lower case, with \
                 size_bytes and digest beside it",
                Blob::PREFIX
            );
            Err(Rejection::invalid(field, message).with("ref", reference.as_str()))
        }
        ValueBody::Data(_) | ValueBody::Ref(_) => Ok(()),
    }
}

/// VALUE-02: a blob has at most as many bytes as the limit says.
///
/// # Errors
/// `value_too_large`.
pub(super) fn blob_size(field: &str, blob: Blob, limits: &Limits) -> Result<(), Rejection> {
    let (size, most) = (blob.size_bytes, limits.blob_bytes_max);
    if size <= most {
        return Ok(());
    }
    let message = format!("{field} has {size} bytes; a value has at most {most}");
    Err(Rejection::new(Code::ValueTooLarge, message).with("field", field).with("limit", most))
}

fn artifact(given: &ArtifactInput, limits: &Limits) -> Result<(), Rejection> {
    let size = given.data.as_ref().map_or(0, String::len);
    if size <= limits.value_bytes_max {
        return Ok(());
    }
    let message = format!("artifact data has {size} bytes; at most {}", limits.value_bytes_max);
    Err(Rejection::invalid("artifacts", message).with("limit", limits.value_bytes_max))
}

/// POL-12: the longest time that a worker may take to stop.
fn grace(field: &str, ms: Option<u64>) -> Result<(), Rejection> {
    if ms.is_none_or(|ms| ms <= GRACE_MS_MAX) {
        return Ok(());
    }
    Err(Rejection::invalid(field, format!("{field} is at most {GRACE_MS_MAX}")))
}

pub(super) fn policy(field: &str, given: &RetryPolicy) -> Result<(), Rejection> {
    let wrong = |name: &str, message: &str| {
        Err(Rejection::invalid(&format!("{field}.{name}"), format!("{name} {message}")))
    };
    let at_least_one = [("max_attempts", given.max_attempts), ("max_lost", given.max_lost)];
    for (name, value) in at_least_one {
        if value == Some(Limit::Of(0)) {
            return wrong(name, "counts from 1; say \"unlimited\" for no limit");
        }
    }
    let times = [
        ("schedule_to_start_ms", given.schedule_to_start_ms),
        ("start_to_close_ms", given.start_to_close_ms),
        ("schedule_to_close_ms", given.schedule_to_close_ms),
        ("blocked_ms", given.blocked_ms),
        ("heartbeat_ms", given.heartbeat_ms.map(Limit::Of)),
    ];
    for (name, value) in times {
        if value == Some(Limit::Of(0)) {
            return wrong(name, "is 0; give a time or leave it out");
        }
    }
    grace(&format!("{field}.cancel_grace_ms"), given.cancel_grace_ms)?;
    let backoff = given.backoff();
    if !(backoff.factor.is_finite() && (1.0..=1000.0).contains(&backoff.factor)) {
        return wrong("backoff.factor", "is from 1 to 1000");
    }
    if !(0.0..=1.0).contains(&backoff.jitter) {
        return wrong("backoff.jitter", "is from 0 to 1");
    }
    Ok(())
}

/// LEASE-18, RETRY-02: the longest wait that a worker may ask for.
pub(super) fn retry_after(ms: Option<u64>) -> Result<(), Rejection> {
    if ms.is_none_or(|ms| ms <= GiveBack::RETRY_AFTER_MS_MAX) {
        return Ok(());
    }
    let message = format!("retry_after_ms is at most {}", GiveBack::RETRY_AFTER_MS_MAX);
    Err(Rejection::invalid("retry_after_ms", message))
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
    if report.retry_after_ms.is_some() && report.status != Some(StepStatus::Failed) {
        let message = "retry_after_ms goes with status failed only";
        return Err(Rejection::invalid("retry_after_ms", message));
    }
    retry_after(report.retry_after_ms)?;
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
    if let Some(given) = &report.output {
        output(given, limits)?;
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

/// CLAIM-16: a worker with a name of its own, one Step, and a lease within its bounds.
fn on_behalf(by: &OnBehalf, ids: Option<&[StepId]>, limits: &Limits) -> Result<(), Rejection> {
    if by.worker_id == system_agent() {
        let message = "the name `system` is the scheduler's own";
        return Err(Rejection::invalid("on_behalf.worker_id", message));
    }
    reason(by.declined.as_ref(), limits)?;
    if ids.map(<[StepId]>::len) != Some(1) && by.declined.is_none() {
        return Err(one_step());
    }
    match by.lease_ms {
        Some(ms) if !OnBehalf::LEASE_MS.contains(&ms) => {
            let (least, most) = OnBehalf::LEASE_MS.into_inner();
            let message = format!("lease_ms is {ms}; it goes from {least} to {most}");
            Err(Rejection::invalid("on_behalf.lease_ms", message))
        }
        _ => Ok(()),
    }
}

/// DISP-02, DISP-06.
fn dispatch(given: &Dispatch, limits: &Limits) -> Result<(), Rejection> {
    let ids = given.allowed_step_ids.as_deref();
    if ids.is_some_and(<[StepId]>::is_empty) {
        let message = "allowed_step_ids is empty; leave it out to allow every step";
        return Err(Rejection::invalid("allowed_step_ids", message));
    }
    if let Some(RunTtl::Ms(ms)) = given.ttl_ms
        && !RunTtl::MS.contains(&ms)
    {
        let (least, most) = RunTtl::MS.into_inner();
        let message =
            format!("ttl_ms is {ms}; it goes from {least} to {most}, or is \"unlimited\"");
        return Err(Rejection::invalid("ttl_ms", message));
    }
    if let Some(by) = &given.on_behalf {
        on_behalf(by, ids, limits)?;
    }
    let ids = ids.unwrap_or_default().iter().map(StepId::as_str);
    let beside = given.instructions.as_ref().map_or(0, String::len);
    names("allowed_step_ids", ids, beside, limits)?;
    if let Some(Bindings { thread_id, environment_ref }) = &given.bindings {
        long_text("bindings.thread_id", thread_id.as_deref(), limits)?;
        long_text("bindings.environment_ref", environment_ref.as_deref(), limits)?;
    }
    long_text("instructions", given.instructions.as_deref(), limits)
}
