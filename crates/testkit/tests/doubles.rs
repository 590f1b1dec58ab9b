//! The doubles keep the contract they help others to test.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::time::Duration;

use tenure_ports::Journal;
use tenure_ports::journal::{AppendError, ReadError};
use tenure_testkit::conformance::{History, journal_suite, names_suite, read_all};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};

#[tokio::test]
async fn the_journal_in_memory_conforms() {
    journal_suite(|| async { (MemoryJournal::default(), ()) }).await;
    names_suite(|| async { (MemoryJournal::default(), ()) }).await;
}

#[tokio::test]
async fn the_faulty_journal_conforms_while_nothing_fails() {
    journal_suite(|| async { (Faulty::new(MemoryJournal::default()), ()) }).await;
    names_suite(|| async { (Faulty::new(MemoryJournal::default()), ()) }).await;
}

async fn created() -> (Faulty<MemoryJournal>, History) {
    let journal = Faulty::new(MemoryJournal::default());
    let mut history = History::of("s", "t");
    let commit = history.create();
    journal.create(&history.key, &history.wal_name, vec![commit]).await.unwrap();
    (journal, history)
}

async fn append(journal: &Faulty<MemoryJournal>, history: &mut History) -> Result<(), AppendError> {
    let after = history.last_seq();
    let commit = history.work(1);
    journal.append(&history.key, after, vec![commit]).await
}

async fn len(journal: &Faulty<MemoryJournal>, history: &History) -> usize {
    read_all(journal, &history.key).await.unwrap().len()
}

#[tokio::test]
async fn a_fault_befalls_one_write_with_the_fate_it_names() {
    for (fault, kept) in [(Fault::Fail, 1), (Fault::UnknownLost, 1), (Fault::UnknownKept, 2)] {
        let (journal, mut history) = created().await;
        journal.next(fault.clone());
        let result = append(&journal, &mut history).await;
        assert_eq!(matches!(fault, Fault::Fail), matches!(result, Err(AppendError::Failed(_))));
        assert_eq!(
            !matches!(fault, Fault::Fail),
            matches!(result, Err(AppendError::MustReread(_)))
        );
        assert_eq!(len(&journal, &history).await, kept);
        assert!(journal.is_spent());
        if kept == 1 {
            history.commits.pop();
        }
        append(&journal, &mut history).await.unwrap();
        assert_eq!(len(&journal, &history).await, kept + 1);
        assert_eq!(journal.writes(), 3);
    }
}

#[tokio::test]
async fn a_fault_of_one_task_passes_others_by() {
    let (journal, mut history) = created().await;
    let other = History::of("s", "other").key;
    journal.next_of(&other, Fault::Fail);
    append(&journal, &mut history).await.unwrap();
    assert!(!journal.is_spent());
}

#[tokio::test]
async fn a_full_disk_is_full_until_it_is_not() {
    let (journal, mut history) = created().await;
    journal.set_full(true);
    for _ in 0..2 {
        assert!(matches!(append(&journal, &mut history).await, Err(AppendError::Failed(_))));
        history.commits.pop();
    }
    journal.set_full(false);
    append(&journal, &mut history).await.unwrap();
    assert_eq!(len(&journal, &history).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_its_time() {
    let (journal, mut history) = created().await;
    journal.next(Fault::Delay(Duration::from_secs(60)));
    let start = tokio::time::Instant::now();
    append(&journal, &mut history).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn a_held_write_waits_for_its_gate() {
    let (journal, history) = created().await;
    let gate = journal.hold_next();
    let mut ahead = history.clone();
    let write = append(&journal, &mut ahead);
    let open = async {
        tokio::task::yield_now().await;
        assert_eq!(len(&journal, &history).await, 1);
        gate.open();
    };
    let (written, ()) = futures::future::join(write, open).await;
    written.unwrap();
    assert_eq!(len(&journal, &history).await, 2);
}

#[tokio::test]
async fn reads_fail_as_often_as_told() {
    let (journal, history) = created().await;
    journal.fail_reads(1);
    let refused = read_all(&journal, &history.key).await;
    assert!(matches!(refused, Err(ReadError::Failed(_))), "{refused:?}");
    assert_eq!(len(&journal, &history).await, 1);
}
