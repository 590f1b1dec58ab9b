//! `tenure task events`: prints the public events of a Task, a line each.

use std::cell::OnceCell;

use clap::{Args, ValueEnum};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tenure_scheduler::Follower;
use tenure_sdk::client::check_after;
use tenure_wire::bus::event::TaskEvent;

use super::follow::{follow, until_stopped};
use crate::answer::{Exit, Failure, output};
use crate::place::LiveTask;
use crate::place::scan::LogFile;

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
    output: EventFormat,
}

/// How events are written, which nobody reads as a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum EventFormat {
    /// A line for each event
    #[default]
    Jsonl,
    /// The same
    Json,
}

pub(super) fn run(args: &EventsArgs) -> Result<Exit, Failure> {
    let here = args.of.here()?;
    let found = OnceCell::new();
    until_stopped(&args.of, &found, async {
        let mut events = match &here {
            Some((data, log)) => {
                // What is wrong with the log comes to light below, behind the events that can be read.
                if args.after > 0
                    && let Ok(loaded) = data.fold(log.clone())
                {
                    check_after(args.after, loaded.task.durable().version())?;
                }
                events_of(log.clone(), args.after)?.boxed_local()
            }
            None => {
                let (client, key) = args.of.far_in_the_end().await?;
                let key = found.get_or_init(|| key);
                client.events(&key.task_id, args.after).map_err(Failure::from).boxed_local()
            }
        };
        while let Some(event) = events.try_next().await? {
            if !output::print_line(&event)? {
                break; // The reader has closed the pipe.
            }
        }
        Ok(Exit::Ok)
    })
}

/// The public events of a log behind event `after`.
fn events_of(
    log: LogFile,
    after: u64,
) -> Result<impl Stream<Item = Result<TaskEvent, Failure>>, Failure> {
    let mut follower = Follower::default();
    let events = follow(log)?.map(move |commit| {
        let told = follower.take(&commit?);
        let told = told.map_err(|illegal| Failure::caused(Exit::Unavailable, &illegal))?;
        let new = told.into_iter().filter(move |event| event.wal_seq > after);
        Ok::<_, Failure>(stream::iter(new.map(Ok::<_, Failure>)))
    });
    Ok(events.try_flatten())
}
