//! `tenure runs cancel`

use clap::Args;
use tenure_core::Command;
use tenure_core::command::RunAndWhy;

use crate::answer::{Exit, Failure};
use crate::order::{CommandDone, OnTask, ReasonArgs};

/// Cancel a run.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    on: OnTask,

    /// Id of the run, or how only it begins
    #[arg(value_name = "RUN_ID")]
    run: String,

    #[command(flatten)]
    why: ReasonArgs,
}

/// Cancels a Run.
pub(super) fn run(args: &CancelArgs) -> Result<Exit, Failure> {
    args.on.at(async |session| {
        let run_id = session.run(&args.run).await?;
        let cancel = Command::CancelRun(RunAndWhy { reason: args.why.input(), run_id });
        let summary = session.command(args.on.context()?, cancel).await?;
        args.on.tell(session.key(), CommandDone::of(&summary))
    })
}
