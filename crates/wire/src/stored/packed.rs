//! A commit as one line: the form of commits in frames, whose headers name the Tasks.
//!
//! It writes once what the lines of a log repeat with each event, and so takes less space: a fifth,
//! where events are many and short.
//!
//! ```text
//! {"schema":1,"first_seq":2,"commit_id":"<uuid>","created_at":1,"epoch":3,"command_id":null,
//!  "command_digest":null,"events":[["task_created",null,{...},"system",null],
//!  ["task_step_ready","a",{}],["task_step_ready","b",{}]],"crc":3735928559}
//! ```
//!
//! An event is its type, its Step, its payload, and its actor with the actor's Run; the last two
//! are left out if they are those of the event before. Types and payloads are those of the log, so
//! a commit means the same in both forms.

use std::fmt;
use std::ops::Range;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smol_str::SmolStr;
use tenure_core::event::{Commit, Event, SCHEMA_VERSION};
use tenure_core::id::{AgentId, CommandId, CommitId, Digest, Millis, RunId, StepId};
use uuid::Uuid;

use super::decode::{LineError, decode_body};
use super::encode::{EncodeError, is_too_deep};
use super::{LINE_MAX, SEQ_MAX, is_sealed, seal};

/// The most bytes around a payload in a line of a log, not counting what callers name.
const AROUND: usize = 1 << 10;

