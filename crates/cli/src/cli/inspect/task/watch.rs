//! `tenure task watch`, `events`, `wait`: a Task of a cluster or a directory, until it has ended.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::status::TaskStatus;
use tenure_core::view::{Normal, TaskSummary};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::Follower;
use tenure_wire::bus::event::TaskEvent;

use super::super::HEADER_BYTES;
use super::super::args::{Format, LiveTask, Shape};
use super::super::data::Data;
use super::super::human;
use super::super::wal::scan::{self, Log, Spot};
use super::follow::{LOOK, follow};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use crate::cli::run::{Format as ShowFormat, show_to_end};
use crate::cli::stop::unless_stopped;

/// Watch a task.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    of: LiveTask,

    /// What to print
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: ShowFormat,
}

/// Print the events of a task.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    of: LiveTask,

    /// Go on behind this event of the log: the last `wal_seq` all of whose lines were dealt with
    #[arg(long, value_name = "SEQ", default_value_t)]
    after: u64,

    /// How to write them: both are a line for each event
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: Lines,
}

/// How events are written, which nobody reads as a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Lines {
    /// A line for each event
    #[default]
    Jsonl,
    /// The same
    Json,
}

/// Wait for the end of a task.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    of: LiveTask,

    /// Give up after so many seconds, with exit code 6
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// How a Task has ended.
#[derive(Serialize)]
struct End<'a> {
    task_id: &'a TaskId,
    session_id: &'a SessionId,
    status: Normal,
    native_status: TaskStatus,
    version: u64,
}

pub(crate) fn watch(args: &WatchArgs) -> Result<Exit, Failure> {
    let (begun, here) = (Instant::now(), args.of.here()?);
    until_stopped(async {
        let commits = match &here {
            Some((_, log)) => follow(log.clone())?.boxed_local(),
            None => {
                let (client, key) = args.of.far().await?;
                client.watch(&key.task_id, 0).map_err(Failure::from).boxed_local()
            }
        };
        show_to_end(args.output, commits, begun).await
    })
}

pub(super) fn events(args: &EventsArgs) -> Result<Exit, Failure> {
    let here = args.of.here()?;
    until_stopped(async {
        let mut events = match &here {
            Some((_, log)) => events_of(log.clone(), args.after)?.boxed_local(),
            None => {
                let (client, key) = args.of.far().await?;
                client.events(&key.task_id, args.after).map_err(Failure::from).boxed_local()
            }
        };
        while let Some(event) = events.try_next().await? {
            let line = serde_json::to_string(&event)
                .map_err(|error| Failure::caused(Exit::Unavailable, &error))?;
            match output::stdout(|out| writeln!(out, "{line}").and_then(|()| out.flush())) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break, // It was enough.
                written => written?,
            }
        }
        Ok(Exit::Ok)
    })
}

/// The public events of a log behind event `after`.
fn events_of(
    log: Log,
    after: u64,
) -> std::io::Result<impl Stream<Item = Result<TaskEvent, Failure>>> {
    let mut follower = Follower::default();
    let events = follow(log)?.map(move |commit| {
        let told = follower.take(&commit?);
        let told = told.map_err(|illegal| Failure::caused(Exit::Unavailable, &illegal))?;
        let new = told.into_iter().filter(move |event| event.wal_seq > after);
        Ok::<_, Failure>(stream::iter(new.map(Ok::<_, Failure>)))
    });
    Ok(events.try_flatten())
}

/// How long a cluster may take to say how a Task stands.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

pub(super) fn wait(args: &WaitArgs) -> Result<Exit, Failure> {
    let most = args.timeout.map_or(Duration::MAX, Duration::from_secs);
    let here = args.of.here()?;
    until_stopped(async {
        let (key, waited) = match &here {
            // The log is read to its end before the timeout is looked at.
            Some((data, log)) => {
                (log.key.clone(), tokio::time::timeout(most, end_of(data, log)).await)
            }
            None => {
                let (client, key) = args.of.far().await?;
                let ended = async {
                    client.wait_for_end(&key.task_id).await?;
                    Ok::<_, Failure>(client.within(HEADER_BYTES).get(&key.task_id).await?.task)
                };
                // However short the time, it is asked once.
                let waited = tokio::time::timeout(most.max(FIRST_ANSWER), ended).await;
                (key, waited)
            }
        };
        let ended = waited.map_err(|_| has_not_ended(&key, most))??;
        let end = End {
            task_id: &key.task_id,
            session_id: &key.session_id,
            status: ended.status,
            native_status: ended.native_status,
            version: ended.version,
        };
        args.output.answer(&end, Shape::one("task_id"), || {
            output::print(format_args!("{key}  {}\n", ended.status))
        })?;
        Ok(match ended.native_status {
            TaskStatus::Completed => Exit::Ok,
            _ => Exit::TaskFailed,
        })
    })
}

/// How the Task of a log ends, when it has. What is there is read without a pause: however long the
/// log, a Task that has ended is waited for no more.
async fn end_of(data: &Data, log: &Log) -> Result<TaskSummary, Failure> {
    let (mut spot, mut has_ended) = (Spot::default(), false);
    loop {
        scan::walk_on(log, &mut spot, |placed| {
            has_ended |= placed.commit.events.iter().any(|event| event.body.end().is_some());
            Ok(ControlFlow::Continue(()))
        })?;
        if has_ended {
            return Ok(data.look(&data.fold(log.clone())?, TaskSummary::of));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn has_not_ended(key: &TaskKey, within: Duration) -> Failure {
    let waited = human::duration(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
    Failure::new(Exit::Unavailable, format!("task {key} has not ended within {waited}"))
        .help(format!("`tenure task explain {key}` says what it waits for"))
}

/// Waits for something that goes on without whoever waits.
fn until_stopped(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(unless_stopped("stopped; the task goes on without this command", work))
}
