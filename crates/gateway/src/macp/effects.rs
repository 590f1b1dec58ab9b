//! What a message means for the Task: the commands that follow from a fact.
//!
//! They go with the fact into one commit. Where that is refused they follow it, each with an id that follows from the
//! place of the fact, so that several gateways may carry a fact out, and the Task changes once.

use std::sync::Arc;

use tenure_core::command::{Close, Complete, Dispatch, OnBehalf, StepReport, Why};
use tenure_core::id::{AgentId, CommandId, PoolId, StepId};
use tenure_core::patch::{Change, Operation, ReasonInput, StepFields, StepInput, TaskFields};
use tenure_core::record::{Object, Progress, RetryPolicy, Value};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{Policy, StepStatus, WaitKind};
use tenure_core::{Command, Context, Rejection};
use tenure_macp::pb::CommitmentPayload;
use tenure_macp::task_pb::{
    TaskCompletePayload, TaskFailPayload, TaskRejectPayload, TaskRequestPayload, TaskUpdatePayload,
};
use tenure_macp::{MacpChange, MacpEffect, MacpPool, MacpRecord, MacpReport, MacpSession, is_pool};

use super::MACP_POOL;
use super::cached::CachedSession;
use super::serve::{ServedSessions, is_final};
use super::status::MacpResult;
use crate::Backend;

/// What stands behind the name of a participant in the id of its worker, where the boot of others stands.
const BOOT: &str = "macp";

/// The Step of a request whose id cannot be that of a Step.
const STEP: &str = "task";

/// The longest title, and the longest summary of a Step or a report, in characters: the fact has all of it.
const TITLE_CHARS_MAX: usize = 200;
const TEXT_CHARS_MAX: usize = 1_500;

/// The longest code of a reason, in bytes.
const CODE_BYTES_MAX: usize = 64;

impl<B: Backend> ServedSessions<B> {
    /// Carries out the last record, if perhaps nobody has.
    pub(super) async fn carry_out(&self, kept: &mut CachedSession) -> MacpResult<()> {
        let (Some(undone), Some(session)) = (&kept.undone, &kept.session) else { return Ok(()) };
        let commands = commands(session, &undone.record, undone.effect.as_ref())?;
        kept.is_behind |= !commands.is_empty(); // These commands change the Task.
        for (at, command) in commands.into_iter().enumerate() {
            let id = format!("macp:{}:{at}", undone.place);
            let context = Context::new(CommandId::new(id).map_err(Rejection::from)?);
            match self.client.command_as(&kept.task, context, command).await {
                Err(refused) if !is_final(&refused) => return Err(refused.into()),
                // The Task has gone its own way, as somebody steers it beside the session.
                Err(refused) => {
                    let (task, code) = (&kept.task, refused.code);
                    tracing::warn!(%task, %code, message = refused.message, "a message of a session has no effect");
                }
                Ok(_) => {}
            }
        }
        kept.undone = None;
        Ok(())
    }
}

/// The commands that follow from a record, and what it says, whether or not the session has taken it.
pub(super) fn commands(
    session: &MacpSession,
    record: &MacpRecord,
    effect: Option<&MacpEffect>,
) -> Result<Vec<Command>, Rejection> {
    let step = step_of(session, effect)?;
    Ok(match (&record.change, effect) {
        (Some(MacpChange::Suspended(why)), _) => vec![Command::PauseTask(because(why))],
        (Some(MacpChange::Resumed(why)), _) => vec![Command::ResumeTask(because(why))],
        (Some(MacpChange::Cancelled(why)), _) => vec![cancelled(session, None, why)],
        (Some(MacpChange::Expired(_)), _) => {
            let why = session.why_over(record.accepted_at_ms);
            vec![cancelled(session, Some("session_expired"), &why)]
        }
        // A worker has done this, and the log has it already.
        (_, Some(MacpEffect::Accept(_) | MacpEffect::Progress(_) | MacpEffect::Report(_)))
            if is_pool(&record.sender) =>
        {
            Vec::new()
        }
        (_, Some(MacpEffect::Request(request))) => requested(step, request),
        (_, Some(MacpEffect::Accept(_))) => {
            let lease_ms = Some(lease_ms(session, record.accepted_at_ms));
            let by = OnBehalf { lease_ms, ..OnBehalf::of(worker(&record.sender)?) };
            vec![dispatch(step, by)?]
        }
        (_, Some(MacpEffect::Decline(declined))) => {
            let declined = Some(rejection(declined));
            vec![dispatch(step, OnBehalf { declined, ..OnBehalf::of(worker(&record.sender)?) })?]
        }
        (_, Some(MacpEffect::Return(returned))) => given_back(step, returned),
        (_, Some(MacpEffect::Progress(update))) => vec![progress(step, update)],
        (_, Some(MacpEffect::Report(MacpReport::Complete(done)))) => vec![completed(step, done)],
        (_, Some(MacpEffect::Report(MacpReport::Fail(failed)))) => vec![failed_with(step, failed)],
        (_, Some(MacpEffect::Commit(commitment))) => committed(session, step, commitment),
        (_, Some(MacpEffect::Noted) | None) => Vec::new(),
    })
}

