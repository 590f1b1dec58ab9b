//! Steps of Tenure that a participant does (MACP-20): the session that Tenure starts for one, as its initiator.
//!
//! An errand is the input of the Step. Its messages have ids that never change, so that whoever goes on with the errand
//! may send them again.

use prost::Message as _;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::pb::{CommitmentPayload, Envelope, SessionStartPayload};
use crate::task_pb::TaskRequestPayload;
use crate::{
    MacpReport, MacpSession, PROTOCOL_VERSION, SessionState, TASK_MODE, TASK_MODE_VERSION,
};

/// The initiator of the sessions of errands. No caller may have this name.
pub const ERRANDS: &str = "tenure://steps";

/// How long the session of an errand lives, if it does not say so: an hour.
const TTL_MS: i64 = 3_600_000;

/// The configuration of a session that asks for nothing.
const CONFIGURATION: &str = "config.default";

/// What the Commitment of an errand is about.
const SCOPE: &str = "tenure.step";

/// What a Step asks of participants: its input, as JSON.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MacpErrand {
    /// Who takes part.
    pub participants: Vec<String>,
    /// Who is to do it. Empty: whoever of them accepts first.
    #[serde(default)]
    pub requested_assignee: String,
    /// What it is called. Empty: as the Step.
    #[serde(default)]
    pub title: String,
    /// What is to be done. Empty: what the Step says.
    #[serde(default)]
    pub instructions: String,
    /// What is handed on.
    #[serde(default)]
    pub input: Option<Json>,
    /// How long it may take altogether, in milliseconds.
    #[serde(default = "ttl_ms")]
    pub ttl_ms: i64,
    /// The policy.
    #[serde(default)]
    pub policy_version: String,
    /// The configuration, such as one with a lease.
    #[serde(default = "configuration")]
    pub configuration_version: String,
}

fn ttl_ms() -> i64 {
    TTL_MS
}

fn configuration() -> String {
    CONFIGURATION.to_owned()
}

/// The Step of an errand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacpErrandStep {
    /// Where it is, as `session/task/step`.
    pub place: String,
    /// Its id, which is that of the task.
    pub step_id: String,
    /// Its title.
    pub title: String,
    /// What it is about.
    pub summary: String,
    /// The session before, which has failed.
    pub retry_of: Option<String>,
}

/// How an errand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MacpErrandEnd {
    /// With a result.
    Completed {
        /// The bytes of the result.
        output: Vec<u8>,
        /// The result in prose.
        summary: String,
    },
    /// Without one.
    Failed {
        /// A stable code.
        code: String,
        /// For people.
        message: String,
        /// Whether it may be tried again, in another session.
        retryable: bool,
    },
}

impl MacpErrand {
    /// Reads the input of a Step.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(json).map_err(|error| {
            format!("the input of the step must be {{\"participants\": [...], ...}}: {error}")
        })
    }

    /// The start of its session.
    pub fn start(&self, session_id: &str, of: &MacpErrandStep, now_ms: i64) -> Envelope {
        let intent = match &of.retry_of {
            Some(before) => format!("retry: {before}"),
            None => self.title_of(of).to_owned(),
        };
        let start = SessionStartPayload {
            intent,
            participants: self.participants.clone(),
            mode_version: TASK_MODE_VERSION.to_owned(),
            configuration_version: self.configuration_version.clone(),
            policy_version: self.policy_version.clone(),
            ttl_ms: self.ttl_ms,
            context_id: of.place.clone(),
            ..SessionStartPayload::default()
        };
        envelope("SessionStart", "start", session_id, start.encode_to_vec(), now_ms)
    }

    /// The message that requests the task.
    pub fn request(&self, session_id: &str, of: &MacpErrandStep, now_ms: i64) -> Envelope {
        let instructions = match self.instructions.as_str() {
            "" => of.summary.clone(),
            said => said.to_owned(),
        };
        let request = TaskRequestPayload {
            task_id: of.step_id.clone(),
            title: self.title_of(of).to_owned(),
            instructions,
            requested_assignee: self.requested_assignee.clone(),
            input: self.input.as_ref().map(|it| it.to_string().into_bytes()).unwrap_or_default(),
            deadline_unix_ms: 0,
        };
        envelope("TaskRequest", "request", session_id, request.encode_to_vec(), now_ms)
    }

    fn title_of<'a>(&'a self, of: &'a MacpErrandStep) -> &'a str {
        if self.title.is_empty() { &of.title } else { &self.title }
    }
}

