//! `tenure task watch`: shows what happens to a Task, until it has ended.

use std::cell::OnceCell;
use std::time::Instant;

use clap::Args;
use futures::TryStreamExt as _;
use tenure_core::Task;

use super::follow::{follow, until_stopped};
use crate::answer::{Exit, Failure};
use crate::place::LiveTask;
use crate::show::{OutputFormat as ShowFormat, reason_from_log, reason_from_owner, show_to_end};

/// Watch a task.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    of: LiveTask,

    /// What to print
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: ShowFormat,
}

pub(crate) fn run(args: &WatchArgs) -> Result<Exit, Failure> {
    let (begun, here) = (Instant::now(), args.of.here()?);
    let found = OnceCell::new();
    until_stopped(&args.of, &found, async {
        let format = args.output;
        match &here {
            Some((_, log)) => {
                show_to_end(format, follow(log.clone())?, begun, reason_from_log).await
            }
            None => {
                let (client, key) = args.of.far_in_the_end().await?;
                let key = found.get_or_init(|| key);
                let commits = client.watch(&key.task_id, 0).map_err(Failure::from);
                let why = async |task: &Task| reason_from_owner(&client, task).await;
                show_to_end(format, commits, begun, why).await
            }
        }
    })
}
