//! Reads one line of a log as one event, strictly.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smol_str::SmolStr;
use tenure_core::event::{Body, Event, SCHEMA_VERSION};
use tenure_core::id::{
    AgentId, CommandId, CommitId, Digest, Millis, RunId, SessionId, StepId, TaskId,
};

use super::{SEQ_MAX, is_sealed};

/// Why a line is not part of a history, by itself or at its place (RECOVER-05).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The checksum is missing or is not the line's.
    #[error("bad checksum")]
    Crc,
    /// Not JSON, not an event, or a field that is unknown and not marked ignorable.
    #[error("not an event: {0}")]
    Form(String),
    /// Written by a version that this one cannot read.
    #[error("unknown schema_version {0}")]
    Schema(u64),
    /// An event type that is not of section 7.1 (WAL-12).
    #[error("unknown event type {0:?}")]
    EventType(String),
    /// `event_id` is not `<commit_id>.<commit_index>`.
    #[error("event_id {0:?} is not the commit's")]
    EventId(String),
    /// Of another session.
    #[error("of session {0}")]
    ForeignSession(SessionId),
    /// Of another Task.
    #[error("of task {0}")]
    ForeignTask(TaskId),
    /// A gap or repeat in `wal_seq` (WAL-04).
    #[error("wal_seq {found} where {expected} is due")]
    Sequence {
        /// The expected number.
        expected: u64,
        /// The number in the line.
        found: u64,
    },
    /// The line does not continue the commit before it, or starts in the middle of one.
    #[error("{0} does not fit the commit")]
    Commit(&'static str),
}

/// One event with its envelope (2.5).
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its place in the log.
    pub wal_seq: u64,
    /// The Task's session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// Time of the commit.
    pub created_at: Millis,
    /// The command that caused it.
    pub command_id: Option<CommandId>,
    /// Its digest, on the first line of a commit.
    pub command_digest: Option<Digest>,
    /// The commit.
    pub commit_id: CommitId,
    /// Its place in the commit, from 0.
    pub commit_index: u32,
    /// How many events the commit has.
    pub commit_count: u32,
    /// Ownership epoch of the writer.
    pub epoch: u64,
    /// W3C traceparent.
    pub trace: Option<SmolStr>,
    /// What happened.
    pub event: Event,
}

/// Reads one line, given without its newline.
pub fn decode_line(line: &[u8]) -> Result<Line, LineError> {
    if !is_sealed(line) {
        return Err(LineError::Crc);
    }
    let text = str::from_utf8(line).map_err(|error| LineError::Form(error.to_string()))?;
    let raw = match serde_json::from_str::<LineEnvelope<'_>>(text) {
        Ok(raw) => raw,
        Err(error) => return decode_marked(text, &error),
    };
    raw.into_line()
}

/// Reads a line again that is not an envelope as this version writes it: it is of another version,
/// has ignorable fields, or is no envelope.
fn decode_marked(text: &str, error: &serde_json::Error) -> Result<Line, LineError> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u64,
    }
    if let Ok(Version { schema_version }) = serde_json::from_str(text)
        && schema_version != u64::from(SCHEMA_VERSION)
    {
        return Err(LineError::Schema(schema_version));
    }
    let form = |error: &serde_json::Error| LineError::Form(error.to_string());
    let stripped = without_marked(text).ok_or_else(|| form(error))?;
    let raw = serde_json::from_str::<LineEnvelope<'_>>(&stripped).map_err(|error| form(&error))?;
    raw.into_line()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineEnvelope<'a> {
    wal_seq: u64,
    session_id: SessionId,
    #[serde(borrow)]
    event_id: Cow<'a, str>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    actor_agent_id: AgentId,
    #[serde(deserialize_with = "Option::deserialize")] // The key is required, null allowed.
    actor_run_id: Option<RunId>,
    task_id: TaskId,
    step_id: Option<StepId>,
    #[serde(borrow)]
    payload: &'a RawValue,
    created_at: Millis,
    schema_version: u64,
    #[serde(deserialize_with = "Option::deserialize")]
    command_id: Option<CommandId>,
    #[serde(deserialize_with = "Option::deserialize")]
    command_digest: Option<Digest>,
    commit_id: CommitId,
    commit_index: u32,
    commit_count: u32,
    epoch: u64,
    trace: Option<SmolStr>,
    #[serde(rename = "crc")]
    _crc: u32,
}

impl LineEnvelope<'_> {
    fn into_line(self) -> Result<Line, LineError> {
        if self.schema_version != u64::from(SCHEMA_VERSION) {
            return Err(LineError::Schema(self.schema_version));
        }
        if self.wal_seq > SEQ_MAX {
            return Err(LineError::Form(format!(
                "wal_seq {} is no number of an event",
                self.wal_seq
            )));
        }
        if !is_event_id(&self.event_id, self.commit_id, self.commit_index) {
            return Err(LineError::EventId(self.event_id.into_owned()));
        }
        let body = decode_body(&self.event_type, self.payload.get())?;
        let event = Event {
            actor: self.actor_agent_id,
            run: self.actor_run_id,
            step_id: self.step_id,
            body,
        };
        Ok(Line {
            wal_seq: self.wal_seq,
            session_id: self.session_id,
            task_id: self.task_id,
            created_at: self.created_at,
            command_id: self.command_id,
            command_digest: self.command_digest,
            commit_id: self.commit_id,
            commit_index: self.commit_index,
            commit_count: self.commit_count,
            epoch: self.epoch,
            trace: self.trace,
            event,
        })
    }
}

fn is_event_id(text: &str, commit_id: CommitId, index: u32) -> bool {
    let mut buffer = uuid::Uuid::encode_buffer();
    let commit_id = commit_id.0.hyphenated().encode_lower(&mut buffer);
    let rest = text.strip_prefix(&*commit_id).and_then(|rest| rest.strip_prefix('.'));
    rest == Some(itoa::Buffer::new().format(index))
}

pub(super) fn decode_body(event_type: &str, payload: &str) -> Result<Body, LineError> {
    if !Body::TYPES.contains(&event_type) {
        return Err(LineError::EventType(event_type.into()));
    }
    let parse = |text: &str| {
        let mut json = serde_json::Deserializer::from_str(text);
        Body::deserialize(event_type, &mut json)
    };
    parse(payload).or_else(|error| {
        let retried = without_marked(payload).ok_or(error).and_then(|text| parse(&text));
        retried.map_err(|error| LineError::Form(format!("{event_type}: {error}")))
    })
}

/// The JSON object without its ignorable fields; `None` if it has none or is not an object.
fn without_marked(text: &str) -> Option<String> {
    let ObjectFields(fields) = serde_json::from_str(text).ok()?;
    let kept: Vec<_> = fields.iter().filter(|(name, _)| !name.starts_with('_')).collect();
    if kept.len() == fields.len() {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    for (name, value) in kept {
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(&serde_json::to_string(name).ok()?);
        out.push(':');
        out.push_str(value.get());
    }
    out.push_str(if out.is_empty() { "{}" } else { "}" });
    Some(out)
}

/// The fields of an object in order, including repeated ones, so that the reader still refuses these.
struct ObjectFields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for ObjectFields {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = ObjectFields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectFields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(ObjectFields(fields))
            }
        }
        d.deserialize_map(InOrder)
    }
}
