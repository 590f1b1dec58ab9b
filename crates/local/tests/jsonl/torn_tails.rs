//! What a crash may leave at the end of a log.

use std::fs;
use std::io;
use std::path::Path;

use crate::common::{
    SMALL, append, assert_holds, crashed, create, data_dir, equals, open, read_with, wal,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use tenure_local::{JsonlJournal, JsonlReader, Repair};
use tenure_ports::Journal;
use tenure_testkit::conformance::History;

/// A log whose last write carries three commits, and the directory as it was after each write.
async fn three_writes() -> (TempDir, History, Vec<u64>) {
    let dir = data_dir();
    let mut history = History::of("s", "t");
    let (journal, _) = open(dir.path());
    create(&journal, &mut history).await;
    append(&journal, &mut history, |h| drop(h.work(2))).await.unwrap();
    let mut ends = vec![0];
    let path = wal(dir.path(), &history);
    ends.extend(commit_ends(&path, &history));
    append(&journal, &mut history, |h| {
        h.work(3);
        h.work(1);
        h.work(2);
    })
    .await
    .unwrap();
    let ends = [0].into_iter().chain(commit_ends(&path, &history)).collect();
    (crashed(dir.path()), history, ends)
}

/// Where in the file each commit ends.
fn commit_ends(path: &Path, history: &History) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    let lines = crate::common::lines_of(&bytes);
    let end = |last: u64| {
        let (_, offset, line) = lines[usize::try_from(last).unwrap() - 1];
        offset + line.len() as u64
    };
    history.commits.iter().map(|commit| end(commit.last_seq())).collect()
}

/// The history as far as whole commits fit into `len` bytes, and where they end.
fn prefix(history: &History, ends: &[u64], len: u64) -> (History, u64) {
    let whole = ends.iter().filter(|end| **end <= len).count() - 1;
    let mut kept = history.clone();
    kept.commits.truncate(whole);
    (kept, ends[whole])
}

/// What follows the whole commits is cut, and the Task goes on as if it had never been there.
async fn check_recovery(dir: &Path, kept: &History, end: u64) {
    let path = wal(dir, kept);
    let size = fs::metadata(&path).unwrap().len();
    let torn = (size > end).then(|| Repair { file: path.clone(), offset: end, bytes: size - end });

    let reader = JsonlReader::open(dir).unwrap();
    let (seen, result) = read_with(&reader, &kept.key).await;
    assert_eq!(result, Ok(()));
    assert!(equals(&seen, &kept.commits));
    assert_eq!(fs::metadata(&path).unwrap().len(), size, "a reader never cuts");

    let (journal, report) = open(dir);
    assert_eq!(report.repairs, Vec::from_iter(torn));
    assert_eq!(report.damaged, []);
    assert_eq!(fs::metadata(&path).unwrap().len(), end);
    assert_holds(&journal, kept).await;
    let mut further = kept.clone();
    append(&journal, &mut further, |h| drop(h.work(1))).await.unwrap();
    assert_holds(&journal, &further).await;
    drop(journal);
    let (journal, report) = open(dir);
    assert_eq!(report.repairs, []);
    assert_holds(&journal, &further).await;
}

/// RECOVER-06, WAL-08: cut at every byte of the last write, replay gives a prefix of whole commits.
#[tokio::test]
async fn a_write_cut_anywhere_leaves_whole_commits() {
    let (template, history, ends) = three_writes().await;
    let path = wal(template.path(), &history);
    let bytes = fs::read(&path).unwrap();
    let index = template.path().join("index.jsonl");
    for cut in ends[2]..=ends[5] {
        fs::write(&path, &bytes[..usize::try_from(cut).unwrap()]).unwrap();
        let dir = crashed(template.path());
        if cut % 2 == 0 {
            fs::remove_file(dir.path().join("index.jsonl")).unwrap();
        }
        let (kept, end) = prefix(&history, &ends, cut);
        check_recovery(dir.path(), &kept, end).await;
    }
    assert!(index.exists());
}

/// RECOVER-06: a file system may leave NULs where data was on its way.
#[tokio::test]
async fn a_run_of_nuls_at_the_end_is_torn() {
    let (template, history, ends) = three_writes().await;
    let path = wal(template.path(), &history);
    let bytes = fs::read(&path).unwrap();
    let middle = (ends[4] + ends[5]) / 2;
    for cut in [ends[2], ends[3], ends[3] + 10, ends[5] - 1, middle, ends[5]] {
        for nuls in [1, 2, 4096, 200_000] {
            let mut torn = bytes[..usize::try_from(cut).unwrap()].to_vec();
            torn.resize(torn.len() + nuls, 0);
            fs::write(&path, torn).unwrap();
            let dir = crashed(template.path());
            let (kept, end) = prefix(&history, &ends, cut);
            check_recovery(dir.path(), &kept, end).await;
        }
    }
}

