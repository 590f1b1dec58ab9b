//! The versions of the protocol: how each names methods, and writes what all mean alike.

use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tenure_core::view::gateway::A2aState;

use super::error::{A2aError, A2aReason};
use super::map::{has_ended, is_settled};
use super::wire::{
    A2aList, A2aPushConfig, A2aPushPage, A2aReply, A2aTask, A2aTaskPage, A2aUpdate, v03,
};
use crate::api::Parameters;

/// The header, or the parameter, in which a caller says which version it speaks.
const VERSION: &str = "A2A-Version";

/// A version of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum A2aDialect {
    /// 1.0.
    #[default]
    #[serde(rename = "1.0")]
    V1,
    /// 0.3.
    #[serde(rename = "0.3")]
    V03,
}

/// A method, whatever a version calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aMethod {
    /// Takes a message.
    Send,
    /// Takes a message, and tells what comes of it.
    Stream,
    /// Gives a task.
    Get,
    /// Gives a page of tasks.
    List,
    /// Cancels a task.
    Cancel,
    /// Tells what happens to a task.
    Subscribe,
    /// Sends updates to an address.
    PushCreate,
    /// Gives a configuration of callbacks.
    PushGet,
    /// Gives all configurations of callbacks.
    PushList,
    /// Deletes a configuration of callbacks.
    PushDelete,
    /// Gives more of a card to those who have proved who they are.
    ExtendedCard,
}

use A2aDialect::{V1, V03};
use A2aMethod as M;

/// The names of all methods.
const METHODS: [(A2aDialect, &str, A2aMethod); 22] = [
    (V1, "SendMessage", M::Send),
    (V1, "SendStreamingMessage", M::Stream),
    (V1, "GetTask", M::Get),
    (V1, "ListTasks", M::List),
    (V1, "CancelTask", M::Cancel),
    (V1, "SubscribeToTask", M::Subscribe),
    (V1, "CreateTaskPushNotificationConfig", M::PushCreate),
    (V1, "GetTaskPushNotificationConfig", M::PushGet),
    (V1, "ListTaskPushNotificationConfigs", M::PushList),
    (V1, "DeleteTaskPushNotificationConfig", M::PushDelete),
    (V1, "GetExtendedAgentCard", M::ExtendedCard),
    (V03, "message/send", M::Send),
    (V03, "message/stream", M::Stream),
    (V03, "tasks/get", M::Get),
    // 0.3 has lists over HTTP+JSON alone, but a2akit asks for them here, too.
    (V03, "tasks/list", M::List),
    (V03, "tasks/cancel", M::Cancel),
    (V03, "tasks/resubscribe", M::Subscribe),
    (V03, "tasks/pushNotificationConfig/set", M::PushCreate),
    (V03, "tasks/pushNotificationConfig/get", M::PushGet),
    (V03, "tasks/pushNotificationConfig/list", M::PushList),
    (V03, "tasks/pushNotificationConfig/delete", M::PushDelete),
    (V03, "agent/getAuthenticatedExtendedCard", M::ExtendedCard),
];

impl A2aDialect {
    /// The method that this version calls so.
    pub(super) fn method(self, name: &str) -> Option<A2aMethod> {
        let found = METHODS.iter().find(|(of, known, _)| *of == self && *known == name);
        found.map(|(_, _, method)| *method)
    }

    /// The parameters of a method.
    ///
    /// # Errors
    /// They are not what the method takes.
    pub(super) fn params<T: DeserializeOwned>(
        self,
        method: A2aMethod,
        params: Json,
    ) -> Result<T, A2aError> {
        let params = match params {
            Json::Null => Json::Object(Map::new()),
            params => params,
        };
        let params = match (self, method) {
            (V03, M::Send | M::Stream) => v03::send_in(params),
            (V03, M::PushCreate) => v03::push_in(params),
            (V03, M::PushGet | M::PushList | M::PushDelete) => v03::push_name_in(params),
            _ => params,
        };
        serde_json::from_value(params)
            .map_err(|error| A2aError::new(A2aReason::InvalidParams, error.to_string()))
    }

    /// What a list is asked for, as 1.0 has it.
    pub(super) fn list(self, asked: A2aList) -> A2aList {
        match self {
            V1 => asked,
            V03 => v03::list_in(asked),
        }
    }

    /// The answer to a message.
    pub(super) fn reply(self, reply: &A2aReply) -> Json {
        match (self, reply) {
            (V1, reply) => json(reply),
            (V03, A2aReply::Task(task)) => v03::task(task),
            (V03, A2aReply::Message(message)) => v03::message(message),
        }
    }

    /// A task.
    pub(super) fn task(self, task: &A2aTask) -> Json {
        match self {
            V1 => json(task),
            V03 => v03::task(task),
        }
    }

    /// A page of tasks.
    pub(super) fn page(self, page: &A2aTaskPage) -> Json {
        let mut out = json(page);
        if self == V03 {
            out["tasks"] = page.tasks.iter().map(v03::task).collect();
        }
        out
    }

