//! Conversion between the values of the bus and the messages of `tenure-wire`, the same for every
//! adapter that encodes them.

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
            Delivery::CancelRequested(attempt, time_left_ms) => {
                Self { cancel_requested: Some(attempt), time_left_ms, ..nothing }
            }
            Delivery::Lost(attempt) => Self { lost: Some(attempt), ..nothing },
            Delivery::Input(input) => Self { input: Some(input), ..nothing },
            Delivery::Drain(time_left_ms) => Self { drain: true, time_left_ms, ..nothing },
            Delivery::ReadOutput(asked) => Self { read_output: Some(asked), ..nothing },
        }
    }
}

impl Delivery {
    /// The delivery in a message; `None` if the message holds nothing that this version knows.
    pub fn of(sent: Sent) -> Option<Self> {
        match sent {
            Sent { grant: Some(claim), .. } => Some(Self::Grant(claim)),
            Sent { run: Some(run), .. } => Some(Self::Run(run)),
            Sent { cancel_requested: Some(attempt), time_left_ms, .. } => {
                Some(Self::CancelRequested(attempt, time_left_ms))
            }
            Sent { lost: Some(attempt), .. } => Some(Self::Lost(attempt)),
            Sent { input: Some(input), .. } => Some(Self::Input(input)),
            Sent { drain: true, time_left_ms, .. } => Some(Self::Drain(time_left_ms)),
            Sent { read_output: Some(asked), .. } => Some(Self::ReadOutput(asked)),
            Sent {
                grant: None,
                run: None,
                cancel_requested: None,
                lost: None,
                input: None,
                read_output: None,
                ..
            } => None,
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
            input_seen: held.input_seen,
        }
    }
}

impl From<Held> for Holding {
    /// The message carries no lease duration, as the scheduler knows it: `lease_ms` is 0.
    fn from(held: Held) -> Self {
        Self {
            task: TaskKey { session_id: held.session_id, task_id: held.task_id },
            run_id: held.run_id,
            attempt_id: held.attempt_id,
            fencing_token: held.fencing_token,
            lease_ms: 0,
            input_seen: held.input_seen,
        }
    }
}

impl Pulse {
    /// The wire form of this answer for an Attempt. `lease_ms` is how long its lease lasts if it was
    /// renewed. `None` for [`Unknown`](Self::Unknown): the answer then does not mention the Attempt.
    pub fn said(self, attempt_id: AttemptId, lease_ms: u64) -> Option<Said> {
        match self {
            Self::Renewed { cancel_requested, time_left_ms } => Some(Said {
                attempt_id,
                lease_ms: Some(lease_ms),
                cancel_requested,
                time_left_ms,
                error: None,
            }),
            Self::Lost(refused) => Some(Said {
                attempt_id,
                lease_ms: None,
                cancel_requested: false,
                time_left_ms: None,
                error: Some(refused),
            }),
            Self::Unknown => None,
        }
    }

    /// Reads the wire form.
    pub fn of(said: Said) -> Self {
        match (said.lease_ms, said.error) {
            (Some(_), _) => Self::Renewed {
                cancel_requested: said.cancel_requested,
                time_left_ms: said.time_left_ms,
            },
            (None, Some(refused)) => Self::Lost(refused),
            (None, None) => Self::Lost(Rejection::new(Code::StaleAttempt, "the attempt is over")),
        }
    }
}

impl Recorded {
    /// The wire form of the answer to a report.
    pub fn said(result: Result<Self, Rejection>) -> ReportResult {
        match result {
            Ok(Self { version, cancel_requested, time_left_ms }) => {
                let version = Some(version);
                ReportResult { version, cancel_requested, time_left_ms, error: None }
            }
            Err(error) => ReportResult {
                version: None,
                cancel_requested: false,
                time_left_ms: None,
                error: Some(error),
            },
        }
    }

    /// Reads the wire form of the answer to a report.
    ///
    /// # Errors
    /// Why the report does not count; `unavailable` if the answer names neither a version nor an error.
    pub fn of(result: ReportResult) -> Result<Self, Rejection> {
        let ReportResult { version, cancel_requested, time_left_ms, error } = result;
        match (error, version) {
            (Some(refused), _) => Err(refused),
            (None, Some(version)) => Ok(Self { version, cancel_requested, time_left_ms }),
            (None, None) => Err(Rejection::new(Code::Unavailable, "the report is not durable yet")),
        }
    }
}