/// RECOVER-06, STORE-14: a creation that was cut off left no Task, and its name is free.
#[tokio::test]
async fn a_creation_cut_anywhere_never_was() {
    let (template, history, ends) = three_writes().await;
    let path = wal(template.path(), &history);
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(template.path().join("index.jsonl")).unwrap();
    for cut in (0..ends[1]).chain([ends[1] - 1]) {
        fs::write(&path, &bytes[..usize::try_from(cut).unwrap()]).unwrap();
        let dir = crashed(template.path());
        let reader = JsonlReader::open(dir.path()).unwrap();
        assert_eq!(reader.entry(&history.key).await, Ok(None));
        let (journal, report) = open(dir.path());
        let file = wal(dir.path(), &history);
        assert_eq!(report.repairs, [Repair { file: file.clone(), offset: 0, bytes: cut }]);
        assert_eq!((report.tasks, report.damaged), (0, vec![]));
        assert!(!file.exists());
        let mut again = History::of("s", "t");
        create(&journal, &mut again).await;
        assert_holds(&journal, &again).await;
    }
}

/// RECOVER-06: a tail torn after the end of a Task is cut as well.
#[tokio::test]
async fn an_ended_task_may_have_a_torn_tail() {
    let dir = data_dir();
    let mut history = History::of("s", "t");
    let (journal, _) = open(dir.path());
    create(&journal, &mut history).await;
    append(&journal, &mut history, |h| drop(h.complete())).await.unwrap();
    let crash = crashed(dir.path());
    let path = wal(crash.path(), &history);
    let end = fs::metadata(&path).unwrap().len();
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"wal_seq\":5,\"session_id\":\"s");
    fs::write(&path, bytes).unwrap();
    let (journal, report) = open(crash.path());
    assert_eq!(report.repairs, [Repair { file: path, offset: end, bytes: 28 }]);
    assert_eq!(report.live, 0);
    assert_holds(&journal, &history).await;
    append(&journal, &mut history, |h| drop(h.archive())).await.unwrap();
    assert_holds(&journal, &history).await;
}

/// What this process has logged since a test asked for it.
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was logged of one file.
fn logged_of(file: &Path) -> Vec<String> {
    let text = String::from_utf8(LOGGED.lock().clone()).unwrap();
    let (lines, file) = (text.lines(), file.display().to_string());
    lines.filter(|line| line.contains(&file)).map(str::to_owned).collect()
}

/// RECOVER-06: a tail that is found torn only when the Task is used is reported too, in the log.
#[tokio::test]
async fn a_tail_found_torn_later_is_reported_later() {
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false);
    log.with_writer(|| Logged).init(); // Threads of the journal log it.
    let dir = data_dir();
    let mut history = History::of("s", "t");
    let (journal, _) = open(dir.path());
    create(&journal, &mut history).await;
    append(&journal, &mut history, |h| drop(h.complete())).await.unwrap();
    drop(journal);
    let path = wal(dir.path(), &history);
    let end = fs::metadata(&path).unwrap().len();
    fs::write(&path, [fs::read(&path).unwrap(), vec![0; 100]].concat()).unwrap();
    let (journal, report) = JsonlJournal::open(dir.path(), SMALL).unwrap();
    assert_eq!(report.repairs, []);
    assert_eq!(logged_of(&path), [""; 0]);
    let cut = format!("cut off a torn tail file={} offset={end} bytes=100", path.display());
    for _ in 0..2 {
        assert_holds(&journal, &history).await;
        let logged = logged_of(&path);
        assert!(matches!(&logged[..], [line] if line.ends_with(&cut)), "once: {logged:?}");
    }
    journal.release(&history.key);
}

/// The report of opening says in lines for people what it says in values for programs.
#[tokio::test]
async fn the_report_can_be_printed() {
    let (dir, history, ends) = three_writes().await;
    let path = wal(dir.path(), &history);
    fs::write(&path, &fs::read(&path).unwrap()[..usize::try_from(ends[3] + 7).unwrap()]).unwrap();
    fs::write(dir.path().join("tasks/s/notes.md"), "x").unwrap();
    let (_, report) = open(dir.path());
    let expected = format!(
        "1 tasks, 1 live\n{}: cut 7 bytes of a torn write at byte {}\n{}: not a log",
        path.display(),
        ends[3],
        dir.path().join("tasks/s/notes.md").display(),
    );
    assert_eq!(report.to_string(), expected);
}