    /// Where a caller is called back.
    pub(super) fn push(self, config: &A2aPushConfig) -> Json {
        match self {
            V1 => json(config),
            V03 => v03::push(config),
        }
    }

    /// All places where a caller is called back.
    pub(super) fn pushes(self, page: &A2aPushPage) -> Json {
        match self {
            V1 => json(page),
            V03 => page.configs.iter().map(v03::push).collect(),
        }
    }

    /// The answer that something was deleted.
    pub(super) fn deleted(self) -> Json {
        match self {
            V1 => Json::Object(Map::new()),
            V03 => Json::Null,
        }
    }

    /// The media type of what is sent to a place where a caller is called back.
    pub(super) const fn push_media_type(self) -> &'static str {
        match self {
            V1 => "application/a2a+json",
            V03 => "application/json",
        }
    }

    /// The refusal of an extended card that there is not.
    pub(super) fn no_extended_card(self) -> A2aError {
        let reason = match self {
            V1 => A2aReason::UnsupportedOperation,
            V03 => A2aReason::NoExtendedCard,
        };
        A2aError::new(reason, "this agent has one card for all")
    }

    /// What a stream tells.
    pub(super) fn update(self, update: &A2aUpdate) -> Json {
        match self {
            V1 => json(update),
            V03 => v03::update(update),
        }
    }

    /// A2A-08: whether a stream ends in this state. In 1.0 it stays open while the agent waits for its caller; in
    /// 0.3 it ends then, too.
    pub(super) const fn ends(self, state: A2aState) -> bool {
        match self {
            V1 => has_ended(state),
            V03 => is_settled(state),
        }
    }
}

/// JSON of a type that has texts as keys, and so always a form.
pub(super) fn json(value: &impl Serialize) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}

/// The version that a request names; none: it names none.
///
/// # Errors
/// It is neither 1.0 nor 0.3.
pub(super) fn named_version(parts: &Parts) -> Result<Option<A2aDialect>, A2aError> {
    let in_header =
        parts.headers.get(VERSION).map(|value| value.to_str().unwrap_or("?").to_owned());
    let named = match in_header {
        Some(named) => Some(named),
        None => Parameters::read(parts.uri.query())?.take(VERSION)?,
    };
    let named = named.as_deref().map(str::trim).unwrap_or_default();
    match major_minor(named) {
        _ if named.is_empty() => Ok(None),
        "1.0" => Ok(Some(V1)),
        "0.3" => Ok(Some(V03)),
        _ => {
            let short: String = named.chars().take(20).collect();
            let message = format!("version {short} is not spoken here; 1.0 and 0.3 are");
            Err(A2aError::new(A2aReason::VersionNotSupported, message))
        }
    }
}

/// Refuses a request for another version at an address that speaks 1.0 alone. One that names none is for 1.0.
///
/// # Errors
/// It names another version.
pub(super) fn check_v1(parts: &Parts) -> Result<(), A2aError> {
    if named_version(parts)? == Some(V03) {
        let message = "this address speaks 1.0 alone";
        return Err(A2aError::new(A2aReason::VersionNotSupported, message));
    }
    Ok(())
}

/// A version without what stands behind its second number.
fn major_minor(version: &str) -> &str {
    let mut dots = version.match_indices('.');
    let end = dots.nth(1).map_or(version.len(), |(at, _)| at);
    &version[..end]
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[test]
    fn every_method_has_one_name_in_its_version() {
        for (of, name, method) in METHODS {
            assert_eq!(of.method(name), Some(method), "{name}");
            let other = if of == V1 { V03 } else { V1 };
            assert_eq!(other.method(name), None, "{name}");
        }
        assert_eq!(V1.method("sendMessage"), None);
    }

    /// VER-CLIENT-002: the third number of a version counts for nothing.
    #[test]
    fn a_version_is_named_by_a_header_or_a_parameter() {
        let named = |uri: &str, header: Option<&str>| {
            let mut request = Request::get(uri);
            if let Some(header) = header {
                request = request.header(VERSION, header);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            named_version(&parts).map_err(|error| error.reason)
        };
        for (uri, header, expected) in [
            ("/", None, Ok(None)),
            ("/", Some(""), Ok(None)),
            ("/", Some("1.0"), Ok(Some(V1))),
            ("/", Some("1.0.1"), Ok(Some(V1))),
            ("/", Some("0.3"), Ok(Some(V03))),
            ("/?A2A-Version=1.0", None, Ok(Some(V1))),
            ("/?A2A-Version=1.0", Some("0.3.0"), Ok(Some(V03))),
            ("/", Some("99.0"), Err(A2aReason::VersionNotSupported)),
            ("/", Some("1"), Err(A2aReason::VersionNotSupported)),
        ] {
            assert_eq!(named(uri, header), expected, "{uri} {header:?}");
        }
    }
}
