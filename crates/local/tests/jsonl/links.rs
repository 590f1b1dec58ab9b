//! A data directory may come from elsewhere, with links in place of its directories.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tenure_local::{JsonlJournal, JsonlReader, OpenError};
use tenure_ports::Journal as _;
use tenure_ports::journal::AppendError;
use tenure_testkit::conformance::History;

use crate::common::{SMALL, assert_holds, create, data_dir, open, read_with, wal, work};

/// The files below a directory, with what they hold.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

/// A Task whose log has a torn tail, which an opening cuts off, beside a log that was never finished, which it removes.
async fn torn() -> (TempDir, History) {
    let (dir, mut history) = (data_dir(), History::of("s", "t"));
    let (journal, _) = open(dir.path());
    create(&journal, &mut history).await;
    drop(journal);
    let path = wal(dir.path(), &history);
    let text = [fs::read(&path).unwrap(), b"{\"wal_seq\":4,".to_vec()].concat();
    fs::write(&path, text).unwrap();
    fs::write(path.with_file_name("unborn.wal.jsonl"), "").unwrap();
    (dir, history)
}

/// Nothing is read, written or removed behind a link, also where the index says that Tasks are there.
#[tokio::test]
async fn no_link_leads_to_logs() {
    for (level, with_index) in
        [("tasks", true), ("tasks", false), ("tasks/s", true), ("tasks/s", false)]
    {
        let ((elsewhere, history), data) = (torn().await, data_dir());
        let link = data.path().join(level);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(elsewhere.path().join(level), &link).unwrap();
        if with_index {
            let name = "index.jsonl";
            fs::copy(elsewhere.path().join(name), data.path().join(name)).unwrap();
        }
        let before = files(elsewhere.path());

        let refused = |said: String| {
            let expected =
                format!("{level} is no regular directory: put the directory itself there");
            assert!(said.contains(&expected), "{level}: {said}");
        };
        let opened = JsonlJournal::open(data.path(), SMALL).map(drop).unwrap_err();
        assert!(matches!(opened, OpenError::Io { .. }), "{opened:?}");
        refused(opened.source().unwrap().to_string());
        let reader = JsonlReader::open(data.path()).unwrap();
        refused(reader.entries(None).await.unwrap_err().to_string());
        let session = Some(&history.key.session_id);
        refused(reader.entries(session).await.unwrap_err().to_string());
        refused(reader.entry(&history.key).await.unwrap_err().to_string());
        let (read, result) = read_with(&reader, &history.key).await;
        assert_eq!(read, []);
        refused(result.unwrap_err().to_string());
        assert_eq!(files(elsewhere.path()), before, "{level}");
    }
}

/// A link that comes while somebody is at work gets no log.
#[tokio::test]
async fn no_log_is_made_behind_a_link() {
    let (data, elsewhere) = (data_dir(), data_dir());
    let (journal, _) = open(data.path());
    symlink(elsewhere.path(), data.path().join("tasks/s")).unwrap();
    let mut history = History::of("s", "t");
    let commit = history.create();
    let made = journal.create(&history.key, &history.wal_name, vec![commit]).await;
    let Err(AppendError::Failed(said)) = made else { panic!("{made:?}") };
    assert!(said.contains("tasks/s is no regular directory"), "{said}");
    assert!(files(elsewhere.path()).is_empty());
    // The other sessions are no worse off.
    create(&journal, &mut History::of("r", "t")).await;
}

/// Who names a data directory may do so by links.
#[tokio::test]
async fn links_may_lead_to_a_data_directory() {
    let (data, beside) = (data_dir(), data_dir());
    let link = beside.path().join("link");
    symlink(data.path(), &link).unwrap();
    let mut history = History::of("s", "t");
    let (journal, _) = open(&link);
    create(&journal, &mut history).await;
    drop(journal);
    let (journal, report) = open(&link);
    assert_eq!((report.tasks, report.damaged.len()), (1, 0));
    work(&journal, &mut history).await.unwrap();
    assert_holds(&journal, &history).await;
    let reader = JsonlReader::open(&link).unwrap();
    assert_eq!(reader.entries(None).await.unwrap().len(), 1);
}
