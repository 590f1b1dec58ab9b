//! `tenure runs …`: licences to claim a Step, and what became of them.

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_core::id::{Millis, PoolId, StepId};
use tenure_core::status::RunState;
use tenure_core::view::{RunView, View};

use crate::cli::answer::output::{self, Tone};
use crate::cli::answer::sheet::{Sheet, text, toned};
use crate::cli::answer::{Exit, Failure, Shape, human};
use crate::cli::command::dispatch;
use crate::cli::filter::one_of;
use crate::cli::place::{Data, OfTask, names};

/// Runs.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List the runs of a task, oldest first: dispatched and active ones
    List(ListArgs),
    /// Show a run
    #[command(visible_alias = "show")]
    Get(GetArgs),
    /// Take a run back, and stop its worker if it has one
    Cancel(dispatch::CancelArgs),
}

/// List runs.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    of: OfTask,

    /// Ended runs too
    #[arg(long)]
    all: bool,

    /// Only runs that have claimed this step, or may
    #[arg(long, value_name = "STEP_ID")]
    step: Option<StepId>,

    /// Only runs in this state (repeatable): dispatched, active, ended; this implies --all
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = state)]
    status: Vec<RunState>,

    /// Only runs for this pool of workers
    #[arg(long, value_name = "NAME")]
    pool: Option<PoolId>,
}

fn state(text: &str) -> Result<RunState, String> {
    RunState::from_name(text).ok_or_else(|| one_of(RunState::ALL.iter().map(|s| s.as_str())))
}

impl ListArgs {
    fn admits(&self, view: &View<'_>, run: &RunView) -> bool {
        let is_meant = match &self.status[..] {
            [] => self.all || run.state != RunState::Ended,
            states => states.contains(&run.state),
        };
        let is_of = |step: &StepId| match (&run.claimed_step_id, &run.allowed_step_ids) {
            (Some(claimed), _) => claimed == step,
            (None, Some(scope)) => scope.contains(step),
            (None, None) => {
                view.step(step).is_some_and(|step| step.spec.worker_pool_id == run.worker_pool_id)
            }
        };
        is_meant
            && self.step.as_ref().is_none_or(is_of)
            && self.pool.as_ref().is_none_or(|pool| *pool == run.worker_pool_id)
    }
}

/// Show a run.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    of: OfTask,

    /// Id of the run, or how only it begins
    #[arg(value_name = "RUN_ID")]
    run: String,
}

#[derive(Serialize)]
struct Listing {
    runs: Vec<RunView>,
    version: u64,
}

pub(super) fn run(command: RunsCommand) -> Result<Exit, Failure> {
    match command {
        RunsCommand::List(args) => list(&args),
        RunsCommand::Get(args) => get(&args),
        RunsCommand::Cancel(args) => dispatch::cancel(&args),
    }
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let data = Data::open(&args.of.look.at)?;
    let loaded = data.load(&args.of.key()?)?;
    data.look(&loaded, |view, known| {
        let runs = view.runs().map(|(pos, _)| RunView::of(view, pos));
        let runs = runs.filter(|run| args.admits(view, run)).collect();
        let listing = Listing { runs, version: view.version() };
        args.of.look.output.answer(&listing, Shape::many("runs", "run_id"), || {
            if listing.runs.is_empty() {
                output::say("no such run; ended ones are shown with --all");
                return Ok(());
            }
            rows(&listing.runs, known.now).print()
        })
    })?;
    Ok(Exit::Ok)
}

fn get(args: &GetArgs) -> Result<Exit, Failure> {
    let data = Data::open(&args.of.look.at)?;
    let loaded = data.load(&args.of.key()?)?;
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
        })?;
        Ok(Exit::Ok)
    })
}

/// Runs as a table.
fn rows(runs: &[RunView], now: Millis) -> Sheet {
    let mut sheet = Sheet::new(&["RUN", "STATE", "POOL", "SCOPE", "STEP", "WORKER", "WHY"]);
    for run in runs {
        let state = match run.end_reason {
            Some(end) => format!("{}: {end}", run.state),
            None if run.state == RunState::Dispatched => match run.expires_at {
                Some(at) => format!("{}, for {} more", run.state, human::between(now, at)),
                None => run.state.to_string(),
            },
            None => run.state.to_string(),
        };
        let scope = run.allowed_step_ids.as_ref().map_or_else(
            || "any".to_owned(),
            |steps| steps.iter().map(|step| step.as_str()).collect::<Vec<_>>().join(","),
        );
        let why = run.reason.as_ref().map(|reason| human::one_line(&reason.message));
        sheet.row([
            toned(run.run_id, Tone::Strong),
            text(state),
            text(&run.worker_pool_id),
            text(human::cut(&scope, 40)),
            text(run.claimed_step_id.as_ref().map_or("", |step| step.as_str())),
            text(run.worker_id.as_ref().map(human::worker).unwrap_or_default()),
            text(human::cut(&why.unwrap_or_default(), 60)),
        ]);
    }
    sheet
}
