//! One line of a log.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::crc::crc32;

/// One event.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub(super) wal_seq: u64,
    pub(super) session_id: String,
    pub(super) task_id: String,
    pub(super) event_id: String,
    pub(super) event_type: String,
    pub(super) actor_agent_id: String,
    #[serde(default)]
    pub(super) step_id: Option<String>,
    pub(super) payload: BTreeMap<String, Value>,
    pub(super) created_at: i64,
    pub(super) schema_version: u32,
    pub(super) commit_id: String,
    pub(super) commit_index: u32,
    pub(super) commit_count: u32,
    pub(super) epoch: u64,
    pub(super) crc: u32,
}

impl Line {
    /// Reads a line and holds it against its checksum.
    pub(super) fn read(text: &[u8]) -> Result<Self> {
        let line: Self = serde_json::from_slice(text).context("not a line of a log")?;
        let end = format!(",\"crc\":{}}}", line.crc);
        let before =
            text.strip_suffix(end.as_bytes()).context("the checksum does not stand last")?;
        let expected = crc32(&[before, b"}"]);
        ensure!(line.crc == expected, "the checksum is {} and should be {expected}", line.crc);
        ensure!(
            line.event_id == format!("{}.{}", line.commit_id, line.commit_index),
            "wrong event_id"
        );
        ensure!(line.schema_version == 1, "wrong version");
        Ok(line)
    }

    /// A text of the payload.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.payload.get(key)?.as_str()
    }

    /// A number of the payload.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.payload.get(key)?.as_u64()
    }
}
