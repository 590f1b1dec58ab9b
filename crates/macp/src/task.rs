//! Task mode: who may say what, and what it means for Tenure.

use crate::code::{forbidden, invalid};
use crate::pb::{CommitmentPayload, Envelope};
use crate::task_pb::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRejectPayload, TaskRequestPayload,
    TaskUpdatePayload,
};
use crate::{MacpDenial, MacpRefusal, MacpSession, commitment, envelope};

/// What a message that is accepted means for Tenure.
#[derive(Debug, Clone, PartialEq)]
pub enum MacpEffect {
    /// The request: there is a Step to do now (MACP-02).
    Request(TaskRequestPayload),
    /// The sender is the assignee: a Run is dispatched for it, and claims the Step (MACP-05).
    Accept(TaskAcceptPayload),
    /// The sender, who is not the assignee, declines for itself (MACP-06).
    Decline(TaskRejectPayload),
    /// The assignee gives the Step back, as the policy allows, and others may accept it.
    Return(TaskRejectPayload),
    /// Progress of the assignee (MACP-07).
    Progress(TaskUpdatePayload),
    /// The report of the assignee (MACP-08). The session stays open.
    Report(MacpReport),
    /// The session is resolved (MACP-10).
    Commit(CommitmentPayload),
    /// It is kept, and changes only who counts as the assignee: the Step has its report already.
    Noted,
}

/// How the assignee says that it is done.
#[derive(Debug, Clone, PartialEq)]
pub enum MacpReport {
    /// With an output.
    Complete(TaskCompletePayload),
    /// With an error.
    Fail(TaskFailPayload),
}

/// Who has rejected the task, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacpDecline {
    /// Who. It can never accept the task again.
    pub participant: String,
    /// Why.
    pub reason: String,
    /// Whether it was the assignee then.
    pub while_assigned: bool,
}

/// Whether the sender may send a message of this type at all. Payloads are not looked at.
fn authorize(session: &MacpSession, envelope: &Envelope) -> Result<(), MacpRefusal> {
    let sender = envelope.sender.as_str();
    match envelope.message_type.as_str() {
        "TaskRequest" if session.is_initiator(sender) => Ok(()),
        "TaskRequest" => forbidden("only the initiator of the session may request the task"),
        "Commitment" if session.may_commit(sender) => Ok(()),
        "Commitment" => forbidden(
            "the sender may not commit: that is for the initiator, or for whom the policy names",
        ),
        _ if session.is_participant(sender) => Ok(()),
        _ => forbidden("the sender is no participant of the session"),
    }
}

/// Judges a message of an open session.
pub(crate) fn judge(session: &MacpSession, envelope: &Envelope) -> Result<MacpEffect, MacpRefusal> {
    authorize(session, envelope)?;
    match envelope.message_type.as_str() {
        "TaskRequest" => request(session, envelope),
        "TaskAccept" => accept(session, envelope),
        "TaskReject" => reject(session, envelope),
        "TaskUpdate" => update(session, envelope),
        "TaskComplete" => {
            let payload: TaskCompletePayload = envelope::read_payload(envelope)?;
            check_task(session, &payload.task_id)?;
            check_active(session, envelope)?;
            check_assignee(envelope, &payload.assignee)?;
            Ok(MacpEffect::Report(MacpReport::Complete(payload)))
        }
        "TaskFail" => {
            let payload: TaskFailPayload = envelope::read_payload(envelope)?;
            check_task(session, &payload.task_id)?;
            check_active(session, envelope)?;
            check_assignee(envelope, &payload.assignee)?;
            Ok(MacpEffect::Report(MacpReport::Fail(payload)))
        }
        "Commitment" => commit(session, envelope),
        other => invalid(format!("Task mode has no message {other:?}")),
    }
}

fn request(session: &MacpSession, envelope: &Envelope) -> Result<MacpEffect, MacpRefusal> {
    let payload: TaskRequestPayload = envelope::read_payload(envelope)?;
    if session.request().is_some() {
        return invalid("the session has its request: start another session for another task");
    }
    if payload.task_id.is_empty() {
        return invalid("task_id must not be empty");
    }
    let wanted = payload.requested_assignee.as_str();
    if !wanted.is_empty() && !session.is_participant(wanted) {
        return invalid("requested_assignee must be one of the participants, or empty");
    }
    Ok(MacpEffect::Request(payload))
}