/// The Step of the session: it has the id of the task that was requested, if that can be one.
fn step_of(session: &MacpSession, effect: Option<&MacpEffect>) -> Result<StepId, Rejection> {
    let request = match effect {
        Some(MacpEffect::Request(request)) => Some(request),
        _ => session.request(),
    };
    let asked = request.map_or(STEP, |request| request.task_id.as_str());
    Ok(StepId::new(asked).or_else(|_| StepId::new(STEP))?)
}

/// MACP-02, MACP-04: the Step, and the end of the draft.
fn requested(step: StepId, request: &TaskRequestPayload) -> Vec<Command> {
    let title = if request.title.is_empty() { &request.task_id } else { &request.title };
    let wanted = request.requested_assignee.as_str();
    let pool = MacpPool::of_participant(wanted);
    // The rules let nobody else accept, whether or not the Step can say so.
    let claim_only_by = Some(wanted)
        .filter(|it| !it.is_empty() && pool.is_none())
        .and_then(|it| AgentId::new(it).ok());
    let mut operations = Vec::new();
    if pool.is_some() {
        // The scheduler gives the Step to a worker, and to another if that one is lost (MACP-19).
        let fields = TaskFields { dispatch: Change::Set(Policy::Auto), ..TaskFields::default() };
        operations.push(Operation::UpdateTask(Box::new(fields)));
    }
    let step = StepInput {
        title: shortened(title, TITLE_CHARS_MAX).into(),
        summary: shortened(&request.instructions, TEXT_CHARS_MAX).into(),
        input: value(&request.input),
        claim_only_by,
        retry_policy: Some(if pool.is_some() { policy_of_pool() } else { policy() }),
        ext: soft_deadline(request.deadline_unix_ms),
        handler: pool.as_ref().and_then(|it| it.handler.clone()),
        worker_pool_id: pool.map(|it| it.pool),
        ..StepInput::bare(step)
    };
    operations.push(Operation::AddStep { reason: None, step });
    vec![Command::TaskUpdate { operations }, Command::SubmitTask(Why::default())]
}

/// MACP-11: who reads the Task sees it, and nothing follows from it.
fn soft_deadline(unix_ms: i64) -> Option<Object> {
    let shown = || Object::from_iter([("deadline_unix_ms".into(), unix_ms.into())]);
    (unix_ms > 0).then(shown)
}

/// P19: nobody but the requester tries again.
pub(super) fn policy() -> Arc<RetryPolicy> {
    Arc::new(RetryPolicy {
        max_attempts: Some(Limit::Of(1)),
        max_lost: Some(Limit::Of(1)),
        ..RetryPolicy::default()
    })
}

/// How many workers of a pool may be lost with a task of MACP.
const LOST_MAX: u32 = 3;

/// The same for a pool, of which another worker goes on for one that was lost.
fn policy_of_pool() -> Arc<RetryPolicy> {
    Arc::new(RetryPolicy {
        max_attempts: Some(Limit::Of(1)),
        max_lost: Some(Limit::Of(LOST_MAX)),
        ..RetryPolicy::default()
    })
}

fn dispatch(step: StepId, on_behalf: OnBehalf) -> Result<Command, Rejection> {
    Ok(Command::DispatchWorker(Dispatch {
        allowed_step_ids: Some(vec![step]),
        on_behalf: Some(on_behalf),
        ..Dispatch::to(PoolId::new(MACP_POOL)?)
    }))
}

/// The worker that a participant is.
fn worker(participant: &str) -> Result<AgentId, Rejection> {
    Ok(AgentId::new(format!("{participant}.{BOOT}"))?)
}

/// How long a claim lasts without a word: as long as the session may, with the time for which it may stand still.
fn lease_ms(session: &MacpSession, accepted_at_ms: i64) -> u64 {
    let bound = session.bound();
    let (least, most) = OnBehalf::LEASE_MS.into_inner();
    let lives_ms = bound.deadline_ms.saturating_sub(accepted_at_ms).max(0);
    let all_ms = lives_ms.saturating_add(bound.max_suspend_ms);
    u64::try_from(all_ms).unwrap_or(0).clamp(least, most)
}

