//! A session: its state, and what it decides on a message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::gateway::{MacpFacts, MacpPhase, macp_phase};

use crate::code::invalid;
use crate::pb::{CommitmentPayload, Envelope, ParticipantActivity, SessionMetadata};
use crate::record::unfit;
use crate::start::{MacpBound, bound_by};
use crate::task::judge;
use crate::task_pb::{TaskRejectPayload, TaskRequestPayload, TaskUpdatePayload};
use crate::{
    MacpAuthority, MacpChange, MacpCode, MacpDecline, MacpEffect, MacpRecord, MacpRefusal,
    MacpReplayError, MacpReport, REVISION, SessionState, TASK_MODE, envelope,
};

/// What comes of a message that is not refused.
#[derive(Debug, Clone, PartialEq)]
pub enum MacpDecision {
    /// It was accepted before, and changes nothing. The session is in this state now.
    Duplicate(SessionState),
    /// The time of the session is over: the gateway keeps the record, and refuses the message.
    Expire {
        /// The record of the end.
        record: Box<MacpRecord>,
        /// SESSION_NOT_OPEN.
        refusal: MacpRefusal,
    },
    /// It is accepted once its record is durable.
    Accept(Box<MacpAccepted>),
}

/// A message that is accepted once its record is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct MacpAccepted {
    /// What is kept of it.
    pub record: MacpRecord,
    /// What it means for Tenure.
    pub effect: MacpEffect,
    /// The state of the session after it.
    pub state: SessionState,
}

/// What a sender has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MacpActivity {
    /// How many messages, without the start.
    pub messages: u32,
    /// When the last of them was accepted, in milliseconds since 1970.
    pub last_at_ms: i64,
}

/// Times in which a session stood still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standstill {
    /// Since when it stands still now.
    pub(crate) since_ms: Option<i64>,
    /// How long it stood still before.
    pub(crate) total_ms: i64,
    /// How often it stood still before.
    pub(crate) times: u32,
}

/// A session of Task mode: the fold of its records.
#[derive(Debug, Clone, PartialEq)]
pub struct MacpSession {
    bound: MacpBound,
    pub(crate) state: SessionState,
    pub(crate) deadline_ms: i64,
    pub(crate) lease_until_ms: Option<i64>,
    pub(crate) standstill: Standstill,
    request: Option<TaskRequestPayload>,
    declines: Vec<MacpDecline>,
    assignee: Option<String>,
    was_assigned: bool,
    updates: u64,
    latest_update: Option<TaskUpdatePayload>,
    report: Option<MacpReport>,
    commitment: Option<CommitmentPayload>,
    /// All copies of the session share them, so that a copy costs no more after a million messages.
    message_ids: Arc<BTreeSet<String>>,
    activity: BTreeMap<String, MacpActivity>,
    ordinal: u64,
}

impl MacpSession {
    /// The session that a record of its start begins.
    ///
    /// # Errors
    ///
    /// The record is none of a start, or none that is accepted.
    pub fn begin(record: &MacpRecord) -> Result<Self, MacpReplayError> {
        let (bound, envelope) = bound_by(record)?;
        Ok(Self {
            state: SessionState::Open,
            deadline_ms: bound.deadline_ms,
            lease_until_ms: None,
            standstill: Standstill::default(),
            request: None,
            declines: Vec::new(),
            assignee: None,
            was_assigned: false,
            updates: 0,
            latest_update: None,
            report: None,
            commitment: None,
            message_ids: Arc::new(BTreeSet::from([known_as(envelope.message_id)])),
            activity: BTreeMap::new(),
            ordinal: record.ordinal,
            bound,
        })
    }

    /// Judges a message that is no start. Its shape was looked at ([`crate::check_shape`]), and its sender is known
    /// ([`crate::bind_sender`]).
    ///
    /// # Errors
    ///
    /// FORBIDDEN for a stranger who sends a message id that is known; else INVALID_ENVELOPE for another mode or
    /// session, SESSION_NOT_OPEN, FORBIDDEN, and what the rules of the payload say, looked for in this order.
    pub fn decide(&self, envelope: &Envelope, now_ms: i64) -> Result<MacpDecision, MacpRefusal> {
        if self.has_accepted(&envelope.message_id) {
            if self.is_member(&envelope.sender) {
                return Ok(MacpDecision::Duplicate(self.state));
            }
            return Err(MacpRefusal::new(
                MacpCode::Forbidden,
                "the sender is no member of the session",
            ));
        }
        if envelope.mode != TASK_MODE || envelope.session_id != self.bound.session_id {
            return invalid(format!("the mode of the session is {TASK_MODE:?}"));
        }
        if let Some(record) = self.expire(now_ms) {
            let refusal = MacpRefusal::new(MacpCode::SessionNotOpen, self.why_over(now_ms));
            return Ok(MacpDecision::Expire { record: Box::new(record), refusal });
        }
        if self.state != SessionState::Open {
            return Err(self.not_open());
        }
        let effect = judge(self, envelope)?;
        let state = match effect {
            MacpEffect::Commit(_) => SessionState::Resolved,
            _ => SessionState::Open,
        };
        let record = MacpRecord {
            revision: REVISION,
            ordinal: self.ordinal + 1,
            accepted_at_ms: now_ms,
            sender: envelope.sender.clone(),
            change: Some(MacpChange::Sent(envelope::to_bytes(envelope))),
            carried_out: false,
        };
        Ok(MacpDecision::Accept(Box::new(MacpAccepted { record, effect, state })))
    }

