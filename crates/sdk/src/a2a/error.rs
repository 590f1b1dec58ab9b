//! Why an agent cannot be asked, or does not do what it is asked for.

use serde_json::Value as Json;

use crate::http::HttpConnectError;

/// Why an agent refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerReason {
    /// It has no such task, as far as this caller may know.
    TaskNotFound,
    /// The task has ended.
    TaskNotCancelable,
    /// The agent or the task does not take this, or not now.
    Unsupported,
    /// It does not speak the version.
    VersionNotSupported,
    /// This caller may not do this.
    Denied,
    /// It cannot do this now; the same request may work later.
    Busy,
    /// It has failed, and does not say that the request is wrong.
    Broken,
    /// Anything else: the request is wrong.
    Other,
}

use PeerReason as R;

/// The reasons by their codes in JSON-RPC, and by their names in HTTP+JSON.
const REASONS: [(i64, &str, PeerReason); 7] = [
    (-32001, "TASK_NOT_FOUND", R::TaskNotFound),
    (-32002, "TASK_NOT_CANCELABLE", R::TaskNotCancelable),
    (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", R::Unsupported),
    (-32004, "UNSUPPORTED_OPERATION", R::Unsupported),
    (-32006, "INVALID_AGENT_RESPONSE", R::Broken),
    (-32009, "VERSION_NOT_SUPPORTED", R::VersionNotSupported),
    (-32603, "INTERNAL", R::Broken),
];

impl PeerReason {
    /// The reason in an `error` object, of JSON-RPC or of HTTP+JSON.
    fn of(error: &Json) -> Self {
        let details = error.get("data").or_else(|| error.get("details"));
        let details = details.and_then(Json::as_array).into_iter().flatten();
        let named = details.filter_map(|it| it.get("reason").and_then(Json::as_str)).next();
        match named {
            Some("PERMISSION_DENIED" | "UNAUTHENTICATED") => return Self::Denied,
            Some("UNAVAILABLE") => return Self::Busy,
            _ => {}
        }
        let code = error.get("code").and_then(Json::as_i64);
        let known =
            |(rpc, name, _): &&(i64, &str, Self)| Some(*rpc) == code || Some(*name) == named;
        let found = REASONS.iter().find(known).map(|(_, _, reason)| *reason);
        found.unwrap_or_else(|| code.map_or(Self::Other, Self::of_status))
    }

    /// The reason that the status of an answer gives.
    pub(super) const fn of_status(status: i64) -> Self {
        match status {
            401 | 403 => Self::Denied,
            408 | 429 | 502..=504 => Self::Busy,
            404 => Self::TaskNotFound,
            500 => Self::Broken,
            _ => Self::Other,
        }
    }
}

/// Why there is no answer of an agent, or a refusal.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The address is malformed, or cannot be used.
    #[error("{address:?} is not the address of an agent: {why}")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// The host is not among those that may be reached.
    #[error("the host {0} may not be reached from here")]
    Host(String),
    /// There is no card, or none that can be used.
    #[error("there is no card of an agent at {address}: {why}")]
    Card {
        /// Where it was looked for.
        address: String,
        /// What is wrong.
        why: String,
    },
    /// There is a card, but nothing that it offers is spoken here, or not the version that is wanted.
    #[error("the card at {address} offers {offered}; {needed} is needed")]
    Offer {
        /// Where the card is.
        address: String,
        /// What it offers.
        offered: String,
        /// What was looked for.
        needed: &'static str,
    },
    /// The token or the certificates of this caller cannot be used.
    #[error(transparent)]
    Access(HttpConnectError),
    /// The agent cannot be reached; nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// The answer is lost: the request may have taken effect.
    #[error("the answer of {address} is lost: {why}")]
    Lost {
        /// The agent.
        address: String,
        /// Why.
        why: String,
    },
    /// The agent sends its callers to another address.
    #[error("{address} answers with a redirect to {to}, which is not followed")]
    Redirect {
        /// The agent.
        address: String,
        /// Where it sends them.
        to: String,
    },
    /// The answer is none of A2A.
    #[error("{address} answers with something that is not A2A: {why}")]
    Malformed {
        /// The agent.
        address: String,
        /// What is wrong.
        why: String,
    },
    /// The agent refuses.
    #[error("the agent refuses: {message}")]
    Refused {
        /// Why, for programs.
        reason: PeerReason,
        /// The same for people.
        message: String,
    },
}

/// The longest text of an agent that goes into an error.
const SAID_MAX: usize = 1_000;

impl PeerError {
    /// Whether the same request may work later.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Lost { .. } => true,
            Self::Refused { reason, .. } => matches!(reason, PeerReason::Busy),
            Self::Address { .. }
            | Self::Host(_)
            | Self::Card { .. }
            | Self::Offer { .. }
            | Self::Access(_)
            | Self::Redirect { .. }
            | Self::Malformed { .. } => false,
        }
    }

    /// The reason of a refusal.
    pub const fn reason(&self) -> Option<PeerReason> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// A refusal as an agent wrote it.
    pub(super) fn refused(error: &Json) -> Self {
        let message = error.get("message").and_then(Json::as_str).unwrap_or("it does not say why");
        let message = message.chars().take(SAID_MAX).collect();
        Self::Refused { reason: PeerReason::of(error), message }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Both bindings say the same reasons, each in its own way.
    #[test]
    fn a_refusal_is_read_from_both_bindings() {
        let named = |name: &str| json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": name}]);
        for (error, reason) in [
            (json!({"code": -32001, "message": "no"}), R::TaskNotFound),
            (json!({"code": -32002, "message": "no", "data": []}), R::TaskNotCancelable),
            (json!({"code": 400, "details": named("TASK_NOT_CANCELABLE")}), R::TaskNotCancelable),
            (json!({"code": 404}), R::TaskNotFound),
            (json!({"code": -32603, "data": named("UNAVAILABLE")}), R::Busy),
            (json!({"code": -32600, "data": named("PERMISSION_DENIED")}), R::Denied),
            (json!({"code": -32603, "message": "Internal error"}), R::Broken),
            (json!({"code": 500, "status": "INTERNAL"}), R::Broken),
            (json!({"code": -32602, "message": "no"}), R::Other),
            (json!("what?"), R::Other),
        ] {
            assert_eq!(PeerError::refused(&error).reason(), Some(reason), "{error}");
        }
    }
}
