//! What crosses the bus, as it is written down and read: one way for all who carry it.

use tenure_core::id::AttemptId;
use tenure_core::{Code, Rejection};
use tenure_wire::bus::worker::{Delivery as Sent, Holding as Held, Pulse as Said, ReportResult};

use super::{Delivery, Holding, Pulse, Recorded};
use crate::journal::TaskKey;

impl From<Delivery> for Sent {
    fn from(delivery: Delivery) -> Self {
        let nothing = Self::default();
        match delivery {
            Delivery::Grant(claim) | Delivery::Crossed(claim) => {
                Self { grant: Some(claim), ..nothing }
            }
            Delivery::Run(offer) => Self { run: Some(offer), ..nothing },
            Delivery::CancelRequested(attempt) => {
                Self { cancel_requested: Some(attempt), ..nothing }
            }
            Delivery::Lost(attempt) => Self { lost: Some(attempt), ..nothing },
            Delivery::Drain => Self { drain: true, ..nothing },
        }
    }
}

impl Delivery {
    /// What was sent; none if it says nothing known.
    pub fn of(sent: Sent) -> Option<Self> {
        match sent {
            Sent { grant: Some(claim), .. } => Some(Self::Grant(claim)),
            Sent { run: Some(run), .. } => Some(Self::Run(run)),
            Sent { cancel_requested: Some(attempt), .. } => Some(Self::CancelRequested(attempt)),
            Sent { lost: Some(attempt), .. } => Some(Self::Lost(attempt)),
            Sent { drain: true, .. } => Some(Self::Drain),
            Sent { grant: None, run: None, cancel_requested: None, lost: None, drain: false } => {
                None
            }
        }
    }
}

impl From<&Holding> for Held {
    fn from(held: &Holding) -> Self {
        Self {
            session_id: held.task.session_id.clone(),
            task_id: held.task.task_id.clone(),
            run_id: held.run_id,
            attempt_id: held.attempt_id,
            fencing_token: held.fencing_token,
        }
    }
}

impl From<Held> for Holding {
    /// How long its lease lasts a scheduler knows by itself.
    fn from(held: Held) -> Self {
        Self {
            task: TaskKey { session_id: held.session_id, task_id: held.task_id },
            run_id: held.run_id,
            attempt_id: held.attempt_id,
            fencing_token: held.fencing_token,
            lease_ms: 0,
        }
    }
}

impl Pulse {
    /// What is said of an Attempt whose lease lasts so long if it was renewed; none where nothing is
    /// known.
    pub fn said(self, attempt_id: AttemptId, lease_ms: u64) -> Option<Said> {
        match self {
            Self::Renewed { cancel_requested } => {
                Some(Said { attempt_id, lease_ms: Some(lease_ms), cancel_requested, error: None })
            }
            Self::Lost(refused) => {
                let error = Some(refused);
                Some(Said { attempt_id, lease_ms: None, cancel_requested: false, error })
            }
            Self::Unknown => None,
        }
    }

    /// What was said.
    pub fn of(said: Said) -> Self {
        match (said.lease_ms, said.error) {
            (Some(_), _) => Self::Renewed { cancel_requested: said.cancel_requested },
            (None, Some(refused)) => Self::Lost(refused),
            (None, None) => Self::Lost(Rejection::new(Code::StaleAttempt, "the attempt is over")),
        }
    }
}

impl Recorded {
    /// What is said of a report.
    pub fn said(result: Result<Self, Rejection>) -> ReportResult {
        match result {
            Ok(Self { version, cancel_requested }) => {
                ReportResult { version: Some(version), cancel_requested, error: None }
            }
            Err(error) => {
                ReportResult { version: None, cancel_requested: false, error: Some(error) }
            }
        }
    }

    /// What was said of a report.
    ///
    /// # Errors
    /// Why it does not count; `unavailable` if that was not said.
    pub fn of(result: ReportResult) -> Result<Self, Rejection> {
        let ReportResult { version, cancel_requested, error } = result;
        match (error, version) {
            (Some(refused), _) => Err(refused),
            (None, Some(version)) => Ok(Self { version, cancel_requested }),
            (None, None) => Err(Rejection::new(Code::Unavailable, "the report is not durable yet")),
        }
    }
}
