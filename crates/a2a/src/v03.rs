//! A2A 0.3, written from and read into the types of 1.0.
//!
//! It marks what a union holds by `kind`, spells states in lower case, puts files into an object of their
//! own, and says with `final` that a stream ends. Over HTTP+JSON it has another form, too ([`proto`]).

mod client;
pub mod proto;

use serde_json::{Map, Value as Json, json};
use tenure_core::view::gateway::A2aState;

use super::{
    A2aArtifact, A2aContent, A2aList, A2aMessage, A2aMetadata, A2aPart, A2aPushConfig, A2aRole,
    A2aTask, A2aTaskStatus, A2aUpdate, is_settled, state_to_wire,
};

pub use self::client::{reply_in, send_out, task_in, update_in};

/// What a configuration of callbacks is called that its caller has not named.
const ONLY_CONFIG: &str = "default";

/// The parameters of `message/send` and `message/stream`, as 1.0 has them.
pub fn send_in(mut params: Json) -> Json {
    params.get_mut("message").into_iter().for_each(message_in);
    options_in(params)
}

/// What is to be done with a message, as 1.0 has it.
fn options_in(mut params: Json) -> Json {
    if is_absent(&params, "configuration")
        && let Some(fields) = params.as_object_mut()
    {
        fields.insert("configuration".into(), json!({}));
    }
    if let Some(Json::Object(options)) = params.get_mut("configuration") {
        // Here a caller says that it waits; in 1.0 it says that it does not.
        let waits = options.remove("blocking").and_then(|blocking| blocking.as_bool());
        options.insert("returnImmediately".into(), (waits != Some(true)).into());
        if let Some(config) = options.remove("pushNotificationConfig") {
            options.insert("taskPushNotificationConfig".into(), config_in(config));
        }
    }
    params
}

/// The parameters of `tasks/pushNotificationConfig/set`, as 1.0 has them.
pub fn push_in(mut params: Json) -> Json {
    let task = taken(&mut params, "taskId");
    let mut config = match taken(&mut params, "pushNotificationConfig") {
        Json::Null => config_in(params), // Over HTTP+JSON some callers send it with nothing around it.
        config => config_in(config),
    };
    if let Some(config) = config.as_object_mut() {
        config.insert("taskId".into(), task);
    }
    config
}

/// What a list is asked for, as 1.0 has it.
pub fn list_in(asked: A2aList) -> A2aList {
    let state = asked.status.as_deref().and_then(state_in).map(|it| state_to_wire(it).to_owned());
    A2aList { status: state.or(asked.status), ..asked }
}

/// The parameters of the other methods of callbacks, as 1.0 has them.
pub fn push_name_in(mut params: Json) -> Json {
    let id = match taken(&mut params, "pushNotificationConfigId") {
        Json::Null => ONLY_CONFIG.into(),
        id => id,
    };
    json!({ "taskId": taken(&mut params, "id"), "id": id })
}

/// Whether a field is not there, or is null.
fn is_absent(params: &Json, name: &str) -> bool {
    params.get(name).is_none_or(Json::is_null)
}

/// A field, taken out; null if there is none.
fn taken(params: &mut Json, name: &str) -> Json {
    params.get_mut(name).map(Json::take).unwrap_or_default()
}

/// A configuration without an id is the only one of its task.
fn config_in(mut config: Json) -> Json {
    let is_unnamed = is_absent(&config, "id");
    let Some(fields) = config.as_object_mut() else { return config };
    if is_unnamed {
        fields.insert("id".into(), ONLY_CONFIG.into());
    }
    if let Some(Json::Object(login)) = fields.get_mut("authentication") {
        let schemes = login.remove("schemes").unwrap_or_default();
        let first = schemes.get(0).cloned();
        login.insert("scheme".into(), first.unwrap_or_default());
    }
    config
}

/// Where a caller is called back.
pub fn push(config: &A2aPushConfig) -> Json {
    let mut out = Map::new();
    out.insert("id".into(), (&*config.id).into());
    out.insert("url".into(), (&*config.url).into());
    add(&mut out, "token", config.token.as_deref().map(Json::from));
    let login = config.authentication.as_ref().map(|login| {
        let mut out = Map::new();
        out.insert("schemes".into(), json!([login.scheme]));
        add(&mut out, "credentials", login.credentials.as_deref().map(Json::from));
        out.into()
    });
    add(&mut out, "authentication", login);
    json!({ "taskId": config.task_id, "pushNotificationConfig": out })
}

