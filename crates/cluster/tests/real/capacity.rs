//! What waits to be written in a partition.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::Signal;
use tenure_cluster::LogSettings;
use tenure_core::Commit;
use tenure_ports::Journal;
use tenure_ports::journal::AppendError;
use tenure_testkit::conformance::History;
use tenure_wire::stored::encode_packed;

use crate::journal::{assert_holds, create, owner, settings};
use crate::servers::nats;

/// Bytes that a commit takes in a frame.
pub(crate) fn len(commit: &Commit) -> usize {
    let mut lines = Vec::new();
    encode_packed(commit, &mut lines).unwrap();
    lines.len()
}

/// Asks for a write once: what has no answer then waits in the writer, or for room.
pub(crate) async fn ask<F: Future + ?Sized>(mut write: Pin<&mut F>) -> Poll<F::Output> {
    // Tokio would have whoever asks for much at once wait.
    tokio::task::unconstrained(async { futures::poll!(write.as_mut()) }).await
}

/// It is refused at once.
async fn assert_refused(mut write: Pin<Box<impl Future<Output = Result<(), AppendError>>>>) {
    let answer = ask(write.as_mut()).await;
    assert!(matches!(answer, Poll::Ready(Err(AppendError::AtCapacity))), "{answer:?}");
}

/// Mechanisms 16: while an append is held back so many bytes are taken in and no more: creates and what
/// may be asked for again are refused, the rest waits and goes first. What was refused is not in the
/// log, and the same again is as good.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_held_append_is_bounded() {
    let server = nats();
    let bytes = len(&History::of("s", "held").work(20));
    let in_flight_bytes = u32::try_from(bytes * 5 / 2).unwrap();
    let one = LogSettings { partitions: 1, in_flight_bytes, ..settings("one") };
    let journal = owner(&server, one).await;
    let mut histories = ["held", "fits", "over", "ends"].map(|task| History::of("s", task));
    for history in &mut histories {
        create(&journal, history).await;
    }
    let after = histories[0].last_seq();
    let small = vec![histories[2].clone().work(1)];
    let commits = histories.each_mut().map(|history| vec![history.work(20)]);
    let [held, fits, over, ends] = &histories;
    let [first, second, third, fourth] = commits;
    let mut new = History::of("s", "new").on(&journal);
    let creation = vec![new.create()];

    server.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(100)).await; // It may be answering still.
    let mut first = Box::pin(journal.append_within_capacity(&held.key, after, first));
    assert!(ask(first.as_mut()).await.is_pending(), "it is held");
    let mut second = Box::pin(journal.append_within_capacity(&fits.key, after, second));
    assert!(ask(second.as_mut()).await.is_pending(), "there is room for it");
    let refused = Box::pin(journal.append_within_capacity(&over.key, after, third.clone()));
    assert_refused(refused).await;
    assert_refused(Box::pin(journal.create(&new.key, &new.wal_name, creation.clone()))).await;
    let mut fourth = Box::pin(journal.append(&ends.key, after, fourth));
    assert!(ask(fourth.as_mut()).await.is_pending(), "it waits");
    assert_refused(Box::pin(journal.append_within_capacity(&over.key, after, small))).await;

    server.signal(Signal::SIGCONT);
    let (first, second, fourth) = tokio::join!(first, second, fourth);
    assert!(first.is_ok() && second.is_ok() && fourth.is_ok(), "{first:?} {second:?} {fourth:?}");
    journal.append_within_capacity(&over.key, after, third).await.unwrap();
    journal.create(&new.key, &new.wal_name, creation).await.unwrap();
    for history in histories.iter().chain([&new]) {
        assert_holds(&journal, history).await;
    }
}
