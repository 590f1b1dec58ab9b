//! `tenure runs get`

use clap::Args;
use tenure_core::view::RunView;

use super::list::rows;
use crate::answer::{Exit, Failure, Shape, output};
use crate::place::{OfTask, names};

/// Show a run.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    of: OfTask,

    /// Id of the run, or how only it begins
    #[arg(value_name = "RUN_ID")]
    run: String,
}

pub(super) fn run(args: &GetArgs) -> Result<Exit, Failure> {
    let (data, loaded) = args.of.load()?;
    data.look(&loaded, |view, known| {
        let id = names::run(&args.run, view.runs().map(|(_, run)| run.run_id));
        let Some(pos) = id.and_then(|id| view.find_run(id)) else {
            return Err(names::no_run(&args.run, &loaded.key));
        };
        let run = RunView::of(view, pos);
        args.of.look.output.answer(&run, Shape::one("run_id"), || {
            rows(std::slice::from_ref(&run), known.now).print()?;
            match &run.instructions {
                Some(instructions) => output::print(format_args!("\n{instructions}\n")),
                None => Ok(()),
            }
        })
    })
}
