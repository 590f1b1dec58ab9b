//! 0.3 as the messages of its gRPC, written in JSON (ProtoJSON): the form in which the official SDKs speak 0.3 over
//! HTTP+JSON.
//!
//! It is close to 1.0. But a message has `content` where 1.0 has `parts`, files and data stand in objects of their
//! own, and a canceled task is `TASK_STATE_CANCELLED`.

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::{add, data_out, each, file_in, options_in, taken};
use crate::{A2aMessage, A2aPushConfig, A2aReply, A2aTask, A2aUpdate, is_settled};

/// The parameters of `POST /v1/message:send` and `POST /v1/message:stream`, as 1.0 has them.
pub fn send_in(mut params: Json) -> Json {
    rename(&mut params, "request", "message");
    params.get_mut("message").into_iter().for_each(message_in);
    if let Some(options) = params.get_mut("configuration") {
        rename(options, "push_notification", "pushNotificationConfig");
        rename(options, "pushNotification", "pushNotificationConfig");
    }
    options_in(params)
}

/// The body of `POST /v1/tasks/{id}/pushNotificationConfigs` with the task as `taskId`, as 1.0 has it. Some callers
/// send the whole request of gRPC, and others its field `config` alone.
pub fn push_in(mut params: Json) -> Json {
    let task = taken(&mut params, "taskId");
    let mut config = match taken(&mut params, "config") {
        Json::Null => params,
        config => config,
    };
    rename(&mut config, "push_notification_config", "pushNotificationConfig");
    if let Some(fields) = config.as_object_mut() {
        fields.insert("taskId".into(), task);
    }
    super::push_in(config)
}

fn message_in(message: &mut Json) {
    rename(message, "content", "parts");
    each(message, "parts", part_in);
}

fn part_in(part: &mut Json) {
    let Some(fields) = part.as_object_mut() else { return };
    if let Some(data) = fields.get_mut("data") {
        *data = taken(data, "data");
    }
    file_in(
        fields,
        &[
            ("fileWithBytes", "raw"),
            ("file_with_bytes", "raw"),
            ("fileWithUri", "url"),
            ("file_with_uri", "url"),
            ("mimeType", "mediaType"),
            ("mime_type", "mediaType"),
            ("name", "filename"),
        ],
    );
}

/// The answer to a message.
pub fn reply(reply: &A2aReply) -> Json {
    match reply {
        A2aReply::Task(it) => json!({ "task": task(it) }),
        A2aReply::Message(it) => json!({ "message": message(it) }),
    }
}

/// What a stream tells.
pub fn update(update: &A2aUpdate) -> Json {
    match update {
        A2aUpdate::Task(it) => json!({ "task": task(it) }),
        A2aUpdate::Message(it) => json!({ "message": message(it) }),
        A2aUpdate::StatusUpdate(it) => {
            let mut out = written(it);
            out.get_mut("status").into_iter().for_each(status_out);
            out["final"] = is_settled(it.status.state).into();
            json!({ "statusUpdate": out })
        }
        A2aUpdate::ArtifactUpdate(it) => {
            let mut out = written(it);
            out.get_mut("artifact").into_iter().for_each(artifact_out);
            json!({ "artifactUpdate": out })
        }
    }
}

/// A task.
pub fn task(task: &A2aTask) -> Json {
    let mut out = written(task);
    out.get_mut("status").into_iter().for_each(status_out);
    each(&mut out, "artifacts", artifact_out);
    each(&mut out, "history", message_out);
    out
}

fn message(message: &A2aMessage) -> Json {
    let mut out = written(message);
    message_out(&mut out);
    out
}

/// Where a caller is called back.
pub fn push(config: &A2aPushConfig) -> Json {
    let A2aPushConfig { task_id, id, .. } = config;
    let name = format!("tasks/{task_id}/pushNotificationConfigs/{id}");
    let config = taken(&mut super::push(config), "pushNotificationConfig");
    json!({ "name": name, "pushNotificationConfig": config })
}

