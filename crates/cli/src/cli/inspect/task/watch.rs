//! `tenure task watch`, `events`, `wait`: a Task of a cluster or a directory, until it has ended.

use std::cell::OnceCell;
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
use tenure_sdk::client::patiently;
use tenure_wire::bus::event::TaskEvent;

use super::follow::{LOOK, follow};
use crate::cli::answer::{Exit, Failure, Format, Shape, human, output};
use crate::cli::place::names::HEADER_BYTES;
use crate::cli::place::scan::{self, Log, Spot};
use crate::cli::place::{Data, LiveTask};
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
    let found = OnceCell::new();
    until_stopped(&args.of, &found, async {
        let commits = match &here {
            Some((_, log)) => follow(log.clone())?.boxed_local(),
            None => {
                let (client, key) = args.of.far_in_the_end().await?;
                let key = found.get_or_init(|| key);
                client.watch(&key.task_id, 0).map_err(Failure::from).boxed_local()
            }
        };
        show_to_end(args.output, commits, begun).await
    })
}

pub(super) fn events(args: &EventsArgs) -> Result<Exit, Failure> {
    let here = args.of.here()?;
    let found = OnceCell::new();
    until_stopped(&args.of, &found, async {
        let mut events = match &here {
            Some((_, log)) => events_of(log.clone(), args.after)?.boxed_local(),
            None => {
                let (client, key) = args.of.far_in_the_end().await?;
                let key = found.get_or_init(|| key);
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
    let found = OnceCell::new();
    until_stopped(&args.of, &found, async {
        let waited = match &here {
            // The log is read to its end before the timeout is looked at.
            Some((data, log)) => {
                found.get_or_init(|| log.key.clone());
                tokio::time::timeout(most, end_of(data, log)).await
            }
            // However short the time, it is asked once.
            None => tokio::time::timeout(most.max(FIRST_ANSWER), end_far(&args.of, &found)).await,
        };
        let ended = waited.map_err(|_| has_not_ended(&args.of, found.get(), most))??;
        let (task_id, session_id) = (&ended.task_id, &ended.session_id);
        let key = TaskKey { session_id: session_id.clone(), task_id: task_id.clone() };
        let (status, native_status) = (ended.status, ended.native_status);
        let end = End { task_id, session_id, status, native_status, version: ended.version };
        args.output.answer(&end, Shape::one("task_id"), || {
            output::print(format_args!("{key}  {}\n", ended.status))
        })?;
        Ok(match ended.native_status {
            TaskStatus::Completed => Exit::Ok,
            _ => Exit::TaskFailed,
        })
    })
}

/// How a Task of a cluster ends, when it has.
async fn end_far(of: &LiveTask, found: &OnceCell<TaskKey>) -> Result<TaskSummary, Failure> {
    let (client, key) = of.far_in_the_end().await?;
    let task = &found.get_or_init(|| key).task_id;
    client.wait_for_end(task).await?;
    let client = client.within(HEADER_BYTES);
    Ok(patiently(client.port(), || client.get(task)).await?.task)
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

fn has_not_ended(of: &LiveTask, key: Option<&TaskKey>, within: Duration) -> Failure {
    let waited = human::duration(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
    let (message, why) = match key {
        Some(key) => {
            let why = format!("`tenure task explain {key}` says what it waits for; ");
            (format!("task {key} has not ended within {waited}"), why)
        }
        None => {
            (format!("within {waited} no scheduler has told of task {}", of.name()), String::new())
        }
    };
    let help = format!("{why}to go on waiting: {}", of.waits_on(key));
    Failure::new(Exit::Unavailable, message).help(help)
}

/// Waits for something that goes on without whoever waits.
fn until_stopped(
    of: &LiveTask,
    found: &OnceCell<TaskKey>,
    work: impl Future<Output = Result<Exit, Failure>>,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let said = || {
        let name = found.get().map_or_else(|| of.name().to_owned(), TaskKey::to_string);
        let waits_on = of.waits_on(found.get());
        format!(
            "stopped; task {name} goes on without this command; to wait for its end: {waits_on}"
        )
    };
    runtime.block_on(unless_stopped(said, work))
}
