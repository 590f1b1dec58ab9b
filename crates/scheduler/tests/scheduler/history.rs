//! Logs that come from elsewhere: what a scheduler has written is a history, and what somebody has changed in it is
//! not, or does no harm.

use std::time::Duration;

use crate::common::*;
use tenure_core::event::Commit;
use tenure_core::record::RetryPolicy;
use tenure_core::task::history::fold_history;
use tenure_testkit::fuzz::{Corpus, InputForm, Meter, fuzz};
use tenure_wire::stored::{Assembler, decode_line, encode, seal};

#[global_allocator]
static METER: Meter = Meter;

/// The commits of a Task with Steps that fail, are tried again, are lost and complete.
async fn eventful() -> Vec<Commit> {
    let node = node().await;
    let policy: RetryPolicy = serde_json::from_value(serde_json::json!({
        "max_attempts": 3, "heartbeat_ms": 2_000, "backoff": {"initial_ms": 10},
    }))
    .unwrap();
    let key = create(&node, with_policy(dag("t", "a b<-a c<-a d<-b,c"), policy)).await.unwrap();
    let mut hand = Hand::join(&node, "one");
    hand.says_room(1);
    hand.expect_step("a").await;
    hand.fails(1).await;
    hand.expect_step("a").await;
    tokio::time::sleep(Duration::from_secs(30)).await; // Nobody renews its lease.
    let _workers = completing(&node, 2);
    node.wait_for_end(&key).await.unwrap();
    node.commits(&key).await.unwrap()
}

fn lines(commits: &[Commit]) -> Vec<u8> {
    let mut out = Vec::new();
    for commit in commits {
        encode(commit, &session(), &key("t").task_id, &mut out).unwrap();
    }
    out
}

/// Reads lines, whose checksums are made right, as a node reads a log that is imported.
fn read(bytes: &[u8]) -> Option<Vec<Commit>> {
    let mut log = Assembler::new(session(), key("t").task_id);
    let mut commits = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let end = line.windows(7).rposition(|it| it == b",\"crc\":")?;
        let mut sealed = line[..end].to_vec();
        seal(&mut sealed, 0);
        sealed.pop();
        commits.extend(log.push(decode_line(&sealed).ok()?).ok()?);
    }
    (!log.is_mid_commit() && !commits.is_empty()).then_some(commits)
}

/// RECOVER-05: whatever is taken in agrees with itself; the rest is refused with the number of its line.
#[tokio::test(start_paused = true)]
async fn fuzz_logs_that_are_imported() {
    let commits = eventful().await;
    assert!(commits.len() > 8, "{}", commits.len());
    let sample = lines(&commits);
    let count = sample.iter().filter(|byte| **byte == b'\n').count() as u64;
    fuzz("imported logs", &Corpus::new(InputForm::JsonLines, [sample]), |bytes| {
        let Some(commits) = read(bytes) else { return false };
        match fold_history(&commits) {
            Ok(task) => {
                task.check_invariants().unwrap();
                assert_eq!(tenure_core::Task::of_snapshot(task.clone().into_snapshot()), task);
                true
            }
            Err(illegal) => {
                assert!((1..=2 * count).contains(&illegal.wal_seq), "{illegal}");
                false
            }
        }
    });
}

/// RECOVER-05: times that go back are refused with the line of the event at which they do.
#[tokio::test(start_paused = true)]
async fn a_log_whose_times_go_back_is_no_history() {
    let mut commits = eventful().await;
    assert!(fold_history(&commits).is_ok());
    let last = commits.len() - 1;
    commits[last].created_at = commits[0].created_at - 1;
    let refused = fold_history(&commits).unwrap_err();
    assert_eq!(refused.wal_seq, commits[last].first_seq);
    assert!(refused.why.to_string().contains("time"), "{refused}");
    assert!(fold_history::<Commit>(&[]).is_err());
}