/// The card of 0.3 in this form: it says otherwise how callers prove who they are.
pub fn card(mut card: Json) -> Json {
    let schemes = card.get_mut("securitySchemes").and_then(Json::as_object_mut);
    for scheme in schemes.into_iter().flat_map(Map::values_mut) {
        *scheme = json!({ "httpAuthSecurityScheme": { "scheme": scheme["scheme"] } });
    }
    each(&mut card, "security", |needed| {
        let named = needed.as_object().into_iter().flatten();
        let schemes = named.map(|(name, scopes)| (name.clone(), json!({ "list": scopes })));
        *needed = json!({ "schemes": schemes.collect::<Map<_, _>>() });
    });
    if let Some(capabilities) = card.get_mut("capabilities") {
        taken_out(capabilities, "stateTransitionHistory"); // This form does not know it.
    }
    card
}

fn status_out(status: &mut Json) {
    if status["state"] == "TASK_STATE_CANCELED" {
        status["state"] = "TASK_STATE_CANCELLED".into();
    }
    status.get_mut("message").into_iter().for_each(message_out);
}

fn message_out(message: &mut Json) {
    taken_out(message, "referenceTaskIds"); // This form does not know them.
    each(message, "parts", part_out);
    rename(message, "parts", "content");
}

fn artifact_out(artifact: &mut Json) {
    each(artifact, "parts", part_out);
}

fn part_out(part: &mut Json) {
    let Some(fields) = part.as_object_mut() else { return };
    let (name, media_type) = (fields.remove("filename"), fields.remove("mediaType"));
    if let Some(data) = fields.remove("data") {
        fields.insert("data".into(), json!({ "data": data_out(&data) }));
    }
    let bytes = fields.remove("raw").map(|bytes| ("fileWithBytes", bytes));
    let address = fields.remove("url").map(|address| ("fileWithUri", address));
    if let Some((holds, value)) = bytes.or(address) {
        let mut file = Map::new();
        file.insert(holds.into(), value);
        add(&mut file, "mimeType", media_type);
        add(&mut file, "name", name);
        fields.insert("file".into(), file.into());
    }
}

/// An object as 1.0 writes it.
fn written(object: &impl Serialize) -> Json {
    serde_json::to_value(object).unwrap_or_default()
}

fn rename(object: &mut Json, old: &str, new: &str) {
    if let Some(value) = taken_out(object, old) {
        object[new] = value;
    }
}

