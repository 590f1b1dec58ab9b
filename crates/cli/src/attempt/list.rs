//! `tenure attempt list`

use clap::Args;
use serde::Serialize;
use tenure_core::Limits;
use tenure_core::id::{AgentId, Millis, StepId};
use tenure_core::status::AttemptStatus;
use tenure_core::view::AttemptView;
use tenure_core::view::query::PAGE_DEFAULT;

use crate::answer::{Exit, Failure, Shape};
use crate::answer::{Sheet, Tone, human, number, output, status, text, toned};
use crate::filter::{Cut, StatusFilter, attempt_status};
use crate::place::OfTask;

/// List the attempts of a task.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    of: OfTask,

    /// Only attempts of this step
    #[arg(long, value_name = "STEP_ID")]
    step: Option<String>,

    /// Only attempts in this status, as tables have it or the native one (repeatable)
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = attempt_status)]
    status: Vec<StatusFilter<AttemptStatus>>,

    /// Only attempts of this worker
    #[arg(long, value_name = "WORKER")]
    worker: Option<AgentId>,

    #[command(flatten)]
    cut: Cut,
}

/// A page of Attempts.
#[derive(Serialize)]
struct AttemptPage {
    attempts: Vec<AttemptView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
    truncated: bool,
    version: u64,
}

pub(super) fn run(args: &ListArgs) -> Result<Exit, Failure> {
    let max = Limits::default().page_max;
    let limit = args.cut.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=max).contains(&limit) {
        let message = format!("--limit is {limit}; it goes from 1 to {max}");
        return Err(Failure::new(Exit::Usage, message));
    }
    let (data, loaded) = args.of.load()?;
    let unknown = |id: &str| loaded.unknown_step(id);
    let step = args.step.as_deref();
    let step = step.map(|id| StepId::new(id).map_err(|_| unknown(id))).transpose()?;
    data.look(&loaded, |view, known| {
        let of_step = |id: &StepId| view.attempts().any(|a| a.step_id == *id);
        if let Some(id) = step.as_ref().filter(|id| view.step(id).is_none() && !of_step(id)) {
            return Err(unknown(id.as_str()));
        }
        let all = view.attempts().filter(|a| step.as_ref().is_none_or(|id| *id == a.step_id));
        let all = all.filter(|a| args.worker.as_ref().is_none_or(|who| *who == a.worker_id));
        let all = all.map(|a| AttemptView::of(view, a, known)).filter(|a| {
            args.status.is_empty() || StatusFilter::any(&args.status, a.status, a.normalized_status)
        });
        let mut rest = all.skip(args.cut.offset);
        let shown = rest.by_ref().take(limit).collect();
        let truncated = rest.next().is_some();
        let next_offset = truncated.then_some(args.cut.offset + limit);
        let page = AttemptPage { attempts: shown, next_offset, truncated, version: view.version() };
        let shape = Shape::many("attempts", "attempt_id").before(next_offset);
        args.of.look.output.answer(&page, shape, || print(&page, known.now))
    })
}

fn print(page: &AttemptPage, now: Millis) -> Result<(), Failure> {
    if page.attempts.is_empty() {
        output::say("no such attempt was made");
        return Ok(());
    }
    attempt_rows(&page.attempts, now, "").print()?;
    Ok(())
}

/// Attempts as a table.
pub(crate) fn attempt_rows(attempts: &[AttemptView], now: Millis, indent: &str) -> Sheet {
    let first = format!("{indent}STEP");
    let mut sheet =
        Sheet::new(&[&first, "TRY", "STATUS", "STARTED", "TOOK", "WORKER", "ATTEMPT", "WHY"]);
    for attempt in attempts {
        let why = attempt.error.as_ref().map(|error| match error.message.is_empty() {
            true => error.code.to_string(),
            false => human::one_line(&error.message),
        });
        sheet.row([
            toned(format_args!("{indent}{}", attempt.step_id), Tone::Strong),
            number(attempt.ordinal),
            status::cell(attempt.normalized_status),
            text(human::local(attempt.started_at)),
            number(human::between(attempt.started_at, attempt.ended_at.unwrap_or(now))),
            text(human::worker(&attempt.worker_id)),
            text(attempt.attempt_id),
            text(human::cut(&why.unwrap_or_default(), 100)),
        ]);
    }
    sheet
}
