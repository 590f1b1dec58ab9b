//! Shows a Task that another process runs, until it has ended.

use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt as _};
use tenure_core::{Commit, Task};
use tokio::time::{MissedTickBehavior, interval};

use super::format::{OutputFormat, exit_of, print_end, show_as};
use super::replica::show_all;
use crate::cli::answer::{Exit, Failure};

/// Shows a Task by its commits, from the first on, until it has ended. Returns the exit code for
/// its end.
pub(crate) async fn show_to_end(
    format: OutputFormat,
    commits: impl Stream<Item = Result<Commit, Failure>>,
    begun: Instant,
) -> Result<Exit, Failure> {
    let mut show = show_as(format, None);
    let mut replica: Option<Box<Task>> = None;
    let mut commits = std::pin::pin!(commits);
    let mut ticks = show.every().map(interval);
    if let Some(ticks) = &mut ticks {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
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
                }
            },
            _ = tick => if let Some(task) = &replica { show.tick(&task.durable()) },
        }
    };
    show.leave();
    shown?;
    let task = replica.ok_or_else(|| Failure::new(Exit::Unavailable, "the task was not seen"))?;
    print_end(format, &task, begun)?;
    Ok(exit_of(&task))
}
