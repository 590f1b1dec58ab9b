//! What no crash leaves: it is found, named, and kept from spreading.

use std::fs;
use std::path::Path;

use crate::common::{
    append, assert_holds, crashed, create, data_dir, equals, lines_of, open, read_from,
};
use crate::common::{read_with, wal};
use tempfile::TempDir;
use tenure_local::JsonlReader;
use tenure_ports::Journal;
use tenure_ports::journal::{AppendError, ReadError};
use tenure_testkit::conformance::History;
use tenure_wire::stored::{encode, seal};

/// Two Tasks of one session, left by a crash.
async fn two_tasks() -> (TempDir, History, History) {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let (mut one, mut other) = (History::of("s", "one"), History::of("s", "other"));
    for history in [&mut one, &mut other] {
        create(&journal, history).await;
        append(&journal, history, |h| drop(h.work(2))).await.unwrap();
        append(&journal, history, |h| {
            h.work(1);
            h.work(2);
        })
        .await
        .unwrap();
    }
    (crashed(dir.path()), one, other)
}

fn place(error: ReadError) -> (String, u64, u64) {
    match error {
        ReadError::Damaged { file, line, offset, .. } => (file, line, offset),
        other => panic!("{other:?}"),
    }
}

/// The commits before a line.
fn before(history: &History, line: u64) -> History {
    let mut kept = history.clone();
    kept.commits.retain(|commit| commit.last_seq() < line);
    kept
}

/// RECOVER-05: every byte of every complete line counts.
#[tokio::test]
async fn a_flipped_byte_is_found_where_it_is() {
    let (dir, history, _) = two_tasks().await;
    let path = wal(dir.path(), &history);
    let sound = fs::read(&path).unwrap();
    let reader = JsonlReader::open(dir.path()).unwrap();
    reader.entry(&history.key).await.unwrap().unwrap();
    let mut bytes = sound.clone();
    for (line, offset, text) in lines_of(&sound) {
        let start = usize::try_from(offset).unwrap();
        let end = (start + text.len()).min(sound.len() - 1); // The file's last newline: torn.
        for at in start..end {
            for mask in [0x01, 0x20, 0xff] {
                bytes[at] = sound[at] ^ mask;
                fs::write(&path, &bytes).unwrap();
                let (seen, result) = read_with(&reader, &history.key).await;
                let expected = (path.display().to_string(), line, offset);
                assert_eq!(place(result.unwrap_err()), expected, "byte {at} ^ {mask:#x}");
                assert!(equals(&seen, &before(&history, line).commits));
                bytes[at] = sound[at];
            }
        }
    }
}

/// RECOVER-04, RECOVER-05: the lock holder finds the same, cuts nothing, and serves the others.
#[tokio::test]
async fn a_damaged_log_is_its_own_tasks_trouble() {
    let (template, history, other) = two_tasks().await;
    let path = wal(template.path(), &history);
    let sound = fs::read(&path).unwrap();
    for (number, (line, offset, text)) in lines_of(&sound).into_iter().enumerate() {
        let start = usize::try_from(offset).unwrap();
        for at in (start..start + text.len() - 1).step_by(7) {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x04;
            fs::write(&path, &bytes).unwrap();
            let dir = crashed(template.path());
            if (at + number) % 2 == 0 {
                fs::remove_file(dir.path().join("index.jsonl")).unwrap();
            }
            check_damage(dir.path(), &history, &other, (line, offset)).await;
            assert_eq!(fs::read(wal(dir.path(), &history)).unwrap(), bytes, "nothing is cut");
        }
    }
}

async fn check_damage(dir: &Path, history: &History, other: &History, (line, offset): (u64, u64)) {
    let expected = (wal(dir, history).display().to_string(), line, offset);
    let (journal, report) = open(dir);
    assert_eq!(report.repairs, []);
    assert_eq!(report.tasks, 2);
    for damage in report.damaged {
        assert_eq!((damage.task, place(damage.error)), (history.key.clone(), expected.clone()));
    }
    let (seen, result) = read_from(&journal, &history.key).await;
    assert_eq!(place(result.unwrap_err()), expected);
    assert!(equals(&seen, &before(history, line).commits));
    assert!(journal.entry(&history.key).await.unwrap().unwrap().damaged);

    let mut other = other.clone();
    assert_holds(&journal, &other).await;
    append(&journal, &mut other, |h| drop(h.work(1))).await.unwrap();
    assert!(!journal.entry(&other.key).await.unwrap().unwrap().damaged);
}

/// RECOVER-04: a log whose end is damaged takes nothing more.
#[tokio::test]
async fn a_log_with_a_damaged_end_is_not_written() {
    let (dir, mut history, _) = two_tasks().await;
    let path = wal(dir.path(), &history);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 30;
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (journal, report) = open(dir.path());
    assert_eq!(report.damaged.len(), 1);
    let refused = append(&journal, &mut history, |h| drop(h.work(1))).await;
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// Lines of a history, each without its newline.
fn encoded(history: &History) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for commit in &history.commits {
        encode(commit, &history.key.session_id, &history.key.task_id, &mut out).unwrap();
    }
    lines_of(&out).into_iter().map(|(_, _, line)| line[..line.len() - 1].to_vec()).collect()
}

/// The line with a text replaced, under a checksum that is right.
fn forged(line: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = str::from_utf8(line).unwrap();
    let (before, _) = text.rsplit_once(",\"crc\":").unwrap();
    assert!(before.contains(from), "{before}");
    let mut out = before.replace(from, to).into_bytes();
    seal(&mut out, 0);
    out.pop();
    out
}

