//! `tenure task watch`: shows what happens to a Task, until it has ended.

use std::cell::OnceCell;
use std::time::Instant;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};

use super::follow::{follow, until_stopped};
use crate::cli::answer::{Exit, Failure};
use crate::cli::place::LiveTask;
use crate::cli::show::{OutputFormat as ShowFormat, show_to_end};

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
