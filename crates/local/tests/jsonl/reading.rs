//! Another process looks on.

use std::fs;
use std::sync::Arc;

use crate::common::{append, create, data_dir, equals, open, read_with, wal, work};
use tenure_core::id::SessionId;
use tenure_core::status::End;
use tenure_local::{JsonlReader, OpenError};
use tenure_ports::Journal;
use tenure_ports::journal::ReadError;
use tenure_testkit::conformance::History;

/// WAL-08: a reader beside the writer sees whole commits, and every one of them in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_follows_a_writer() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let journal = Arc::new(journal);
    let reader = JsonlReader::open(dir.path()).unwrap();
    let mut history = History::of("s", "t");
    assert_eq!(reader.entry(&history.key).await, Ok(None));
    create(&*journal, &mut history).await;
    let key = history.key.clone();
    let (writer, mut plan) = (journal.clone(), history.clone());
    for n in 0..200 {
        plan.work(1 + n % 5);
    }
    plan.complete();
    let all = plan.clone();
    let writing = tokio::spawn(async move {
        let known = history.commits.len();
        for commit in &plan.commits[known..] {
            writer.append(&key, commit.first_seq - 1, vec![commit.clone()]).await.unwrap();
        }
    });
    let mut seen = 0;
    while seen < all.commits.len() {
        let (read, result) = read_with(&reader, &all.key).await;
        assert_eq!(result, Ok(()));
        assert!(read.len() >= seen && equals(&read, &all.commits[..read.len()]));
        seen = read.len();
        let entry = reader.entry(&all.key).await.unwrap().unwrap();
        assert!(!entry.damaged && entry.updated_at >= all.commits[seen - 1].created_at);
    }
    writing.await.unwrap();
    let entry = reader.entry(&all.key).await.unwrap().unwrap();
    assert_eq!(entry.ended, Some(End::Completed));
    assert_eq!(reader.entries(None).await, Ok(vec![entry]));
    drop(journal);
}

/// What happens after a reader has looked is seen when it looks again, with an index or without.
#[tokio::test]
async fn a_reader_sees_what_is_new() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let reader = JsonlReader::open(dir.path()).unwrap();
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    for round in 0..3 {
        let mut other = History::of("s", &format!("u{round}"));
        create(&journal, &mut other).await;
        work(&journal, &mut history).await.unwrap();
        let entry = reader.entry(&history.key).await.unwrap().unwrap();
        assert_eq!(entry.updated_at, history.updated_at());
        assert_eq!(reader.entries(Some(&history.key.session_id)).await.unwrap().len(), round + 2);
        if round == 1 {
            fs::remove_file(dir.path().join("index.jsonl")).unwrap();
        }
    }
    append(&journal, &mut history, |h| drop(h.complete())).await.unwrap();
    assert!(reader.entry(&history.key).await.unwrap().unwrap().ended.is_some());
    append(&journal, &mut history, |h| drop(h.archive())).await.unwrap();
    assert!(reader.entry(&history.key).await.unwrap().unwrap().archived);
    let journal_has = journal.entry(&history.key).await.unwrap();
    assert_eq!(reader.entry(&history.key).await.unwrap(), journal_has);
    let none = SessionId::new("none").unwrap();
    assert_eq!(reader.entries(Some(&none)).await, Ok(vec![]));
    let unknown = History::of("s", "unknown").key;
    assert_eq!(read_with(&reader, &unknown).await.1, Err(ReadError::NotFound));
}

/// Readers take no lock and change nothing, not even what is torn.
#[tokio::test]
async fn a_reader_changes_nothing() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    drop(journal);
    let path = wal(dir.path(), &history);
    let torn = [fs::read(&path).unwrap(), b"{\"wal_seq\":4,".to_vec()].concat();
    fs::write(&path, &torn).unwrap();
    let index = fs::read(dir.path().join("index.jsonl")).unwrap();
    let reader = JsonlReader::open(dir.path()).unwrap();
    let (read, result) = read_with(&reader, &history.key).await;
    assert_eq!(result, Ok(()));
    assert!(equals(&read, &history.commits));
    assert_eq!(reader.entries(None).await.unwrap().len(), 1);
    assert_eq!(fs::read(&path).unwrap(), torn);
    assert_eq!(fs::read(dir.path().join("index.jsonl")).unwrap(), index);
    open(dir.path()); // The lock is free.
}

#[tokio::test]
async fn an_empty_or_missing_directory_is_no_trouble() {
    let dir = data_dir();
    let reader = JsonlReader::open(dir.path()).unwrap();
    assert_eq!(reader.entries(None).await, Ok(vec![]));
    let missing = dir.path().join("missing");
    assert!(matches!(JsonlReader::open(&missing), Err(OpenError::Missing(_))));
}

/// GET-01: how an ended log ends is known without reading its commits, also after a restart: whoever reads it page
/// by page need not fold it for each page.
#[tokio::test]
async fn an_ended_log_says_where_it_ends() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut history = History::of("s", "t");
    assert_eq!(journal.ended(&history.key).await, None);
    create(&journal, &mut history).await;
    assert_eq!(journal.ended(&history.key).await, None, "it is live");
    append(&journal, &mut history, |h| drop(h.complete())).await.unwrap();
    let ended = journal.ended(&history.key).await.unwrap();
    assert_eq!((ended.version, ended.end), (history.last_seq(), End::Completed));
    assert_eq!(ended.bytes, fs::metadata(wal(dir.path(), &history)).unwrap().len());
    drop(journal);
    let (journal, _) = open(dir.path());
    assert_eq!(journal.ended(&history.key).await, Some(ended));
}
