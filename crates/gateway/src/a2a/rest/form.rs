//! [`RestForm`]: how objects are written over HTTP+JSON.

use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::a2a::dialect::{A2aDialect, A2aMethod};
use crate::a2a::error::{A2aError, A2aReason};
use crate::a2a::wire::{
    A2aList, A2aPushConfig, A2aPushPage, A2aReply, A2aTask, A2aTaskPage, A2aUpdate, v03::proto,
};

/// How objects are written over HTTP+JSON. The address says which form it is, as most requests have no body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RestForm {
    /// 1.0.
    #[default]
    V1,
    /// 0.3, with the objects of its JSON-RPC.
    V03,
    /// 0.3, with the messages of its gRPC in JSON.
    V03Proto,
}

impl RestForm {
    /// The version of the protocol.
    pub(super) const fn dialect(self) -> A2aDialect {
        match self {
            Self::V1 => A2aDialect::V1,
            Self::V03 | Self::V03Proto => A2aDialect::V03,
        }
    }

    /// The parameters of a method that come as a body.
    ///
    /// # Errors
    /// They are not what the method takes, or a message has the other form of 0.3.
    pub(super) fn params<T: DeserializeOwned>(
        self,
        method: A2aMethod,
        params: Json,
    ) -> Result<T, A2aError> {
        self.check_message(&params)?;
        match (self, method) {
            (Self::V03Proto, A2aMethod::Send | A2aMethod::Stream) => {
                A2aDialect::V1.params(method, proto::send_in(params))
            }
            (Self::V03Proto, A2aMethod::PushCreate) => {
                A2aDialect::V1.params(method, proto::push_in(params))
            }
            _ => self.dialect().params(method, params),
        }
    }

    /// Who sends one form of 0.3 to the address of the other is told where it belongs.
    fn check_message(self, params: &Json) -> Result<(), A2aError> {
        let (other, hint) = match self {
            Self::V1 => return Ok(()),
            Self::V03 => ("content", "a message with `content` goes to the same path below /v1"),
            Self::V03Proto => ("parts", "a message with `parts` goes to the same path without /v1"),
        };
        let has_other = params["message"].get(other).is_some();
        if has_other { Err(A2aError::invalid("message", hint)) } else { Ok(()) }
    }

    /// What a list is asked for, as 1.0 has it.
    pub(super) fn list(self, asked: A2aList) -> A2aList {
        self.dialect().list(asked)
    }

    /// The answer to a message.
    pub(super) fn reply(self, reply: &A2aReply) -> Json {
        match self {
            Self::V03Proto => proto::reply(reply),
            Self::V1 | Self::V03 => self.dialect().reply(reply),
        }
    }

    /// A task.
    pub(super) fn task(self, task: &A2aTask) -> Json {
        match self {
            Self::V03Proto => proto::task(task),
            Self::V1 | Self::V03 => self.dialect().task(task),
        }
    }

    /// A page of tasks.
    pub(super) fn page(self, page: &A2aTaskPage) -> Json {
        let mut out = self.dialect().page(page);
        if self == Self::V03Proto {
            out["tasks"] = page.tasks.iter().map(proto::task).collect();
        }
        out
    }

    /// Where a caller is called back.
    pub(super) fn push(self, config: &A2aPushConfig) -> Json {
        match self {
            Self::V03Proto => proto::push(config),
            Self::V1 | Self::V03 => self.dialect().push(config),
        }
    }

    /// All places where a caller is called back.
    pub(super) fn pushes(self, page: &A2aPushPage) -> Json {
        match self {
            Self::V03Proto => {
                json!({ "configs": page.configs.iter().map(proto::push).collect::<Vec<_>>() })
            }
            Self::V1 | Self::V03 => self.dialect().pushes(page),
        }
    }

    /// What a stream tells.
    pub(super) fn update(self, update: &A2aUpdate) -> Json {
        match self {
            Self::V03Proto => proto::update(update),
            Self::V1 | Self::V03 => self.dialect().update(update),
        }
    }

    /// The card of an agent, as its version has it.
    pub(super) fn card(self, card: Json) -> Json {
        if self == Self::V03Proto { proto::card(card) } else { card }
    }

    /// The body of a refusal. The SDK for Python goes by its `type`, and that for JavaScript by its `code`.
    pub(super) fn refusal(self, error: &A2aError) -> Json {
        let mut out = error.to_http(self.dialect());
        if self == Self::V03Proto {
            out["type"] = type_name(error.reason).into();
        }
        out
    }
}

/// The name that SDKs have for an error, such as `TaskNotFoundError`.
fn type_name(reason: A2aReason) -> String {
    let name = reason.name();
    let words = name.strip_suffix("_ERROR").unwrap_or(name).split('_');
    let lower_behind_first = |(at, letter): (usize, char)| match at {
        0 => letter,
        _ => letter.to_ascii_lowercase(),
    };
    let letters = words.flat_map(|word| word.chars().enumerate().map(lower_behind_first));
    letters.chain("Error".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_names_of_sdks() {
        for (reason, name) in [
            (A2aReason::TaskNotFound, "TaskNotFoundError"),
            (A2aReason::PushNotSupported, "PushNotificationNotSupportedError"),
            (A2aReason::NoExtendedCard, "ExtendedAgentCardNotConfiguredError"),
            (A2aReason::InvalidParams, "InvalidParamsError"),
            (A2aReason::Internal, "InternalError"),
            (A2aReason::Parse, "ParseError"),
        ] {
            assert_eq!(type_name(reason), name);
        }
    }
}
