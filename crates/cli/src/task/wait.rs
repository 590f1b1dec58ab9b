//! `tenure task wait`: waits for the end of a Task.

use std::cell::OnceCell;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::status::TaskStatus;
use tenure_core::view::{Normal, TaskSummary};
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::patiently;

use super::follow::until_stopped;
use crate::answer::{Exit, Failure, Format, Shape, human, output};
use crate::place::names::HEADER_BYTES;
use crate::place::scan::LogFile;
use crate::place::{LiveTask, TaskReader, until_ended};

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
struct EndAnswer<'a> {
    task_id: &'a TaskId,
    session_id: &'a SessionId,
    status: Normal,
    native_status: TaskStatus,
    version: u64,
}

/// How long to wait at least for a cluster to say whether a Task has ended.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

pub(super) fn run(args: &WaitArgs) -> Result<Exit, Failure> {
    let most = args.timeout.map_or(Duration::MAX, Duration::from_secs);
    let here = args.of.here()?;
    let found = OnceCell::new();
    until_stopped(&args.of, &found, async {
        let waited = match &here {
            // Read the log to its end before the timeout counts.
            Some((data, log)) => {
                found.get_or_init(|| log.key.clone());
                tokio::time::timeout(most, end_of(data, log)).await
            }
            // However short the timeout, ask once.
            None => tokio::time::timeout(most.max(FIRST_ANSWER), end_far(&args.of, &found)).await,
        };
        let ended = waited.map_err(|_| has_not_ended(&args.of, found.get(), most))??;
        let (task_id, session_id) = (&ended.task_id, &ended.session_id);
        let key = TaskKey { session_id: session_id.clone(), task_id: task_id.clone() };
        let (status, native_status) = (ended.status, ended.native_status);
        let end = EndAnswer { task_id, session_id, status, native_status, version: ended.version };
        args.output.answer(&end, Shape::one("task_id"), || {
            output::print(format_args!("{key}  {}\n", ended.status))
        })?;
        Ok(match ended.native_status {
            TaskStatus::Completed => Exit::Ok,
            _ => Exit::TaskFailed,
        })
    })
}

/// Waits for the end of a Task in a cluster.
async fn end_far(of: &LiveTask, found: &OnceCell<TaskKey>) -> Result<TaskSummary, Failure> {
    let (client, key) = of.far_in_the_end().await?;
    let task = &found.get_or_init(|| key).task_id;
    client.wait_for_end(task).await?;
    let client = client.within(HEADER_BYTES);
    Ok(patiently(client.port(), || client.get(task)).await?.task)
}

/// Waits for the end of a Task in a directory.
async fn end_of(data: &TaskReader, log: &LogFile) -> Result<TaskSummary, Failure> {
    until_ended(log).await?;
    Ok(data.look(&data.fold(log.clone())?, TaskSummary::of))
}

fn has_not_ended(of: &LiveTask, key: Option<&TaskKey>, within: Duration) -> Failure {
    let waited = human::limit(within);
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
