//! Refusals and troubles as statuses of gRPC, with what clients of MACP look for in them.

use tenure_core::{Code, Rejection};
use tenure_macp::{MacpCode, MacpRefusal, MacpReplayError};
use tonic::metadata::MetadataValue;
use tonic::{Code as GrpcCode, Status};

/// Where the code of a refusal stands.
const CODE: &str = "macp-error-code";

/// Where its details stand, as JSON.
const DETAILS: &str = "macp-error-details-bin";

/// The most characters of a message: it goes as a header, of which clients take some 8 KiB.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) enum MacpFault {
    /// The rules refuse it, and nothing has changed.
    Refused(MacpRefusal),
    /// The scheduler does not do what is needed.
    Trouble(Rejection),
}

/// What comes of a request.
pub(super) type MacpResult<T> = Result<T, MacpFault>;

impl From<MacpRefusal> for MacpFault {
    fn from(refusal: MacpRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Rejection> for MacpFault {
    fn from(refused: Rejection) -> Self {
        match refused.code {
            Code::BlobMissing => {
                Self::Refused(MacpRefusal::new(MacpCode::HistoryUnavailable, refused.message))
            }
            Code::QuotaExceeded | Code::ValueTooLarge => {
                Self::Refused(MacpRefusal::new(MacpCode::PayloadTooLarge, refused.message))
            }
            _ => Self::Trouble(refused),
        }
    }
}

impl From<MacpReplayError> for MacpFault {
    fn from(error: MacpReplayError) -> Self {
        tracing::error!(%error, "the facts of a session cannot be folded");
        let message = format!("the history of the session cannot be read: {error}");
        Self::Refused(MacpRefusal::new(MacpCode::HistoryUnavailable, message))
    }
}

impl From<MacpFault> for Status {
    fn from(fault: MacpFault) -> Self {
        match fault {
            MacpFault::Refused(refusal) => to_status(&refusal),
            MacpFault::Trouble(refused) => of_trouble(&refused),
        }
    }
}

/// A refusal as a status.
pub(super) fn to_status(refusal: &MacpRefusal) -> Status {
    with_code(GrpcCode::from_i32(refusal.code.grpc()), refusal)
}

/// A refusal as another status than its own.
pub(super) fn with_code(code: GrpcCode, refusal: &MacpRefusal) -> Status {
    let message: String = refusal.message.chars().take(MESSAGE_CHARS_MAX).collect();
    let mut status = Status::new(code, message);
    let metadata = status.metadata_mut();
    metadata.insert(CODE, MetadataValue::from_static(refusal.code.as_str()));
    let details = refusal.details();
    if !details.is_empty() {
        metadata.insert_bin(DETAILS, MetadataValue::from_bytes(&details));
    }
    status
}

/// What keeps the scheduler from answering. A client that comes back later is served, or is told more.
fn of_trouble(refused: &Rejection) -> Status {
    let passes = matches!(
        refused.code,
        Code::Unavailable | Code::NotOwner | Code::StorageError | Code::StorageUnavailable
    );
    tracing::warn!(code = %refused.code, message = refused.message, "a message of MACP waits");
    if passes {
        return Status::unavailable("the scheduler cannot answer now; send it again");
    }
    let refusal = MacpRefusal::new(MacpCode::InternalError, refused.message.clone());
    to_status(&refusal)
}

#[cfg(test)]
mod tests {
    use tenure_macp::MacpDenial;

    use super::*;

    #[test]
    fn a_status_says_its_code_and_its_details() {
        let status = to_status(&MacpRefusal::new(MacpCode::SessionNotOpen, "it is over"));
        assert_eq!((status.code(), status.message()), (GrpcCode::FailedPrecondition, "it is over"));
        assert_eq!(status.metadata().get(CODE).unwrap(), "SESSION_NOT_OPEN");
        assert!(status.metadata().get_bin(DETAILS).is_none());
        let denial = MacpDenial { code: "output_required", message: "give one" };
        let status = to_status(&MacpRefusal::denied(denial));
        let details = status.metadata().get_bin(DETAILS).unwrap().to_bytes().unwrap();
        let details: serde_json::Value = serde_json::from_slice(&details).unwrap();
        assert_eq!(details["denials"][0]["code"], "output_required");
    }

    #[test]
    fn what_passes_is_unavailable() {
        let status = Status::from(MacpFault::from(Rejection::new(Code::Unavailable, "secret")));
        assert_eq!(status.code(), GrpcCode::Unavailable);
        let status = Status::from(MacpFault::from(Rejection::new(Code::InvalidTransition, "x")));
        assert_eq!(status.metadata().get(CODE).unwrap(), "INTERNAL_ERROR");
    }
}