/// RECOVER-05, WAL-04, WAL-12: what is well-formed and still no history of this Task.
#[tokio::test]
async fn a_line_that_does_not_belong_is_refused() {
    let (dir, history, other) = two_tasks().await;
    let path = wal(dir.path(), &history);
    let lines = encoded(&history);
    let foreign = encoded(&other);
    let at = 3; // The first line of the second commit, which has two.
    let mut cases: Vec<(&str, Vec<Vec<u8>>, u64)> = Vec::new();
    let mut case = |what, line: u64, change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut changed = lines.clone();
        change(&mut changed);
        cases.push((what, changed, line));
    };
    let forge = |n: usize, from: &'static str, to: &'static str| {
        let line = forged(&lines[n], from, to);
        move |lines: &mut Vec<Vec<u8>>| lines[n].clone_from(&line)
    };
    case("a gap", 4, &|lines| drop(lines.remove(at)));
    case("a repeat", 5, &|lines| lines.insert(at + 1, lines[at].clone()));
    case("a swap", 4, &|lines| lines.swap(at, at + 1));
    case("another task's line", 4, &|lines| lines[at].clone_from(&foreign[at]));
    case("no JSON", 4, &|lines| lines[at] = b"hello".to_vec());
    case("an empty line", 4, &|lines| lines[at].clear());
    case("another session", 4, &forge(at, "\"session_id\":\"s\"", "\"session_id\":\"z\""));
    case("a foreign task", 4, &forge(at, "\"task_id\":\"one\"", "\"task_id\":\"two\""));
    case("an unknown type", 4, &forge(at, "\"task_progress\"", "\"task_slept\""));
    case("an unknown schema", 4, &forge(at, "\"schema_version\":1", "\"schema_version\":2"));
    case("an unknown field", 4, &forge(at, "\"epoch\":0", "\"epoch\":0,\"mood\":1"));
    case(
        "an unknown payload field",
        4,
        &forge(at, "\"progress\":{", "\"regress\":1,\"progress\":{"),
    );
    case("a count too small", 5, &forge(at + 1, "\"commit_count\":2", "\"commit_count\":1"));
    case("an index that skips", 4, &forge(at, "\"commit_index\":0", "\"commit_index\":1"));
    case("another time in a commit", 5, &forge(at + 1, "\"created_at\":17", "\"created_at\":18"));
    for (what, lines, line) in cases {
        let text: Vec<u8> = lines.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect();
        let offset = lines[..usize::try_from(line).unwrap() - 1].iter().map(|l| l.len() as u64 + 1);
        let offset = offset.sum();
        fs::write(&path, &text).unwrap();
        let (journal, report) = open(dir.path());
        assert_eq!(report.repairs, [], "{what}");
        let (seen, result) = read_from(&journal, &history.key).await;
        let expected = (path.display().to_string(), line, offset);
        assert_eq!(place(result.unwrap_err()), expected, "{what}");
        assert!(equals(&seen, &before(&history, line).commits), "{what}");
        assert_holds(&journal, &other).await;
        assert_eq!(fs::read(&path).unwrap(), text, "{what}");
    }
}

/// RECOVER-05: a field marked as ignorable is passed over.
#[tokio::test]
async fn a_marked_field_is_passed_over() {
    let (dir, history, _) = two_tasks().await;
    let path = wal(dir.path(), &history);
    let mut lines = encoded(&history);
    lines[0] = forged(&lines[0], "\"epoch\":0", "\"_shard\":{\"a\":[1]},\"epoch\":0");
    lines[4] = forged(&lines[4], "\"progress\":{", "\"_cost\":0.5,\"progress\":{");
    let text: Vec<u8> = lines.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect();
    fs::write(&path, text).unwrap();
    let (journal, _) = open(dir.path());
    assert_holds(&journal, &history).await;
}

/// STORE-11: a log copied under another name is no second Task.
#[tokio::test]
async fn a_copied_log_is_no_task_of_its_own() {
    let (dir, history, other) = two_tasks().await;
    let path = wal(dir.path(), &history);
    fs::copy(&path, path.with_file_name("copy.wal.jsonl")).unwrap();
    for with_index in [true, false] {
        if !with_index {
            fs::remove_file(dir.path().join("index.jsonl")).unwrap();
        }
        let reader = JsonlReader::open(dir.path()).unwrap();
        let seen = reader.entries(None).await.unwrap();
        assert!(seen.len() == 2 && seen.iter().all(|entry| !entry.damaged), "{seen:?}");
        let (journal, report) = open(dir.path());
        assert_eq!(report.damaged.len(), 1, "{report:?}");
        let told = format!("{:?}", report.damaged);
        assert!(told.contains("copy.wal.jsonl"), "{told}");
        assert_holds(&journal, &history).await;
        assert_holds(&journal, &other).await;
    }
}

/// RECOVER-04: a log that the system does not let us read is its own Task's trouble too.
#[tokio::test]
async fn a_log_that_cannot_be_opened_is_told() {
    let (dir, history, other) = two_tasks().await;
    let path = wal(dir.path(), &history);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap(); // Not even root follows it to an end.
    let (journal, report) = open(dir.path());
    assert_eq!((report.tasks, report.damaged.len()), (2, 1), "{report:?}");
    assert!(journal.entry(&history.key).await.unwrap().unwrap().damaged);
    let (_, result) = read_from(&journal, &history.key).await;
    assert!(matches!(result, Err(ReadError::Failed(_))), "{result:?}");
    assert_holds(&journal, &other).await;
}
