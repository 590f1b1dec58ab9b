//! `tenure submit`: makes the Task of a file in a cluster, and with `--wait` shows it until its
//! end.
//!
//! Step 1 of the walk in docs/architecture.md.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use futures::TryStreamExt as _;
use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::Context;
use tenure_core::id::{CommandId, SessionId, TaskId};
use tenure_core::{Code, Rejection, Task};

use crate::answer::{Exit, Failure, output};
use crate::order::context;
use crate::place::ClusterArgs;
use crate::request::{RunnablePlan, label, variable};
use crate::runtime::{one_thread, unless_stopped};
use crate::show::{OutputFormat, reason_from_owner, show_to_end};
use crate::telemetry::trace_of_caller;

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

    /// Id of this command, for a file that names its task or with --idempotency-key: the same again is
    /// answered as the first time
    #[arg(long, value_name = "ID", conflicts_with = "new")]
    command_id: Option<CommandId>,

    /// For a file that names no task: its id is made of KEY, and the same file again is the same task
    #[arg(long, value_name = "KEY", conflicts_with = "new")]
    idempotency_key: Option<SmolStr>,

    /// Label by which lists find the task, beside those in the file (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(SmolStr, SmolStr)>,

    /// Value of a variable that the file declares (repeatable)
    #[arg(long = "var", value_name = "KEY=VALUE", value_parser = variable)]
    vars: Vec<(String, String)>,

    /// For WfFormat: tasks sleep for their recorded time times X
    #[arg(long, value_name = "X")]
    time_scale: Option<f64>,

    /// What to print; of a task that nobody waits for `quiet` prints its id
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// The output without `--wait`.
#[derive(Debug, Serialize)]
struct Submitted<'a> {
    task_id: &'a TaskId,
    session_id: &'a SessionId,
    version: u64,
}

/// Submits a task file.
pub(crate) fn run(args: SubmitArgs) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let request = RunnablePlan::open(&args.file, &args.vars, args.time_scale)?;
    let is_known_again = args.is_known_again(request.task_id())?;
    let mut plan = request.named(args.new);
    if let Some(key) = &args.idempotency_key {
        plan.task_id = Some(TaskId::of_key(&args.cluster.session, key).to_string());
    }
    let mut input = tenure_embedded::plan::into_create(plan)?;
    input.draft = args.draft.then_some(true);
    input.labels.extend(args.labels.iter().cloned());
    input.idempotency_key.clone_from(&args.idempotency_key);
    let (id, is_made) = (input.task_id()?.clone(), Cell::new(false));
    let runtime = one_thread()?;
    runtime.block_on(async {
        let work = async {
            let client = args.cluster.connect().await?;
            let context = context(args.command_id.as_ref())?;
            let context = Context { trace: trace_of_caller(), ..context };
            let made = client.create_under(context, input).await;
            let made = made.map_err(|refused| args.not_made(refused, &id, is_known_again))?;
            is_made.set(true);
            if args.wait {
                if args.output == OutputFormat::Table {
                    output::say(format_args!("task {id}"));
                }
                let commits = client.watch(&id, 0).map_err(Failure::from);
                let why = async |task: &Task| reason_from_owner(&client, task).await;
                let shown = show_to_end(args.output, commits, begun, why).await;
                return shown.map_err(|failure| {
                    let more = failure.help.clone().map_or_else(String::new, |help| help + "; ");
                    let waits_on = args.waits_on(&id);
                    failure.help(format!("{more}task {id} goes on; to wait for its end: {waits_on}"))
                });
            }
            args.tell(&id, made.version)?;
            Ok(Exit::Ok)
        };
        let said = || match (is_made.get(), is_known_again) {
            (true, _) => {
                let waits_on = args.waits_on(&id);
                format!("stopped; task {id} goes on without this command; to wait for its end: {waits_on}")
            }
            (false, true) => {
                format!("stopped while task {id} was handed in: the same command again goes on with it")
            }
            (false, false) => format!("stopped while task {id} was handed in: {LEFT}"),
        };
        unless_stopped(said, work).await
    })
}

