//! Logs and indexes of which anything was changed: whoever opens or reads the directory gets an answer, and no commit
//! that the reducer was not asked about. RECOVER-05, STORE-11.

use std::fs;

use tenure_core::Task;
use tenure_core::event::Commit;
use tenure_local::JsonlReader;
use tenure_ports::Journal as _;
use tenure_testkit::conformance::{History, read_all};
use tenure_testkit::fuzz::{Corpus, InputForm, Meter, fuzz};
use tenure_wire::stored::seal;

use crate::common::{append, create, data_dir, open, read_with, wal};

#[global_allocator]
static METER: Meter = Meter;

/// Lines with the checksums that their writer would give them; others are left out.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Some(end) = line.windows(7).rposition(|it| it == b",\"crc\":") {
            let start = out.len();
            out.extend_from_slice(&line[..end]);
            seal(&mut out, start);
        }
    }
    out
}

fn replayed(commits: &[Commit]) {
    let Some((first, rest)) = commits.split_first() else { return };
    let Ok(mut task) = Task::restore(first) else { return };
    let _ = rest.iter().try_for_each(|commit| task.replay(commit));
}

/// What is in a directory with a log of one Task.
struct SampleLog {
    history: History,
    log: Vec<u8>,
    index: Vec<u8>,
}

async fn sample() -> SampleLog {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut history = History::of("s", "one");
    create(&journal, &mut history).await;
    for _ in 0..3 {
        append(&journal, &mut history, |h| drop(h.work(2))).await.unwrap();
    }
    drop(journal);
    let log = fs::read(wal(dir.path(), &history)).unwrap();
    let index = fs::read(dir.path().join("index.jsonl")).unwrap();
    SampleLog { history, log, index }
}

/// Opens the directory as another process would, and then as its owner. Whether the Task can be read.
async fn is_read(sample: &SampleLog, log: &[u8], index: &[u8]) -> bool {
    let dir = data_dir();
    let path = wal(dir.path(), &sample.history);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, log).unwrap();
    fs::write(dir.path().join("index.jsonl"), index).unwrap();
    let key = &sample.history.key;
    let reader = JsonlReader::open(dir.path()).unwrap();
    let _ = reader.entries(None).await;
    let (commits, end) = read_with(&reader, key).await;
    replayed(&commits);
    let (journal, _) = open(dir.path());
    let _ = journal.entry(key).await;
    let Ok(owned) = read_all(&journal, key).await else { return false };
    assert!(end.is_err() || owned.len() >= commits.len(), "its owner reads less than others do");
    replayed(&owned);
    true
}

#[test]
fn fuzz_files_of_logs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sample = runtime.block_on(sample());
    let corpus = Corpus::new(InputForm::JsonLines, [sample.log.clone()]);
    fuzz("files of logs", &corpus, |bytes| {
        let read = |log: &[u8]| runtime.block_on(is_read(&sample, log, &sample.index));
        read(bytes) | read(&sealed(bytes))
    });
}

#[test]
fn fuzz_files_of_indexes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sample = runtime.block_on(sample());
    let corpus = Corpus::new(InputForm::JsonLines, [sample.index.clone()]);
    fuzz("files of indexes", &corpus, |bytes| {
        let read = |index: &[u8]| runtime.block_on(is_read(&sample, &sample.log, index));
        read(bytes) | read(&sealed(bytes))
    });
}