fn rejection(payload: &TaskRejectPayload) -> ReasonInput {
    reason("rejected", &payload.reason)
}

/// The Step is ready again for others.
fn given_back(step: StepId, payload: &TaskRejectPayload) -> Vec<Command> {
    let report = |status, wait_kind| {
        let reason = Some(rejection(payload));
        let status = Some(status);
        let report = StepReport { status, wait_kind, reason, ..StepReport::on(step.clone()) };
        Command::TaskUpdateStep(report)
    };
    vec![report(StepStatus::Blocked, Some(WaitKind::Other)), report(StepStatus::Pending, None)]
}

/// MACP-07.
fn progress(step: StepId, update: &TaskUpdatePayload) -> Command {
    let text = |text: &str| (!text.is_empty()).then(|| shortened(text, TEXT_CHARS_MAX));
    let progress = Progress {
        percent: Some((update.progress * 100.0).clamp(0.0, 100.0)),
        phase: (!update.status.is_empty())
            .then(|| shortened(&update.status, TITLE_CHARS_MAX).into()),
        summary: text(&update.message),
        ..Progress::default()
    };
    Command::TaskUpdateStep(StepReport {
        status: Some(StepStatus::Running),
        progress: Some(progress),
        ..StepReport::on(step)
    })
}

/// MACP-08.
fn completed(step: StepId, done: &TaskCompletePayload) -> Command {
    Command::TaskUpdateStep(StepReport {
        status: Some(StepStatus::Completed),
        output: value(&done.output),
        result_summary: Some(shortened(&done.summary, TEXT_CHARS_MAX)),
        ..StepReport::on(step)
    })
}

/// MACP-08: whether it may be tried again is for the requester to know.
fn failed_with(step: StepId, failed: &TaskFailPayload) -> Command {
    let code = if failed.error_code.is_empty() { "failed" } else { &failed.error_code };
    let reason = ReasonInput { retryable: Some(failed.retryable), ..reason(code, &failed.reason) };
    Command::TaskUpdateStep(StepReport {
        status: Some(StepStatus::Failed),
        reason: Some(reason),
        ..StepReport::on(step)
    })
}

/// MACP-10: the Commitment decides, whatever the report says.
fn committed(session: &MacpSession, step: StepId, commitment: &CommitmentPayload) -> Vec<Command> {
    if !commitment.outcome_positive {
        let why = Some(reason(&commitment.action, &commitment.reason));
        return vec![Command::TaskFail(Close { reason: why, ..at_once(None, "") })];
    }
    let mut commands = Vec::new();
    if !matches!(session.report(), Some(MacpReport::Complete(_))) {
        let fields = StepFields { required: Change::Set(false), ..StepFields::default() };
        let let_go = Operation::UpdateStep { fields, reason: None, step_id: step };
        commands.push(Command::TaskUpdate { operations: vec![let_go] });
    }
    let result_summary = Some(shortened(&commitment.reason, TEXT_CHARS_MAX));
    commands.push(Command::TaskComplete(Complete { result_summary, ..Complete::default() }));
    commands
}

/// Bytes as a value: as JSON if they are that.
pub(super) fn value(bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return None;
    }
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    Some(match is_json {
        true => Value::json(bytes.to_vec()),
        false => Value::inline("application/octet-stream", bytes.to_vec()),
    })
}

/// The end of a session before its Commitment. A worker of a pool is told, and has its time to stop.
fn cancelled(session: &MacpSession, code: Option<&str>, why: &str) -> Command {
    let close = at_once(code, why);
    Command::TaskCancel(match session.assignee().is_some_and(is_pool) {
        true => Close { grace_ms: None, ..close },
        false => close,
    })
}

/// The end of a Task that waits for nobody: an assignee has no link by which it could be told.
fn at_once(code: Option<&str>, why: &str) -> Close {
    let reason = ReasonInput {
        code: code.map(Into::into),
        details: None,
        message: shortened(why, TEXT_CHARS_MAX),
        retryable: None,
    };
    Close { grace_ms: Some(0), reason: Some(reason), wait: Some(false) }
}

fn because(why: &str) -> Why {
    let reason = (!why.is_empty()).then(|| ReasonInput {
        code: None,
        details: None,
        message: shortened(why, TEXT_CHARS_MAX),
        retryable: None,
    });
    Why { reason }
}

fn reason(code: &str, message: &str) -> ReasonInput {
    let mut code = code.to_owned();
    while code.len() > CODE_BYTES_MAX {
        code.pop();
    }
    ReasonInput {
        code: Some(code.into()),
        details: None,
        message: shortened(message, TEXT_CHARS_MAX),
        retryable: None,
    }
}

/// A text of at most so many characters.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect(),
    }
}
