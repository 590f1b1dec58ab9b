//! `tenure task watch`, `tenure task wait`: a Task of a cluster, until it has ended.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use clap::Args;
use futures::StreamExt as _;
use serde::Serialize;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::status::TaskStatus;

use super::super::args::{FarTask, Format, Shape};
use super::super::human;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use crate::cli::run::{Format as ShowFormat, show_to_end};
use crate::cli::stop::Stop;

/// Watch a task.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    of: FarTask,

    /// What to print
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: ShowFormat,
}

/// Print the events of a task.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    of: FarTask,

    /// Go on behind this event of the log: the last `wal_seq` all of whose lines were dealt with
    #[arg(long, value_name = "SEQ", default_value_t)]
    after: u64,
}

/// Wait for the end of a task.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    of: FarTask,

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
    native_status: TaskStatus,
    version: u64,
}

pub(super) fn watch(args: &WatchArgs) -> Result<Exit, Failure> {
    let begun = Instant::now();
    until_stopped(async {
        let (client, key) = args.of.find().await?;
        show_to_end(args.output, &client, &key.task_id, begun).await
    })
}

pub(super) fn events(args: &EventsArgs) -> Result<Exit, Failure> {
    until_stopped(async {
        let (client, key) = args.of.find().await?;
        let mut events = std::pin::pin!(client.events(&key.task_id, args.after));
        while let Some(event) = events.next().await {
            let line = serde_json::to_string(&event?)
                .map_err(|error| Failure::caused(Exit::Unavailable, &error))?;
            match output::stdout(|out| writeln!(out, "{line}").and_then(|()| out.flush())) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break, // It was enough.
                written => written?,
            }
        }
        Ok(Exit::Ok)
    })
}

pub(super) fn wait(args: &WaitArgs) -> Result<Exit, Failure> {
    let most = args.timeout.map_or(Duration::MAX, Duration::from_secs);
    until_stopped(async {
        let (client, key) = args.of.find().await?;
        let waited = tokio::time::timeout(most, client.wait_for_end(&key.task_id)).await;
        let ended = waited.map_err(|_| {
            let waited = human::duration(u64::try_from(most.as_millis()).unwrap_or(u64::MAX));
            Failure::new(Exit::Unavailable, format!("task {key} has not ended within {waited}"))
                .help(format!("`tenure task explain {key} --nats URL` says what it waits for"))
        })??;
        let end = End {
            task_id: &key.task_id,
            session_id: &key.session_id,
            native_status: ended.status,
            version: ended.version,
        };
        args.output.answer(&end, Shape::one("task_id"), || {
            output::print(format_args!("{key}  {}\n", ended.status))
        })?;
        Ok(match ended.status {
            TaskStatus::Completed => Exit::Ok,
            _ => Exit::TaskFailed,
        })
    })
}

/// Waits for something that goes on without whoever waits.
fn until_stopped(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = Stop::listen()?;
        tokio::select! {
            ended = work => ended,
            () = stop.asked() => {
                output::say("stopped; the task goes on without this command");
                Ok(Exit::Interrupted)
            }
        }
    })
}