/// A field that is no longer there afterwards.
fn taken_out(object: &mut Json, name: &str) -> Option<Json> {
    object.as_object_mut().and_then(|fields| fields.remove(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{A2aArtifactUpdate, A2aSend};

    /// Every part is read as one of 1.0, and comes back the same; the names of the definition are read, too.
    #[test]
    fn parts_come_and_go_unchanged() {
        let given = json!([
            {"text": "hi", "metadata": {"a": 1}},
            {"file": {"fileWithBytes": "aGk=", "mimeType": "text/plain", "name": "hi.txt"}},
            {"file": {"fileWithUri": "https://example.org/a.png"}},
            {"data": {"data": {"a": [1]}}},
        ]);
        let message = json!({"messageId": "m", "role": "ROLE_USER", "content": given});
        let read = |params: Json| serde_json::from_value::<A2aSend>(send_in(params)).unwrap();
        let asked = read(json!({ "message": message }));
        assert_eq!(self::message(&asked.message), message);
        let file = json!({"file": {"file_with_bytes": "aGk=", "mime_type": "text/plain", "name": "hi.txt"}});
        let same = json!({"message_id": "m", "role": "ROLE_USER", "content": [file]});
        let same = read(json!({ "request": same }));
        assert_eq!(same.message.parts[0], asked.message.parts[1]);
    }

    /// Who does not say that it waits does not wait, and a configuration of callbacks comes with a message.
    #[test]
    fn a_message_says_what_is_done_with_it() {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "content": []});
        for (options, waits, url) in [
            (json!({}), false, None),
            (json!({"blocking": true, "pushNotification": {"url": "u"}}), true, Some("u")),
            (json!({"push_notification": {"url": "v"}}), false, Some("v")),
        ] {
            let asked = send_in(json!({"message": message, "configuration": options}));
            let asked: A2aSend = serde_json::from_value(asked).unwrap();
            let read = asked.configuration.unwrap();
            let push = read.task_push_notification_config.map(|config| config.url);
            assert_eq!((!read.return_immediately, push.as_deref()), (waits, url), "{options}");
        }
        for wrong in
            [json!(null), json!([]), json!("x"), json!({"message": 1}), json!({"request": [1]})]
        {
            assert!(serde_json::from_value::<A2aSend>(send_in(wrong)).is_err());
        }
    }

    /// A configuration has a name that says its task and its id. It is read whatever stands around it.
    #[test]
    fn configurations_come_and_go_unchanged() {
        let login = json!({"schemes": ["Bearer"], "credentials": "abc"});
        let inner = json!({"id": "c", "url": "https://a", "token": "t", "authentication": login});
        let name = "tasks/t1/pushNotificationConfigs/c";
        let config = json!({"name": name, "pushNotificationConfig": inner});
        let whole = json!({
            "taskId": "t1", "parent": "tasks/t1", "config_id": "c", "config": {"push_notification_config": inner},
        });
        let mut bare = config.clone();
        bare["taskId"] = "t1".into();
        for given in [whole, bare] {
            let read: A2aPushConfig = serde_json::from_value(push_in(given)).unwrap();
            assert_eq!(push(&read), config);
        }
        for wrong in [json!({"config": 1}), json!({"pushNotificationConfig": 1})] {
            assert!(serde_json::from_value::<A2aPushConfig>(push_in(wrong)).is_err());
        }
    }

    /// A2A-17, A2A-08: states are spelt as the definition has them, and a stream says where it ends.
    #[test]
    fn tasks_and_updates_are_written_as_the_definition_has_them() {
        let task = |state: &str, said: &str| {
            json!({
                "id": "t", "contextId": "c",
                "status": {
                    "state": state, "timestamp": "2026-03-12T08:30:00.250Z",
                    "message": {"messageId": "q", "role": "ROLE_AGENT", said: [{"text": "why?"}]},
                },
            })
        };
        let read: A2aTask = serde_json::from_value(task("TASK_STATE_CANCELED", "parts")).unwrap();
        let shown = task("TASK_STATE_CANCELLED", "content");
        assert_eq!(reply(&A2aReply::Task(read.clone())), json!({ "task": shown }));
        let told = json!({"taskId": "t", "contextId": "c", "status": written(&read.status)});
        let told = A2aUpdate::StatusUpdate(serde_json::from_value(told).unwrap());
        let expected =
            json!({"taskId": "t", "contextId": "c", "status": shown["status"], "final": true});
        assert_eq!(update(&told), json!({ "statusUpdate": expected }));
        let made = json!({
            "taskId": "t", "contextId": "c", "append": true,
            "artifact": {"artifactId": "a", "parts": [{"data": 1}]},
        });
        let made: A2aArtifactUpdate = serde_json::from_value(made).unwrap();
        let parts =
            update(&A2aUpdate::ArtifactUpdate(made))["artifactUpdate"]["artifact"]["parts"].take();
        assert_eq!(parts, json!([{"data": {"data": {"value": 1}}}]));
    }

    #[test]
    fn a_card_says_how_callers_prove_who_they_are() {
        let given = json!({
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "security": [{"bearer": []}],
            "capabilities": {"streaming": true, "stateTransitionHistory": false},
        });
        let expected = json!({
            "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
            "security": [{"schemes": {"bearer": {"list": []}}}],
            "capabilities": {"streaming": true},
        });
        assert_eq!(card(given), expected);
    }
}