fn accept(session: &MacpSession, envelope: &Envelope) -> Result<MacpEffect, MacpRefusal> {
    let payload: TaskAcceptPayload = envelope::read_payload(envelope)?;
    check_task(session, &payload.task_id)?;
    if session.assignee().is_some() {
        return invalid("the task has an assignee");
    }
    if has_rejected(session, &envelope.sender) {
        return invalid("who has rejected the task cannot accept it");
    }
    check_assignee(envelope, &payload.assignee)?;
    check_eligible(session, envelope)?;
    if session.report().is_some() {
        return Ok(MacpEffect::Noted);
    }
    Ok(MacpEffect::Accept(payload))
}

fn reject(session: &MacpSession, envelope: &Envelope) -> Result<MacpEffect, MacpRefusal> {
    let payload: TaskRejectPayload = envelope::read_payload(envelope)?;
    check_task(session, &payload.task_id)?;
    let while_assigned = match session.assignee() {
        Some(assignee) if assignee != envelope.sender => {
            return invalid("the task has another assignee");
        }
        Some(_) if !session.bound().policy.rules().allow_reassignment_on_reject => {
            return Err(MacpRefusal::denied(MacpDenial {
                code: "reassignment_not_allowed",
                message: "the assignee may not reject the task: the policy does not allow_reassignment_on_reject",
            }));
        }
        assignee => assignee.is_some(),
    };
    check_assignee(envelope, &payload.assignee)?;
    if !while_assigned {
        check_eligible(session, envelope)?;
    }
    if has_rejected(session, &envelope.sender) {
        return invalid("the sender has rejected the task before");
    }
    Ok(match (while_assigned, session.report()) {
        (_, Some(_)) => MacpEffect::Noted,
        (true, None) => MacpEffect::Return(payload),
        (false, None) => MacpEffect::Decline(payload),
    })
}

fn update(session: &MacpSession, envelope: &Envelope) -> Result<MacpEffect, MacpRefusal> {
    let payload: TaskUpdatePayload = envelope::read_payload(envelope)?;
    check_task(session, &payload.task_id)?;
    check_active(session, envelope)?;
    if !payload.progress.is_finite() {
        return invalid("progress must be a number");
    }
    Ok(MacpEffect::Progress(payload))
}

fn commit(session: &MacpSession, envelope: &Envelope) -> Result<MacpEffect, MacpRefusal> {
    let payload = commitment::read(envelope, session.bound())?;
    let declined = !payload.outcome_positive && session.has_nobody_left();
    if session.report().is_none() && !declined {
        return invalid("there is no TaskComplete and no TaskFail yet");
    }
    let has_output =
        matches!(session.report(), Some(MacpReport::Complete(report)) if !report.output.is_empty());
    if session.bound().policy.rules().require_output && payload.outcome_positive && !has_output {
        return Err(MacpRefusal::denied(MacpDenial {
            code: "output_required",
            message: "the policy asks for an output before a positive Commitment",
        }));
    }
    Ok(MacpEffect::Commit(payload))
}

/// The message must be about the task that was requested.
fn check_task(session: &MacpSession, task_id: &str) -> Result<(), MacpRefusal> {
    match session.request() {
        None => invalid("no task has been requested"),
        Some(request) if request.task_id != task_id => {
            invalid(format!("task_id must be that of the request, {:?}", request.task_id))
        }
        Some(_) => Ok(()),
    }
}

/// A payload names nobody, or its sender.
fn check_assignee(envelope: &Envelope, assignee: &str) -> Result<(), MacpRefusal> {
    if assignee.is_empty() || assignee == envelope.sender {
        return Ok(());
    }
    invalid("assignee must be empty or the sender")
}

/// Whether the sender may accept or reject the task (MACP-04).
fn check_eligible(session: &MacpSession, envelope: &Envelope) -> Result<(), MacpRefusal> {
    let requested = session.request().map_or("", |request| &request.requested_assignee);
    let sender = envelope.sender.as_str();
    let is_eligible = if requested.is_empty() {
        session.is_participant(sender) && !session.is_initiator(sender)
    } else {
        sender == requested
    };
    if is_eligible { Ok(()) } else { forbidden("the task was requested of somebody else") }
}

/// Only the assignee reports, and only until its last report.
fn check_active(session: &MacpSession, envelope: &Envelope) -> Result<(), MacpRefusal> {
    if session.report().is_some() {
        return forbidden("the task has its last report");
    }
    if session.assignee() != Some(envelope.sender.as_str()) {
        return forbidden("the sender is not the assignee");
    }
    Ok(())
}

fn has_rejected(session: &MacpSession, participant: &str) -> bool {
    session.declines().iter().any(|it| it.participant == participant)
}
