//! What a start makes durable before it is believed. A process that was killed leaves what it wrote in the
//! memory of the system: it is read as if it were on the disk, and the next power failure may take it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tenure_local::JsonlJournal;
use tenure_testkit::conformance::History;

use crate::common::{
    Did, SMALL, TestDisk, append, crashed, create, data_dir, lines_of, open, wal, work,
};

/// Two live Tasks and an ended one in a session of their own, as their process left them.
async fn left(is_clean: bool) -> (TempDir, Vec<History>) {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut histories: Vec<_> = ["a", "b", "ended"].map(|name| History::of("s", name)).into();
    for history in &mut histories {
        create(&journal, history).await;
        work(&journal, history).await.unwrap();
    }
    append(&journal, &mut histories[2], |h| drop(h.complete())).await.unwrap();
    if is_clean {
        drop(journal);
        return (dir, histories);
    }
    (crashed(dir.path()), histories)
}

/// What a start does.
fn start(dir: &Path) -> (JsonlJournal<TestDisk>, TestDisk, Vec<Did>) {
    let disk = TestDisk::default();
    let (journal, _) = JsonlJournal::open_on(dir, SMALL, disk.clone()).unwrap();
    let did = disk.take();
    (journal, disk, did)
}

/// The logs, and the directories, that were made durable.
fn synced(did: &[Did]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let logs = did.iter().filter_map(|did| match did {
        Did::Sync(path) => Some(path.clone()),
        _ => None,
    });
    let dirs = did.iter().filter_map(|did| match did {
        Did::SyncedDir(path) => Some(path.clone()),
        _ => None,
    });
    let (mut logs, mut dirs): (Vec<_>, Vec<_>) = (logs.collect(), dirs.collect());
    logs.sort();
    dirs.sort();
    (logs, dirs)
}

fn index(dir: &Path) -> PathBuf {
    dir.join("index.jsonl")
}

/// WAL-05, mechanisms 14: after a crash the log of each Task that goes on is synced before it is believed, and
/// so are the names of sessions. The end of a Task that the index knows was on the disk before its row.
#[tokio::test]
async fn after_a_crash_live_logs_are_made_durable() {
    let (dir, histories) = left(false).await;
    let (_journal, _, did) = start(dir.path());
    let (logs, dirs) = synced(&did);
    assert_eq!(logs, [wal(dir.path(), &histories[0]), wal(dir.path(), &histories[1])]);
    assert_eq!(dirs, [dir.path().to_owned(), dir.path().join("tasks")]);
}

/// STORE-16, mechanisms 14: a log that the index does not know may be the work of a creation that broke off
/// before its name was durable: content and name are made so.
#[tokio::test]
async fn what_the_index_does_not_know_is_made_durable_with_its_name() {
    for is_clean in [true, false] {
        let (dir, histories) = left(is_clean).await;
        fs::remove_file(index(dir.path())).unwrap();
        let (_journal, _, did) = start(dir.path());
        let (logs, dirs) = synced(&did);
        let all: Vec<_> = histories.iter().map(|history| wal(dir.path(), history)).collect();
        assert_eq!(logs, all);
        let tasks = dir.path().join("tasks");
        assert_eq!(dirs, [dir.path().to_owned(), tasks.clone(), tasks.join("s")]);
    }
}

/// P08: a start after a good end waits for no log.
#[tokio::test]
async fn after_a_good_end_no_log_is_waited_for() {
    let (dir, _) = left(true).await;
    let (_journal, _, did) = start(dir.path());
    let (logs, dirs) = synced(&did);
    assert_eq!(logs, [] as [PathBuf; 0]);
    assert_eq!(dirs, [dir.path().to_owned(), dir.path().join("tasks")]);
}

/// STORE-16: that the index may lag behind from now on is on the disk before any log is written, also where it
/// is written anew; and that it does not, only after all that it says.
#[tokio::test]
async fn the_marks_of_the_index_are_durable_in_time() {
    let (dir, mut histories) = left(true).await;
    for is_rewritten in [false, true] {
        if is_rewritten {
            let stale = fs::read(index(dir.path())).unwrap().repeat(10);
            fs::write(index(dir.path()), stale).unwrap();
        }
        let (journal, disk, did) = start(dir.path());
        let text = fs::read(index(dir.path())).unwrap();
        let (_, _, last) = *lines_of(&text).last().unwrap();
        assert!(last.starts_with(br#"{"mark":"open""#), "{}", String::from_utf8_lossy(last));
        assert_eq!(did.iter().rfind(is_of_index), Some(&Did::SyncIndex(text.len() as u64)));

        work(&journal, &mut histories[0]).await.unwrap();
        append(&journal, &mut histories[0], |h| drop(h.work(1))).await.unwrap();
        assert!(!disk.take().iter().any(|did| is_of_index(&did)), "rows are not waited for");
        drop(journal);
        let before = fs::metadata(index(dir.path())).unwrap().len();
        let text = fs::read(index(dir.path())).unwrap();
        let (_, offset, last) = *lines_of(&text).last().unwrap();
        assert!(last.starts_with(br#"{"mark":"closed""#), "{}", String::from_utf8_lossy(last));
        assert_eq!(disk.take(), [Did::SyncIndex(offset), Did::SyncIndex(before)]);
    }
}

fn is_of_index(did: &&Did) -> bool {
    matches!(did, Did::SyncIndex(_))
}
