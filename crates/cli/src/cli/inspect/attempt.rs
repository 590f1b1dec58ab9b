//! `tenure attempt …`

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_core::Limits;
use tenure_core::id::{AgentId, Millis, Ref, StepId};
use tenure_core::status::AttemptStatus;
use tenure_core::view::query::PAGE_DEFAULT;
use tenure_core::view::{AttemptView, View};

use crate::cli::answer::output::{self, Tone};
use crate::cli::answer::sheet::{Sheet, number, text, toned};
use crate::cli::answer::{Exit, Failure, Shape, human, status};
use crate::cli::filter::{Asked, Cut, attempt_status};
use crate::cli::place::{Data, OfTask};

/// Attempts.
#[derive(Debug, Subcommand)]
pub(crate) enum AttemptCommand {
    /// List the attempts of a task, oldest first
    List(ListArgs),
    /// Show an attempt: what it was given, what came of it
    #[command(visible_alias = "show")]
    Get(GetArgs),
}

/// Show an attempt.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    of: OfTask,

    /// Id of the attempt or how only it begins, or STEP_ID for its newest, or STEP_ID/N for the Nth
    #[arg(value_name = "ATTEMPT")]
    attempt: String,
}

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
    status: Vec<Asked<AttemptStatus>>,

    /// Only attempts of this worker
    #[arg(long, value_name = "WORKER")]
    worker: Option<AgentId>,

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
    match command {
        AttemptCommand::List(args) => list(&args),
        AttemptCommand::Get(args) => get(&args),
    }
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let max = Limits::default().page_max;
    let limit = args.cut.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=max).contains(&limit) {
        let message = format!("--limit is {limit}; it goes from 1 to {max}");
        return Err(Failure::new(Exit::Usage, message));
    }
    let data = Data::open(&args.of.look.at)?;
    let loaded = data.load(&args.of.key()?)?;
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
            args.status.is_empty() || Asked::any(&args.status, a.status, a.normalized_status)
        });
        let mut rest = all.skip(args.cut.offset);
        let shown = rest.by_ref().take(limit).collect();
        let truncated = rest.next().is_some();
        let next_offset = truncated.then_some(args.cut.offset + limit);
        let page = Page { attempts: shown, next_offset, truncated, version: view.version() };
        let shape = Shape::many("attempts", "attempt_id");
        args.of.look.output.answer(&page, shape, || print(&page, known.now))
    })?;
    Ok(Exit::Ok)
}

fn get(args: &GetArgs) -> Result<Exit, Failure> {
    let data = Data::open(&args.of.look.at)?;
    let loaded = data.load(&args.of.key()?)?;
    data.look(&loaded, |view, known| {
        let attempt = find(view, &args.attempt).ok_or_else(|| {
            let message = format!("no attempt `{}` in task {}", args.attempt, loaded.key);
            let help = format!("`tenure attempt list {}` shows them", loaded.key);
            Failure::new(Exit::NotFound, message).help(help)
        })?;
        let attempt = AttemptView::of(view, attempt, known);
        let shape = Shape::one("attempt_id");
        args.of.look.output.answer(&attempt, shape, || fields(&attempt, known.now).print())?;
        Ok(Exit::Ok)
    })
}

/// The Attempt that `name` means: by its id, or by its Step and number.
fn find<'a>(view: &View<'a>, name: &str) -> Option<&'a tenure_core::task::Attempt> {
    let (step, ordinal) = match name.rsplit_once('/') {
        Some((step, ordinal)) => (step, Some(ordinal.parse::<u32>().ok()?)),
        None => (name, None),
    };
    let of_step = view.attempts().filter(|a| a.step_id.as_str() == step);
    let of_step = of_step.filter(|a| ordinal.is_none_or(|n| n == a.ordinal));
    if let Some(newest) = of_step.max_by_key(|a| a.ordinal) {
        return Some(newest);
    }
    let mut begins = view.attempts().filter(|a| a.attempt_id.to_string().starts_with(name));
    begins.next().filter(|_| begins.next().is_none())
}

/// An Attempt in full.
fn fields(attempt: &AttemptView, now: Millis) -> Sheet {
    let refs = |refs: &[Ref]| {
        let names: Vec<String> = refs.iter().map(|one| human::cut(one.as_str(), 200)).collect();
        names.join("\n")
    };
    let why = attempt.error.as_ref().map(|why| format!("{}: {}", why.code, why.message));
    let mut sheet = Sheet::bare();
    sheet.field("attempt", attempt.attempt_id);
    sheet.field("step", format_args!("{}, attempt {}", attempt.step_id, attempt.ordinal));
    sheet.row([toned("status", Tone::Faint), status::cell(attempt.normalized_status)]);
    sheet.field("outcome", attempt.outcome.map(|outcome| outcome.to_string()).unwrap_or_default());
    sheet.field("why", why.unwrap_or_default());
    sheet.field("worker", &attempt.worker_id);
    sheet.field("run", attempt.run_id);
    sheet.field("fencing token", attempt.fencing_token);
    sheet.field("started", human::local_and_ago(attempt.started_at, now));
    sheet.field("took", human::between(attempt.started_at, attempt.ended_at.unwrap_or(now)));
    sheet.field("said", attempt.completion_summary.as_deref().unwrap_or_default());
    sheet.field("given", refs(&attempt.input_refs));
    sheet.field("made", refs(&attempt.output_refs));
    sheet.field("checkpoints", refs(&attempt.checkpoint_refs));
    sheet
}

fn print(page: &Page, now: Millis) -> Result<(), Failure> {
    if page.attempts.is_empty() {
        output::say("no such attempt was made");
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
