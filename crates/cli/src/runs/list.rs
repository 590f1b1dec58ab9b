//! `tenure runs list`

use clap::Args;
use serde::Serialize;
use tenure_core::id::{Millis, PoolId, StepId};
use tenure_core::status::RunState;
use tenure_core::view::{RunView, View};

use crate::answer::{Exit, Failure, Shape, Sheet, Tone, human, output, text, toned};
use crate::filter::named;
use crate::place::OfTask;

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
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = |name: &str| named(name, RunState::ALL))]
    status: Vec<RunState>,

    /// Only runs for this pool of workers
    #[arg(long, value_name = "NAME")]
    pool: Option<PoolId>,
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

#[derive(Serialize)]
struct RunListing {
    runs: Vec<RunView>,
    version: u64,
}

pub(super) fn run(args: &ListArgs) -> Result<Exit, Failure> {
    let (data, loaded) = args.of.load()?;
    data.look(&loaded, |view, known| {
        let runs = view.runs().map(|(pos, _)| RunView::of(view, pos));
        let runs = runs.filter(|run| args.admits(view, run)).collect();
        let listing = RunListing { runs, version: view.version() };
        args.of.look.output.answer(&listing, Shape::many("runs", "run_id"), || {
            if listing.runs.is_empty() {
                output::say("no such run; ended ones are shown with --all");
                return Ok(());
            }
            rows(&listing.runs, known.now).print()
        })
    })
}

/// Runs as a table.
pub(super) fn rows(runs: &[RunView], now: Millis) -> Sheet {
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
