//! Codes of errors, and what a client is refused with.

use serde::Serialize;
use serde_json::json;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $grpc:literal;)*) => {
        /// A code of the protocol's registry of errors.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum MacpCode {
            $($(#[$doc])* $name,)*
        }

        impl MacpCode {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The code as it stands on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The number of the status of gRPC that goes with it.
            pub const fn grpc(self) -> i32 {
                match self { $(Self::$name => $grpc,)* }
            }
        }
    };
}

codes! {
    /// Who the caller is is not known, or is not whom the envelope names.
    Unauthenticated = "UNAUTHENTICATED", 16;
    /// The sender may not send this.
    Forbidden = "FORBIDDEN", 7;
    /// The policy of the session does not allow it. The details say why.
    PolicyDenied = "POLICY_DENIED", 7;
    /// There is no such session.
    SessionNotFound = "SESSION_NOT_FOUND", 5;
    /// There is no such policy.
    UnknownPolicyVersion = "UNKNOWN_POLICY_VERSION", 5;
    /// There is no such agent here.
    AgentNotFound = "AGENT_NOT_FOUND", 5;
    /// The session takes no messages: it is resolved, expired, suspended or cancelled.
    SessionNotOpen = "SESSION_NOT_OPEN", 9;
    /// Policies are read from a file, and not changed by clients.
    RegistryReadOnly = "REGISTRY_READ_ONLY", 9;
    /// The session's history is no longer there.
    HistoryUnavailable = "HISTORY_UNAVAILABLE", 9;
    /// There is no receipt for the session.
    ReceiptUnavailable = "RECEIPT_UNAVAILABLE", 9;
    /// A session with this id exists.
    SessionAlreadyExists = "SESSION_ALREADY_EXISTS", 6;
    /// A message with this id was accepted before. It is answered as a repetition, not with this code.
    DuplicateMessage = "DUPLICATE_MESSAGE", 6;
    /// The envelope or its payload is not as the mode asks, or does not fit the session.
    InvalidEnvelope = "INVALID_ENVELOPE", 3;
    /// The version of the protocol is not served.
    UnsupportedProtocolVersion = "UNSUPPORTED_PROTOCOL_VERSION", 3;
    /// The mode is not served.
    ModeNotSupported = "MODE_NOT_SUPPORTED", 3;
    /// The id of the session is neither a UUID of version 4 or 7 nor a long token.
    InvalidSessionId = "INVALID_SESSION_ID", 3;
    /// The policy is not well formed, or is one of another mode.
    InvalidPolicyDefinition = "INVALID_POLICY_DEFINITION", 3;
    /// A request that is no envelope is not well formed.
    InvalidRequest = "INVALID_REQUEST", 3;
    /// The payload is larger than allowed.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 8;
    /// The sender sends more than allowed.
    RateLimited = "RATE_LIMITED", 8;
    /// The reader of a stream was too slow.
    StreamLagged = "STREAM_LAGGED", 8;
    /// Something failed here.
    InternalError = "INTERNAL_ERROR", 13;
}

/// Why a policy does not allow something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MacpDenial {
    /// What programs look at, such as `output_required`.
    pub code: &'static str,
    /// What people read.
    pub message: &'static str,
}

/// A refusal: the request has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MacpRefusal {
    /// Its code.
    pub code: MacpCode,
    /// What is wrong, and what to do.
    pub message: String,
    /// Why the policy does not allow it, for [`MacpCode::PolicyDenied`].
    pub denials: Vec<MacpDenial>,
}

impl MacpRefusal {
    /// A refusal with a code and its reason.
    pub fn new(code: MacpCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), denials: Vec::new() }
    }

    /// The refusal of what a policy does not allow.
    pub fn denied(denial: MacpDenial) -> Self {
        let message = denial.message.to_owned();
        Self { code: MacpCode::PolicyDenied, message, denials: vec![denial] }
    }

    /// The details as JSON for `MACPError.details` and the trailer `macp-error-details-bin`. Empty if there are none.
    pub fn details(&self) -> Vec<u8> {
        if self.denials.is_empty() {
            return Vec::new();
        }
        let reasons: Vec<&str> = self.denials.iter().map(|it| it.message).collect();
        json!({ "reasons": reasons, "denials": self.denials }).to_string().into_bytes()
    }
}

/// INVALID_ENVELOPE with its reason.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, MacpRefusal> {
    Err(MacpRefusal::new(MacpCode::InvalidEnvelope, message))
}

/// FORBIDDEN with its reason.
pub(crate) fn forbidden<T>(message: impl Into<String>) -> Result<T, MacpRefusal> {
    Err(MacpRefusal::new(MacpCode::Forbidden, message))
}
