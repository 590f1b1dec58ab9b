//! How a call reads its Task, and waits for it.

use std::time::Duration;

use futures::StreamExt as _;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tenure_core::event::Body;
use tenure_core::id::TaskId;
use tenure_core::record::Progress;
use tenure_core::view::TaskView;
use tenure_core::{Commit, Rejection};
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;
use tokio::time::{Instant, timeout_at};

use super::answer::reopen_answered;
use super::load::load;
use super::state::{CallState, in_words, progress as progress_of};

/// What is added to the progress that was told last where the Step says no higher one, as each has to be above the
/// one before.
const LEAST_STEP: f64 = 0.01;

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
    if let (Some(progress), Some(reported)) = (&mut progress, progress_of(&seen.0)) {
        progress.tell(reported).await;
    }
    while seen.1.is_working() {
        match timeout_at(until, commits.next()).await {
            Err(_) => return look(client, task).await, // The time to wait is over.
            Ok(Some(Err(refused))) => return Err(refused),
            Ok(None) => seen = look(client, task).await?,
            Ok(Some(Ok(commit))) => {
                if let Some(progress) = &mut progress {
                    for reported in reported_in(&commit) {
                        progress.tell(reported).await;
                    }
                }
                // Reading a Task of many Steps after each commit would read all Steps each time.
                if may_settle(&commit) {
                    seen = look(client, task).await?;
                }
            }
        }
    }
    Ok(seen)
}

/// Whether a Task may have ended with a commit, or may ask for something since: then it is read. Whatever else happens
/// to its Steps lets it go on working.
pub(super) fn may_settle(commit: &Commit) -> bool {
    commit.events.iter().any(|event| {
        event.body.end().is_some()
            || matches!(
                event.body,
                Body::StepBlocked(_)
                    | Body::TaskProgress(_)
                    | Body::TaskReopened(_)
                    | Body::TaskResumed(_)
                    | Body::TaskSubmitted(_)
            )
    })
}

/// The progress that workers report in a commit.
pub(super) fn reported_in(commit: &Commit) -> impl Iterator<Item = &Progress> {
    commit.events.iter().filter_map(|event| match &event.body {
        Body::StepStarted(started) => started.report.as_ref()?.progress.as_ref(),
        Body::StepUpdated(updated) => updated.report.as_ref()?.progress.as_ref(),
        _ => None,
    })
}

/// Tells a client of progress.
#[derive(Debug)]
pub(super) struct CallProgress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    /// What was told last.
    last: f64,
    said: Option<String>,
    /// The percentage that was reported last: a report may leave out what has not changed.
    percent: Option<f64>,
}

impl CallProgress {
    /// For the request with this token.
    pub(super) fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        Self { peer, token, last: 0.0, said: None, percent: None }
    }

    /// Tells the client what a Step at work has reported, if that is new.
    async fn tell(&mut self, reported: &Progress) {
        let said = in_words(reported).map(str::to_owned).or_else(|| self.said.clone());
        self.percent = reported.percent.or(self.percent);
        let Some(next) = next_progress(self.last, self.percent, said != self.said) else {
            return;
        };
        let mut about = ProgressNotificationParam::new(self.token.clone(), next);
        (about.total, about.message) = (self.percent.map(|_| 100.0), said.clone());
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

    fn commit(event_type: &str, payload: serde_json::Value) -> Commit {
        let event = tenure_core::Event {
            actor: "ant".parse().unwrap(),
            run: None,
            step_id: None,
            body: Body::deserialize(event_type, payload).unwrap(),
        };
        Commit {
            commit_id: tenure_core::id::CommitId(uuid::Uuid::nil()),
            first_seq: 1,
            created_at: 0,
            command_id: None,
            command_digest: None,
            epoch: 0,
            trace: None,
            events: vec![event],
        }
    }

    /// A Task of many Steps is not read again for each of them: only for what a call may wait for.
    #[test]
    fn only_what_may_settle_a_call_is_read() {
        let moved = serde_json::json!({"from": "running"});
        for (event_type, payload, settles) in [
            ("task_step_ready", serde_json::json!({}), false),
            ("task_running", moved.clone(), false),
            ("task_resumed", moved, true),
        ] {
            assert_eq!(may_settle(&commit(event_type, payload)), settles, "{event_type}");
        }
    }

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
