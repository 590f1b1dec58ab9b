//! The stored form of a partition's log: frames, each one message of its stream (mechanisms 1).
//!
//! A frame carries the commits of any number of Tasks. Its bytes:
//!
//! ```text
//! "TNF1"            4 bytes
//! length            4 bytes, little endian: of the header
//! checksum          4 bytes, little endian: CRC-32 (IEEE) of the header
//! header            MessagePack map (see Header)
//! body              all commits, one behind the other, each a line (see `encode_packed`); in
//!                   version 1 the lines of a log
//! ```
//!
//! The header says whose the commits are and what a node must know of a Task without reading them.
//! Damage in a commit is damage of its Task alone: header and commits have checksums of their own.
//!
//! A frame that is too long for one message is cut into chunks, sent as one atomic batch:
//!
//! ```text
//! "TNC1"            4 bytes
//! index, of         4 bytes each, little endian: which chunk, of how many
//! part of the frame
//! ```

use std::io::Cursor;

use serde::{Deserialize, Serialize};
use tenure_core::id::{Millis, SessionId, TaskId, WalName};
use tenure_core::status::{FailedAs, TaskStatus};

/// Version of the form. A reader refuses a later one.
pub const FRAME_VERSION: u32 = 2;

/// Up to this version a commit in a frame is the lines of a log; from the next on it is packed.
pub const LAST_OF_LINES: u32 = 1;

const FRAME: &[u8; 4] = b"TNF1";
const CHUNK: &[u8; 4] = b"TNC1";
const FRAME_HEAD: usize = 12;
/// How deep a header may nest, whatever a later writer puts into it.
const DEPTH_MAX: usize = 64;
const CHUNK_HEAD: usize = 12;

/// What a frame is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Header {
    /// Commits.
    Commits {
        /// [`FRAME_VERSION`] of the writer.
        version: u32,
        /// The writer's epoch.
        epoch: u64,
        /// Whose commits, in the order of the body. A Task may come more than once.
        commits: Vec<CommitHead>,
    },
    /// A new owner takes the partition; where this frame stands in the stream is its epoch (OWN-03).
    Owner {
        /// [`FRAME_VERSION`] of the writer.
        version: u32,
        /// Who.
        node: String,
        /// This taking of it: no other has the same, so that nobody takes another's record for his.
        taking: String,
        /// The version of what is stored in which it writes: one that all live nodes read.
        write_level: u32,
    },
}

/// What a frame says of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitHead {
    /// Of its Task.
    pub session_id: SessionId,
    /// Of its Task.
    pub task_id: TaskId,
    /// Its first event.
    pub first_seq: u64,
    /// Its last event.
    pub last_seq: u64,
    /// When it was decided.
    pub created_at: Millis,
    /// Where in the stream the frame with the Task's commit before it stands: the last frame before
    /// this one that has any; 0 if there is none.
    pub prev: u64,
    /// Bytes of its lines.
    pub len: u32,
    /// What the Task is called: with its first commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<Named>,
    /// The terminal status after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TaskStatus>,
    /// How it failed, if not plainly; older programs do not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_as: Option<FailedAs>,
    /// Whether it archives the Task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
}

/// What lists say of a Task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// For people.
    pub title: String,
    /// Name of its log.
    pub wal_name: WalName,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// They do not begin as one.
    #[error("not a frame")]
    NoFrame,
    /// The header's checksum is another.
    #[error("the header of the frame is damaged")]
    Damaged,
    /// The header cannot be read.
    #[error("the header of the frame cannot be read: {0}")]
    Header(String),
    /// A later program wrote it.
    #[error("the frame is of version {0}, this program reads up to {FRAME_VERSION}")]
    Version(u32),
    /// The header speaks of another body.
    #[error("the body of the frame has {found} bytes, not {expected}")]
    Body {
        /// What the header says.
        expected: u64,
        /// What is there.
        found: u64,
    },
}

/// A frame that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub header: Header,
    /// The lines of its commits.
    pub body: &'a [u8],
}

/// Begins a frame: what stands before the body, for which `room` bytes are left.
///
/// # Errors
/// The header does not serialise, or is too long.
pub fn encode_header(header: &Header, room: usize) -> Result<Vec<u8>, FrameError> {
    let header = rmp_serde::to_vec_named(header).map_err(|e| FrameError::Header(e.to_string()))?;
    let len = u32::try_from(header.len()).map_err(|e| FrameError::Header(e.to_string()))?;
    let mut out = Vec::with_capacity(FRAME_HEAD + header.len() + room);
    out.extend_from_slice(FRAME);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    out.extend_from_slice(&header);
    Ok(out)
}

/// Reads a frame. The lines of its body are not looked at.
///
/// # Errors
/// See [`FrameError`].
pub fn decode(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let rest = bytes.strip_prefix(FRAME).ok_or(FrameError::NoFrame)?;
    let (len, rest) = split_u32(rest).ok_or(FrameError::NoFrame)?;
    let (crc, rest) = split_u32(rest).ok_or(FrameError::NoFrame)?;
    let (header, body) = rest.split_at_checked(len as usize).ok_or(FrameError::Damaged)?;
    if crc32fast::hash(header) != crc {
        return Err(FrameError::Damaged);
    }
    let header = decode_header(header)?;
    let (version, expected) = match &header {
        Header::Owner { version, .. } => (*version, 0),
        Header::Commits { version, commits, .. } => {
            (*version, commits.iter().map(|commit| u64::from(commit.len)).sum())
        }
    };
    if version > FRAME_VERSION {
        return Err(FrameError::Version(version));
    }
    let found = body.len() as u64;
    if found != expected {
        return Err(FrameError::Body { expected, found });
    }
    Ok(Frame { header, body })
}

fn decode_header(bytes: &[u8]) -> Result<Header, FrameError> {
    let mut from = rmp_serde::Deserializer::new(Cursor::new(bytes));
    from.set_max_depth(DEPTH_MAX);
    let header = Header::deserialize(&mut from).map_err(|e| FrameError::Header(e.to_string()))?;
    match from.get_ref().position() == bytes.len() as u64 {
        true => Ok(header),
        false => Err(FrameError::Header("bytes behind its end".into())),
    }
}

impl<'a> Frame<'a> {
    /// Of the writer.
    pub fn version(&self) -> u32 {
        match &self.header {
            Header::Commits { version, .. } | Header::Owner { version, .. } => *version,
        }
    }

    /// The commits of the frame, each with its lines.
    pub fn commits(&self) -> impl Iterator<Item = (&CommitHead, &'a [u8])> {
        let commits = match &self.header {
            Header::Commits { commits, .. } => &commits[..],
            Header::Owner { .. } => &[],
        };
        let mut rest = self.body;
        commits.iter().map(move |head| {
            // `decode` has compared the sum of all lengths with the body.
            let (lines, behind) = rest.split_at(head.len as usize);
            rest = behind;
            (head, lines)
        })
    }
}

/// A part of a frame that is too long for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Which, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
    /// The part.
    pub part: &'a [u8],
}

impl Chunk<'_> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(CHUNK_HEAD + self.part.len());
        out.extend_from_slice(CHUNK);
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.of.to_le_bytes());
        out.extend_from_slice(self.part);
        out
    }
}

/// Reads a chunk; none where the bytes are not one.
pub fn decode_chunk(bytes: &[u8]) -> Option<Chunk<'_>> {
    let rest = bytes.strip_prefix(CHUNK)?;
    let (index, rest) = split_u32(rest)?;
    let (of, part) = split_u32(rest)?;
    (index < of).then_some(Chunk { index, of, part })
}

pub(super) fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}
