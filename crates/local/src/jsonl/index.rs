//! The index file: a row per Task, so that a start need not read every log to know the Tasks (P08).
//!
//! It is derived and disposable (STORE-16): the journal adds rows without a sync, the last row of a
//! log counts, and readers skip torn or damaged lines. A journal marks the file when it opens and
//! when it closes well. Only after a good close does the next start trust rows of ended Tasks as
//! they stand; otherwise it compares them with the sizes of the logs.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tenure_core::id::{Millis, SessionId, TaskId, WalName};
use tenure_core::record::Labels;
use tenure_core::status::End;
use tenure_ports::journal::TaskKey;
use tenure_wire::stored::{is_sealed, seal};

use super::disk::Disk;
use super::lines::{Forward, LineFault};
use super::seek::START;
use crate::regular::open_regular;

/// A row of the index: what it stores of a Task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexRow {
    pub(crate) session_id: SessionId,
    pub(crate) task_id: TaskId,
    pub(crate) wal_name: WalName,
    pub(crate) title: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(crate) labels: Labels,
    pub(crate) created_at: Millis,
    pub(crate) updated_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<End>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) archived: bool,
    /// Bytes of the log when the row was written: an ended Task's log of another length has
    /// changed since.
    pub(crate) len: u64,
}

impl IndexRow {
    pub(crate) fn key(&self) -> TaskKey {
        TaskKey { session_id: self.session_id.clone(), task_id: self.task_id.clone() }
    }
}

#[derive(Serialize, Deserialize)]
struct IndexMark {
    mark: IndexState,
}

/// The state of a journal, as it marks it in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum IndexState {
    /// It writes logs, and rows may lag behind.
    Open,
    /// It closed with every row written.
    Closed,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum IndexRecord {
    Row(IndexRow),
    Mark(IndexMark),
}

/// Where a log lies.
pub(crate) type LogPlace = (SessionId, WalName);

/// The content of an index file.
#[derive(Debug, Default)]
pub(crate) struct IndexRows {
    pub(crate) rows: HashMap<LogPlace, IndexRow>,
    /// Lines that do not count any more, or never did.
    pub(crate) stale: usize,
    /// Whether the last line says that the journal closed well.
    pub(crate) is_clean: bool,
    /// How far the file was read: the end of its last complete line.
    pub(crate) read_to: u64,
    /// Logs whose rows came with the last [`read_on`](Self::read_on).
    pub(crate) fresh: Vec<LogPlace>,
}

impl IndexRows {
    /// Reads the lines that were added since the last call.
    pub(crate) fn read_on(&mut self, mut file: &File) -> io::Result<()> {
        self.fresh.clear();
        file.seek(SeekFrom::Start(self.read_to))?;
        let start = self.read_to;
        let mut lines = Forward::new(file, START, u64::MAX);
        loop {
            match lines.next() {
                Ok(Some(line)) => {
                    self.take(line);
                    self.read_to = start + lines.end();
                }
                Ok(None) => return Ok(()),
                Err(LineFault::TooLong) => {
                    self.stale = usize::MAX; // The rest is not read: the file must be written anew.
                    return Ok(());
                }
                Err(LineFault::Io(error)) => return Err(error),
            }
        }
    }

    fn take(&mut self, line: &[u8]) {
        let record = is_sealed(line).then(|| serde_json::from_slice(line).ok()).flatten();
        self.is_clean =
            matches!(record, Some(IndexRecord::Mark(IndexMark { mark: IndexState::Closed })));
        match record {
            Some(IndexRecord::Row(row)) => {
                let place = (row.session_id.clone(), row.wal_name.clone());
                self.fresh.push(place.clone());
                let is_known = self.rows.insert(place, row).is_some();
                self.stale = self.stale.saturating_add(usize::from(is_known));
            }
            Some(IndexRecord::Mark(_)) | None => self.stale = self.stale.saturating_add(1),
        }
    }
}

/// The index as the journal that holds the lock writes it.
#[derive(Debug)]
pub(crate) struct FileIndex {
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    line: Vec<u8>,
    /// Whether a row did not reach the file, or a log may differ from its row.
    in_doubt: bool,
}

impl FileIndex {
    /// Continues the file at `path`, or creates it.
    pub(crate) fn resume(disk: &impl Disk, path: &Path) -> io::Result<Self> {
        let mut file = open_regular(path, OpenOptions::new().append(true).create(true))?;
        if file.metadata()?.len() > 0 {
            file.write_all(b"\n")?; // Its last line may be torn.
        }
        let file = Self::begin(disk, file)?;
        Ok(Self { writer: Mutex::new(Writer { file, line: Vec::new(), in_doubt: false }) })
    }

    /// Replaces the file at `path` by one with these rows and nothing else.
    pub(crate) fn rewrite(
        &self,
        disk: &impl Disk,
        (path, draft): (&Path, &Path),
        rows: impl Iterator<Item = IndexRow>,
    ) -> io::Result<()> {
        let mut writer = self.writer.lock();
        let options = &mut OpenOptions::new();
        let draft_file = open_regular(draft, options.write(true).create(true).truncate(true))?;
        let mut out = BufWriter::new(draft_file);
        for row in rows {
            writer.line.clear();
            write_line(&mut writer.line, &row)?;
            out.write_all(&writer.line)?;
        }
        let file = out.into_inner()?;
        writer.file = Self::begin(disk, file)?;
        std::fs::rename(draft, path)
    }

    /// Marks the file, durably, as one whose rows may lag behind from now on.
    fn begin(disk: &impl Disk, mut file: File) -> io::Result<File> {
        let mut line = Vec::new();
        write_line(&mut line, &IndexMark { mark: IndexState::Open })?;
        file.write_all(&line)?;
        disk.sync_index(&file)?;
        Ok(file)
    }

    /// Adds rows. A failure costs only time at the next start.
    pub(crate) fn add(&self, rows: impl Iterator<Item = IndexRow>) {
        let mut writer = self.writer.lock();
        if let Err(error) = writer.add(rows) {
            tracing::warn!(%error, "the index could not be written and will be rebuilt");
            writer.in_doubt = true;
        }
    }

    /// Notes that some log may differ from its row.
    pub(crate) fn doubt(&self) {
        self.writer.lock().in_doubt = true;
    }

    /// Marks the file, durably, as complete if every row is written.
    pub(crate) fn close(&self, disk: &impl Disk) {
        let mut writer = self.writer.lock();
        if !writer.in_doubt
            && let Err(error) = writer.close(disk)
        {
            tracing::warn!(%error, "the index could not be closed and will be checked");
        }
    }
}

impl Writer {
    fn add(&mut self, rows: impl Iterator<Item = IndexRow>) -> io::Result<()> {
        self.line.clear();
        if self.in_doubt {
            self.line.push(b'\n'); // What was written last may be torn.
        }
        for row in rows {
            write_line(&mut self.line, &row)?;
        }
        self.file.write_all(&self.line)
    }

    fn close(&mut self, disk: &impl Disk) -> io::Result<()> {
        disk.sync_index(&self.file)?;
        self.line.clear();
        write_line(&mut self.line, &IndexMark { mark: IndexState::Closed })?;
        self.file.write_all(&self.line)?;
        disk.sync_index(&self.file)
    }
}

fn write_line(out: &mut Vec<u8>, record: &impl Serialize) -> io::Result<()> {
    let start = out.len();
    serde_json::to_writer(&mut *out, record)?;
    out.pop(); // The closing brace: the checksum goes before it.
    seal(out, start);
    Ok(())
}
