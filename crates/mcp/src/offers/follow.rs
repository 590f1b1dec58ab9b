//! How a call reads its Task, and waits for it.

use std::time::Duration;

use futures::StreamExt as _;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tenure_core::id::TaskId;
use tenure_core::view::TaskView;
use tenure_core::{Code, Rejection, RejectionKind, Task};
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;
use tokio::time::{Instant, timeout_at};

use super::answer::reopen_answered;
use super::state::{CallState, in_words, progress};

/// What is added to the progress that was told last where the Step says no higher one, as each has to be above the
/// one before.
const LEAST_STEP: f64 = 0.01;

/// A Task in full. One that is too long for an answer is made of its log.
///
/// # Errors
/// There is no such Task, or it cannot be read.
pub(super) async fn load<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
) -> Result<TaskView, Rejection> {
    let view = client.get(task).await?;
    match view.left_out {
        None => Ok(view),
        Some(_) => Box::pin(load_log(client, task)).await,
    }
}

async fn load_log<P: ClientPort>(client: &Client<P>, task: &TaskId) -> Result<TaskView, Rejection> {
    let broken = |why: String| {
        let message = format!("the log of task {task} cannot be folded: {why}");
        Rejection::new(Code::StorageError, message).of_kind(RejectionKind::ReplayFailed)
    };
    let (mut fold, mut after) = (None, 0);
    loop {
        let page = client.port().log(task, after).await?;
        for commit in &page.commits {
            after = commit.last_seq();
            match &mut fold {
                None => fold = Some(Task::restore(commit).map_err(|it| broken(it.to_string()))?),
                Some(task) => {
                    Task::replay(task, commit).map_err(|it| broken(it.to_string()))?;
                }
            }
        }
        if !page.more || page.commits.is_empty() {
            let fold = fold.ok_or_else(|| broken("it is empty".into()))?;
            return Ok(TaskView::as_it_was(&fold.durable()));
        }
    }
}

/// A Task with what it shows of itself.
pub(super) type SeenCall = (TaskView, CallState);

/// Looks at a Task. If all that it asks for has been answered, it goes on.
///
/// # Errors
/// As those of [`load`].
pub(super) async fn look<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
) -> Result<SeenCall, Rejection> {
    let view = load(client, task).await?;
    reopen_answered(client, &view).await?;
    let state = CallState::of(&view);
    Ok((view, state))
}

/// Waits until a Task has ended or asks for something, at most so long, and returns it as it then is.
///
/// # Errors
/// As those of [`load`].
pub(super) async fn settle<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    wait: Duration,
    mut progress: Option<&mut CallProgress>,
) -> Result<SeenCall, Rejection> {
    let until = Instant::now() + wait;
    let mut seen = look(client, task).await?;
    let mut commits = Box::pin(client.watch(task, seen.0.task.version));
    while seen.1.is_working() {
        if let Some(progress) = &mut progress {
            progress.tell(&seen.0).await;
        }
        match timeout_at(until, commits.next()).await {
            Err(_) => break, // The time is over.
            Ok(Some(Err(refused))) => return Err(refused),
            Ok(Some(Ok(_)) | None) => seen = look(client, task).await?,
        }
    }
    Ok(seen)
}

/// Tells a client of progress.
#[derive(Debug)]
pub(super) struct CallProgress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    /// What was told last.
    last: f64,
    said: Option<String>,
}

impl CallProgress {
    /// For the request with this token.
    pub(super) fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        Self { peer, token, last: 0.0, said: None }
    }

    /// Tells what the Step at work has reported, if that is news.
    async fn tell(&mut self, task: &TaskView) {
        let Some(reported) = progress(task) else { return };
        let said = in_words(reported).map(str::to_owned);
        let Some(next) = next_progress(self.last, reported.percent, said != self.said) else {
            return;
        };
        let mut about = ProgressNotificationParam::new(self.token.clone(), next);
        (about.total, about.message) = (reported.percent.map(|_| 100.0), said.clone());
        (self.last, self.said) = (next, said);
        // A client that has gone need not be told.
        let _ = self.peer.notify_progress(about).await;
    }
}

/// The progress to tell after the last one: the percentage, if it is above that. News without one counts up. None:
/// nothing is new.
fn next_progress(last: f64, percent: Option<f64>, is_news: bool) -> Option<f64> {
    match percent {
        Some(percent) if percent > last => Some(percent),
        _ if !is_news => None,
        Some(_) => Some(last + LEAST_STEP),
        None => Some(last.floor() + 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each progress is above the one before, whatever the worker reports.
    #[test]
    fn progress_only_rises() {
        let mut last = 0.0;
        for (percent, is_news) in [
            (None, true),
            (Some(10.0), true),
            (Some(10.0), false),
            (Some(10.0), true),
            (Some(5.0), true),
            (None, true),
            (Some(50.0), false),
            (None, false),
        ] {
            let next = next_progress(last, percent, is_news);
            assert!(next.is_none_or(|next| next > last), "{last} {percent:?}");
            last = next.unwrap_or(last);
        }
        assert_eq!(last, 50.0);
        assert_eq!(next_progress(50.0, None, false), None);
    }
}
