//! The adapters keep the contracts of their ports.

use tempfile::TempDir;
use tenure_local::{JournalOptions, JsonlJournal, MemoryLeases};
use tenure_testkit::Faulty;
use tenure_testkit::conformance::{journal_suite, leases_suite, names_suite};

async fn journal(options: JournalOptions) -> (JsonlJournal, TempDir) {
    let dir = TempDir::new().unwrap();
    let (journal, _) = JsonlJournal::open(dir.path(), options).unwrap();
    (journal, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_a_journal() {
    journal_suite(|| journal(JournalOptions::default())).await;
    names_suite(|| journal(JournalOptions::default())).await;
}

/// One thread and one open file are slow, and otherwise no different.
#[tokio::test]
async fn files_are_a_journal_with_as_little_as_there_can_be() {
    let least = JournalOptions { sync_threads: 1, read_threads: 1, open_files: Some(1) };
    journal_suite(|| journal(least)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_with_faults_to_come_are_a_journal() {
    let faulty = || async {
        let (journal, dir) = journal(JournalOptions::default()).await;
        (Faulty::new(journal), dir)
    };
    journal_suite(faulty).await;
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_leases() {
    leases_suite(|| async { (MemoryLeases::default(), ()) }).await;
}
