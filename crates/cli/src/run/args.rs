//! The options of `tenure run`.

use std::path::PathBuf;

use clap::Args;
use tenure_taskfile::WhenFailing;

use crate::place::DataDir;
use crate::request::variable;
use crate::show::OutputFormat;
use crate::tools::ToolArgs;

/// Run a task file.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Task file in YAML, TOML or JSON, or a WfFormat instance; `-` reads stdin
    #[arg(value_name = "FILE", required_unless_present = "resume")]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) data: DataDir,

    /// Steps that run at a time, in each worker pool [default: two per processor, at least 4]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: Option<u16>,

    #[command(flatten)]
    pub(crate) tools: ToolArgs,

    /// Session the task belongs to
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    pub(crate) session: String,

    /// Go on with the unfinished task of FILE, or with the named task; completed steps stay
    /// completed
    #[arg(
        long,
        value_name = "TASK_ID",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    pub(crate) resume: Option<String>,

    /// Run again what failed in the newest task of FILE, as a new task: completed steps that the file has
    /// unchanged are taken over with what they made, and are not run again
    #[arg(long, conflicts_with_all = ["resume", "new"])]
    pub(crate) retry_failed: bool,

    /// Start a task of its own even if FILE names a task that exists
    #[arg(long, conflicts_with = "resume")]
    pub(crate) new: bool,

    /// Value of a variable that the file declares (repeatable)
    #[arg(long = "var", value_name = "KEY=VALUE", value_parser = variable)]
    pub(crate) vars: Vec<(String, String)>,

    /// After a failed step, go on with all that does not depend on it
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// After a failed step, stop what runs
    #[arg(long, conflicts_with = "keep_going")]
    pub(crate) fail_fast: bool,

    /// For WfFormat: tasks sleep for their recorded time times X
    #[arg(long, value_name = "X")]
    pub(crate) time_scale: Option<f64>,

    /// What to print
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) output: OutputFormat,
}

/// Steps that run at a time, if the options do not say it. Most steps wait for something else than a processor.
pub(crate) fn concurrency(given: Option<u16>) -> usize {
    const LEAST: usize = 4;
    let by_processors = || {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (2 * processors).max(LEAST)
    };
    given.map_or_else(by_processors, usize::from)
}

impl RunArgs {
    /// Steps that run at a time.
    pub(super) fn concurrency(&self) -> usize {
        concurrency(self.workers)
    }

    /// What the task does when a step has failed, if the command says so (POL-05).
    pub(super) fn when_failing(&self) -> Option<WhenFailing> {
        match (self.keep_going, self.fail_fast) {
            (true, _) => Some(WhenFailing::Finish),
            (_, true) => Some(WhenFailing::Stop),
            (false, false) => None,
        }
    }

    /// The task named with `--resume=TASK_ID`.
    pub(super) fn resumed_id(&self) -> Option<&str> {
        self.resume.as_deref().filter(|id| !id.is_empty())
    }
}
