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
//! The header names the Tasks of the commits, and has what a node must know of them without reading
//! commits. Damage in a commit affects its Task alone, because header and commits have checksums of
//! their own.
//!
//! A frame that is too long for one message is cut into chunks, which the owner sends as one atomic batch:
//!
//! ```text
//! "TNC1"            4 bytes
//! index, of         4 bytes each, little endian: which chunk, of how many
//! part of the frame
//! ```
//!
//! Step 6 of the walk in docs/architecture.md.

use std::io::Cursor;

use serde::{Deserialize, Serialize};
use tenure_core::features::Features;
use tenure_core::id::{Millis, SessionId, TaskId, WalName};
use tenure_core::record::Labels;
use tenure_core::status::{FailedAs, TaskStatus};

/// Version of the form. A reader refuses a later one.
pub const FRAME_VERSION: u32 = 2;

/// Up to this version the commits in a frame are lines of a log; in later ones they are packed.
pub const LAST_OF_LINES: u32 = 1;

const FRAME: &[u8; 4] = b"TNF1";
const CHUNK: &[u8; 4] = b"TNC1";
const FRAME_HEAD: usize = 12;
/// How deep a header may nest, whatever a later version writes.
const DEPTH_MAX: usize = 64;
const CHUNK_HEAD: usize = 12;

/// The header of a frame, which says what the frame is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Header {
    /// Commits.
    Commits {
        /// [`FRAME_VERSION`] of the writer.
        version: u32,
        /// The writer's epoch.
        epoch: u64,
        /// One head for each commit, in the order of the body. A Task may come more than once.
        commits: Vec<CommitHead>,
    },
    /// A new owner takes the partition: the place of this frame in the stream is its epoch (OWN-03).
    Owner {
        /// [`FRAME_VERSION`] of the writer.
        version: u32,
        /// The node that takes it.
        node: String,
        /// An id of this taking, which no other has: so no owner takes another's record for its own.
        taking: String,
        /// For programs of the first edition, which refuse a number above theirs: 1, or 2 where the log may hold
        /// what the second edition added.
        write_level: u32,
        /// The features that the log may hold from here on (EVOLVE-02); older programs leave them out.
        #[serde(default, skip_serializing_if = "Features::is_empty")]
        features: Features,
    },
}

/// What the header of a frame says of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitHead {
    /// The session of its Task.
    pub session_id: SessionId,
    /// Its Task.
    pub task_id: TaskId,
    /// `wal_seq` of its first event.
    pub first_seq: u64,
    /// `wal_seq` of its last event.
    pub last_seq: u64,
    /// When it was decided.
    pub created_at: Millis,
    /// The stream sequence of the frame with the Task's previous commit outside of this frame; 0 if
    /// there is none.
    pub prev: u64,
    /// Bytes of the commit in the body.
    pub len: u32,
    /// What lists show of the Task, only with its first commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<Named>,
    /// The terminal status after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TaskStatus>,
    /// How it failed, if by a time limit or by losses; older programs do not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_as: Option<FailedAs>,
    /// Whether it archives the Task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
}

/// What lists show of a Task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// For people.
    pub title: String,
    /// Name of its log.
    pub wal_name: WalName,
    /// Names and values by which they find it (LABEL-01).
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// They do not begin with the marker of a frame.
    #[error("not a frame")]
    NoFrame,
    /// The checksum of the header is wrong.
    #[error("the header of the frame is damaged")]
    Damaged,
    /// The header cannot be read.
    #[error("the header of the frame cannot be read: {0}")]
    Header(String),
    /// A later version wrote it.
    #[error("the frame is of version {0}, this program reads up to {FRAME_VERSION}")]
    Version(u32),
    /// The body has another length than the header says.
    #[error("the body of the frame has {found} bytes, not {expected}")]
    Body {
        /// The length by the header, in bytes.
        expected: u64,
        /// The length of the body, in bytes.
        found: u64,
    },
}

/// A frame that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// Its commits, as bytes.
    pub body: &'a [u8],
}

/// Writes the bytes before the body of a frame, with capacity for a body of `room` bytes.
///
/// # Errors
/// The header cannot be serialized, or is too long.
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

/// Reads a frame, without reading its commits.
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
    /// The version of its writer.
    pub fn version(&self) -> u32 {
        match &self.header {
            Header::Commits { version, .. } | Header::Owner { version, .. } => *version,
        }
    }

    /// The commits of the frame, each with its bytes.
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
    /// Its number, from 0.
    pub index: u32,
    /// The number of chunks.
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

/// Reads a chunk; `None` if the bytes are not one.
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