fn message_in(message: &mut Json) {
    if let Some(role) = message.get_mut("role") {
        *role = match role.as_str() {
            Some("user") => "ROLE_USER".into(),
            Some("agent") => "ROLE_AGENT".into(),
            _ => Json::Null, // It is refused with the rest of what is wrong.
        };
    }
    each(message, "parts", part_in);
}

/// Changes each entry of a list that is a field.
fn each(object: &mut Json, field: &str, change: impl FnMut(&mut Json)) {
    object.get_mut(field).and_then(Json::as_array_mut).into_iter().flatten().for_each(change);
}

/// A file becomes a part with bytes or an address; other parts have their names already.
fn part_in(part: &mut Json) {
    let Some(fields) = part.as_object_mut() else { return };
    let kind = fields.remove("kind");
    if kind.as_ref().and_then(Json::as_str) != Some("file") {
        return;
    }
    let names = [("bytes", "raw"), ("uri", "url"), ("mimeType", "mediaType"), ("name", "filename")];
    file_in(fields, &names);
}

/// What stands in the object of a file goes into its part, under new names.
fn file_in(fields: &mut Map<String, Json>, names: &[(&str, &str)]) {
    let Some(Json::Object(mut file)) = fields.remove("file") else { return };
    for (name, new_name) in names {
        if let Some(value) = file.remove(*name) {
            fields.insert((*new_name).into(), value);
        }
    }
}

/// What a stream tells.
pub fn update(update: &A2aUpdate) -> Json {
    match update {
        A2aUpdate::Task(it) => task(it),
        A2aUpdate::Message(it) => message(it),
        A2aUpdate::StatusUpdate(it) => {
            let mut out = Map::new();
            out.insert("kind".into(), "status-update".into());
            out.insert("taskId".into(), (&*it.task_id).into());
            out.insert("contextId".into(), (&*it.context_id).into());
            out.insert("status".into(), status(&it.status));
            out.insert("final".into(), is_settled(it.status.state).into());
            add(&mut out, "metadata", it.metadata.as_ref().map(object));
            out.into()
        }
        A2aUpdate::ArtifactUpdate(it) => json!({
            "kind": "artifact-update",
            "taskId": it.task_id,
            "contextId": it.context_id,
            "artifact": artifact(&it.artifact),
            "append": it.append,
            "lastChunk": it.last_chunk,
        }),
    }
}

/// A task.
pub fn task(task: &A2aTask) -> Json {
    let mut out = Map::new();
    out.insert("kind".into(), "task".into());
    out.insert("id".into(), (&*task.id).into());
    out.insert("contextId".into(), (&*task.context_id).into());
    out.insert("status".into(), status(&task.status));
    add(&mut out, "artifacts", list(&task.artifacts, artifact));
    add(&mut out, "history", list(&task.history, message));
    add(&mut out, "metadata", task.metadata.as_ref().map(object));
    out.into()
}

/// A message.
pub fn message(message: &A2aMessage) -> Json {
    let mut out = Map::new();
    out.insert("kind".into(), "message".into());
    out.insert("messageId".into(), (&*message.message_id).into());
    let role = if message.role == A2aRole::User { "user" } else { "agent" };
    out.insert("role".into(), role.into());
    out.insert("parts".into(), message.parts.iter().map(part).collect());
    add(&mut out, "contextId", message.context().map(Json::from));
    add(&mut out, "taskId", message.task().map(Json::from));
    add(&mut out, "metadata", message.metadata.as_ref().map(object));
    add(&mut out, "extensions", list(&message.extensions, |it| Json::from(&**it)));
    add(&mut out, "referenceTaskIds", list(&message.reference_task_ids, |it| Json::from(&**it)));
    out.into()
}

fn status(status: &A2aTaskStatus) -> Json {
    let mut out = Map::new();
    out.insert("state".into(), state(status.state).into());
    out.insert("timestamp".into(), (&*status.timestamp).into());
    add(&mut out, "message", status.message.as_ref().map(message));
    out.into()
}

/// A2A-17: a state as 0.3 spells it.
fn state(state: A2aState) -> String {
    state.as_str().replace('_', "-")
}

/// The state that 0.3 spells so.
fn state_in(name: &str) -> Option<A2aState> {
    A2aState::from_name(&name.replace('-', "_"))
}

