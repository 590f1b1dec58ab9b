//! `wait`: until a Task has changed, has ended or needs somebody, and not longer than a bounded time.

use std::time::Duration;

use futures::StreamExt as _;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_core::view::TaskSummary;
use tenure_ports::ClientPort;
use tenure_sdk::client::passes;
use tokio::time::{Instant, sleep, timeout_at};

use super::ToolCall;
use super::arguments::Arguments;
use crate::result::ToolAnswer;

/// How long a call waits by default, in seconds: shorter than the time after which hosts give a call up.
const SECONDS_DEFAULT: u64 = 30;

/// A hint may get lost: without one the Task is looked at so often (mechanisms 11).
const LOOK: Duration = Duration::from_secs(5);

/// The pause before a scheduler that gave no answer is asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// The longest answer that is asked for: the Task in short.
pub(super) const HEADER_BYTES: usize = 4 << 10;

/// The input of `wait`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitInput {
    /// The task.
    task_id: TaskId,
    /// The version that you know: for change, a later one is waited for. Left out: the version now.
    #[serde(default)]
    since: Option<u64>,
    /// What to wait for. change: any event. end: the task has ended. settled: it has ended, or a step waits for
    /// somebody, or only task_complete is missing.
    #[serde(default)]
    until: WaitUntil,
    /// How many seconds at most, 30 by default.
    #[serde(default)]
    #[schemars(range(min = 0, max = 55))]
    seconds: Option<u64>,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WaitUntil {
    /// Any event.
    Change,
    /// The end.
    End,
    /// The end, or something that somebody has to do.
    #[default]
    Settled,
}

/// The answer of `wait`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct WaitAnswer {
    /// Whether it has come to what was waited for; if not, the time was over.
    reached: bool,
    /// Whether the task has ended.
    ended: bool,
    /// The task in short, with its version.
    task: TaskSummary,
}

impl WaitUntil {
    fn is_reached(self, task: &TaskSummary, since: u64) -> bool {
        let has_ended = task.native_status.is_terminal();
        match self {
            Self::Change => task.version > since,
            Self::End => has_ended,
            Self::Settled => {
                has_ended
                    || task.diagnostics.stalled
                    || task.diagnostics.completeable
                    || task.counts.blocked > 0
            }
        }
    }
}

/// Waits, and tells its caller of each change meanwhile.
pub(super) async fn call<P: ClientPort>(
    call: &ToolCall<'_, P>,
    arguments: Arguments,
) -> Result<ToolAnswer, Rejection> {
    let input: WaitInput = arguments.input()?;
    let seconds = Duration::from_secs(input.seconds.unwrap_or(SECONDS_DEFAULT));
    let most = call.wait_max;
    if input.seconds.is_some() && seconds > most {
        let message = format!("seconds is 0 to {}", most.as_secs());
        return Err(Rejection::invalid("seconds", message));
    }
    let waiting = TaskWait { call, input, until: Instant::now() + seconds.min(most), said: None };
    let answer = waiting.run().await?;
    let more = (!answer.reached).then(|| {
        format!(
            "the time is over and the task goes on: call wait again with since {}",
            answer.task.version
        )
    });
    let answer = ToolAnswer::of(&answer);
    Ok(match more {
        Some(more) => answer.with_more(more),
        None => answer,
    })
}

/// A wait that goes on.
struct TaskWait<'a, 'c, P> {
    call: &'a ToolCall<'c, P>,
    input: WaitInput,
    until: Instant,
    /// The version of which the caller was told.
    said: Option<u64>,
}

impl<P: ClientPort> TaskWait<'_, '_, P> {
    async fn run(mut self) -> Result<WaitAnswer, Rejection> {
        let client = &self.call.caller.client;
        let mut hints = None;
        loop {
            let task = self.look().await?;
            let since = *self.input.since.get_or_insert(task.version);
            if since > task.version {
                let message =
                    format!("the task is at version {}, and has never had {since}", task.version);
                return Err(Rejection::invalid("since", message));
            }
            let reached = self.input.until.is_reached(&task, since);
            if reached || Instant::now() >= self.until || self.call.is_over() {
                return Ok(WaitAnswer { reached, ended: task.native_status.is_terminal(), task });
            }
            self.say(&task).await;
            // What happens between the look above and the subscription is seen by the next look.
            match &mut hints {
                None => {
                    hints = Some(client.port().changes(Some(&self.input.task_id)).await?.fuse())
                }
                Some(hints) => {
                    let mut news =
                        hints.filter(|hint| std::future::ready(hint.version > task.version));
                    tokio::select! {
                        _ = timeout_at(self.until.min(Instant::now() + LOOK), next(&mut news)) => {}
                        () = self.call.over() => {}
                    }
                }
            }
        }
    }

    /// The Task in short. While no scheduler answers, the wait goes on (CTRL-11).
    async fn look(&self) -> Result<TaskSummary, Rejection> {
        let client = self.call.caller.client.within(HEADER_BYTES);
        loop {
            match client.get(&self.input.task_id).await {
                Err(no)
                    if passes(&no)
                        && !client.port().is_over()
                        && Instant::now() < self.until
                        && !self.call.is_over() =>
                {
                    sleep(PAUSE).await;
                }
                answer => return answer.map(|view| view.task),
            }
        }
    }

    /// Tells the caller how far the Task is, if it wants to know. The version rises with each change.
    async fn say(&mut self, task: &TaskSummary) {
        let Some(token) = self.call.context.meta.get_progress_token() else { return };
        if self.said.is_some_and(|said| task.version <= said) {
            return;
        }
        self.said = Some(task.version);
        let sent = self.call.context.peer.notify_progress(progress(token, task)).await;
        if let Err(error) = sent {
            tracing::debug!(%error, "nobody is told of progress");
        }
    }
}

fn progress(token: ProgressToken, task: &TaskSummary) -> ProgressNotificationParam {
    let counts = &task.counts;
    let steps = [
        (counts.completed, "completed"),
        (counts.running + counts.claimed, "at work"),
        (counts.ready, "ready"),
        (counts.blocked, "blocked"),
        (counts.failed, "failed"),
        (counts.pending, "pending"),
    ];
    let steps = steps.iter().filter(|(count, _)| *count > 0);
    let steps: Vec<String> = steps.map(|(count, what)| format!("{count} {what}")).collect();
    #[allow(clippy::cast_precision_loss, reason = "a version has far fewer than 52 bits")]
    let version = task.version as f64;
    let message = format!("{}: {}", task.native_status, steps.join(", "));
    ProgressNotificationParam::new(token, version).with_message(message)
}

/// The next hint. Where no hints come any more, only looks are left.
async fn next<S: futures::Stream + Unpin>(hints: &mut S) {
    if hints.next().await.is_none() {
        std::future::pending::<()>().await;
    }
}
