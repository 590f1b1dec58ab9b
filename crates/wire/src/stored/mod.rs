//! The stored form of a Task's log: JSONL, one event a line (WAL-02, contract 2.5).
//!
//! A line is a JSON object whose fields stand in a fixed order, `crc` last:
//!
//! ```text
//! {"wal_seq":2,"session_id":"s","event_id":"<commit_id>.1","event_type":"task_step_ready",
//!  "actor_agent_id":"system","actor_run_id":null,"task_id":"t","step_id":"a","payload":{},
//!  "created_at":1,"schema_version":1,"command_id":null,"command_digest":null,
//!  "commit_id":"<uuid>","commit_index":1,"commit_count":2,"epoch":0,"crc":3735928559}
//! ```
//!
//! `crc` is the CRC-32 (IEEE) of the line as it would be without the field: everything before
//! `,"crc":`, then `}`, without the newline.
//!
//! **Ignorable fields.** A reader refuses what it does not know, since to guess at a history is
//! worse than to stop (RECOVER-05). The one exception: it skips a field whose name starts with `_`,
//! in the envelope or at the top of a payload. Later versions may write such fields without a new
//! [`SCHEMA_VERSION`](tenure_core::event::SCHEMA_VERSION); the fields never carry state.
//!
//! Reading has two steps: [`decode_line`] checks one line by itself, an [`Assembler`] checks which
//! line follows which, and returns whole commits (WAL-08).

mod assemble;
mod decode;
mod encode;
pub mod frame;
mod packed;
mod snapshot;

pub use assemble::Assembler;
pub use decode::{Line, LineError, decode_line};
pub use encode::{EncodeError, encode};
pub use packed::{decode_packed, encode_packed};
pub use snapshot::{STATE_VERSION, SnapshotError, decode_snapshot, encode_snapshot};

/// Longest line, in bytes without its newline. A reader holds one line at a time, so this limits
/// its memory; a writer refuses a line that no reader would accept.
pub const LINE_MAX: usize = 64 << 20;

/// The highest number of an event: no log comes near, and numbers above it would overflow where they are counted.
pub(crate) const SEQ_MAX: u64 = u64::MAX / 2;

/// The text between a line and its checksum.
const CRC_KEY: &[u8] = b",\"crc\":";

/// The checksum of a line that consists of `before` and a closing brace.
fn checksum(before: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(before);
    hasher.update(b"}");
    hasher.finalize()
}

/// Closes the line that begins at `start`, an object without its closing brace, with its checksum
/// and a newline.
pub fn seal(out: &mut Vec<u8>, start: usize) {
    let crc = checksum(&out[start..]);
    out.extend_from_slice(CRC_KEY);
    out.extend_from_slice(itoa::Buffer::new().format(crc).as_bytes());
    out.extend_from_slice(b"}\n");
}

/// Whether a line, given without its newline, has the checksum that [`seal`] would give it.
pub fn is_sealed(line: &[u8]) -> bool {
    split_crc(line).is_some_and(|(before, crc)| checksum(before) == crc)
}

/// Splits a line, which must be as [`seal`] writes it, into the part before its checksum and the checksum.
fn split_crc(line: &[u8]) -> Option<(&[u8], u32)> {
    let body = line.strip_suffix(b"}")?;
    let digits = body.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (before, number) = body.split_at(body.len() - digits);
    let before = before.strip_suffix(CRC_KEY)?;
    let text = str::from_utf8(number).ok()?;
    let crc = text.parse().ok()?;
    (text.len() == 1 || !text.starts_with('0')).then_some((before, crc))
}
