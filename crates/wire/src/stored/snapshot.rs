//! The stored form of a Task's state: its records, folded from its log up to an event (mechanisms
//! 5).
//!
//! ```text
//! "TNS1"            4 bytes
//! version           4 bytes, little endian
//! checksum          4 bytes, little endian: CRC-32 (IEEE) of the records
//! records           MessagePack map (see Records)
//! ```
//!
//! It is derived and disposable. A node that cannot read it reads the log instead. So there is only
//! one version, and no code reads an older one.

use serde::{Deserialize as _, Serialize as _};
use tenure_core::task::TaskSnapshot;

use super::frame::split_u32;

/// Version of the form, and of what the reducer makes of a log: a state that an older version has
/// folded may differ from what the log gives now.
pub const STATE_VERSION: u32 = 2;

const STATE: &[u8; 4] = b"TNS1";
/// How deep records may nest: JSON that a caller gave has 120 levels at most, and records have some around it.
const DEPTH_MAX: usize = 160;

/// Why bytes are no stored state, or why a state cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes are something else, or are cut off.
    #[error("it is no state")]
    NoState,
    /// A writer of another version wrote them.
    #[error("it is a state of version {0}")]
    Version(u32),
    /// Some bytes have changed.
    #[error("the checksum of its records is wrong")]
    Damaged,
    /// The records cannot be read, or have no form in MessagePack.
    #[error("its records: {0}")]
    Records(String),
}

/// A Task's records as bytes.
///
/// # Errors
/// A value in the records has no form in MessagePack.
pub fn encode_snapshot(records: &TaskSnapshot) -> Result<Vec<u8>, SnapshotError> {
    let mut out = STATE.to_vec();
    out.extend_from_slice(&STATE_VERSION.to_le_bytes());
    let place = out.len();
    out.extend_from_slice(&[0; 4]);
    let written = records.serialize(&mut rmp_serde::Serializer::new(&mut out).with_struct_map());
    written.map_err(|error| SnapshotError::Records(error.to_string()))?;
    let crc = crc32fast::hash(&out[place + 4..]);
    out[place..place + 4].copy_from_slice(&crc.to_le_bytes());
    Ok(out)
}

/// Reads the records from bytes.
///
/// # Errors
/// See [`SnapshotError`].
pub fn decode_snapshot(bytes: &[u8]) -> Result<TaskSnapshot, SnapshotError> {
    let rest = bytes.strip_prefix(STATE).ok_or(SnapshotError::NoState)?;
    let (version, rest) = split_u32(rest).ok_or(SnapshotError::NoState)?;
    let (crc, records) = split_u32(rest).ok_or(SnapshotError::NoState)?;
    if version != STATE_VERSION {
        return Err(SnapshotError::Version(version));
    }
    if crc32fast::hash(records) != crc {
        return Err(SnapshotError::Damaged);
    }
    let mut from = rmp_serde::Deserializer::from_read_ref(records);
    from.set_max_depth(DEPTH_MAX);
    let unread = |why: &dyn std::fmt::Display| SnapshotError::Records(why.to_string());
    let read = TaskSnapshot::deserialize(&mut from).map_err(|error| unread(&error))?;
    read.check().map_err(|why| unread(&why))?;
    Ok(read)
}