fn artifact(artifact: &A2aArtifact) -> Json {
    let mut out = Map::new();
    out.insert("artifactId".into(), (&*artifact.artifact_id).into());
    add(&mut out, "name", artifact.name.as_deref().map(Json::from));
    add(&mut out, "description", artifact.description.as_deref().map(Json::from));
    out.insert("parts".into(), artifact.parts.iter().map(part).collect());
    add(&mut out, "metadata", artifact.metadata.as_ref().map(object));
    add(&mut out, "extensions", list(&artifact.extensions, |it| Json::from(&**it)));
    out.into()
}

fn part(part: &A2aPart) -> Json {
    let mut out = Map::new();
    match &part.content {
        A2aContent::Text(text) => {
            out.insert("kind".into(), "text".into());
            out.insert("text".into(), (&**text).into());
        }
        A2aContent::Data(data) => {
            out.insert("kind".into(), "data".into());
            out.insert("data".into(), data_out(data));
        }
        A2aContent::Raw(bytes) => file(&mut out, "bytes", bytes, part),
        A2aContent::Url(uri) => file(&mut out, "uri", uri, part),
    }
    add(&mut out, "metadata", part.metadata.as_ref().map(object));
    out.into()
}

/// In 0.3 data is always an object.
fn data_out(data: &Json) -> Json {
    if data.is_object() { data.clone() } else { json!({ "value": data }) }
}

fn file(out: &mut Map<String, Json>, holds: &str, value: &str, part: &A2aPart) {
    let mut file = Map::new();
    file.insert(holds.into(), value.into());
    add(&mut file, "name", part.filename.as_deref().map(Json::from));
    add(&mut file, "mimeType", part.media_type.as_deref().map(Json::from));
    out.insert("kind".into(), "file".into());
    out.insert("file".into(), file.into());
}

fn object(metadata: &A2aMetadata) -> Json {
    metadata.clone().into()
}

fn add(out: &mut Map<String, Json>, name: &str, value: Option<Json>) {
    if let Some(value) = value {
        out.insert(name.into(), value);
    }
}

