use tenure_core::Code;

use super::super::tests::{Fake, Holds, task};
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

/// A watch of a Task that is still to be made gets everything up to the end in one answer.
#[tokio::test(start_paused = true)]
async fn a_watch_of_a_new_task_asks_once() {
    let fake = Fake::default();
    let mut watch = Box::pin(Client::new(fake.clone()).watch_new(&task()));
    let makes = async {
        sleep(LOOK / 10).await;
        fake.commit(1, false);
        sleep(LOOK / 10).await;
        fake.commit(1, true);
    };
    let (first, ()) = tokio::join!(watch.next(), makes);
    assert_eq!(first.unwrap().unwrap().first_seq, 1);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 2);
    assert!(watch.next().await.is_none());
    assert_eq!(fake.0.lock().reads, 1);
}

/// A watch of a Task that takes long goes on: first until the Task is there, and then with what there is.
#[tokio::test(start_paused = true)]
async fn a_watch_of_a_new_task_outlasts_held_answers() {
    let fake = Fake::default();
    fake.refuses(Code::TaskNotFound);
    let mut watch = Box::pin(Client::new(fake.clone()).watch_new(&task()));
    fake.commit(1, false);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 1);
    let ends = async {
        sleep(LOOK * 2).await;
        fake.commit(1, true);
    };
    let (last, ()) = tokio::join!(watch.next(), ends);
    assert_eq!(last.unwrap().unwrap().first_seq, 2);
    assert!(watch.next().await.is_none());
}

/// A live watch gets each commit in answer to one request, and needs no hint.
#[tokio::test(start_paused = true)]
async fn a_live_watch_has_its_answers_held() {
    let fake = Fake::default();
    fake.commit(1, false);
    let mut watch = Box::pin(Client::new(fake.clone()).watch_live(&task(), 0));
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 1);
    for seq in 2..=40 {
        let begun = Instant::now();
        let commits = async {
            sleep(Duration::from_secs(1)).await;
            fake.commit(1, seq == 40);
        };
        let (next, ()) = tokio::join!(watch.next(), commits);
        assert_eq!(next.unwrap().unwrap().first_seq, seq);
        assert!(begun.elapsed() < Duration::from_millis(1_010), "{seq}");
    }
    assert!(watch.next().await.is_none());
    assert_eq!(fake.0.lock().reads, 40);
}

/// Where an owner holds no answers, because it is older or has no capacity, a watch goes on without.
#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_where_answers_are_not_held() {
    for holds in [Holds::Refuses, Holds::AtOnce] {
        let fake = Fake::default();
        fake.0.lock().holds = holds;
        let mut watch = Box::pin(Client::new(fake.clone()).watch_live(&task(), 0));
        let commits = async {
            sleep(LOOK).await;
            fake.commit(1, true);
        };
        let (next, ()) = tokio::join!(watch.next(), commits);
        assert_eq!(next.unwrap().unwrap().first_seq, 1);
        assert!(watch.next().await.is_none());
        assert!(fake.0.lock().reads <= 60, "it does not ask without a pause");
    }
}
