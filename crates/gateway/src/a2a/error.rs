//! [`A2aError`]: why a request is refused, as each binding of A2A says it.
//!
//! The tables are those of the protocol (sections 5.4, 9.5 and 11.6 of its specification). Beside the reason
//! of A2A an error names the code of Tenure, if it comes from there.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tenure_core::view::gateway::a2akit_name;
use tenure_core::{Code, Rejection};

use super::dialect::A2aDialect;
use crate::problem::HttpProblem;

/// Whose reasons these are.
pub(crate) const DOMAIN: &str = "a2a-protocol.org";

/// What an entry of details is.
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// The statuses of gRPC that errors have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrpcStatus {
    InvalidArgument = 3,
    NotFound = 5,
    PermissionDenied = 7,
    FailedPrecondition = 9,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl GrpcStatus {
    /// Its name.
    const fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::NotFound => "NOT_FOUND",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $rpc:literal, $http:ident, $status:ident, $reason:literal;)+) => {
        /// Why a request is refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum A2aReason {
            $($(#[$doc])* $variant,)+
        }

        impl A2aReason {
            /// All of them.
            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code in JSON-RPC.
            pub(crate) const fn rpc_code(self) -> i32 {
                match self { $(Self::$variant => $rpc,)+ }
            }

            /// The status in HTTP of 1.0.
            const fn http_status_v1(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$http,)+ }
            }

            /// The status of gRPC, which errors over HTTP name, too.
            pub(crate) const fn grpc_status(self) -> GrpcStatus {
                match self { $(Self::$variant => GrpcStatus::$status,)+ }
            }

            /// The name for programs.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $reason,)+ }
            }
        }
    };
}

reasons! {
    /// There is no such task, as far as the caller may know.
    TaskNotFound = -32001, NOT_FOUND, NotFound, "TASK_NOT_FOUND";
    /// The task has ended, and cannot be canceled.
    TaskNotCancelable = -32002, BAD_REQUEST, FailedPrecondition, "TASK_NOT_CANCELABLE";
    /// The agent does not call back.
    PushNotSupported = -32003, BAD_REQUEST, FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED";
    /// The agent or the task does not take this now.
    UnsupportedOperation = -32004, BAD_REQUEST, FailedPrecondition, "UNSUPPORTED_OPERATION";
    /// The body, or a part of the message, has a media type that is not taken.
    ContentTypeNotSupported = -32005, UNSUPPORTED_MEDIA_TYPE, InvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED";
    /// The worker of the agent has answered with something that cannot be shown.
    InvalidAgentResponse = -32006, INTERNAL_SERVER_ERROR, Internal, "INVALID_AGENT_RESPONSE";
    /// The agent has no extended card.
    NoExtendedCard = -32007, BAD_REQUEST, FailedPrecondition, "EXTENDED_AGENT_CARD_NOT_CONFIGURED";
    /// The caller does not know an extension that the agent cannot do without.
    ExtensionRequired = -32008, BAD_REQUEST, FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED";
    /// The agent does not speak this version of the protocol.
    VersionNotSupported = -32009, BAD_REQUEST, FailedPrecondition, "VERSION_NOT_SUPPORTED";
    /// The body is no JSON.
    Parse = -32700, BAD_REQUEST, InvalidArgument, "PARSE_ERROR";
    /// The body is no request.
    InvalidRequest = -32600, BAD_REQUEST, InvalidArgument, "INVALID_REQUEST";
    /// There is no such method.
    MethodNotFound = -32601, NOT_FOUND, NotFound, "METHOD_NOT_FOUND";
    /// A parameter is wrong or missing.
    InvalidParams = -32602, BAD_REQUEST, InvalidArgument, "INVALID_PARAMS";
    /// Nobody has authenticated the caller.
    Unauthenticated = -32600, UNAUTHORIZED, Unauthenticated, "UNAUTHENTICATED";
    /// The caller may not do this.
    Denied = -32600, FORBIDDEN, PermissionDenied, "PERMISSION_DENIED";
    /// It does not work now; the same request may work later.
    Unavailable = -32603, SERVICE_UNAVAILABLE, Unavailable, "UNAVAILABLE";
    /// It does not work.
    Internal = -32603, INTERNAL_SERVER_ERROR, Internal, "INTERNAL";
}

impl A2aReason {
    /// The status in HTTP. In 0.3 it is a conflict if something does not go with how a task stands.
    pub(crate) const fn http_status(self, dialect: A2aDialect) -> StatusCode {
        match (dialect, self) {
            (A2aDialect::V03, Self::TaskNotCancelable | Self::UnsupportedOperation) => {
                StatusCode::CONFLICT
            }
            _ => self.http_status_v1(),
        }
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct A2aError {
    /// Why.
    pub(crate) reason: A2aReason,
    /// The same for people.
    pub(crate) message: String,
    /// Names and texts for programs.
    pub(crate) metadata: BTreeMap<String, String>,
}

impl A2aError {
    /// A refusal.
    pub(crate) fn new(reason: A2aReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), metadata: BTreeMap::new() }
    }

