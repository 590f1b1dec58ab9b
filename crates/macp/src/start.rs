//! `SessionStart`: what a session binds for all its life.

use std::collections::BTreeSet;

use crate::code::invalid;
use crate::pb::{Envelope, SessionStartPayload};
use crate::{
    MacpChange, MacpCode, MacpPolicies, MacpPolicy, MacpRecord, MacpRefusal, MacpReplayError,
    MacpSession, MacpStarted, PARTICIPANTS_MAX, REVISION, SUSPEND_MS_MAX, SessionState, TASK_MODE,
    TASK_MODE_VERSION, TTL_MS_MAX, envelope, lease,
};

/// What the start of a session bound: it never changes.
#[derive(Debug, Clone, PartialEq)]
pub struct MacpBound {
    /// The id of the session.
    pub session_id: String,
    /// Who started it: the requester.
    pub initiator: String,
    /// The payload of the start as it came.
    pub start: SessionStartPayload,
    /// The policy.
    pub policy: MacpPolicy,
    /// When the start was accepted, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// When the session would expire if it were never suspended.
    pub deadline_ms: i64,
    /// Milliseconds that it may stand still.
    pub max_suspend_ms: i64,
    /// Milliseconds for which the assignee may be silent; 0 is for as long as the session lives.
    pub lease_ms: i64,
}

/// What comes of a `SessionStart` that is not refused.
#[derive(Debug, Clone, PartialEq)]
pub enum MacpOpening {
    /// It was accepted before. The session is in this state now.
    Duplicate(SessionState),
    /// It begins a session. [`MacpSession::begin`] takes the record once it is durable.
    Accept(Box<MacpRecord>),
}

/// Judges a `SessionStart`, whose shape was looked at and whose sender is known. `existing` is the session that has its
/// id, if there is one (MACP-02).
///
/// # Errors
///
/// INVALID_SESSION_ID, MODE_NOT_SUPPORTED, INVALID_ENVELOPE, SESSION_ALREADY_EXISTS, UNKNOWN_POLICY_VERSION or
/// INVALID_POLICY_DEFINITION, looked for in this order.
pub fn open(
    envelope: &Envelope,
    existing: Option<&MacpSession>,
    policies: &MacpPolicies,
    now_ms: i64,
) -> Result<MacpOpening, MacpRefusal> {
    let start = read(envelope)?;
    if let Some(existing) = existing {
        if existing.has_accepted(&envelope.message_id) && existing.is_member(&envelope.sender) {
            return Ok(MacpOpening::Duplicate(existing.state()));
        }
        let message = "there is a session with this id: choose another";
        return Err(MacpRefusal::new(MacpCode::SessionAlreadyExists, message));
    }
    let policy = policies.bind(&start.policy_version)?;
    check_pool(envelope, &start)?;
    policies.check_pools(&start.participants)?;
    let max_suspend_ms =
        if start.max_suspend_ms > 0 { start.max_suspend_ms } else { SUSPEND_MS_MAX };
    let started = MacpStarted {
        envelope: envelope::to_bytes(envelope),
        policy: policy.text(),
        max_suspend_ms,
        lease_ms: lease::asked_ms(&start.configuration_version)?,
    };
    Ok(MacpOpening::Accept(Box::new(MacpRecord {
        revision: REVISION,
        ordinal: 1,
        accepted_at_ms: now_ms,
        sender: envelope.sender.clone(),
        change: Some(MacpChange::Started(started)),
        carried_out: false,
    })))
}

/// What a record of a start bound. It is judged again, but for the policy, which it has with it.
pub(crate) fn bound_by(record: &MacpRecord) -> Result<(MacpBound, Envelope), MacpReplayError> {
    let Some(MacpChange::Started(started)) = &record.change else {
        return Err(MacpReplayError::Unfit("not begun"));
    };
    if record.ordinal != 1 {
        return Err(MacpReplayError::Ordinal { found: record.ordinal, expected: 1 });
    }
    let Some(envelope) = record.envelope()? else {
        return Err(MacpReplayError::Unfit("not begun"));
    };
    let start = read(&envelope)?;
    check_pool(&envelope, &start)?;
    let policy = MacpPolicy::parse(&started.policy);
    let policy = policy.map_err(|e| MacpReplayError::Unreadable(e.to_string()))?;
    // The client's clock sets the deadline, so that it follows from what is kept.
    let base = if envelope.timestamp_unix_ms > 0 {
        envelope.timestamp_unix_ms
    } else {
        record.accepted_at_ms
    };
    let bound = MacpBound {
        session_id: envelope.session_id.clone(),
        initiator: envelope.sender.clone(),
        policy,
        started_at_ms: record.accepted_at_ms,
        deadline_ms: base.saturating_add(start.ttl_ms),
        max_suspend_ms: started.max_suspend_ms,
        lease_ms: started.lease_ms,
        start,
    };
    Ok((bound, envelope))
}

/// Reads a start, and looks at all that needs neither a policy nor another session.
fn read(envelope: &Envelope) -> Result<SessionStartPayload, MacpRefusal> {
    if !envelope::is_session_id(&envelope.session_id) {
        let message = "session_id must be a UUID of version 4 or 7 in lower case, or 22 to 128 characters of base64url";
        return Err(MacpRefusal::new(MacpCode::InvalidSessionId, message));
    }
    if envelope.mode != TASK_MODE {
        let message = format!("the mode must be {TASK_MODE:?}, the only one that is served");
        return Err(MacpRefusal::new(MacpCode::ModeNotSupported, message));
    }
    if envelope.payload.is_empty() {
        return invalid("the payload must not be empty");
    }
    let start: SessionStartPayload = envelope::read_payload(envelope)?;
    if !(1..=TTL_MS_MAX).contains(&start.ttl_ms) {
        return invalid(format!("ttl_ms must be from 1 to {TTL_MS_MAX}"));
    }
    if start.mode_version != TASK_MODE_VERSION {
        return invalid(format!("mode_version must be {TASK_MODE_VERSION:?}"));
    }
    if start.configuration_version.trim().is_empty() {
        return invalid("configuration_version must not be empty");
    }
    if start.participants.is_empty() || start.participants.len() > PARTICIPANTS_MAX {
        return invalid(format!("participants must be from 1 to {PARTICIPANTS_MAX}"));
    }
    let mut seen = BTreeSet::new();
    for participant in &start.participants {
        if participant.trim().is_empty() || !seen.insert(participant.trim()) {
            return invalid("each of the participants must have a name, and stand there once");
        }
    }
    if start.max_suspend_ms < 0 {
        return invalid("max_suspend_ms must not be negative");
    }
    Ok(start)
}

/// Somebody other than the initiator must be there to do the task. The initiator need not be listed.
fn check_pool(envelope: &Envelope, start: &SessionStartPayload) -> Result<(), MacpRefusal> {
    if start.participants.iter().any(|it| *it != envelope.sender) {
        return Ok(());
    }
    invalid("participants must have somebody other than the initiator, to accept the task")
}
