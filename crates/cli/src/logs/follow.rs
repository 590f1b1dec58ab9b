//! Prints the logs of a data directory as they grow.

use std::cell::OnceCell;
use std::ops::ControlFlow;

use tenure_core::id::AttemptId;
use tenure_core::view::View;

use super::LogQuery;
use super::find::{CommandLog, LogFinder};
use super::printer::{LogPrinter, start};
use crate::answer::{Exit, Failure, output};
use crate::place::scan::{self, CommitBoundary, LogFile};
use crate::place::{LOOK, LiveTask, TaskReader};
use crate::task::until_stopped;

/// The logs that are being followed.
struct LogFollower<'a> {
    query: LogQuery,
    finder: LogFinder<'static>,
    printer: &'a LogPrinter,
    open: Vec<FollowedAttempt>,
    /// How many Attempts of the Task were looked at.
    known: Option<usize>,
    has_written: bool,
}

/// An Attempt that may still write.
struct FollowedAttempt {
    id: AttemptId,
    /// Its logs, and how far each of them was printed.
    logs: Vec<(CommandLog, u64)>,
}

/// Prints until what is asked for has ended.
pub(super) fn run(
    of: &LiveTask,
    data: &TaskReader,
    log: &LogFile,
    query: LogQuery,
    printer: &LogPrinter,
) -> Result<Exit, Failure> {
    let finder = LogFinder::of_directory(data, &log.key);
    let mut follower =
        LogFollower { query, finder, printer, open: Vec::new(), known: None, has_written: false };
    until_stopped(of, &OnceCell::from(log.key.clone()), async {
        let (mut spot, mut replica) = (CommitBoundary::default(), None);
        loop {
            // The log comes first: what an Attempt that has ended there wrote is in its files.
            scan::walk_on(log, &mut spot, |commit| {
                commit.replay_onto(&mut replica)?;
                Ok(ControlFlow::Continue(()))
            })?;
            let task = replica.as_ref().ok_or_else(|| log.empty())?;
            if follower.print_on(&task.durable())?.is_break() {
                return Ok(Exit::Ok);
            }
            tokio::time::sleep(LOOK).await;
        }
    })
}

impl LogFollower<'_> {
    /// Prints what has come. Breaks off when nothing more can come, or nobody reads it.
    fn print_on(&mut self, view: &View<'_>) -> Result<ControlFlow<()>, Failure> {
        self.take_new(view)?;
        for mut followed in std::mem::take(&mut self.open) {
            let Some(attempt) = view.attempt(followed.id) else { continue };
            let is_over = attempt.ended_at.is_some() || view.is_terminal();
            for (log, at) in &mut followed.logs {
                let Some(next) = self.printer.print(attempt, log, *at, is_over)? else {
                    return Ok(ControlFlow::Break(()));
                };
                self.has_written |= next > *at;
                *at = next;
            }
            if !is_over {
                self.open.push(followed);
            }
        }
        if !self.query.is_over(view) {
            return Ok(ControlFlow::Continue(()));
        }
        if !self.has_written {
            output::say("nothing was written");
        }
        Ok(ControlFlow::Break(()))
    }

    /// Begins with the Attempts that are asked for, and takes up those that begin later.
    fn take_new(&mut self, view: &View<'_>) -> Result<(), Failure> {
        let (new, tail) = self.query.begun_since(self.known, view);
        for attempt in new {
            let logs = self.finder.expected(attempt).into_iter();
            let logs = logs.map(|log| start(&log, tail).map(|at| (log, at)));
            let logs = logs.collect::<Result<Vec<_>, Failure>>()?;
            self.has_written |= logs.iter().any(|(_, at)| *at > 0); // What --tail leaves out.
            self.open.push(FollowedAttempt { id: attempt.attempt_id, logs });
        }
        self.known = Some(view.attempts_len());
        Ok(())
    }
}
