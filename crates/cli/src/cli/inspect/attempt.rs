//! `tenure attempt …`

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_core::Limits;
use tenure_core::id::{Millis, StepId};
use tenure_core::view::AttemptView;
use tenure_core::view::query::PAGE_DEFAULT;

use super::args::{Cut, OfTask};
use super::data::Data;
use super::human;
use super::sheet::{Sheet, number, text, toned};
use super::status;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{self, Tone};

/// Attempts.
#[derive(Debug, Subcommand)]
pub(crate) enum AttemptCommand {
    /// List the attempts of a task, oldest first
    List(ListArgs),
}

/// List the attempts of a task.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    of: OfTask,

    /// Only attempts of this step
    #[arg(long, value_name = "STEP_ID")]
    step: Option<String>,

    #[command(flatten)]
    cut: Cut,
}

/// A page of Attempts.
#[derive(Serialize)]
struct Page {
    attempts: Vec<AttemptView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
    truncated: bool,
    version: u64,
}

pub(super) fn run(command: AttemptCommand) -> Result<Exit, Failure> {
    let AttemptCommand::List(args) = command;
    let max = Limits::default().page_max;
    let limit = args.cut.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=max).contains(&limit) {
        let message = format!("--limit is {limit}; it goes from 1 to {max}");
        return Err(Failure::new(Exit::Usage, message));
    }
    let data = Data::open(&args.of.place)?;
    let loaded = data.load(&args.of.key()?)?;
    let unknown = |id: &str| loaded.unknown_step(id);
    let step = args.step.as_deref();
    let step = step.map(|id| StepId::new(id).map_err(|_| unknown(id))).transpose()?;
    data.look(&loaded, |view, known| {
        let of_step = |id: &StepId| view.attempts().any(|a| a.step_id == *id);
        if let Some(id) = step.as_ref().filter(|id| view.step(id).is_none() && !of_step(id)) {
            return Err(unknown(id.as_str()));
        }
        let fits = |id: &StepId| step.as_ref().is_none_or(|wanted| wanted == id);
        let mut rest = view.attempts().filter(|a| fits(&a.step_id)).skip(args.cut.offset);
        let shown = rest.by_ref().take(limit).map(|a| AttemptView::of(view, a, known)).collect();
        let truncated = rest.next().is_some();
        let next_offset = truncated.then_some(args.cut.offset + limit);
        let page = Page { attempts: shown, next_offset, truncated, version: view.version() };
        print(&page, args.of.place.is_json(), known.now)
    })?;
    Ok(Exit::Ok)
}

fn print(page: &Page, is_json: bool, now: Millis) -> Result<(), Failure> {
    if is_json {
        return Ok(output::print_json(page)?);
    }
    if page.attempts.is_empty() {
        output::say("no attempt was made");
        return Ok(());
    }
    attempt_rows(&page.attempts, now, "").print()?;
    if let Some(next) = page.next_offset {
        output::say(format_args!("there are more: --offset {next}"));
    }
    Ok(())
}

/// Attempts as a table.
pub(super) fn attempt_rows(attempts: &[AttemptView], now: Millis, indent: &str) -> Sheet {
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