/// A list, if there is anything in it.
fn list<T>(all: &[T], of: impl Fn(&T) -> Json) -> Option<Json> {
    (!all.is_empty()).then(|| all.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{A2aSend, A2aStatusUpdate};
    use super::*;

    /// A2A-17: 0.3 spells the states in lower case, with `-`.
    #[test]
    fn states_are_spelt_as_in_0_3() {
        let spelt: Vec<String> = A2aState::ALL.iter().map(|it| state(*it)).collect();
        let expected = [
            "submitted",
            "working",
            "input-required",
            "auth-required",
            "completed",
            "failed",
            "rejected",
            "canceled",
        ];
        assert_eq!(spelt, expected);
    }

    /// Every part of 0.3 is read as one of 1.0, and comes back the same.
    #[test]
    fn parts_come_and_go_unchanged() {
        let given = json!([
            {"kind": "text", "text": "hi", "metadata": {"a": 1}},
            {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "hi.txt"}},
            {"kind": "file", "file": {"uri": "https://example.org/a.png"}},
            {"kind": "data", "data": {"a": [1]}},
        ]);
        let message = json!({"kind": "message", "messageId": "m", "role": "user", "parts": given});
        let asked = send_in(json!({"message": message}));
        let asked: A2aSend = serde_json::from_value(asked).unwrap();
        assert_eq!(self::message(&asked.message), message);
        assert_eq!(asked.message.parts[1].filename.as_deref(), Some("hi.txt"));
    }

    /// A configuration stands in an object of its own, with a list of schemes; without an id it is the only one.
    #[test]
    fn configurations_come_and_go_unchanged() {
        let login = json!({"schemes": ["Bearer"], "credentials": "abc"});
        let config = json!({"id": "c", "url": "https://a", "token": "t", "authentication": login});
        let given = json!({"taskId": "t1", "pushNotificationConfig": config});
        let read: A2aPushConfig = serde_json::from_value(push_in(given.clone())).unwrap();
        assert_eq!((&*read.task_id, &*read.id), ("t1", "c"));
        assert_eq!(push(&read), given);
        let unnamed = push_in(json!({"taskId": "t1", "pushNotificationConfig": {"url": "u"}}));
        assert_eq!(unnamed, json!({"taskId": "t1", "id": "default", "url": "u"}));
        let bare = push_in(json!({"taskId": "t1", "url": "u", "id": "c"}));
        let bare: A2aPushConfig = serde_json::from_value(bare).unwrap();
        assert_eq!((&*bare.task_id, &*bare.id, &*bare.url), ("t1", "c", "u"));
        assert_eq!(push_name_in(json!({"id": "t1"})), json!({"taskId": "t1", "id": "default"}));
        let named = push_name_in(json!({"id": "t1", "pushNotificationConfigId": "c"}));
        assert_eq!(named, json!({"taskId": "t1", "id": "c"}));
        let inline = json!({"message": {}, "configuration": {"pushNotificationConfig": config}});
        let inline = send_in(inline)["configuration"]["taskPushNotificationConfig"].take();
        assert_eq!(inline["authentication"]["scheme"], "Bearer");
        for wrong in [json!({}), json!({"pushNotificationConfig": 1})] {
            assert!(serde_json::from_value::<A2aPushConfig>(push_in(wrong)).is_err());
        }
        let nowhere: A2aPushConfig =
            serde_json::from_value(push_in(json!({"taskId": "t"}))).unwrap();
        assert_eq!(nowhere.url, "", "which is refused as it is no address");
    }

    /// Some libraries write fields that have no value as null: such a field counts as one that is not there.
    #[test]
    fn what_is_null_is_not_there() {
        let message = json!({
            "kind": "message", "messageId": "m", "role": "user", "contextId": null, "taskId": null,
            "metadata": null, "extensions": null, "referenceTaskIds": null,
            "parts": [{"kind": "text", "text": "hi", "metadata": null}],
        });
        let read = |options: Json| -> A2aSend {
            let params = json!({"message": message, "configuration": options, "metadata": null});
            serde_json::from_value(send_in(params)).unwrap()
        };
        let config = json!({"id": null, "url": "u", "token": null, "authentication": null});
        let bare = json!({
            "acceptedOutputModes": null, "blocking": null, "historyLength": null,
            "pushNotificationConfig": config,
        });
        for options in [json!(null), bare] {
            let asked = read(options);
            assert!(asked.message.extensions.is_empty() && asked.message.task().is_none());
            let options = asked.configuration.unwrap();
            assert!(options.return_immediately && options.accepted_output_modes.is_empty());
            let config = options.task_push_notification_config;
            assert!(config.is_none_or(|it| it.id == "default"));
        }
        let options = json!({"returnImmediately": null, "acceptedOutputModes": null});
        let params = json!({"message": read(json!({})).message, "configuration": options});
        let asked: A2aSend = serde_json::from_value(params).unwrap();
        assert!(!asked.configuration.unwrap().return_immediately);
        let list: A2aList = serde_json::from_value(json!({"includeArtifacts": null})).unwrap();
        assert!(!list.include_artifacts);
        let config: A2aPushConfig =
            serde_json::from_value(json!({"id": null, "taskId": "t", "url": "u"})).unwrap();
        assert_eq!((&*config.id, &*config.task_id), ("", "t"));
    }

    /// In 0.3 a caller does not wait unless it says so.
    #[test]
    fn who_does_not_say_that_it_waits_does_not_wait() {
        let waits = |options: Json| {
            let message = json!({"messageId": "m", "role": "user", "parts": []});
            let params = json!({"message": message, "configuration": options});
            let asked: A2aSend = serde_json::from_value(send_in(params)).unwrap();
            !asked.configuration.unwrap().return_immediately
        };
        assert!(!waits(json!({})) && !waits(json!({"blocking": false})));
        assert!(waits(json!({"blocking": true, "historyLength": 2})));
        for wrong in [json!(null), json!([]), json!("x"), json!({"message": 1})] {
            assert!(serde_json::from_value::<A2aSend>(send_in(wrong)).is_err());
        }
    }

    /// A2A-08: `final` is true where the stream ends.
    #[test]
    fn an_update_says_whether_it_is_the_last() {
        for (state, is_last) in [
            (A2aState::Working, false),
            (A2aState::InputRequired, true),
            (A2aState::Completed, true),
        ] {
            let status = A2aTaskStatus { state, message: None, timestamp: "now".into() };
            let (task_id, context_id) = ("t".into(), "c".into());
            let told = A2aStatusUpdate { task_id, context_id, status, metadata: None };
            let told = update(&A2aUpdate::StatusUpdate(told));
            let status = json!({"state": self::state(state), "timestamp": "now"});
            let expected = json!({
                "kind": "status-update", "taskId": "t", "contextId": "c", "status": status,
                "final": is_last,
            });
            assert_eq!(told, expected);
        }
    }
}
