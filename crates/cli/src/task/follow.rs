//! Follows a log in a data directory, while another process may be writing it.

use std::cell::OnceCell;
use std::ops::ControlFlow;

use futures::{Stream, stream};
use tenure_core::Commit;
use tenure_ports::journal::TaskKey;
use tokio::sync::mpsc;

use crate::answer::{Exit, Failure};
use crate::place::scan::{self, CommitBoundary, LogFile};
use crate::place::{LOOK, LiveTask};
use crate::runtime::{one_thread, unless_stopped};

/// How many commits to read ahead of the follower.
const AHEAD: usize = 64;

/// The commits of a Task, in order, those to come included, until it has ended. An error is the last
/// item.
///
/// A thread of its own reads them, and ends when the stream is dropped.
pub(super) fn follow(log: LogFile) -> Result<impl Stream<Item = Result<Commit, Failure>>, Failure> {
    let (to, commits) = mpsc::channel(AHEAD);
    let read = move || {
        let (mut spot, mut has_ended) = (CommitBoundary::default(), false);
        loop {
            let walked = scan::walk_on(&log, &mut spot, |placed| {
                has_ended |= placed.commit.events.iter().any(|event| event.body.end().is_some());
                match to.blocking_send(Ok(placed.commit.clone())) {
                    Ok(()) => Ok(ControlFlow::Continue(())),
                    Err(_) => Ok(ControlFlow::Break(())),
                }
            });
            if let Err(broken) = walked {
                let _ = to.blocking_send(Err(broken.into())); // The stream may have been dropped.
                return;
            }
            if has_ended || to.is_closed() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    };
    let thread = std::thread::Builder::new().name("follow".into()).spawn(read);
    thread.map_err(Failure::cannot("start a thread"))?;
    Ok(stream::unfold(commits, async |mut commits| Some((commits.recv().await?, commits))))
}

/// Waits for a Task that goes on when the wait stops.
pub(crate) fn until_stopped(
    of: &LiveTask,
    found: &OnceCell<TaskKey>,
    work: impl Future<Output = Result<Exit, Failure>>,
) -> Result<Exit, Failure> {
    let runtime = one_thread()?;
    let said = || {
        let name = found.get().map_or_else(|| of.name().to_owned(), TaskKey::to_string);
        let waits_on = of.waits_on(found.get());
        format!(
            "stopped; task {name} goes on without this command; to wait for its end: {waits_on}"
        )
    };
    runtime.block_on(unless_stopped(said, work))
}
