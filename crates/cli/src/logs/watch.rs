//! Prints the logs of a Task of a cluster as they grow.

use std::cell::OnceCell;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use tenure_core::id::AttemptId;
use tenure_core::view::View;
use tenure_core::{Commit, Task};
use tenure_ports::ClientPort as _;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::{passes, patiently};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::far::{FarLog, Shown, WorkerReader};
use super::find::LogFinder;
use super::printer::{LogPrinter, start};
use super::{LogQuery, LogsArgs, MissingLogs};
use crate::answer::{Exit, Failure, output};
use crate::place::Loaded;
use crate::task::until_stopped;

/// The pause between two looks at what grows.
const LOOK: Duration = Duration::from_millis(200);

/// The logs that are being followed.
struct FarFollower<'a> {
    query: LogQuery,
    key: &'a TaskKey,
    reader: WorkerReader,
    printer: LogPrinter,
    open: Vec<FarAttempt>,
    /// How many Attempts of the Task were looked at.
    known: Option<usize>,
    has_printed: bool,
    /// Whether the user was warned that a worker is away.
    has_warned: bool,
    /// The failure for the first Attempt that could not be printed.
    missing: Option<Failure>,
}

/// An Attempt that may still write.
struct FarAttempt {
    id: AttemptId,
    logs: Vec<FarLog>,
}

/// Prints until what is asked for has ended.
pub(super) fn run(args: &LogsArgs) -> Result<Exit, Failure> {
    let found = OnceCell::new();
    until_stopped(&args.of, &found, async {
        let (client, key) = args.of.far_in_the_end().await?;
        let key = found.get_or_init(|| key);
        let stands = patiently(client.port(), || client.port().log(&key.task_id, u64::MAX)).await?;
        let mut commits = pin!(client.watch(&key.task_id, 0).fuse());
        let mut replica = None;
        while replica.as_ref().is_none_or(|task: &Task| task.durable().version() < stands.version) {
            let Some(commit) = commits.next().await else { break };
            apply(&mut replica, &commit?)?;
        }
        let empty = || Failure::new(Exit::Unavailable, format!("the log of task {key} is empty"));
        let loaded = Loaded { key: key.clone(), task: replica.ok_or_else(empty)?, wal_path: None };
        let mut follower = FarFollower {
            query: LogQuery::new(args, &loaded)?,
            key,
            reader: WorkerReader::new(client.clone(), key.task_id.clone()),
            printer: args.printer(),
            open: Vec::new(),
            known: None,
            has_printed: false,
            has_warned: false,
            missing: None,
        };
        let mut replica = Some(loaded.task);
        loop {
            if let Some(task) = &replica
                && let Some(exit) = follower.print_on(&task.durable()).await?
            {
                return Ok(exit);
            }
            let until = Instant::now() + LOOK;
            while let Ok(next) = timeout_at(until, commits.next()).await {
                match next {
                    Some(commit) => apply(&mut replica, &commit?)?,
                    None => {
                        sleep_until(until).await; // The Task has ended.
                        break;
                    }
                }
            }
        }
    })
}

/// Applies a commit to the replica, or begins it.
fn apply(replica: &mut Option<Task>, commit: &Commit) -> Result<(), Failure> {
    let replayed = match replica {
        Some(task) => task.replay(commit),
        None => Task::restore(commit).map(|made| *replica = Some(made)),
    };
    replayed.map_err(|illegal| {
        Failure::new(Exit::Unavailable, format!("the log contradicts itself: {illegal}"))
    })
}

impl FarFollower<'_> {
    /// Prints what has come. Returns how the command ends when nothing more can come, or nobody reads it.
    async fn print_on(&mut self, view: &View<'_>) -> Result<Option<Exit>, Failure> {
        if !self.take_new(view)? {
            return Ok(Some(Exit::Ok));
        }
        for FarAttempt { id, logs } in std::mem::take(&mut self.open) {
            let Some(attempt) = view.attempt(id) else { continue };
            let is_over = attempt.ended_at.is_some() || view.is_terminal();
            let (mut left, mut missing) = (Vec::new(), MissingLogs::default());
            for mut log in logs {
                match log.print(&self.reader, &self.printer, attempt, is_over).await {
                    Ok(Shown::Left) => return Ok(Some(Exit::Ok)),
                    Ok(Shown::Printed(is_more)) => {
                        self.has_printed |= is_more;
                        left.push(log);
                    }
                    Ok(Shown::Away(why)) => {
                        self.warn_once(&why.message);
                        missing.add(&log.away, Some(why));
                        left.push(log); // It may come back as long as the Attempt is open.
                    }
                    Ok(Shown::Absent) => {
                        if log.away.is_recorded {
                            missing.add(&log.away, None);
                        }
                        left.push(log);
                    }
                    Err(failure) if !is_over && failure.refusal().is_some_and(passes) => {
                        left.push(log);
                    }
                    Err(failure) => return Err(failure),
                }
            }
            if !is_over {
                self.open.push(FarAttempt { id, logs: left });
            } else if !missing.places.is_empty() {
                self.missing.get_or_insert_with(|| missing.failure(attempt, 0));
            }
        }
        if !self.query.is_over(view) {
            return Ok(None);
        }
        if let Some(failure) = self.missing.take() {
            return Err(failure);
        }
        if !self.has_printed {
            output::say("nothing was written");
        }
        Ok(Some(Exit::Ok))
    }

    /// Begins with the Attempts that are asked for, and takes up those that begin later. Prints what this machine
    /// has of them. Returns whether somebody still reads it.
    fn take_new(&mut self, view: &View<'_>) -> Result<bool, Failure> {
        let (new, tail) = self.query.begun_since(self.known, view);
        self.known = Some(view.attempts_len());
        if new.is_empty() {
            return Ok(true);
        }
        let finder = LogFinder::of_cluster(self.key, view);
        for attempt in new {
            let found = finder.find(view, attempt);
            for log in found.here.iter().filter(|log| log.size() > Some(0)) {
                self.has_printed = true;
                if self.printer.print(attempt, log, start(log, tail)?, true)?.is_none() {
                    return Ok(false);
                }
            }
            let logs = found.away.into_iter().map(|log| FarLog::new(log, tail)).collect();
            self.open.push(FarAttempt { id: attempt.attempt_id, logs });
        }
        Ok(true)
    }

    fn warn_once(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            output::warn(why);
        }
    }
}
