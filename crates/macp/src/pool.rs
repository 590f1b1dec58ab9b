//! Pools of Tenure as participants (MACP-19): what a worker of a pool does with the Step becomes messages of its pool.
//!
//! The Step is the pool's, and its worker speaks no MACP. A gateway reads in the log of the Task what the worker has
//! done ([`MacpPoolWork`]), has [`MacpSession::said_by_pool`] make a message of it, and judges and keeps that like any
//! other.

use prost::Message as _;
use tenure_core::event::{Body, Event, ReportFacts};
use tenure_core::id::{HandlerName, PoolId};
use tenure_core::record::{Progress, Reason, Value, ValueBody};

use crate::pb::Envelope;
use crate::task_pb::{TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskUpdatePayload};
use crate::{MacpSession, PROTOCOL_VERSION, TASK_MODE};

/// How the name of a pool as a participant begins.
const SCHEME: &str = "pool://";

/// Names that begin with this are those of Tenure: no caller has one.
const RESERVED: [&str; 2] = [SCHEME, "tenure://"];

/// How the id of a message begins that was made of a place of the log.
const AT: &str = "tenure:";

/// The status of an update if the worker has not said one.
const AT_WORK: &str = "running";

/// Whether a participant is a pool.
pub fn is_pool(participant: &str) -> bool {
    participant.starts_with(SCHEME)
}

/// Whether a name belongs to Tenure, so that no caller may have it.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|scheme| name.starts_with(scheme))
}

/// A pool whose workers may be given tasks of sessions, and the handler that does them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacpPool {
    /// The pool.
    pub pool: PoolId,
    /// The handler. `None`: the usual one.
    pub handler: Option<HandlerName>,
}

impl MacpPool {
    /// Reads `POOL` or `POOL/HANDLER`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (pool, handler) = match text.split_once('/') {
            Some((pool, handler)) => (pool, Some(handler)),
            None => (text, None),
        };
        let named =
            |problem: String| format!("{text:?} is no pool, and no pool/handler: {problem}");
        Ok(Self {
            pool: PoolId::new(pool).map_err(|it| named(it.to_string()))?,
            handler: handler
                .map(HandlerName::new)
                .transpose()
                .map_err(|it| named(it.to_string()))?,
        })
    }

    /// The pool that a participant is.
    pub fn of_participant(participant: &str) -> Option<Self> {
        Self::parse(participant.strip_prefix(SCHEME)?).ok()
    }

    /// Its name as a participant.
    pub fn participant(&self) -> String {
        match &self.handler {
            Some(handler) => format!("{SCHEME}{}/{handler}", self.pool),
            None => format!("{SCHEME}{}", self.pool),
        }
    }
}

/// What a worker has done with the Step of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum MacpPoolWork {
    /// It has claimed the Step.
    Claimed,
    /// It has reported progress.
    Progress(Progress),
    /// It has completed the Step.
    Completed {
        /// The result.
        output: Option<Value>,
        /// The result in prose.
        summary: String,
    },
    /// The Step has failed, waits for somebody, or was cancelled.
    Failed(Reason),
}

impl MacpPoolWork {
    /// What an event of the Task says of the work of a pool.
    pub fn of(event: &Event) -> Option<Self> {
        let progress = |report: Option<&ReportFacts>| {
            report.and_then(|facts| facts.progress.clone()).map(Self::Progress)
        };
        match &event.body {
            Body::StepClaimed(claim) if !claim.on_behalf => Some(Self::Claimed),
            Body::StepStarted(started) => progress(started.report.as_deref()),
            Body::StepUpdated(updated) => progress(updated.report.as_deref()),
            Body::StepCompleted(done) => {
                let summary = done.report.as_ref().and_then(|it| it.result_summary.clone());
                let summary = summary.unwrap_or_default();
                Some(Self::Completed { output: done.output.clone(), summary })
            }
            Body::StepFailed(failed) => Some(Self::Failed(failed.reason.clone())),
            Body::StepBlocked(blocked) => Some(Self::Failed(Reason {
                code: blocked.wait_kind.as_str().into(),
                ..blocked.reason.clone()
            })),
            Body::StepCancelled(ended) => {
                let unsaid = || Reason {
                    code: "cancelled".into(),
                    message: "the step was cancelled".into(),
                    retryable: None,
                    details: None,
                };
                Some(Self::Failed(ended.reason.clone().unwrap_or_else(unsaid)))
            }
            _ => None,
        }
    }
}

