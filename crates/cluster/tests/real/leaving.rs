//! Leaving a partition, and knowing whether one still owns it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_ports::Journal;
use tenure_ports::journal::AppendError;
use tenure_testkit::conformance::{History, read_all};
use tenure_wire::stored::frame::{FRAME_VERSION, Header, encode_header};

use crate::journal::{connect, create, owner, settings};
use crate::proxy::{HELD, Proxy};
use crate::servers::nats;

/// Mechanisms 3: who leaves a partition can wait for its appends in flight; from the leaving on nothing
/// more is accepted.
#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_waits_for_appends_in_flight() {
    let server = nats();
    let journal = Arc::new(owner(&server, LogSettings { partitions: 1, ..settings("one") }).await);
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    server.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(100)).await; // It may be answering still.
    let (after, commit) = (history.last_seq(), history.work(1));
    let (writing, key) = (Arc::clone(&journal), history.key.clone());
    let write = tokio::spawn(async move { writing.append(&key, after, vec![commit]).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let left = journal.leave(0);
    let late = History::of("s", "u").create();
    let refused = journal.append(&history.key, after, vec![late]).await;
    assert!(matches!(refused, Err(AppendError::NotOwner)), "{refused:?}");
    let mut settled = tokio::spawn(left.settled(Duration::from_secs(20)));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut settled).await;
    assert!(early.is_err(), "its fate is not known yet");
    server.signal(Signal::SIGCONT);
    assert!(settled.await.unwrap());
    let answer = tokio::time::timeout(Duration::from_secs(1), write).await;
    answer.expect("it has its answer").unwrap().unwrap();
    history.epoch = journal.take(0).await.unwrap();
    assert_eq!(read_all(&*journal, &history.key).await.unwrap().len(), 2);

    server.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(100)).await; // It may be answering still.
    let (after, commit) = (history.last_seq(), history.work(1));
    let (writing, key) = (Arc::clone(&journal), history.key.clone());
    tokio::spawn(async move { writing.append(&key, after, vec![commit]).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!journal.leave(0).settled(Duration::from_millis(200)).await, "the wait is bounded");
    server.signal(Signal::SIGCONT);
    assert!(journal.leave(0).settled(Duration::ZERO).await, "there is nothing to wait for");
}

/// OWN-03, mechanisms 4: an owner can ask whether it is one, and steps down where it is not.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_can_ask_whether_it_is_one() {
    let server = nats();
    let one = LogSettings { partitions: 1, timeout: Duration::from_millis(500), ..settings("one") };
    let old = owner(&server, one.clone()).await;
    assert!(old.confirm(0).await.unwrap(), "its record is the newest message");
    let mut history = History::of("s", "t");
    create(&old, &mut history).await;
    assert!(old.confirm(0).await.unwrap(), "its commit is");
    assert!(!old.confirm(1).await.unwrap(), "there is no such partition");

    let new = owner(&server, LogSettings { node: "two".into(), ..one }).await;
    assert!(!old.confirm(0).await.unwrap());
    assert_eq!(old.owned().epoch(0), None, "it has stepped down");
    assert!(new.confirm(0).await.unwrap());

    // As an append of its own that is stored and not acknowledged yet.
    let epoch = new.owned().epoch(0).unwrap();
    let frame =
        encode_header(&Header::Commits { version: FRAME_VERSION, epoch, commits: Vec::new() }, 0)
            .unwrap();
    let context = async_nats::jetstream::new(connect(&server).await);
    context.publish("tenure.wal.0", frame.into()).await.unwrap().await.unwrap();
    assert!(new.confirm(0).await.unwrap());

    server.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(300)).await; // It may be answering still.
    let asked = Instant::now();
    assert!(new.confirm(0).await.is_err(), "nobody says");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(new.owned().epoch(0), Some(epoch), "and that means nothing");
    server.signal(Signal::SIGCONT);
}

/// OWN-03: what waits behind an append that another owner's record refuses is the other's to take, and
/// whoever asked is told so.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_when_another_takes_over_is_told_so() {
    let server = nats();
    let way = Proxy::before(server.port);
    let one = LogSettings { partitions: 1, ..settings("one") };
    let client = async_nats::connect(format!("127.0.0.1:{}", way.port)).await.unwrap();
    let old = Arc::new(JetStreamJournal::open(client, one.clone()).await.unwrap());
    old.take(0).await.unwrap();
    let mut histories: Vec<History> = (0..8).map(|n| History::of("s", &format!("t{n}"))).collect();
    for history in &mut histories {
        create(&old, history).await;
    }
    way.delay(HELD, Duration::ZERO);
    let writes: Vec<_> = histories
        .iter_mut()
        .map(|history| {
            let (key, after, commit) = (history.key.clone(), history.last_seq(), history.work(1));
            let old = Arc::clone(&old);
            tokio::spawn(async move { old.append(&key, after, vec![commit]).await })
        })
        .collect();
    let new = owner(&server, LogSettings { node: "two".into(), ..one }).await;
    way.delay(Duration::ZERO, Duration::ZERO);
    for write in writes {
        let told = write.await.unwrap();
        assert!(matches!(told, Err(AppendError::NotOwner)), "{told:?}");
    }
    for history in &histories {
        assert_eq!(read_all(&new, &history.key).await.unwrap().len(), 1, "nothing was written");
    }
}
