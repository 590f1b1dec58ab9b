//! `tenure submit`: hands a task file to a cluster, and waits for its end if asked to.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use futures::TryStreamExt as _;
use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::id::{CommandId, SessionId, TaskId};
use tenure_ports::client::Around;
use uuid::Uuid;

use super::args::{Format, variable};
use super::far::show_to_end;
use super::request::Request;
use super::words::now;
use crate::cli::cluster::ClusterArgs;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use crate::cli::stop::unless_stopped;
use crate::cli::telemetry::trace_of_caller;

/// Hand a task file to a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct SubmitArgs {
    /// Task file in YAML, TOML or JSON, or a WfFormat instance; `-` reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// Wait until the task has ended, and show what happens
    #[arg(long, short = 'w')]
    wait: bool,

    /// Begin nothing before `tenure task submit`
    #[arg(long, conflicts_with = "wait")]
    draft: bool,

    /// Make a task of its own even if FILE names a task that exists
    #[arg(long)]
    new: bool,

    /// Value of a variable that the file declares (repeatable)
    #[arg(long = "var", value_name = "KEY=VALUE", value_parser = variable)]
    vars: Vec<(String, String)>,

    /// For WfFormat: tasks sleep for their recorded time times X
    #[arg(long, value_name = "X")]
    time_scale: Option<f64>,

    /// What to print; of a task that nobody waits for `quiet` prints its id
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// What is printed of a Task that nobody waits for.
#[derive(Debug, Serialize)]
struct Submitted<'a> {
    task_id: &'a TaskId,
    session_id: &'a SessionId,
    version: u64,
}

/// Submits a task file.
pub(crate) fn submit(args: SubmitArgs) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let request = Request::open(&args.file, &args.vars, args.time_scale)?;
    let mut input = tenure::plan::into_create(request.named(args.new), now())?;
    input.draft = args.draft.then_some(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let work = async {
            let client = args.cluster.connect().await?;
            let id = input.task_id()?.clone();
            let command = CommandId::new(Uuid::now_v7().to_string()).map_err(Rejection::from)?;
            let around = Around { trace: trace_of_caller(), ..Around::new(command) };
            let made = client.create_under(around, input).await?;
            if args.wait {
                if args.output == Format::Table {
                    output::say(format_args!("task {id}"));
                }
                let commits = client.watch(&id, 0).map_err(Failure::from);
                return show_to_end(args.output, commits, begun).await;
            }
            let session_id = &args.cluster.session;
            match args.output {
                Format::Table => {
                    let done = if args.draft { "is a draft" } else { "submitted" };
                    output::print(format_args!("task {id} {done}\n"))?;
                }
                Format::Json | Format::Jsonl => {
                    let version = made.version;
                    output::print_json(&Submitted { task_id: &id, session_id, version })?;
                }
                Format::Quiet => output::print(format_args!("{id}\n"))?,
            }
            Ok(Exit::Ok)
        };
        unless_stopped("stopped; what was submitted goes on without this command", work).await
    })
}
