//! Writes commits as lines. Every append runs this code, so it allocates nothing except to grow `out`.

use std::ops::Range;

use memchr::memchr2;
use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::event::{Commit, Event, SCHEMA_VERSION};
use tenure_core::id::{CommandId, Digest, RunId, SessionId, TaskId};
use uuid::Uuid;

use super::{LINE_MAX, seal};

/// Why a commit cannot be stored. Nothing was added to the output.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// A payload cannot be serialized.
    #[error("event {wal_seq} cannot be written as JSON: {source}")]
    Json {
        /// `wal_seq` of the event.
        wal_seq: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// The payload nests values so deep that no reader would accept it.
    #[error("event {wal_seq} nests more than {DEPTH_MAX} values")]
    TooDeep {
        /// `wal_seq` of the event.
        wal_seq: u64,
    },
    /// The line is so long that no reader would accept it.
    #[error("event {wal_seq} takes {len} bytes, more than a line may have ({LINE_MAX})")]
    TooLong {
        /// `wal_seq` of the event.
        wal_seq: u64,
        /// Its length.
        len: usize,
    },
}

/// How deep a payload may nest. Readers stop at 128 levels, so that no line exhausts the stack, and
/// a log must not hold what they refuse.
const DEPTH_MAX: usize = 120;

/// Adds a commit to `out`, one line per event, each with its newline.
pub fn encode(
    commit: &Commit,
    session: &SessionId,
    task: &TaskId,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let mut lines = LineEncoder::of(commit, session, task, out);
    let written = lines.write_all();
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// A commit that is being written, with what its lines share.
struct LineEncoder<'a> {
    commit: &'a Commit,
    session: &'a SessionId,
    task: &'a TaskId,
    commit_id: [u8; uuid::fmt::Hyphenated::LENGTH],
    /// Where the `command_id` of the first line is in `out`: it is escaped once and copied to the
    /// other lines.
    command_id: Range<usize>,
    out: &'a mut Vec<u8>,
}

impl<'a> LineEncoder<'a> {
    fn of(
        commit: &'a Commit,
        session: &'a SessionId,
        task: &'a TaskId,
        out: &'a mut Vec<u8>,
    ) -> Self {
        let mut commit_id = [0; uuid::fmt::Hyphenated::LENGTH];
        commit.commit_id.0.hyphenated().encode_lower(&mut commit_id);
        Self { commit, session, task, commit_id, command_id: 0..0, out }
    }

    fn write_all(&mut self) -> Result<(), EncodeError> {
        let commit = self.commit;
        for (index, event) in commit.events.iter().enumerate() {
            let wal_seq = commit.first_seq + index as u64;
            let start = self.out.len();
            self.out.reserve(640);
            let payload = self
                .line(wal_seq, index, event)
                .map_err(|source| EncodeError::Json { wal_seq, source })?;
            if is_too_deep(&self.out[payload]) {
                return Err(EncodeError::TooDeep { wal_seq });
            }
            seal(self.out, start);
            let len = self.out.len() - start - 1;
            if len > LINE_MAX {
                return Err(EncodeError::TooLong { wal_seq, len });
            }
        }
        Ok(())
    }

    /// Writes a line except its end. Returns where its payload is.
    fn line(
        &mut self,
        wal_seq: u64,
        index: usize,
        event: &Event,
    ) -> serde_json::Result<Range<usize>> {
        self.integer("{\"wal_seq\":", wal_seq);
        self.plain(",\"session_id\":\"", self.session.as_str());
        self.raw("\",\"event_id\":\"");
        self.out.extend_from_slice(&self.commit_id);
        self.integer(".", index);
        self.plain("\",\"event_type\":\"", event.body.event_type());
        self.json("\",\"actor_agent_id\":", &event.actor)?;
        self.run(event.run);
        self.plain(",\"task_id\":\"", self.task.as_str());
        if let Some(step) = &event.step_id {
            self.plain("\",\"step_id\":\"", step.as_str());
        }
        self.raw("\",\"payload\":");
        let payload = self.out.len();
        serde_json::to_writer(&mut *self.out, &event.body)?;
        let payload = payload..self.out.len();
        self.integer(",\"created_at\":", self.commit.created_at);
        self.integer(",\"schema_version\":", SCHEMA_VERSION);
        self.command_id(index)?;
        self.digest(if index == 0 { self.commit.command_digest.as_ref() } else { None });
        self.raw(",\"commit_id\":\"");
        self.out.extend_from_slice(&self.commit_id);
        self.integer("\",\"commit_index\":", index);
        self.integer(",\"commit_count\":", self.commit.events.len());
        self.integer(",\"epoch\":", self.commit.epoch);
        self.trace(self.commit.trace.as_ref())?;
        Ok(payload)
    }

    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes `text`, which has no character that needs an escape.
    fn plain(&mut self, key: &str, text: &str) {
        self.raw(key);
        self.raw(text);
    }

    fn integer(&mut self, key: &str, value: impl itoa::Integer) {
        self.raw(key);
        self.raw(itoa::Buffer::new().format(value));
    }

    fn json(&mut self, key: &str, value: &impl Serialize) -> serde_json::Result<()> {
        self.raw(key);
        serde_json::to_writer(&mut *self.out, value)
    }

    fn run(&mut self, run: Option<RunId>) {
        match run {
            Some(run) => {
                self.raw(",\"actor_run_id\":\"");
                self.raw(run.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
                self.raw("\"");
            }
            None => self.raw(",\"actor_run_id\":null"),
        }
    }

    fn command_id(&mut self, index: usize) -> serde_json::Result<()> {
        self.raw(",\"command_id\":");
        if index > 0 {
            self.out.extend_from_within(self.command_id.clone());
            return Ok(());
        }
        let start = self.out.len();
        let id: Option<&CommandId> = self.commit.command_id.as_ref();
        serde_json::to_writer(&mut *self.out, &id)?;
        self.command_id = start..self.out.len();
        Ok(())
    }

    fn digest(&mut self, digest: Option<&Digest>) {
        match digest {
            Some(digest) => {
                self.plain(",\"command_digest\":\"", digest.text(&mut [0; Digest::TEXT_MAX]));
                self.raw("\"");
            }
            None => self.raw(",\"command_digest\":null"),
        }
    }

    fn trace(&mut self, trace: Option<&SmolStr>) -> serde_json::Result<()> {
        match trace {
            Some(trace) => self.json(",\"trace\":", trace),
            None => Ok(()),
        }
    }
}

/// Whether a JSON text nests deeper than readers accept.
pub(super) fn is_too_deep(json: &[u8]) -> bool {
    if json.len() < 2 * DEPTH_MAX {
        return false; // Too short for so many pairs of brackets: true of most payloads.
    }
    let mut depth = 0;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_text(&mut bytes),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

/// Skips to the end of a text: a long one is found in one go, not byte by byte.
fn skip_text(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(at) = memchr2(b'"', b'\\', bytes.as_slice()) {
        match bytes.nth(at) {
            Some(b'"') => return,
            _ => drop(bytes.next()),
        }
    }
    *bytes = [].iter();
}
