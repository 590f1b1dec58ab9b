//! `tenure step list`

use clap::Args;
use tenure_core::id::{AgentId, PoolId};
use tenure_core::status::StepStatus;
use tenure_core::view::query::PAGE_DEFAULT;
use tenure_core::view::query_steps;
use tenure_core::view::{AttemptView, Known, QueryInput, StepPage, StepView, View};
use tenure_core::{Caller, Limits};

use super::rows::step_rows;
use crate::answer::{Exit, Failure, Shape, output};
use crate::filter::{Cut, StatusFilter, step_status};
use crate::place::{OfTask, me};

/// List the steps of a task.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    of: OfTask,

    /// Completed, failed and cancelled steps too
    #[arg(long)]
    all: bool,

    /// Only steps in this status, as tables have it or the native one (repeatable); the name of a
    /// status of settled steps implies --all
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = step_status)]
    status: Vec<StatusFilter<StepStatus>>,

    /// Only steps that this worker holds
    #[arg(long, value_name = "WORKER")]
    claimed_by: Option<AgentId>,

    /// Only steps for this pool of workers
    #[arg(long, value_name = "NAME")]
    pool: Option<PoolId>,

    #[command(flatten)]
    cut: Cut,
}

pub(super) fn run(args: &ListArgs) -> Result<Exit, Failure> {
    let (data, loaded) = args.of.load()?;
    let input = QueryInput {
        claimed_by_agent_id: args.claimed_by.clone(),
        include_terminal_steps: args.all || StatusFilter::name_ended(&args.status),
        limit: args.cut.limit,
        offset: args.cut.offset,
        statuses: StatusFilter::natives(&args.status),
        worker_pool_id: args.pool.clone(),
    };
    let who = me(&loaded.key.session_id)?;
    data.look(&loaded, |view, known| {
        let page = query(view, (&who, known), &input, &args.status)?;
        let shape = Shape::many("steps", "step_id").before(page.next_offset);
        args.of.look.output.answer(&page, shape, || print_page(view, known, &page))?;
        if page.steps.is_empty() && view.steps().next().is_some() {
            output::say(match input.include_terminal_steps {
                true => "no such step",
                false => "no such step; completed, failed and cancelled ones are shown with --all",
            });
        }
        Ok::<_, Failure>(Exit::Ok)
    })
}

/// A page of the Steps in one of these statuses. If native statuses do not select them, it reads
/// all pages and filters here.
fn query(
    view: &View<'_>,
    (who, known): (&Caller, &Known<'_>),
    input: &QueryInput,
    asked: &[StatusFilter<StepStatus>],
) -> Result<StepPage, Failure> {
    let limits = Limits::default();
    let page = query_steps(view, who, input, known, &limits)?;
    if asked.is_empty() || input.statuses.is_some() {
        return Ok(page);
    }
    let (mut fit, mut next) = (Vec::new(), Some(0));
    while let Some(offset) = next {
        let input = QueryInput { limit: Some(limits.page_max), offset, ..input.clone() };
        let page = query_steps(view, who, &input, known, &limits)?;
        let fits = |step: &StepView| StatusFilter::any(asked, step.status, step.normalized_status);
        fit.extend(page.steps.into_iter().filter(fits));
        next = page.next_offset;
    }
    let limit = input.limit.unwrap_or(PAGE_DEFAULT);
    let truncated = fit.len() > input.offset.saturating_add(limit);
    let steps = fit.into_iter().skip(input.offset).take(limit).collect();
    let next_offset = truncated.then_some(input.offset + limit);
    Ok(StepPage { steps, next_offset, truncated, ..page })
}

fn print_page(view: &View<'_>, known: &Known<'_>, page: &StepPage) -> Result<(), Failure> {
    if !page.steps.is_empty() {
        let steps: Vec<&StepView> = page.steps.iter().collect();
        let refs = page.steps.iter().filter_map(|step| view.step(&step.spec.step_id));
        let tries = refs.flat_map(|step| view.tries_of(step));
        let attempts: Vec<_> = tries.map(|a| AttemptView::of(view, a, known)).collect();
        step_rows(&steps, &attempts, known.now).print()?;
    }
    Ok(())
}