    /// Takes a record that is durable. A message is judged again at the time of its record, so that a log that was
    /// changed is not believed. It answers what the message means for Tenure.
    ///
    /// # Errors
    ///
    /// The record does not fit. The session is as it was.
    pub fn apply(&mut self, record: &MacpRecord) -> Result<Option<MacpEffect>, MacpReplayError> {
        if !(1..=REVISION).contains(&record.revision) {
            return Err(MacpReplayError::Newer(record.revision));
        }
        let Some(envelope) = record.envelope()? else {
            self.apply_lifecycle(record)?;
            return Ok(None);
        };
        let decision = self.decide(&envelope, record.accepted_at_ms)?;
        let MacpDecision::Accept(accepted) = decision else { return Err(unfit(&decision)) };
        self.check_ordinal(record, self.ordinal + 1)?;
        self.ordinal = record.ordinal;
        Arc::make_mut(&mut self.message_ids).insert(known_as(envelope.message_id));
        let activity = self.activity.entry(envelope.sender.clone()).or_default();
        activity.messages = activity.messages.saturating_add(1);
        activity.last_at_ms = record.accepted_at_ms;
        self.fold(&envelope.sender, &envelope.message_type, &accepted.effect);
        self.renew(&envelope.sender, &accepted.effect, record.accepted_at_ms);
        self.state = accepted.state;
        Ok(Some(accepted.effect))
    }

    pub(crate) fn check_ordinal(
        &self,
        record: &MacpRecord,
        expected: u64,
    ) -> Result<(), MacpReplayError> {
        if record.ordinal == expected {
            return Ok(());
        }
        Err(MacpReplayError::Ordinal { found: record.ordinal, expected })
    }

    fn fold(&mut self, sender: &str, message_type: &str, effect: &MacpEffect) {
        match effect {
            MacpEffect::Request(request) => self.request = Some(request.clone()),
            MacpEffect::Accept(_) => self.assign(sender),
            MacpEffect::Decline(payload) | MacpEffect::Return(payload) => {
                self.decline(sender, payload)
            }
            MacpEffect::Progress(update) => {
                self.updates = self.updates.saturating_add(1);
                self.latest_update = Some(update.clone());
            }
            MacpEffect::Report(report) => self.report = Some(report.clone()),
            MacpEffect::Commit(commitment) => self.commitment = Some(commitment.clone()),
            MacpEffect::Noted if message_type == "TaskAccept" => self.assign(sender),
            MacpEffect::Noted => self.decline(sender, &TaskRejectPayload::default()),
        }
    }

    fn assign(&mut self, sender: &str) {
        self.assignee = Some(sender.to_owned());
        self.was_assigned = true;
    }

    fn decline(&mut self, sender: &str, payload: &TaskRejectPayload) {
        let while_assigned = self.assignee.as_deref() == Some(sender);
        if while_assigned {
            self.assignee = None;
        }
        let (participant, reason) = (sender.to_owned(), payload.reason.clone());
        self.declines.push(MacpDecline { participant, reason, while_assigned });
    }

    /// What the start bound.
    pub fn bound(&self) -> &MacpBound {
        &self.bound
    }

    /// The state it is in. Time alone does not change it: see [`MacpSession::expire`].
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// How many envelopes it has accepted, with the start.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// The request for the task.
    pub fn request(&self) -> Option<&TaskRequestPayload> {
        self.request.as_ref()
    }

    /// Who has the task now.
    pub fn assignee(&self) -> Option<&str> {
        self.assignee.as_deref()
    }

    /// Who has rejected it, in their order.
    pub fn declines(&self) -> &[MacpDecline] {
        &self.declines
    }

    /// How often progress was reported.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The progress that was reported last.
    pub fn latest_update(&self) -> Option<&TaskUpdatePayload> {
        self.latest_update.as_ref()
    }

    /// The last report of the assignee.
    pub fn report(&self) -> Option<&MacpReport> {
        self.report.as_ref()
    }

    /// The Commitment that resolved it.
    pub fn commitment(&self) -> Option<&CommitmentPayload> {
        self.commitment.as_ref()
    }