impl MacpSession {
    /// The pool that the task was requested of.
    pub fn requested_pool(&self) -> Option<MacpPool> {
        MacpPool::of_participant(&self.request()?.requested_assignee)
    }

    /// The message of the pool that tells what its worker has done at a place of the Task's log. `None`: there is
    /// nothing to tell, or it was told.
    pub fn said_by_pool(&self, at: u64, work: &MacpPoolWork, now_ms: i64) -> Option<Envelope> {
        let request = self.request().filter(|it| is_pool(&it.requested_assignee))?;
        let message_id = format!("{AT}{at}");
        if self.has_ended() || self.report().is_some() || self.has_accepted(&message_id) {
            return None;
        }
        let (task_id, pool) = (request.task_id.clone(), request.requested_assignee.clone());
        let has_it = self.assignee() == Some(pool.as_str());
        let assignee = pool.clone();
        let (message_type, payload) = match work {
            // Another worker goes on for one that was lost: it is still the pool's.
            MacpPoolWork::Claimed if has_it => return None,
            MacpPoolWork::Claimed => {
                let accept = TaskAcceptPayload { task_id, assignee, reason: String::new() };
                ("TaskAccept", accept.encode_to_vec())
            }
            _ if !has_it => return None,
            MacpPoolWork::Progress(progress) => {
                ("TaskUpdate", update(task_id, progress).encode_to_vec())
            }
            MacpPoolWork::Completed { output, summary } => {
                let output = output.as_ref().map(bytes).unwrap_or_default();
                let done =
                    TaskCompletePayload { task_id, assignee, output, summary: summary.clone() };
                ("TaskComplete", done.encode_to_vec())
            }
            MacpPoolWork::Failed(why) => {
                let failed = TaskFailPayload {
                    task_id,
                    assignee,
                    error_code: why.code.to_string(),
                    reason: why.message.clone(),
                    retryable: why.retryable.unwrap_or(true),
                };
                ("TaskFail", failed.encode_to_vec())
            }
        };
        Some(Envelope {
            macp_version: PROTOCOL_VERSION.to_owned(),
            mode: TASK_MODE.to_owned(),
            message_type: message_type.to_owned(),
            message_id,
            session_id: self.bound().session_id.clone(),
            sender: pool,
            timestamp_unix_ms: now_ms,
            payload,
        })
    }
}

fn update(task_id: String, progress: &Progress) -> TaskUpdatePayload {
    let said = progress.summary.as_ref().or(progress.current_step.as_ref());
    TaskUpdatePayload {
        task_id,
        status: progress.phase.as_ref().map_or(AT_WORK, |phase| phase.as_str()).to_owned(),
        progress: progress.percent.filter(|it| it.is_finite()).unwrap_or(0.0) / 100.0,
        message: said.cloned().unwrap_or_default(),
        ..TaskUpdatePayload::default()
    }
}

/// A result as the bytes of a payload: of one that is elsewhere, where it is.
fn bytes(value: &Value) -> Vec<u8> {
    match &value.body {
        ValueBody::Data(data) => data.to_vec(),
        ValueBody::Ref(reference) => elsewhere(reference.as_str()),
        ValueBody::Blob(blob) => elsewhere(blob.reference().as_str()),
    }
}

fn elsewhere(reference: &str) -> Vec<u8> {
    serde_json::json!({ "ref": reference }).to_string().into_bytes()
}