/// Adds a commit to `out`, as one line with its newline.
///
/// # Errors
/// As [`encode`](super::encode): a commit that cannot be lines of a log cannot be packed either.
pub fn encode_packed(commit: &Commit, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    let written = write(commit, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write(commit: &Commit, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    let failed = |source| EncodeError::Json { wal_seq: commit.first_seq, source };
    out.reserve(512 + 64 * commit.events.len());
    integer(out, "{\"schema\":", SCHEMA_VERSION);
    integer(out, ",\"first_seq\":", commit.first_seq);
    uuid(out, ",\"commit_id\":", commit.commit_id.0);
    integer(out, ",\"created_at\":", commit.created_at);
    integer(out, ",\"epoch\":", commit.epoch);
    out.extend_from_slice(b",\"command_id\":");
    serde_json::to_writer(&mut *out, &commit.command_id).map_err(failed)?;
    match &commit.command_digest {
        Some(digest) => {
            out.extend_from_slice(b",\"command_digest\":\"");
            out.extend_from_slice(digest.text(&mut [0; Digest::TEXT_MAX]).as_bytes());
            out.push(b'"');
        }
        None => out.extend_from_slice(b",\"command_digest\":null"),
    }
    if let Some(trace) = &commit.trace {
        out.extend_from_slice(b",\"trace\":");
        serde_json::to_writer(&mut *out, trace).map_err(failed)?;
    }
    // In a line of a log, each byte of what callers name may take six bytes.
    let named = commit.command_id.as_ref().map_or(0, |id| id.as_str().len())
        + commit.trace.as_ref().map_or(0, |trace| trace.len());
    out.extend_from_slice(b",\"events\":");
    let mut before: Option<&Event> = None;
    for (wal_seq, event) in (commit.first_seq..).zip(&commit.events) {
        out.push(if before.is_none() { b'[' } else { b',' });
        let failed = |source| EncodeError::Json { wal_seq, source };
        let payload = write_event(event, before, out).map_err(failed)?;
        let len = payload.len();
        if is_too_deep(&out[payload]) {
            return Err(EncodeError::TooDeep { wal_seq });
        }
        let len = len + AROUND + 6 * (named + event.actor.as_str().len());
        if len > LINE_MAX {
            return Err(EncodeError::TooLong { wal_seq, len });
        }
        before = Some(event);
    }
    out.extend_from_slice(if before.is_none() { b"[]" } else { b"]" });
    seal(out, start);
    Ok(())
}

/// Writes an event. Returns where its payload is.
fn write_event(
    event: &Event,
    before: Option<&Event>,
    out: &mut Vec<u8>,
) -> serde_json::Result<Range<usize>> {
    out.extend_from_slice(b"[\"");
    out.extend_from_slice(event.body.event_type().as_bytes());
    match &event.step_id {
        Some(step) => {
            out.extend_from_slice(b"\",\"");
            out.extend_from_slice(step.as_str().as_bytes()); // It has no character that needs an escape.
            out.extend_from_slice(b"\",");
        }
        None => out.extend_from_slice(b"\",null,"),
    }
    let payload = out.len();
    serde_json::to_writer(&mut *out, &event.body)?;
    let payload = payload..out.len();
    if before.is_none_or(|before| (&before.actor, before.run) != (&event.actor, event.run)) {
        out.push(b',');
        serde_json::to_writer(&mut *out, &event.actor)?;
        match event.run {
            Some(run) => uuid(out, ",", run.0),
            None => out.extend_from_slice(b",null"),
        }
    }
    out.push(b']');
    Ok(payload)
}

fn integer(out: &mut Vec<u8>, key: &str, value: impl itoa::Integer) {
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn uuid(out: &mut Vec<u8>, key: &str, id: Uuid) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'"');
    out.extend_from_slice(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes());
    out.push(b'"');
}

/// Reads a commit, given without its newline.
///
/// # Errors
/// See [`LineError`]: the line is damaged, of a later version, or no commit.
pub fn decode_packed(line: &[u8]) -> Result<Commit, LineError> {
    #[derive(Deserialize)]
    struct Version {
        schema: u64,
    }
    if !is_sealed(line) {
        return Err(LineError::Crc);
    }
    let form = |error: &dyn fmt::Display| LineError::Form(error.to_string());
    let text = str::from_utf8(line).map_err(|error| form(&error))?;
    let packed = serde_json::from_str::<Packed<'_>>(text).map_err(|error| {
        match serde_json::from_str(text) {
            Ok(Version { schema }) if schema != u64::from(SCHEMA_VERSION) => {
                LineError::Schema(schema)
            }
            _ => form(&error),
        }
    })?;
    if packed.schema != u64::from(SCHEMA_VERSION) {
        return Err(LineError::Schema(packed.schema));
    }
    if packed.events.is_empty() {
        return Err(LineError::Commit("events"));
    }
    let behind_first = packed.events.len() as u64 - 1;
    if packed.first_seq == 0 || packed.first_seq.saturating_add(behind_first) > SEQ_MAX {
        return Err(LineError::Commit("first_seq"));
    }
    let mut events: Vec<Event> = Vec::with_capacity(packed.events.len());
    for PackedEvent { event_type, step_id, payload, by } in packed.events {
        let (actor, run) = match (by, events.last()) {
            (Some(by), _) => by,
            (None, Some(before)) => (before.actor.clone(), before.run),
            (None, None) => return Err(LineError::Commit("actor")),
        };
        let body = decode_body(event_type, payload.get())?;
        events.push(Event { actor, run, step_id, body });
    }
    Ok(Commit {
        commit_id: packed.commit_id,
        first_seq: packed.first_seq,
        created_at: packed.created_at,
        command_id: packed.command_id,
        command_digest: packed.command_digest,
        epoch: packed.epoch,
        trace: packed.trace,
        events,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Packed<'a> {
    schema: u64,
    first_seq: u64,
    commit_id: CommitId,
    created_at: Millis,
    epoch: u64,
    #[serde(deserialize_with = "Option::deserialize")] // The key is required, null allowed.
    command_id: Option<CommandId>,
    #[serde(deserialize_with = "Option::deserialize")]
    command_digest: Option<Digest>,
    trace: Option<SmolStr>,
    #[serde(borrow)]
    events: Vec<PackedEvent<'a>>,
    #[serde(rename = "crc")]
    _crc: u32,
}

struct PackedEvent<'a> {
    event_type: &'a str,
    step_id: Option<StepId>,
    payload: &'a RawValue,
    /// The actor and the actor's Run; `None`: those of the event before.
    by: Option<(AgentId, Option<RunId>)>,
}

impl<'de: 'a, 'a> Deserialize<'de> for PackedEvent<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = PackedEvent<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("type, step and payload of an event, and who acted under which run")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let missing = |what| A::Error::custom(format_args!("an event without {what}"));
                let event_type = seq.next_element()?.ok_or_else(|| missing("a type"))?;
                let step_id = seq.next_element()?.ok_or_else(|| missing("a step"))?;
                let payload = seq.next_element()?.ok_or_else(|| missing("a payload"))?;
                let by = match seq.next_element::<AgentId>()? {
                    None => None,
                    Some(actor) => {
                        Some((actor, seq.next_element()?.ok_or_else(|| missing("a run"))?))
                    }
                };
                Ok(PackedEvent { event_type, step_id, payload, by })
            }
        }
        d.deserialize_seq(FieldsVisitor)
    }
}
