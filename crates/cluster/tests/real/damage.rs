//! Damage in the log: of what it is, and what can still be read.

use std::ops::ControlFlow;
use std::sync::Arc;

use async_nats::jetstream::Context;
use bytes::Bytes;
use parking_lot::Mutex;
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_core::Commit;
use tenure_ports::Journal;
use tenure_ports::journal::ReadError;
use tenure_testkit::conformance::History;
use tenure_wire::stored::encode_packed;
use tenure_wire::stored::frame::{CommitHead, FRAME_VERSION, Header, encode_header};

use crate::journal::{connect, create, owner, settings};
use crate::servers::nats;

/// A frame with one commit, as the first owner of a partition writes it.
pub(crate) fn frame(history: &History, commit: &Commit, prev: u64) -> Vec<u8> {
    let mut lines = Vec::new();
    encode_packed(commit, &mut lines).unwrap();
    let head = CommitHead {
        session_id: history.key.session_id.clone(),
        task_id: history.key.task_id.clone(),
        first_seq: commit.first_seq,
        last_seq: commit.last_seq(),
        created_at: commit.created_at,
        prev,
        len: u32::try_from(lines.len()).unwrap(),
        named: None,
        ended: None,
        failed_as: None,
        archived: false,
    };
    let header = Header::Commits { version: FRAME_VERSION, epoch: 1, commits: vec![head] };
    let mut frame = encode_header(&header, 0).unwrap();
    frame.extend_from_slice(&lines);
    frame
}

async fn publish(context: &Context, frame: Vec<u8>) -> u64 {
    context.publish("tenure.wal.0", Bytes::from(frame)).await.unwrap().await.unwrap().sequence
}

/// What is handed out of a Task, by first events, and what comes of it.
async fn read(journal: &JetStreamJournal, history: &History) -> (Vec<u64>, Result<(), ReadError>) {
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let into = Arc::clone(&seen);
    let each = move |commit: Commit| {
        into.lock().push(commit.first_seq);
        ControlFlow::Continue(())
    };
    let result = journal.read(&history.key, 0, each).await;
    let seen = seen.lock().clone();
    (seen, result)
}

/// RECOVER-04, mechanisms 1: a frame whose header is damaged hides no older commits of its Tasks.
#[tokio::test(flavor = "multi_thread")]
async fn commits_before_a_damaged_header_are_handed_out() {
    let server = nats();
    let one = LogSettings { partitions: 1, ..settings("one") };
    let journal = owner(&server, one.clone()).await;
    let (mut bad, mut other) = (History::of("s", "bad"), History::of("s", "other"));
    create(&journal, &mut bad).await;
    create(&journal, &mut other).await;
    let (second, third) = (bad.work(1), bad.work(1));
    let context = async_nats::jetstream::new(connect(&server).await);
    let mut damaged = frame(&bad, &second, 2);
    damaged[20] ^= 1;
    let at = publish(&context, damaged).await;
    publish(&context, frame(&bad, &third, at)).await;
    let journal = owner(&server, one).await;
    let (seen, result) = read(&journal, &bad).await;
    assert_eq!(seen, [1], "what lies before the damage");
    match result {
        Err(ReadError::Damaged { line, .. }) => assert_eq!(line, at),
        other => panic!("not damaged: {other:?}"),
    }
    let (seen, result) = read(&journal, &other).await;
    assert_eq!((seen.as_slice(), result), (&[1][..], Ok(())), "no other is touched");
}
