//! Why a tool cannot be called, or a call has no answer.

use serde_json::Value as Json;

/// The longest text of a server that goes into an error.
const SAID_MAX: usize = 1_000;

/// Why there is no answer of a server, or a refusal. One error may end many calls, so it can be cloned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ToolError {
    /// Nothing was sent: the program cannot be started, or the address cannot be reached.
    #[error("the server {server} cannot be reached: {why}")]
    Unreachable {
        /// The name of the server.
        server: String,
        /// Why.
        why: String,
    },
    /// The settings of the server, its token or its certificates cannot be used.
    #[error("the settings of the server {server} cannot be used: {why}")]
    Access {
        /// The name of the server.
        server: String,
        /// Why.
        why: String,
    },
    /// The answer is lost: the request may have taken effect.
    #[error("the answer of the server {server} is lost: {why}")]
    Lost {
        /// The name of the server.
        server: String,
        /// Why.
        why: String,
    },
    /// The server gave no sign of life for too long: the request may have taken effect.
    #[error("the server {server} has said nothing for {seconds} s")]
    Silent {
        /// The name of the server.
        server: String,
        /// For how long.
        seconds: u64,
    },
    /// A message is longer than it may be.
    #[error("a message of the server {server} has more than {bytes_max} bytes (answer_bytes_max)")]
    TooLong {
        /// The name of the server.
        server: String,
        /// How long it may be.
        bytes_max: usize,
    },
    /// What comes is not MCP.
    #[error("the server {server} says something that is not MCP: {why}")]
    Malformed {
        /// The name of the server.
        server: String,
        /// What is wrong.
        why: String,
    },
    /// The server answers with a status of HTTP, and no message.
    #[error("the server {server} answers with status {status}")]
    Status {
        /// The name of the server.
        server: String,
        /// The status.
        status: u16,
    },
    /// The server does not know the session any more; nothing was done.
    #[error("the server {server} has ended the session")]
    SessionGone {
        /// The name of the server.
        server: String,
    },
    /// The server refuses, with an error of JSON-RPC.
    #[error("the server refuses ({code}): {message}")]
    Refused {
        /// The code.
        code: i64,
        /// The same for people.
        message: String,
        /// What stands beside it.
        data: Option<Json>,
    },
}

/// The server does not speak the version.
const UNSUPPORTED_VERSION: i64 = -32_022;

/// The server has failed, and does not say that the request is wrong.
const INTERNAL: i64 = -32_603;

impl ToolError {
    /// Whether nothing was done, so that the same request may be sent again at any time.
    pub const fn is_unsent(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::SessionGone { .. } => true,
            Self::Status { status, .. } => matches!(status, 429 | 503),
            _ => false,
        }
    }

    /// Whether the same request may work later. A token that is refused may be one that has just been changed, at the
    /// server or here.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::Silent { .. }
            | Self::SessionGone { .. } => true,
            Self::Status { status, .. } => matches!(status, 401 | 408 | 429 | 500 | 502..=504),
            Self::Refused { code, .. } => *code == INTERNAL,
            Self::Access { .. } | Self::TooLong { .. } | Self::Malformed { .. } => false,
        }
    }

    /// Whether the connection cannot be used any more.
    pub const fn ends_link(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Whether this answer to the first request says that the server speaks an older version of the protocol.
    pub(super) const fn is_of_older(&self) -> bool {
        match self {
            // These two are said by servers of the new version alone.
            Self::Refused { code, .. } => !matches!(code, -32_020 | -32_021),
            Self::Status { status, .. } => matches!(status, 400 | 404 | 405 | 406 | 415 | 422),
            Self::Silent { .. } | Self::Lost { .. } => true,
            _ => false,
        }
    }

    /// A refusal as a server wrote it.
    pub(super) fn refused(error: &Json) -> Self {
        let code = error.get("code").and_then(Json::as_i64).unwrap_or(INTERNAL);
        let message = error.get("message").and_then(Json::as_str);
        let message = message.unwrap_or("it does not say why").chars().take(SAID_MAX).collect();
        let data = error.get("data").filter(|_| code == UNSUPPORTED_VERSION).cloned();
        Self::Refused { code, message, data }
    }
}
