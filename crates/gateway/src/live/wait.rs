//! The long poll of a Task: an answer when it has changed, or when the time is over.

use std::time::Duration;

use futures::StreamExt as _;
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_core::view::TaskView;
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;
use tokio::time::{Instant, timeout_at};

use super::check_since;

/// The longest that a long poll waits, whatever it asks for.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A hint may get lost: without one the Task is looked at so often (mechanisms 11).
const LOOK: Duration = Duration::from_secs(5);

/// A place behind every log: whoever asks for the commits there learns the version of the Task.
const NO_COMMITS: u64 = u64::MAX;

/// Waits until a Task has a version above `since`, and answers with the Task; with none when the time is over.
///
/// # Errors
/// There is no such Task, the caller may not read it, or it has never had the version `since`.
pub(crate) async fn wait_for_change<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    since: u64,
    wait: Duration,
) -> Result<Option<TaskView>, Rejection> {
    let until = Instant::now() + wait.min(WAIT_MAX);
    let mut hints = None;
    loop {
        let version = version(client, task).await?;
        check_since(since, version)?;
        if version > since {
            return client.get(task).await.map(Some);
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        // What happens between the look above and the subscription is seen by the next look.
        match &mut hints {
            None => hints = Some(client.port().changes(Some(task)).await?.fuse()),
            Some(hints) => {
                let news = hints.by_ref().filter(|hint| std::future::ready(hint.version > since));
                let mut news = std::pin::pin!(news);
                let _ = timeout_at(until.min(Instant::now() + LOOK), next(&mut news)).await;
            }
        }
    }
}

async fn version<P: ClientPort>(client: &Client<P>, task: &TaskId) -> Result<u64, Rejection> {
    client.port().log(task, NO_COMMITS).await.map(|page| page.version)
}

/// The next hint. Where no hints come any more, only looks are left.
async fn next<S: futures::Stream + Unpin>(hints: &mut S) {
    if hints.next().await.is_none() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;

    use super::super::SINCE;
    use super::super::double::waiting_task;
    use super::*;

    #[tokio::test]
    async fn what_has_changed_before_is_answered_at_once() {
        let (client, task, version) = waiting_task().await;
        let wait = Duration::from_secs(60);
        let seen = wait_for_change(&client, &task, version - 1, wait).await.unwrap();
        assert_eq!(seen.unwrap().task.version, version);
        let none = wait_for_change(&client, &task, version, Duration::ZERO).await.unwrap();
        assert!(none.is_none());
        let beyond = wait_for_change(&client, &task, version + 1, wait).await.unwrap_err();
        assert_eq!((beyond.code, &beyond.details["field"]), (Code::ValidationError, &SINCE.into()));
        let absent = "absent".parse().unwrap();
        let refused = wait_for_change(&client, &absent, 0, wait).await.unwrap_err();
        assert_eq!(refused.code, Code::TaskNotFound);
    }

    #[tokio::test]
    async fn a_change_ends_the_wait() {
        let (client, task, version) = waiting_task().await;
        let begun = Instant::now();
        let wait = wait_for_change(&client, &task, version, Duration::from_secs(60));
        let change = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            client.cancel(&task, "enough").await.unwrap();
        };
        let (seen, ()) = futures::join!(wait, change);
        let seen = seen.unwrap().unwrap();
        assert!(seen.task.version > version && begun.elapsed() < LOOK, "{:?}", begun.elapsed());
    }
}