    /// A parameter is wrong.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::new(A2aReason::InvalidParams, message).with("field", field)
    }

    /// There is no such task.
    pub(crate) fn no_task(id: &str) -> Self {
        let short: String = id.chars().take(80).collect();
        let message = format!("there is no task {short:?}");
        Self::new(A2aReason::TaskNotFound, message).with("taskId", &short)
    }

    /// The same refusal with one more text for programs.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// The `error` of an answer of JSON-RPC.
    pub(crate) fn to_rpc(&self) -> Json {
        let code = self.reason.rpc_code();
        json!({ "code": code, "message": self.message, "data": [self.info()] })
    }

    /// The body of an answer over HTTP. In 0.3 it is the `error` of JSON-RPC.
    pub(crate) fn to_http(&self, dialect: A2aDialect) -> Json {
        if dialect == A2aDialect::V03 {
            return self.to_rpc();
        }
        json!({ "error": {
            "code": self.reason.http_status_v1().as_u16(),
            "status": self.reason.grpc_status().name(),
            "message": self.message,
            "details": [self.info()],
        }})
    }

    fn info(&self) -> ErrorDetail<'_> {
        let (reason, metadata) = (self.reason.name(), &self.metadata);
        ErrorDetail { kind: ERROR_INFO, reason, domain: DOMAIN, metadata }
    }
}

/// An entry of details.
#[derive(Serialize)]
struct ErrorDetail<'a> {
    #[serde(rename = "@type")]
    kind: &'static str,
    reason: &'static str,
    domain: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: &'a BTreeMap<String, String>,
}

/// A2A-18: a refusal of the scheduler as the protocol's own error. Its metadata has the code, and the name
/// that a2akit has for it.
impl From<Rejection> for A2aError {
    fn from(refused: Rejection) -> Self {
        let error = Self::new(reason_of(refused.code), refused.message);
        let error = error.with("code", refused.code.as_str());
        match a2akit_name(refused.code) {
            Some(name) => error.with("error", name),
            None => error,
        }
    }
}

impl From<HttpProblem> for A2aError {
    fn from(problem: HttpProblem) -> Self {
        let unsupported = problem.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let error = Self::from(problem.rejection().clone());
        match unsupported {
            true => Self { reason: A2aReason::ContentTypeNotSupported, ..error },
            false => error,
        }
    }
}

const fn reason_of(code: Code) -> A2aReason {
    match code {
        Code::TaskNotFound => A2aReason::TaskNotFound,
        Code::ValidationError
        | Code::IdempotencyConflict
        | Code::TaskIdConflict
        | Code::ValueTooLarge => A2aReason::InvalidParams,
        Code::TaskTerminal
        | Code::TaskCancelling
        | Code::VersionConflict
        | Code::InvalidTransition
        | Code::StepInProgress
        | Code::StepHistoryImmutable => A2aReason::UnsupportedOperation,
        Code::PermissionDenied | Code::ToolNotAvailable => A2aReason::Denied,
        Code::Unauthenticated => A2aReason::Unauthenticated,
        // When some of the agent's tasks have ended, the same request works.
        Code::QuotaExceeded => A2aReason::Unavailable,
        _ if code.is_retryable() => A2aReason::Unavailable,
        _ => A2aReason::Internal,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// JSONRPC-SSE-002: each error of A2A has a code of its own, and all reasons have names.
    #[test]
    fn every_reason_has_its_codes() {
        let names: BTreeSet<_> = A2aReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), A2aReason::ALL.len());
        let codes: Vec<_> = A2aReason::ALL[..9].iter().map(|reason| reason.rpc_code()).collect();
        assert_eq!(codes, (1..10).map(|number| -32_000 - number).collect::<Vec<i32>>());
    }

    #[test]
    fn an_error_is_written_as_its_binding_says() {
        let error = A2aError::no_task("t");
        let info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "TASK_NOT_FOUND",
            "domain": "a2a-protocol.org",
            "metadata": {"taskId": "t"},
        });
        let message = "there is no task \"t\"";
        let rpc = json!({"code": -32001, "message": message, "data": [info]});
        assert_eq!(error.to_rpc(), rpc);
        let http =
            json!({"code": 404, "status": "NOT_FOUND", "message": message, "details": [info]});
        assert_eq!(error.to_http(A2aDialect::V1), json!({"error": http}));
        assert_eq!(error.to_http(A2aDialect::V03), error.to_rpc());
    }

    /// A2A-18: what the scheduler refuses becomes an error of the protocol, with the name of a2akit if it has
    /// one.
    #[test]
    fn refusals_become_errors_of_the_protocol() {
        for (code, reason, name) in [
            (Code::TaskTerminal, "UNSUPPORTED_OPERATION", Some("TaskTerminalStateError")),
            (Code::VersionConflict, "UNSUPPORTED_OPERATION", Some("ConcurrencyError")),
            (Code::InvalidTransition, "UNSUPPORTED_OPERATION", None),
            (Code::TaskNotFound, "TASK_NOT_FOUND", None),
            (Code::ValidationError, "INVALID_PARAMS", None),
            (Code::PermissionDenied, "PERMISSION_DENIED", None),
            (Code::Unavailable, "UNAVAILABLE", None),
            (Code::QuotaExceeded, "UNAVAILABLE", None),
            (Code::BlobMissing, "INTERNAL", None),
        ] {
            let error = A2aError::from(Rejection::new(code, "why"));
            let written = error.to_rpc();
            let info = &written["data"][0];
            assert_eq!(info["reason"], reason, "{code}");
            assert_eq!(info["metadata"]["code"], code.as_str());
            assert_eq!(info["metadata"]["error"].as_str(), name, "{code}");
        }
    }
}
