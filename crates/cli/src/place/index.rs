//! Reads the index of a data directory, which may come from elsewhere: a line at a time, and no long one.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use tenure_core::id::{SessionId, TaskId, WalName};
use tenure_wire::stored::is_sealed;

use super::scan::{LineReader, NextLine};

/// A Task in the index.
#[derive(Debug, Deserialize)]
pub(crate) struct Indexed {
    pub(crate) session_id: SessionId,
    pub(crate) task_id: TaskId,
    pub(crate) wal_name: WalName,
}

/// The Tasks in the index of a data directory, up to a line that cannot be read or that is longer than a line may
/// be. Lines that are damaged are left out.
pub(super) fn indexed(data: &Path) -> Vec<Indexed> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    let Ok(mut lines) = LineReader::open(&data.join("index.jsonl")) else { return all };
    while let Ok(NextLine::Line(line)) = lines.next() {
        if let Some(row) = row(line)
            && seen.insert((row.session_id.clone(), row.wal_name.clone()))
        {
            all.push(row);
        }
    }
    all
}

fn row(line: &[u8]) -> Option<Indexed> {
    is_sealed(line).then(|| serde_json::from_slice(line).ok())?
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use tenure_wire::stored::{LINE_MAX, seal};

    use super::*;

    fn line_of(task: &str) -> Vec<u8> {
        let row = format!(r#"{{"session_id":"main","task_id":"{task}","wal_name":"{task}""#);
        let mut line = row.into_bytes();
        seal(&mut line, 0);
        line
    }

    fn tasks(data: &Path) -> Vec<String> {
        indexed(data).iter().map(|row| row.task_id.to_string()).collect()
    }

    /// Each Task counts once, and a line without its checksum not at all.
    #[test]
    fn an_index_has_the_tasks_of_its_sound_lines() {
        let data = tempfile::tempdir().unwrap();
        assert!(indexed(data.path()).is_empty(), "there is none");
        let unsealed = b"{\"session_id\":\"main\",\"task_id\":\"c\",\"wal_name\":\"c\"}\n".to_vec();
        let lines = [line_of("a"), line_of("b"), line_of("a"), b"\n".to_vec(), unsealed];
        let whole = [lines.concat(), line_of("d")].concat();
        std::fs::write(data.path().join("index.jsonl"), whole).unwrap();
        assert_eq!(tasks(data.path()), ["a", "b", "d"]);
    }

    /// A file of NULs takes no room on a disk, and as one line it could take all memory.
    #[test]
    fn a_line_that_is_too_long_ends_an_index() {
        for (nuls, known) in [(LINE_MAX, &["a", "b"][..]), (LINE_MAX + 1, &["a"])] {
            let data = tempfile::tempdir().unwrap();
            let path = data.path().join("index.jsonl");
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(&line_of("a")).unwrap();
            let len = file.metadata().unwrap().len();
            file.set_len(len + nuls as u64).unwrap();
            file.write_all(b"\n").unwrap();
            file.write_all(&line_of("b")).unwrap();
            assert_eq!(tasks(data.path()), known, "{nuls}");
        }
    }
}
