//! The index: derived, disposable, and right (P08, STORE-03, STORE-16).

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::common::{append, assert_holds, crashed, create, data_dir, lines_of, open, wal, work};
use tempfile::TempDir;
use tenure_core::status::End;
use tenure_local::{JsonlReader, OpenReport};
use tenure_ports::Journal;
use tenure_ports::journal::Entry;
use tenure_testkit::conformance::History;

fn index(dir: &Path) -> std::path::PathBuf {
    dir.join("index.jsonl")
}

async fn sorted<J: Journal>(journal: &J) -> Vec<Entry> {
    let mut entries = journal.entries(None).await.unwrap();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    entries
}

/// A live, an ended, an archived and a delivered Task, all in order, and the journal still open
/// behind the copy.
async fn four_tasks() -> (TempDir, Vec<History>, Vec<Entry>) {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut histories: Vec<_> =
        ["live", "ended", "archived", "delivered"].map(|name| History::of("s", name)).into();
    for (nth, history) in histories.iter_mut().enumerate() {
        create(&journal, history).await;
        work(&journal, history).await.unwrap();
        if nth > 0 {
            append(&journal, history, |h| drop(h.complete())).await.unwrap();
        }
    }
    append(&journal, &mut histories[2], |h| drop(h.archive())).await.unwrap();
    append(&journal, &mut histories[3], |h| drop(h.deliver())).await.unwrap();
    let entries = sorted(&journal).await;
    assert_eq!(entries.iter().filter(|entry| entry.ended.is_none()).count(), 1);
    (crashed(dir.path()), histories, entries)
}

async fn check(dir: &Path, histories: &[History], entries: &[Entry]) -> OpenReport {
    let reader = JsonlReader::open(dir).unwrap();
    let mut seen = reader.entries(None).await.unwrap();
    seen.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(seen, entries);
    let (journal, report) = open(dir);
    assert_eq!(sorted(&journal).await, entries);
    assert_eq!((report.tasks, report.live), (4, 1));
    for history in histories {
        assert_holds(&journal, history).await;
    }
    report
}

/// STORE-03: without the index nothing is missing.
#[tokio::test]
async fn a_lost_index_is_made_again() {
    let (dir, histories, entries) = four_tasks().await;
    fs::remove_file(index(dir.path())).unwrap();
    let report = check(dir.path(), &histories, &entries).await;
    assert_eq!(report.looked_into, 4);
    let report = check(dir.path(), &histories, &entries).await;
    assert_eq!(report.looked_into, 1, "only the live task is looked into again");
}

/// RECOVER-02: with the index, ended Tasks are not looked into, after a crash neither.
#[tokio::test]
async fn ended_tasks_are_left_alone() {
    let (dir, histories, entries) = four_tasks().await;
    let report = check(dir.path(), &histories, &entries).await;
    assert_eq!(report.looked_into, 1);
}

