//! The side of a caller: what it sends to an agent of 0.3, and what such an agent answers.

use serde_json::{Error, Map, Value as Json, json};

use super::{add, each, list, message, message_in, object, part_in, state_in};
use crate::{A2aReply, A2aSend, A2aTask, A2aUpdate, state_to_wire};

/// The parameters of `message/send`, as an agent of 0.3 takes them.
pub fn send_out(asked: &A2aSend) -> Json {
    let given = asked.configuration.as_ref();
    let mut options = Map::new();
    options.insert("blocking".into(), given.is_none_or(|it| !it.return_immediately).into());
    let modes = given.and_then(|it| list(&it.accepted_output_modes, |mode| Json::from(&**mode)));
    add(&mut options, "acceptedOutputModes", modes);
    add(&mut options, "historyLength", given.and_then(|it| it.history_length).map(Json::from));
    let mut out = Map::new();
    out.insert("message".into(), message(&asked.message));
    out.insert("configuration".into(), options.into());
    add(&mut out, "metadata", asked.metadata.as_ref().map(object));
    out.into()
}

/// The task that an agent of 0.3 shows.
///
/// # Errors
/// It is no task.
pub fn task_in(mut given: Json) -> Result<A2aTask, Error> {
    task_fields_in(&mut given);
    serde_json::from_value(given)
}

/// The answer of an agent of 0.3 to a message.
///
/// # Errors
/// It is neither a task nor a message.
pub fn reply_in(mut given: Json) -> Result<A2aReply, Error> {
    if kind_of(&given) == Some("message") {
        message_in(&mut given);
        return serde_json::from_value(given).map(A2aReply::Message);
    }
    task_in(given).map(A2aReply::Task)
}

/// What a stream of an agent of 0.3 tells.
///
/// # Errors
/// It is no update.
pub fn update_in(mut given: Json) -> Result<A2aUpdate, Error> {
    match kind_of(&given) {
        Some("status-update") => {
            given.get_mut("status").into_iter().for_each(status_in);
            serde_json::from_value(given).map(A2aUpdate::StatusUpdate)
        }
        Some("artifact-update") => {
            given.get_mut("artifact").into_iter().for_each(artifact_in);
            serde_json::from_value(given).map(A2aUpdate::ArtifactUpdate)
        }
        _ => reply_in(given).map(|reply| match reply {
            A2aReply::Task(task) => A2aUpdate::Task(task),
            A2aReply::Message(message) => A2aUpdate::Message(message),
        }),
    }
}

fn kind_of(given: &Json) -> Option<&str> {
    given.get("kind").and_then(Json::as_str)
}

fn task_fields_in(task: &mut Json) {
    task.get_mut("status").into_iter().for_each(status_in);
    each(task, "artifacts", artifact_in);
    each(task, "history", message_in);
}

fn status_in(status: &mut Json) {
    if let Some(state) = status.get_mut("state") {
        let known = state.as_str().and_then(state_in);
        // A state that nobody knows is refused with the rest of what is wrong.
        *state = known.map_or(Json::Null, |known| json!(state_to_wire(known)));
    }
    status.get_mut("message").into_iter().for_each(message_in);
}

fn artifact_in(artifact: &mut Json) {
    each(artifact, "parts", part_in);
}

#[cfg(test)]
mod tests {
    use super::super::{task, update};
    use super::*;
    use crate::{A2aMessage, A2aPart, A2aRole, A2aSendConfiguration};

    /// What an agent writes for callers of 0.3 is read as what it meant.
    #[test]
    fn what_an_agent_writes_is_read_again() {
        let shown = json!({
            "id": "t", "contextId": "c",
            "status": {
                "state": "TASK_STATE_INPUT_REQUIRED",
                "timestamp": "2026-03-12T08:30:00.250Z",
                "message": {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "where to?"}]},
            },
            "artifacts": [{"artifactId": "a", "parts": [{"raw": "aGk=", "mediaType": "text/plain"}]}],
            "history": [{"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"a": 1}}]}],
        });
        let shown: A2aTask = serde_json::from_value(shown).unwrap();
        assert_eq!(task_in(task(&shown)).unwrap(), shown);
        assert_eq!(reply_in(task(&shown)).unwrap(), A2aReply::Task(shown.clone()));
        let (task_id, context_id) = (shown.id.clone(), shown.context_id.clone());
        let status = json!({"taskId": task_id, "contextId": context_id, "status": shown.status});
        let artifact = json!({
            "taskId": task_id, "contextId": context_id, "artifact": shown.artifacts[0], "append": true,
        });
        for given in [json!({"statusUpdate": status}), json!({ "artifactUpdate": artifact })] {
            let given: A2aUpdate = serde_json::from_value(given).unwrap();
            assert_eq!(update_in(update(&given)).unwrap(), given);
        }
    }

    /// In 0.3 a caller says that it waits.
    #[test]
    fn a_message_goes_out_as_0_3_has_it() {
        let message = A2aMessage {
            message_id: "m".into(),
            role: A2aRole::User,
            parts: vec![A2aPart::text("hi")],
            ..A2aMessage::default()
        };
        let options = A2aSendConfiguration { return_immediately: true, ..Default::default() };
        let out = send_out(&A2aSend { message, configuration: Some(options), metadata: None });
        let said = json!({
            "kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}],
        });
        assert_eq!(out, json!({"message": said, "configuration": {"blocking": false}}));
    }

    #[test]
    fn what_is_no_task_is_refused() {
        let unknown = json!({"id": "t", "contextId": "c", "status": {"state": "unknown"}});
        for given in [json!(null), json!({}), json!({"kind": "message"}), unknown] {
            assert!(update_in(given.clone()).is_err(), "{given}");
        }
    }
}