    /// What each sender has sent.
    pub fn activity(&self) -> &BTreeMap<String, MacpActivity> {
        &self.activity
    }

    /// Whether a message with this id was accepted.
    pub fn has_accepted(&self, message_id: &str) -> bool {
        self.message_ids.contains(&known_as(message_id.to_owned()))
    }

    /// Whether it takes no messages any more, whatever happens.
    pub fn has_ended(&self) -> bool {
        match self.state {
            SessionState::Resolved | SessionState::Expired | SessionState::Cancelled => true,
            SessionState::Open | SessionState::Suspended | SessionState::Unspecified => false,
        }
    }

    /// Whether this is who started it.
    pub fn is_initiator(&self, name: &str) -> bool {
        self.bound.initiator == name
    }

    /// Whether this is one of its participants.
    pub fn is_participant(&self, name: &str) -> bool {
        self.bound.start.participants.iter().any(|it| it == name)
    }

    /// Whether this is the initiator or a participant, or somebody who may commit.
    pub fn is_member(&self, name: &str) -> bool {
        self.may_read(name) || self.may_commit(name)
    }

    /// Whether this may read the session. An observer may read every session: only the gateway knows who is one.
    pub fn may_read(&self, name: &str) -> bool {
        self.is_initiator(name) || self.is_participant(name)
    }

    /// Whether this may commit.
    pub fn may_commit(&self, name: &str) -> bool {
        match &self.bound.policy.rules().authority {
            MacpAuthority::InitiatorOnly => self.is_initiator(name),
            MacpAuthority::AnyParticipant => self.is_initiator(name) || self.is_participant(name),
            MacpAuthority::DesignatedRole(roles) => roles.iter().any(|it| it == name),
        }
    }

    /// Whether the one whom the task was requested of has declined, and nobody has it: then the session may be
    /// committed without a report.
    pub fn has_nobody_left(&self) -> bool {
        let requested = self.request.as_ref().map_or("", |it| it.requested_assignee.as_str());
        let declined = |it: &MacpDecline| it.participant == requested && !it.while_assigned;
        self.assignee.is_none() && !requested.is_empty() && self.declines.iter().any(declined)
    }

    /// The phase of the session by table 7.4 (MACP-14).
    pub fn phase(&self) -> MacpPhase {
        let committed = self.commitment.is_some();
        let task = match (&self.request, &self.commitment) {
            (None, None) => None,
            (_, Some(commitment)) if commitment.outcome_positive => Some(TaskStatus::Completed),
            (_, Some(_)) => Some(TaskStatus::Failed),
            (Some(_), None) => Some(TaskStatus::Pending),
        };
        let step = match &self.report {
            Some(MacpReport::Complete(_)) => Some(StepStatus::Completed),
            Some(MacpReport::Fail(_)) => Some(StepStatus::Failed),
            None => None,
        };
        macp_phase(MacpFacts { task, committed, step, attempted: self.was_assigned })
    }

    /// The session as `GetSession`, `ListSessions` and `WatchSessions` show it.
    pub fn metadata(&self) -> SessionMetadata {
        let activity = self.activity.iter().map(|(participant, activity)| ParticipantActivity {
            participant_id: participant.clone(),
            last_message_at_unix_ms: activity.last_at_ms,
            message_count: activity.messages,
        });
        let start = &self.bound.start;
        SessionMetadata {
            session_id: self.bound.session_id.clone(),
            mode: TASK_MODE.to_owned(),
            state: self.state.into(),
            started_at_unix_ms: self.bound.started_at_ms,
            expires_at_unix_ms: self.deadline_ms,
            mode_version: start.mode_version.clone(),
            configuration_version: start.configuration_version.clone(),
            policy_version: self.bound.policy.policy_id().to_owned(),
            participants: start.participants.clone(),
            participant_activity: activity.collect(),
            initiator: self.bound.initiator.clone(),
            context_id: start.context_id.clone(),
            extension_keys: start.extensions.keys().cloned().collect(),
        }
    }

    pub(crate) fn not_open(&self) -> MacpRefusal {
        let state = match self.state {
            SessionState::Resolved => "resolved",
            SessionState::Expired => "expired",
            SessionState::Suspended => "suspended; ResumeSession opens it again",
            SessionState::Cancelled => "cancelled",
            SessionState::Open | SessionState::Unspecified => "open",
        };
        MacpRefusal::new(MacpCode::SessionNotOpen, format!("the session is {state}"))
    }
}

/// Longest message id that a session remembers as it is. All ids of a session stay in memory, and each may be as long
/// as a frame.
const ID_BYTES_MAX: usize = 128;

/// What a session remembers of a message id: a long one by its digest.
fn known_as(message_id: String) -> String {
    if message_id.len() <= ID_BYTES_MAX {
        return message_id;
    }
    format!("sha256:{:x}", Sha256::digest(&message_id))
}