impl MacpSession {
    /// The Commitment with which Tenure resolves the session of an errand: as the report says, and negative if there
    /// is nobody left to do it. `None`: it is too early, or Tenure is not who decides.
    pub fn errand_commitment(&self, now_ms: i64) -> Option<Envelope> {
        if self.state() != SessionState::Open || !self.may_commit(ERRANDS) {
            return None;
        }
        let (action, reason) = match self.report() {
            Some(MacpReport::Complete(done)) => ("task.completed", done.summary.clone()),
            Some(MacpReport::Fail(failed)) => ("task.failed", failed.reason.clone()),
            None if self.has_nobody_left() => ("task.declined", String::new()),
            None => return None,
        };
        let has_output =
            matches!(self.report(), Some(MacpReport::Complete(done)) if !done.output.is_empty());
        let is_enough = has_output || !self.bound().policy.rules().require_output;
        let outcome_positive = action == "task.completed" && is_enough;
        let commitment = CommitmentPayload {
            commitment_id: "commitment".to_owned(),
            action: if action == "task.completed" && !is_enough { "task.failed" } else { action }
                .to_owned(),
            authority_scope: SCOPE.to_owned(),
            reason: if reason.trim().is_empty() { action.to_owned() } else { reason },
            mode_version: TASK_MODE_VERSION.to_owned(),
            policy_version: String::new(),
            configuration_version: self.bound().start.configuration_version.clone(),
            outcome_positive,
            supersedes: None,
        };
        let id = &self.bound().session_id;
        Some(envelope("Commitment", "commitment", id, commitment.encode_to_vec(), now_ms))
    }

    /// How the errand of the session ended. `None`: it has not. The Commitment decides, whatever the report says.
    pub fn errand_end(&self) -> Option<MacpErrandEnd> {
        let failed = |code: &str, message: &str, retryable: bool| MacpErrandEnd::Failed {
            code: code.to_owned(),
            message: message.to_owned(),
            retryable,
        };
        Some(match (self.state(), self.commitment(), self.report()) {
            (SessionState::Expired, ..) => {
                failed("session_expired", "the session has ended without a result", true)
            }
            (SessionState::Cancelled, ..) => {
                failed("session_cancelled", "somebody has cancelled the session", false)
            }
            (SessionState::Resolved, Some(commitment), report) if commitment.outcome_positive => {
                let (output, summary) = match report {
                    Some(MacpReport::Complete(done)) => (done.output.clone(), &done.summary),
                    _ => (Vec::new(), &commitment.reason),
                };
                MacpErrandEnd::Completed { output, summary: summary.clone() }
            }
            (SessionState::Resolved, Some(_), Some(MacpReport::Fail(report))) => {
                let code = if report.error_code.is_empty() { "failed" } else { &report.error_code };
                failed(code, &report.reason, report.retryable)
            }
            (SessionState::Resolved, Some(commitment), Some(MacpReport::Complete(_))) => {
                failed("not_committed", &commitment.reason, false)
            }
            (SessionState::Resolved, ..) => {
                let why = self.declines().last().map_or("", |it| it.reason.as_str());
                failed("rejected", why, false)
            }
            (SessionState::Open | SessionState::Suspended | SessionState::Unspecified, ..) => {
                return None;
            }
        })
    }
}

fn envelope(kind: &str, id: &str, session_id: &str, payload: Vec<u8>, now_ms: i64) -> Envelope {
    Envelope {
        macp_version: PROTOCOL_VERSION.to_owned(),
        mode: TASK_MODE.to_owned(),
        message_type: kind.to_owned(),
        message_id: id.to_owned(),
        session_id: session_id.to_owned(),
        sender: ERRANDS.to_owned(),
        timestamp_unix_ms: now_ms,
        payload,
    }
}