/// RECOVER-02: that a Task has ended is seen from its last lines; nothing else is read.
#[tokio::test]
async fn an_end_is_seen_from_the_last_lines() {
    let (dir, histories, entries) = four_tasks().await;
    fs::remove_file(index(dir.path())).unwrap();
    for history in &histories[1..] {
        let path = wal(dir.path(), history);
        let mut bytes = fs::read(&path).unwrap();
        let (_, offset, _) = lines_of(&bytes)[2]; // Neither the first nor among the last.
        bytes[usize::try_from(offset).unwrap() + 20] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let (journal, report) = open(dir.path());
    assert_eq!(report.damaged, []);
    assert_eq!(sorted(&journal).await, entries);
}

/// RECOVER-02: rows that lag behind after a crash are put right from the logs.
#[tokio::test]
async fn rows_that_lag_behind_are_put_right() {
    let (dir, histories, entries) = four_tasks().await;
    let text = fs::read(index(dir.path())).unwrap();
    let ends = lines_of(&text);
    for (_, offset, line) in ends {
        let end = usize::try_from(offset).unwrap();
        for cut in [end, end + line.len() / 2, end + line.len() - 1] {
            fs::write(index(dir.path()), &text[..cut]).unwrap();
            let copy = crashed(dir.path());
            check(copy.path(), &histories, &entries).await;
            check(copy.path(), &histories, &entries).await;
        }
    }
}

/// STORE-16: garbage in the index is passed over; no byte of it is believed against a log.
#[tokio::test]
async fn a_damaged_index_is_passed_over() {
    let (dir, histories, entries) = four_tasks().await;
    let sound = fs::read(index(dir.path())).unwrap();
    for at in (0..sound.len()).step_by(3) {
        let mut text = sound.clone();
        text[at] ^= 0x08;
        fs::write(index(dir.path()), &text).unwrap();
        let copy = crashed(dir.path());
        check(copy.path(), &histories, &entries).await;
    }
    for garbage in [&b"\0\0\0\0"[..], b"nonsense\n{\"mark\":\"closed\"}\n", &[0xff; 5000]] {
        fs::write(index(dir.path()), [&sound, garbage].concat()).unwrap();
        let copy = crashed(dir.path());
        check(copy.path(), &histories, &entries).await;
    }
}

/// STORE-16: the index does not grow with the number of starts.
#[tokio::test]
async fn a_stale_index_is_written_anew() {
    let (dir, histories, entries) = four_tasks().await;
    let mut sizes = Vec::new();
    for _ in 0..30 {
        check(dir.path(), &histories, &entries).await;
        sizes.push(fs::metadata(index(dir.path())).unwrap().len());
    }
    assert!(sizes.iter().max() < Some(&4000), "{sizes:?}");
    assert!(!dir.path().join("index.jsonl.new").exists());
}

/// STORE-16: a sparse index takes no room on a disk, and as one line it could take all memory. It is read up to there,
/// and written anew.
#[tokio::test]
async fn an_index_without_end_is_not_read_to_its_end() {
    for newline in ["", "\n"] {
        let (dir, histories, entries) = four_tasks().await;
        let file = fs::File::options().append(true).open(index(dir.path())).unwrap();
        file.set_len(1 << 40).unwrap();
        (&file).write_all(newline.as_bytes()).unwrap();
        let reader = JsonlReader::open(dir.path()).unwrap();
        assert_eq!(reader.entries(None).await.unwrap().len(), 4, "it reads the logs");
        check(dir.path(), &histories, &entries).await;
        assert!(fs::metadata(index(dir.path())).unwrap().len() < 4_000);
    }
}

/// P08: a log that comes from elsewhere is a Task; one that is gone is none.
#[tokio::test]
async fn logs_may_come_and_go_while_nobody_looks() {
    let (dir, histories, _) = four_tasks().await;
    drop(open(dir.path()));
    let other = data_dir();
    fs::create_dir_all(other.path().join("tasks/s")).unwrap();
    fs::copy(wal(dir.path(), &histories[1]), wal(other.path(), &histories[1])).unwrap();
    let (journal, report) = open(other.path());
    assert_eq!((report.tasks, report.live), (1, 0));
    assert_holds(&journal, &histories[1]).await;

    fs::remove_file(wal(dir.path(), &histories[1])).unwrap();
    let (journal, report) = open(dir.path());
    assert_eq!(report.tasks, 3);
    assert_eq!(journal.entry(&histories[1].key).await, Ok(None));
}

/// STORE-05: what is no log is left alone and told.
#[tokio::test]
async fn what_is_no_log_is_told() {
    let (dir, histories, entries) = four_tasks().await;
    let strange = ["tasks/s/notes.md", "tasks/s/UPPER.wal.jsonl", "tasks/stray.txt"];
    for path in strange {
        fs::write(dir.path().join(path), "x").unwrap();
    }
    let report = check(dir.path(), &histories, &entries).await;
    let mut ignored = report.ignored;
    ignored.sort();
    let mut expected = strange.map(|path| dir.path().join(path));
    expected.sort();
    assert_eq!(ignored, expected);
    assert!(strange.iter().all(|path| dir.path().join(path).exists()));
}

/// RECOVER-02: an end recorded while the index could not be written is an end.
#[tokio::test]
async fn an_end_without_a_row_is_an_end() {
    let (dir, mut histories, _) = four_tasks().await;
    let row = fs::read(index(dir.path())).unwrap();
    let (journal, _) = open(dir.path());
    append(&journal, &mut histories[0], |h| drop(h.complete())).await.unwrap();
    let crash = crashed(dir.path());
    fs::write(index(crash.path()), row).unwrap();
    let (journal, report) = open(crash.path());
    assert_eq!(report.live, 0);
    let entry = journal.entry(&histories[0].key).await.unwrap().unwrap();
    assert_eq!(entry.ended, Some(End::Completed));
}

/// STORE-14: a log that was exported is named by its Task, whatever `wal_name` it has, and is a log like any
/// other. (Two Tasks of a cluster with one `wal_name` could not be exported together.)
#[tokio::test]
async fn an_exported_log_has_the_name_of_its_task() {
    let dir = data_dir();
    let mut histories = ["one", "two"].map(|task| History::named("s", task, "nightly"));
    for history in &mut histories {
        let apart = data_dir();
        let (journal, _) = open(apart.path());
        create(&journal, history).await;
        let exported = dir.path().join(format!("tasks/s/{}.wal.jsonl", history.key.task_id));
        fs::create_dir_all(exported.parent().unwrap()).unwrap();
        fs::copy(wal(apart.path(), history), exported).unwrap();
    }
    for known in [0, 2] {
        let (journal, report) = open(dir.path());
        assert_eq!((report.tasks, report.damaged.len()), (2, 0), "with {known} rows in the index");
        for history in &mut histories {
            assert_holds(&journal, history).await;
            work(&journal, history).await.unwrap();
            let path = journal.wal_path(&history.key, &history.wal_name).unwrap();
            assert!(path.ends_with(&format!("/{}.wal.jsonl", history.key.task_id)), "{path}");
        }
    }
    let (reader, mut seen) = (JsonlReader::open(dir.path()).unwrap(), Vec::new());
    for entry in reader.entries(None).await.unwrap() {
        assert!(!entry.damaged);
        seen.push(entry.key.task_id.to_string());
    }
    seen.sort();
    assert_eq!(seen, ["one", "two"]);
}