/// What happens to an unfinished creation that is not submitted again.
const LEFT: &str =
    "`tenure task get` says whether it is there, and one that is there in part ends by itself";

impl SubmitArgs {
    /// Whether a repetition of this command means the same Task, which has this id if the file
    /// gives one.
    fn is_known_again(&self, id: Option<&str>) -> Result<bool, Failure> {
        let is_named = id.is_some() && !self.new;
        let usage = |message: &str| Err(Failure::new(Exit::Usage, message));
        match (is_named, &self.idempotency_key, &self.command_id) {
            (true, Some(_), _) => usage("--idempotency-key goes with a file that names no task"),
            (false, None, Some(_)) => usage(
                "--command-id goes with a file that names its task, or with --idempotency-key: else \
                 another time it is another task",
            ),
            (_, key, _) => Ok(is_named || key.is_some()),
        }
    }

    /// The command that waits for the end of a Task.
    fn waits_on(&self, id: &TaskId) -> String {
        format!("tenure task wait {}/{id}{}", self.cluster.session, self.cluster.told())
    }

    /// The failure for a refusal. If the Task may exist all the same, it says what to do.
    fn not_made(&self, refused: Rejection, id: &TaskId, is_known_again: bool) -> Failure {
        let (session, told) = (&self.cluster.session, self.cluster.told());
        let help = match (refused.code, is_known_again) {
            (code, true) if code.is_retryable() => {
                format!("the same command again goes on with task {id}")
            }
            (code, false) if code.is_retryable() => format!("task {id} may be there: {LEFT}"),
            _ if refused.details.contains_key("unfinished_creation") => {
                let again = match is_known_again {
                    true => "the same command with the mended file replaces it",
                    false => "the mended file is another task",
                };
                format!(
                    "a part of task {id} was left, which nobody can begin: {again}; `tenure task cancel \
                     {session}/{id}{told}` ends it"
                )
            }
            (Code::TaskIdConflict, _) => format!(
                "`tenure task get {session}/{id}{told}` shows what was handed in before; --new hands this file \
                 in as another task"
            ),
            (Code::IdempotencyConflict, _) => {
                "something else was handed in under the same --command-id or --idempotency-key: choose another"
                    .to_owned()
            }
            _ => return refused.into(),
        };
        Failure::from(refused).help(help)
    }

    /// Prints that the Task was made.
    fn tell(&self, id: &TaskId, version: u64) -> Result<(), Failure> {
        match self.output {
            OutputFormat::Table => {
                let done = if self.draft { "is a draft" } else { "submitted" };
                output::print(format_args!("task {id} {done}\n"))?;
            }
            OutputFormat::Json | OutputFormat::Jsonl => {
                let session_id = &self.cluster.session;
                output::print_json(&Submitted { task_id: id, session_id, version })?;
            }
            OutputFormat::Quiet => output::print(format_args!("{id}\n"))?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SubmitArgs,
    }

    /// IDEM-03, IDEM-07: a failure says how to repeat this command, and what it left in the
    /// cluster.
    #[test]
    fn a_refusal_says_what_to_do_about_the_task() {
        let Line { args } = Line::parse_from(["submit", "f.yaml", "--session", "s"]);
        let id = TaskId::new("t").unwrap();
        let said = |refused, known| args.not_made(refused, &id, known).help.unwrap_or_default();
        let conflict = Rejection::new(Code::TaskIdConflict, "it exists");
        let help = said(conflict, true);
        assert!(help.contains("tenure task get s/t") && help.contains("--new"), "{help}");
        assert!(!help.contains("--resume"), "{help}");
        let help = said(Rejection::new(Code::IdempotencyConflict, "another"), true);
        assert!(help.contains("--idempotency-key"), "{help}");
        let part = Rejection::invalid("steps", "no").with("unfinished_creation", true);
        let help = said(part.clone(), false);
        assert!(help.contains("tenure task cancel s/t") && help.contains("another task"), "{help}");
        assert!(said(part, true).contains("replaces it"));
        let gone = Rejection::new(Code::Unavailable, "gone").with("unfinished_creation", true);
        assert_eq!(said(gone, true), "the same command again goes on with task t");
    }
}
