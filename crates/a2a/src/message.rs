//! What caller and agent say: messages and their parts.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use super::{A2aMetadata, or_default};

/// Who says a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum A2aRole {
    /// Nobody in particular.
    #[default]
    #[serde(rename = "ROLE_UNSPECIFIED")]
    Unspecified,
    /// The caller.
    #[serde(rename = "ROLE_USER")]
    User,
    /// The agent.
    #[serde(rename = "ROLE_AGENT")]
    Agent,
}

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aMessage {
    /// Its id, which its sender has made.
    #[serde(alias = "message_id")]
    pub message_id: String,
    /// The context to which it belongs.
    #[serde(alias = "context_id", default, skip_serializing_if = "is_empty")]
    pub context_id: Option<String>,
    /// The task to which it belongs.
    #[serde(alias = "task_id", default, skip_serializing_if = "is_empty")]
    pub task_id: Option<String>,
    /// Who says it.
    pub role: A2aRole,
    /// What it says, at least one part.
    pub parts: Vec<A2aPart>,
    /// Anything beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<A2aMetadata>,
    /// Extensions that it uses.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Other tasks that it is about.
    #[serde(
        alias = "reference_task_ids",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub reference_task_ids: Vec<String>,
}

/// In ProtoJSON an empty text is one that is not there.
#[allow(clippy::ref_option)] // The shape serde asks for.
fn is_empty(text: &Option<String>) -> bool {
    text.as_ref().is_none_or(String::is_empty)
}

impl A2aMessage {
    /// What the agent says in a task.
    pub fn of_agent(id: String, context: &str, task: &str, parts: Vec<A2aPart>) -> Self {
        Self {
            message_id: id,
            context_id: Some(context.to_owned()),
            task_id: Some(task.to_owned()),
            role: A2aRole::Agent,
            parts,
            ..Self::default()
        }
    }

    /// Its context, if it names one.
    pub fn context(&self) -> Option<&str> {
        self.context_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Its task, if it names one.
    pub fn task(&self) -> Option<&str> {
        self.task_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The texts in it, one a line.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(A2aPart::as_text);
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// A part of a message or of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "PartFields")]
pub struct A2aPart {
    /// What it holds.
    #[serde(flatten)]
    pub content: A2aContent,
    /// Anything beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<A2aMetadata>,
    /// The name of the file that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// A part as it is read: any of its fields may be missing.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartFields {
    text: Option<String>,
    raw: Option<String>,
    url: Option<String>,
    #[serde(deserialize_with = "read_data")]
    data: Option<Json>,
    metadata: Option<A2aMetadata>,
    filename: Option<String>,
    #[serde(alias = "media_type")]
    media_type: Option<String>,
}

/// Data that is there, even if it is null.
fn read_data<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(d).map(Some)
}

impl TryFrom<PartFields> for A2aPart {
    type Error = &'static str;

    /// A field that is null counts as one that is not there, but for data if there is nothing else.
    fn try_from(fields: PartFields) -> Result<Self, &'static str> {
        let PartFields { text, raw, url, data, metadata, filename, media_type } = fields;
        let others =
            [text.map(A2aContent::Text), raw.map(A2aContent::Raw), url.map(A2aContent::Url)];
        let mut all = others.into_iter().flatten().collect::<Vec<_>>();
        all.extend(data.filter(|data| all.is_empty() || !data.is_null()).map(A2aContent::Data));
        let content = all.pop().filter(|_| all.is_empty());
        let content = content.ok_or("a part has exactly one of text, raw, url and data")?;
        Ok(Self { content, metadata, filename, media_type })
    }
}

/// What a part holds: exactly one of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum A2aContent {
    /// Text.
    Text(String),
    /// Bytes in base64.
    Raw(String),
    /// The address of a file.
    Url(String),
    /// Any JSON.
    Data(Json),
}

impl A2aPart {
    /// A part of this content alone.
    pub const fn of(content: A2aContent) -> Self {
        Self { content, metadata: None, filename: None, media_type: None }
    }

    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(A2aContent::Text(text.into()))
    }

    /// The same part with a media type.
    pub fn typed(self, media_type: impl Into<String>) -> Self {
        Self { media_type: Some(media_type.into()), ..self }
    }

    /// How many bytes it has, about.
    pub fn weight(&self) -> usize {
        match &self.content {
            A2aContent::Text(text) | A2aContent::Raw(text) | A2aContent::Url(text) => text.len(),
            A2aContent::Data(data) => data.to_string().len(),
        }
    }

    /// Its text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            A2aContent::Text(text) => Some(text),
            A2aContent::Raw(_) | A2aContent::Url(_) | A2aContent::Data(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A part holds one of four things, beside which stand its name and its media type, without a `kind`.
    #[test]
    fn a_part_is_flat() {
        for given in [
            json!({"text": "hello"}),
            json!({"raw": "aGk=", "filename": "hi.txt", "mediaType": "text/plain"}),
            json!({"url": "https://example.org/a.png", "mediaType": "image/png"}),
            json!({"data": {"a": [1, null]}, "metadata": {"x": 1}}),
        ] {
            let part: A2aPart = serde_json::from_value(given.clone()).unwrap();
            assert_eq!(serde_json::to_value(&part).unwrap(), given);
        }
    }

    /// What a part holds is not guessed: a null beside it is nothing, and of two contents none would be the right one.
    #[test]
    fn a_part_holds_one_thing() {
        let read = |given: Json| serde_json::from_value::<A2aPart>(given).map(|it| it.content);
        for (given, expected) in [
            (json!({"text": "hi", "data": null}), A2aContent::Text("hi".into())),
            (json!({"raw": null, "text": "", "url": null}), A2aContent::Text(String::new())),
            (json!({"text": null, "data": {"a": 1}}), A2aContent::Data(json!({"a": 1}))),
            (json!({"data": null, "mediaType": null}), A2aContent::Data(Json::Null)),
        ] {
            assert_eq!(read(given.clone()).unwrap(), expected, "{given}");
        }
        for wrong in
            [json!({"filename": "a"}), json!({"text": null}), json!({"text": "a", "data": {}})]
        {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    /// Fields that nobody knows are passed over, and an empty id is no id.
    #[test]
    fn a_message_is_read_generously() {
        let given = json!({
            "messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a", "colour": "red"}, {"text": "b"}],
            "contextId": "", "newField": {"deep": []},
        });
        let message: A2aMessage = serde_json::from_value(given).unwrap();
        assert_eq!((message.context(), message.task(), &*message.text()), (None, None, "a\nb"));
        let written = serde_json::to_value(&message).unwrap();
        let expected = json!({
            "messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}, {"text": "b"}],
        });
        assert_eq!(written, expected);
        for missing in ["messageId", "role", "parts"] {
            let mut given = written.clone();
            given.as_object_mut().unwrap().remove(missing);
            assert!(serde_json::from_value::<A2aMessage>(given).is_err(), "{missing}");
        }
    }
}
