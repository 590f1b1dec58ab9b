//! Shows a Task that another process runs, until it has ended. Where nothing of it runs for two
//! seconds, it says why.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tenure_core::{Commit, Task};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::format::{OutputFormat, exit_of, print_end, show_as};
use super::reason::WaitReason;
use super::replica::show_all;
use crate::answer::{Exit, Failure};

/// If no commit comes for the first time, and no Step runs, the reason is looked for. While nothing
/// happens, the pause before the next look doubles, up to the second time.
const STILL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(32));
/// How long the search for the reason may hold up what is shown.
const ASKED: Duration = Duration::from_secs(2);

/// Shows a Task by its commits, from the first on, until it has ended. Returns the exit code for
/// its end. `why` explains why no Step of it runs.
pub(crate) async fn show_to_end(
    format: OutputFormat,
    commits: impl Stream<Item = Result<Commit, Failure>>,
    begun: std::time::Instant,
    why: impl AsyncFn(&Task) -> Option<WaitReason>,
) -> Result<Exit, Failure> {
    let mut show = show_as(format, None);
    let mut replica: Option<Box<Task>> = None;
    let mut commits = std::pin::pin!(commits);
    let mut ticks = show.every().map(interval);
    if let Some(ticks) = &mut ticks {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let (mut pause, mut said) = (STILL.0, None::<WaitReason>);
    let mut look = Instant::now() + pause;
    let shown: Result<(), Failure> = loop {
        let tick = async {
            match &mut ticks {
                Some(ticks) => ticks.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            next = commits.next() => match next {
                None => break Ok(()),
                Some(Err(failure)) => break Err(failure),
                Some(Ok(commit)) => {
                    if let Err(failure) = show_all(&mut replica, &[Arc::new(commit)], &mut *show) {
                        break Err(failure);
                    }
                    (pause, look) = (STILL.0, Instant::now() + STILL.0);
                    if replica.as_deref().is_some_and(|task| !is_still(task)) {
                        said = None; // It has moved: the same reason is news then.
                    }
                }
            },
            _ = tick => if let Some(task) = &replica { show.tick(&task.durable()) },
            () = sleep_until(look), if format != OutputFormat::Quiet => {
                if let Some(task) = replica.as_deref().filter(|task| is_still(task)) {
                    let reason = timeout(ASKED, why(task)).await.ok().flatten();
                    let is_news = |it: &WaitReason| said.as_ref().is_none_or(|said| !said.is_like(it));
                    if let Some(reason) = reason.filter(is_news) {
                        show.say(&reason.line());
                        said = Some(reason);
                    }
                }
                pause = STILL.1.min(pause * 2);
                look = Instant::now() + pause;
            }
        }
    };
    show.leave();
    shown?;
    let task = replica.ok_or_else(|| Failure::new(Exit::Unavailable, "the task was not seen"))?;
    print_end(format, &task, begun)?;
    Ok(exit_of(&task))
}

/// Whether no Step runs, of a Task that has not ended.
fn is_still(task: &Task) -> bool {
    !task.is_terminal() && task.durable().tally().held() == 0
}
