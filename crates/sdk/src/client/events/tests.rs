use std::pin::pin;
use std::time::Duration;

use tenure_core::Code;
use tokio::time::timeout;

use super::super::tests::{Fake, task};
use super::*;

/// The `wal_seq` of the next events, until none comes for a while.
async fn next(events: &mut (impl Stream<Item = Result<TaskEvent, Rejection>> + Unpin)) -> Vec<u64> {
    let mut found = Vec::new();
    while let Ok(Some(event)) = timeout(Duration::from_millis(10), events.next()).await {
        found.push(event.unwrap().wal_seq);
    }
    found
}

/// EVENT-04: a client gets all events after the one where it stopped, in order.
#[tokio::test(start_paused = true)]
async fn events_are_read_page_by_page_and_then_as_they_happen() {
    let fake = Fake::default();
    fake.commit(6, false);
    let mut events = pin!(Client::new(fake.clone()).events(&task(), 1).fuse());
    assert_eq!(next(&mut events).await, [2, 3, 3, 4, 5, 6, 6]);
    let reads = fake.0.lock().reads;
    fake.commit(2, false);
    fake.publish(6);
    assert_eq!(next(&mut events).await, [7, 8]);
    assert_eq!(fake.0.lock().reads, reads, "what was published is not read");
    fake.commit(1, true);
    fake.publish(8);
    assert_eq!(next(&mut events).await, [9, 9]);
    assert!(events.next().await.is_none(), "it has ended");
}

/// EVENT-08: a published message may get lost, come twice, or repeat older events.
#[tokio::test(start_paused = true)]
async fn what_was_lost_is_read_and_what_comes_twice_is_passed_over() {
    let fake = Fake::default();
    fake.commit(2, false);
    let mut events = pin!(Client::new(fake.clone()).events(&task(), 0).fuse());
    assert_eq!(next(&mut events).await, [1, 2]);
    fake.commit(2, false); // Not published.
    fake.commit(1, false);
    fake.publish(4);
    assert_eq!(next(&mut events).await, [3, 3, 4, 5], "one is missing: all are read");
    fake.publish(2);
    fake.publish(4);
    assert_eq!(next(&mut events).await, [0_u64; 0], "they are known");
    fake.commit(1, false);
    fake.publish(3);
    assert_eq!(next(&mut events).await, [6, 6], "the known part is left out");
    fake.commit(1, false); // Not published, and nothing more happens.
    assert_eq!(next(&mut events).await, [0_u64; 0]);
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(next(&mut events).await, [0_u64; 0], "it is asked for, and something came before");
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(next(&mut events).await, [7], "it is looked for");
}

/// A client that receives the announcement of another's request makes none itself, and learns from
/// it up to where the owner has published everything.
#[tokio::test(start_paused = true)]
async fn of_many_who_follow_one_asks() {
    let fake = Fake::default();
    fake.commit(1, false);
    let mut events = pin!(Client::new(fake.clone()).events(&task(), 0).fuse());
    assert_eq!(next(&mut events).await, [1]);
    let reads = fake.0.lock().reads;
    for _ in 0..20 {
        tokio::time::sleep(LOOK / 2).await;
        fake.publish(1); // It has no events: it announces that another client has asked.
        assert_eq!(next(&mut events).await, [0_u64; 0]);
    }
    assert_eq!(fake.0.lock().reads, reads, "others did");
    fake.commit(1, false); // Not published.
    fake.publish(2);
    assert_eq!(next(&mut events).await, [2], "more was told than has come");
    let reads = fake.0.lock().reads;
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(next(&mut events).await, [0_u64; 0]);
    assert_eq!(fake.0.lock().reads, reads + 1, "nobody else did");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_never_rests_is_followed_on() {
    let fake = Fake::default();
    fake.commit(1, false);
    let mut events = pin!(Client::new(fake.clone()).events(&task(), 0).fuse());
    assert_eq!(next(&mut events).await, [1]);
    let reads = fake.0.lock().reads;
    for commits in 1..=40 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fake.commit(1, false);
        fake.publish(commits);
        assert!(!next(&mut events).await.is_empty());
    }
    let asked = fake.0.lock().reads - reads;
    assert!((3..=8).contains(&asked), "{asked}");
}

/// CTRL-11: events go on when a scheduler answers again.
#[tokio::test(start_paused = true)]
async fn events_go_on_however_long_nobody_answers() {
    let fake = Fake::default();
    fake.commit(2, false);
    fake.falls_silent(100);
    let mut events = pin!(Client::new(fake.clone()).events(&task(), 0).fuse());
    assert_eq!(events.next().await.unwrap().unwrap().wal_seq, 1);
    assert_eq!(events.next().await.unwrap().unwrap().wal_seq, 2);
    fake.commit(1, true); // Not published.
    fake.falls_silent(100);
    assert_eq!(events.next().await.unwrap().unwrap().wal_seq, 3);
    assert_eq!(events.next().await.unwrap().unwrap().wal_seq, 3);
    assert!(events.next().await.is_none(), "it has ended");
}

/// An event behind the end of the log is refused, as nobody can have seen it.
#[tokio::test(start_paused = true)]
async fn nobody_goes_on_behind_the_end_of_the_log() {
    let fake = Fake::default();
    fake.commit(3, false);
    let client = Client::new(fake.clone());
    let mut at_the_end = pin!(client.events(&task(), 3).fuse());
    assert_eq!(next(&mut at_the_end).await, [0_u64; 0]);
    let mut behind = pin!(client.events(&task(), 4).fuse());
    let refused = behind.next().await.unwrap().unwrap_err();
    assert_eq!((refused.code, &refused.details["version"]), (Code::ValidationError, &3.into()));
    assert!(behind.next().await.is_none());
}

/// Only the caller's `after` is compared with the end of the log: later the events are known.
#[tokio::test(start_paused = true)]
async fn an_owner_that_knows_less_later_ends_nothing() {
    let fake = Fake::default();
    fake.commit(3, false);
    let mut events = pin!(Client::new(fake.clone()).events(&task(), 0).fuse());
    assert_eq!(next(&mut events).await, [1, 2, 3, 3]);
    fake.0.lock().commits = 2;
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(next(&mut events).await, [0_u64; 0]);
    fake.commit(2, false);
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(next(&mut events).await, [4]);
}

/// The first page is there at once, nothing is missed or asked for twice, and the last page tells the end.
#[tokio::test(start_paused = true)]
async fn whoever_follows_gets_the_first_page_with_the_stream() {
    let fake = Fake::default();
    fake.commit(2, false);
    let reads = fake.0.lock().reads;
    let (first, pages) = Client::new(fake.clone()).follow(&task(), 0).await.unwrap();
    assert_eq!((first.through, first.version, first.events.len()), (2, 2, 2));
    fake.commit(2, false);
    fake.publish(2);
    fake.commit(1, true);
    fake.publish(4);
    let mut pages = pin!(pages);
    for (through, is_over) in [(4, false), (5, true)] {
        let page = pages.next().await.unwrap().unwrap();
        assert_eq!((page.through, page.status.is_terminal()), (through, is_over));
    }
    assert!(pages.next().await.is_none(), "it has ended");
    assert_eq!(fake.0.lock().reads, reads + 1, "only the first page was asked for");
    fake.falls_silent(1);
    let refused = Client::new(fake).follow(&task(), 5).await.err().unwrap();
    assert_eq!(refused.code, Code::Unavailable, "it does not wait for a scheduler");
}
