use tenure_core::Code;

use super::super::tests::{Fake, task};
use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_hands_out_every_commit_in_order_until_the_end() {
    let fake = Fake::default();
    fake.commit(5, false);
    let client = Client::new(fake.clone());
    let mut watch = Box::pin(client.watch(&task(), 1));
    for seq in 2..=5 {
        assert_eq!(watch.next().await.unwrap().unwrap().first_seq, seq);
    }
    fake.commit(2, true);
    fake.hint();
    fake.hint();
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 6);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 7);
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_needs_no_hint() {
    let fake = Fake::default();
    fake.commit(1, false);
    let mut watch = Box::pin(Client::new(fake.clone()).watch(&task(), 0));
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 1);
    fake.commit(1, true);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 2);
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_end_is_seen_at_the_first_look_by_a_hint_and_without_one() {
    let ended = |version| TaskEnded { status: TaskStatus::Completed, version };
    let fake = Fake::default();
    let client = Client::new(fake.clone());
    let (by_hint, task) = (client.clone(), task());
    let name = task.clone();
    let waiting = tokio::spawn(async move { by_hint.wait_for_end(&name).await });
    while fake.0.lock().reads == 0 {
        tokio::task::yield_now().await;
    }
    fake.commit(3, true);
    fake.hint();
    assert_eq!(waiting.await.unwrap(), Ok(ended(3)));
    assert_eq!(fake.0.lock().reads, 1, "the hint said it all");
    assert_eq!(client.wait_for_end(&task).await, Ok(ended(3)));
    fake.commit(0, false);
    let (lost, later) = (client.wait_for_end(&task), async {
        tokio::time::sleep(LOOK / 2).await;
        fake.commit(1, true);
    });
    assert_eq!(tokio::join!(lost, later).0, Ok(ended(4)));
}

/// CTRL-11: a wait outlasts elections and changes of the owner; a final refusal ends it.
#[tokio::test(start_paused = true)]
async fn a_wait_and_a_watch_go_on_however_long_nobody_answers() {
    let fake = Fake::default();
    fake.commit(1, false);
    let client = Client::new(fake.clone());
    fake.falls_silent(100);
    let mut watch = Box::pin(client.watch(&task(), 0));
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 1, "it was waited for at first");
    fake.commit(1, true);
    fake.falls_silent(100);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 2, "and later");
    assert!(watch.next().await.is_none());
    fake.falls_silent(100);
    let ended = TaskEnded { status: TaskStatus::Completed, version: 2 };
    assert_eq!(client.wait_for_end(&task()).await, Ok(ended));
    for code in [Code::TaskNotFound, Code::Unauthenticated, Code::StorageError] {
        fake.refuses(code);
        assert_eq!(client.wait_for_end(&task()).await.unwrap_err().code, code);
        fake.refuses(code);
        let mut watch = Box::pin(client.watch(&task(), 0));
        assert_eq!(watch.next().await.unwrap().unwrap_err().code, code);
        assert!(watch.next().await.is_none());
    }
}

/// CTRL-11: a wait ends when the scheduler of this process has stopped, as no other can answer.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_scheduler_of_its_process() {
    let fake = Fake::default();
    fake.0.lock().is_over = true;
    let client = Client::new(fake.clone());
    fake.falls_silent(1);
    let refused = timeout(LOOK, client.wait_for_end(&task())).await.expect("it ends");
    assert_eq!(refused.unwrap_err().code, Code::Unavailable);
    fake.falls_silent(1);
    let mut watch = Box::pin(client.watch(&task(), 0));
    assert_eq!(watch.next().await.unwrap().unwrap_err().code, Code::Unavailable);
    assert!(watch.next().await.is_none());
}

/// A watch of a Task that is still to be made reads nothing before a hint, and then everything up to an end that
/// closely follows.
#[tokio::test(start_paused = true)]
async fn a_watch_of_a_new_task_reads_once() {
    let fake = Fake::default();
    let mut watch = Box::pin(Client::new(fake.clone()).watch_new(&task()).await.unwrap());
    let makes = async {
        tokio::time::sleep(GATHERED).await;
        assert_eq!(fake.0.lock().reads, 0);
        fake.commit(1, false);
        fake.hint();
        tokio::time::sleep(GATHERED / 2).await;
        fake.commit(1, true);
        fake.hint();
    };
    let (first, ()) = tokio::join!(watch.next(), makes);
    assert_eq!(first.unwrap().unwrap().first_seq, 1);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 2);
    assert!(watch.next().await.is_none());
    assert_eq!(fake.0.lock().reads, 1);
}

/// A change that no end follows is read soon, and one of which no hint came is read all the same.
#[tokio::test(start_paused = true)]
async fn a_watch_of_a_new_task_waits_for_no_end() {
    let fake = Fake::default();
    let mut watch = Box::pin(Client::new(fake.clone()).watch_new(&task()).await.unwrap());
    fake.commit(1, false);
    fake.hint();
    let begun = tokio::time::Instant::now();
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 1);
    assert!(begun.elapsed() <= 2 * GATHERED);
    fake.commit(1, true);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 2);
    assert!(watch.next().await.is_none());
}

/// A live watch hears what is published and needs no hint. It has its owner publish for as long as it goes on.
#[tokio::test(start_paused = true)]
async fn a_live_watch_hears_what_is_published() {
    let fake = Fake::default();
    fake.commit(1, false);
    let mut watch = Box::pin(Client::new(fake.clone()).watch_live(&task(), 0));
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 1);
    assert_eq!(fake.0.lock().reads, 2, "the log is read, and the owner is asked");
    for seq in 2..=40 {
        let begun = tokio::time::Instant::now();
        let publishes = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fake.commit(1, false);
            fake.publish(seq - 1);
        };
        let (next, ()) = tokio::join!(watch.next(), publishes);
        assert_eq!(next.unwrap().unwrap().first_seq, seq);
        assert!(begun.elapsed() < Duration::from_millis(1_100), "{seq}");
    }
    let asked = fake.0.lock().reads - 2 - 39;
    assert!((5..=16).contains(&asked), "{asked}");
    fake.commit(1, true); // Neither hinted nor published.
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 41);
    assert!(watch.next().await.is_none());
}
