//! `tenure step …`

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_core::Caller;
use tenure_core::Limits;
use tenure_core::id::{AgentId, Millis, PoolId, StepId};
use tenure_core::record::{Body, Value};
use tenure_core::status::StepStatus;
use tenure_core::view::artifact::ArtifactView;
use tenure_core::view::claim::DependencyResult;
use tenure_core::view::query::PAGE_DEFAULT;
use tenure_core::view::query_steps;
use tenure_core::view::{AttemptView, Known, QueryInput, StepPage, StepRef, StepView, View};

use super::attempt::attempt_rows;
use crate::cli::answer::output::{self, Paint, Stream, Tone};
use crate::cli::answer::sheet::{Sheet, number, text, toned};
use crate::cli::answer::{Exit, Failure, Shape, human, status};
use crate::cli::command::step as command;
use crate::cli::filter::{Asked, Cut, step_status};
use crate::cli::place::{Data, Look, OfTask};

/// Lines and characters of a value that are shown; JSON has it in full.
const VALUE_LINES_MAX: usize = 20;
const VALUE_CHARS_MAX: usize = 2_000;

/// Only a worker can release a Step that it holds (`release_step`): it knows that it does no more on it.
const RELEASE: &str = "\
To take a step from its worker and give it out again: `step block`, then `step reopen`. To have its
worker stop of its own accord, and the step fail: `runs cancel`; to send the worker away: `worker drain`.";

/// Steps.
#[derive(Debug, Subcommand)]
#[command(after_help = RELEASE)]
pub(crate) enum StepCommand {
    /// List the steps of a task, in the order they were made
    List(ListArgs),
    /// Show a step with its attempts, its input and what came of it
    #[command(visible_alias = "show")]
    Get(GetArgs),
    /// Say that a step waits for something; whoever is at work on it is stopped
    Block(command::BlockArgs),
    /// Complete a step in its worker's place; whoever is at work on it is stopped
    Complete(command::CompleteArgs),
    /// Fail a step in its worker's place; whoever is at work on it is stopped
    Fail(command::StepArgs),
    /// Cancel a step that nobody is at work on
    Cancel(command::StepArgs),
    /// Go on with a blocked or failed step
    Reopen(command::StepArgs),
    /// Answer a step that asked for input, and go on with it
    Answer(command::AnswerArgs),
    /// Only its worker can: says what to do instead
    #[command(hide = true)]
    Release {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        _rest: Vec<String>,
    },
}

/// List the steps of a task.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    of: OfTask,

    /// Completed, failed and cancelled steps too
    #[arg(long)]
    all: bool,

    /// Only steps in this status, as tables have it or the native one (repeatable); settled ones
    /// still need --all
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = step_status)]
    status: Vec<Asked<StepStatus>>,

    /// Only steps that this worker holds
    #[arg(long, value_name = "WORKER")]
    claimed_by: Option<AgentId>,

    /// Only steps for this pool of workers
    #[arg(long, value_name = "NAME")]
    pool: Option<PoolId>,

    #[command(flatten)]
    cut: Cut,
}

/// Show a step.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Id of the task, or SESSION/ID
    #[arg(value_name = "TASK_ID")]
    task: String,

    /// Id of the step
    #[arg(value_name = "STEP_ID")]
    step: String,

    #[command(flatten)]
    look: Look,
}

pub(super) fn run(command: StepCommand) -> Result<Exit, Failure> {
    match command {
        StepCommand::List(args) => list(&args),
        StepCommand::Get(args) => get(&args),
        StepCommand::Block(args) => command::block(&args),
        StepCommand::Complete(args) => command::complete(&args),
        StepCommand::Fail(args) => command::fail(&args),
        StepCommand::Cancel(args) => command::cancel(&args),
        StepCommand::Reopen(args) => command::reopen(&args),
        StepCommand::Answer(args) => command::answer(&args),
        StepCommand::Release { .. } => {
            let message = "only the worker that holds a step releases it";
            Err(Failure::new(Exit::Usage, message).help(RELEASE.replace('\n', " ")))
        }
    }
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let data = Data::open(&args.of.look.at)?;
    let loaded = data.load(&args.of.key()?)?;
    let input = QueryInput {
        claimed_by_agent_id: args.claimed_by.clone(),
        include_terminal_steps: args.all,
        limit: args.cut.limit,
        offset: args.cut.offset,
        statuses: Asked::natives(&args.status),
        worker_pool_id: args.pool.clone(),
    };
    let who = tenure::embedded::orchestrator(loaded.key.session_id.clone())
        .map_err(|error| Failure::caused(Exit::Usage, &error))?;
    data.look(&loaded, |view, known| {
        let page = query(view, (&who, known), &input, &args.status)?;
        let shape = Shape::many("steps", "step_id");
        args.of.look.output.answer(&page, shape, || print_page(view, known, &page))?;
        if page.steps.is_empty() && !args.all && view.steps().next().is_some() {
            output::say("no such step; completed, failed and cancelled ones are shown with --all");
        }
        Ok::<_, Failure>(Exit::Ok)
    })
}

/// A page of the Steps in one of these statuses. Of what the native status does not tell, all pages are
/// looked through.
fn query(
    view: &View<'_>,
    (who, known): (&Caller, &Known<'_>),
    input: &QueryInput,
    asked: &[Asked<StepStatus>],
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
        let fits = |step: &StepView| Asked::any(asked, step.status, step.normalized_status);
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
        let newest = refs.filter_map(|step| view.attempts_of(step).next());
        let attempts: Vec<_> = newest.map(|a| AttemptView::of(view, a, known)).collect();
        step_rows(&steps, &attempts, known.now).print()?;
    }
    if let Some(next) = page.next_offset {
        output::say(format_args!("there are more: --offset {next}"));
    }
    Ok(())
}

/// Steps as a table. Of the attempts the newest of each Step counts.
pub(super) fn step_rows(steps: &[&StepView], attempts: &[AttemptView], now: Millis) -> Sheet {
    let mut newest: BTreeMap<&StepId, &AttemptView> = BTreeMap::new();
    for attempt in attempts {
        let slot = newest.entry(&attempt.step_id).or_insert(attempt);
        if attempt.ordinal > slot.ordinal {
            *slot = attempt;
        }
    }
    let mut sheet =
        Sheet::new(&["", "STEP", "STATUS", "TRIES", "TOOK", "HANDLER", "POOL", "WAITS FOR / WHY"]);
    for step in steps {
        let attempt = newest.get(&step.spec.step_id);
        let took = attempt.map(|a| human::between(a.started_at, a.ended_at.unwrap_or(now)));
        sheet.row([
            toned(status::mark(step.status), status::step_tone(step.status)),
            toned(&step.spec.step_id, Tone::Strong),
            status::cell(step.normalized_status),
            number(attempt.map(|a| a.ordinal.to_string()).unwrap_or_default()),
            number(took.unwrap_or_default()),
            text(&step.spec.handler),
            text(&step.spec.worker_pool_id),
            text(human::cut(&why(step, now), 100)),
        ]);
    }
    sheet
}

/// What a Step waits for, or why it ended as it did.
fn why(step: &StepView, now: Millis) -> String {
    if let Some(reason) = step.facts.as_ref().and_then(|facts| facts.status_reason.as_ref()) {
        let waits = step.wait_kind.map(|kind| format!("{kind}: ")).unwrap_or_default();
        let said = if reason.message.is_empty() { reason.code.as_str() } else { &reason.message };
        return format!("{waits}{}", human::one_line(said));
    }
    if let Some(at) = step.not_before {
        return format!("tried again in {}", human::between(now, at));
    }
    match step.status {
        StepStatus::Pending => joined(&step.spec.depends_on_step_ids),
        _ => match &step.holder {
            Some(holder) => format!("held by {}", human::worker(&holder.claimed_by_agent_id)),
            None => String::new(),
        },
    }
}

fn joined(ids: &[StepId]) -> String {
    const NAMED_MAX: usize = 4;
    let named: Vec<&str> = ids.iter().take(NAMED_MAX).map(StepId::as_str).collect();
    match ids.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        rest => format!("{} and {rest} more", named.join(", ")),
    }
}

/// Everything that is known of a Step.
#[derive(Serialize)]
struct Dossier {
    task_id: String,
    session_id: String,
    version: u64,
    step: StepView,
    /// What its completed direct dependencies hand on.
    dependencies: Vec<DependencyResult>,
    /// Newest first.
    attempts: Vec<AttemptView>,
    artifacts: Vec<ArtifactView>,
}

fn get(args: &GetArgs) -> Result<Exit, Failure> {
    let data = Data::open(&args.look.at)?;
    let loaded = data.load(&args.look.at.key(&args.task)?)?;
    let unknown = || loaded.unknown_step(&args.step);
    let id = StepId::new(&args.step).map_err(|_| unknown())?;
    data.look(&loaded, |view, known| {
        let step = view.step(&id).ok_or_else(unknown)?;
        let dossier = dossier(view, step, known);
        args.look.output.answer(&dossier, Shape::one("step/step_id"), || {
            output::print(render(view, step, &dossier, known))
        })?;
        Ok::<_, Failure>(Exit::Ok)
    })
}

fn dossier<'a>(view: &View<'a>, step: StepRef<'a>, known: &Known<'_>) -> Dossier {
    let artifacts = view.artifacts().filter(|a| a.step_id.as_ref() == Some(step.id()));
    Dossier {
        task_id: view.task_id().to_string(),
        session_id: view.head().spec.session_id.to_string(),
        version: view.version(),
        step: StepView::of(view, step, known),
        dependencies: DependencyResult::of_dependencies(view, std::iter::once(step)),
        attempts: view.attempts_of(step).map(|a| AttemptView::of(view, a, known)).collect(),
        artifacts: artifacts.map(|a| ArtifactView::of(view, a)).collect(),
    }
}

fn render(view: &View<'_>, at: StepRef<'_>, dossier: &Dossier, known: &Known<'_>) -> String {
    let paint = Paint::of(Stream::Stdout);
    let step = &dossier.step;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} {}  {}  of {}/{}",
        paint.text(status::step_tone(step.status), status::mark(step.status)),
        paint.text(Tone::Strong, &step.spec.step_id),
        paint.text(status::tone(step.normalized_status), step.normalized_status),
        dossier.session_id,
        dossier.task_id,
    );
    out.push_str(&fields(step, known).render());
    section(&mut out, "waits for", &dependencies(view, at));
    let facts = step.facts.as_ref();
    section(&mut out, "input", &value(step.spec.input.as_ref()));
    section(&mut out, "output", &value(facts.and_then(|facts| facts.output.as_ref())));
    let summary = facts.and_then(|facts| facts.result_summary.as_deref()).unwrap_or_default();
    section(&mut out, "result", &human::indented(summary, "  "));
    if !dossier.artifacts.is_empty() {
        section(&mut out, "artifacts", &artifacts(&dossier.artifacts));
    }
    if !dossier.attempts.is_empty() {
        let rows = attempt_rows(&dossier.attempts, known.now, "  ").render();
        section(&mut out, "attempts, newest first", &rows);
    }
    out
}

/// A part of an answer under its name, unless it is empty.
pub(super) fn section(out: &mut String, name: &str, body: &str) {
    if !body.is_empty() {
        let name = Paint::of(Stream::Stdout).text(Tone::Faint, name);
        let _ = write!(out, "\n{name}\n{body}"); // Strings take all.
    }
}

fn fields(step: &StepView, known: &Known<'_>) -> Sheet {
    let mut sheet = Sheet::bare();
    sheet.field("  title", human::one_line(&step.spec.title));
    sheet.field("  handler", &step.spec.handler);
    sheet.field("  pool", &step.spec.worker_pool_id);
    sheet.field("  required", if step.spec.required { "yes" } else { "no" });
    sheet.field(
        "  assignee",
        step.spec.assignee.as_ref().map(ToString::to_string).unwrap_or_default(),
    );
    let is_said_below =
        step.holder.is_some() || (step.status == StepStatus::Pending && step.not_before.is_none());
    if !is_said_below {
        sheet.field("  why", why(step, known.now));
    }
    if let Some(holder) = &step.holder {
        let held = format!(
            "{} under run {}, lease {}",
            holder.claimed_by_agent_id, holder.claimed_by_run_id, holder.lease_state
        );
        sheet.field("  held by", held);
    }
    if step.attempt_count + step.lost_count > 0 {
        let counted = format!("{} tries, {} losses", step.attempt_count, step.lost_count);
        sheet.field("  counted", counted);
    }
    sheet.field("  changed", human::local_and_ago(step.updated_at, known.now));
    sheet
}

fn dependencies(view: &View<'_>, step: StepRef<'_>) -> String {
    const NAMED_MAX: usize = 20;
    let all = &step.spec.depends_on_step_ids;
    let paint = Paint::of(Stream::Stdout);
    let mut out = String::new();
    for dependency in all.iter().take(NAMED_MAX).filter_map(|id| view.step(id)) {
        let status = dependency.status();
        let mark = paint.text(status::step_tone(status), status::mark(status));
        let _ = writeln!(out, "  {mark} {} ({status})", dependency.id()); // Strings take all.
    }
    if all.len() > NAMED_MAX {
        let _ = writeln!(out, "  … {} more", human::len(all.len() - NAMED_MAX));
    }
    out
}

/// A value for people: JSON laid out, text as it is, anything else by its size.
fn value(value: Option<&Value>) -> String {
    let Some(value) = value else { return String::new() };
    let data = match &value.body {
        Body::Ref(reference) => return format!("  {} at {reference}\n", value.content_type),
        Body::Data(data) => data,
    };
    let Ok(given) = std::str::from_utf8(data) else {
        return format!("  {} of {}\n", human::bytes(data.len() as u64), value.content_type);
    };
    let json = serde_json::from_str::<serde_json::Value>(given).ok();
    let laid_out = json.and_then(|json| serde_json::to_string_pretty(&json).ok());
    let whole = laid_out.unwrap_or_else(|| given.to_owned());
    let shown: String = human::cut(&whole, VALUE_CHARS_MAX);
    let lines: Vec<&str> = shown.lines().collect();
    let mut out = human::indented(&lines[..lines.len().min(VALUE_LINES_MAX)].join("\n"), "  ");
    if lines.len() > VALUE_LINES_MAX || shown.len() < whole.len() {
        let _ = writeln!(out, "  … {} in all: -o json", human::bytes(data.len() as u64));
    }
    out
}

fn artifacts(all: &[ArtifactView]) -> String {
    const NAMED_MAX: usize = 50;
    let mut sheet = Sheet::bare();
    for artifact in all.iter().take(NAMED_MAX) {
        let place = artifact.uri.as_deref().or(artifact.data.as_deref()).unwrap_or_default();
        sheet.row([
            text(format_args!("  {}", human::one_line(&artifact.name))),
            text(artifact.kind),
            text(artifact.state),
            number(artifact.size_bytes.map(human::bytes).unwrap_or_default()),
            text(human::cut(&human::one_line(place), 200)),
        ]);
    }
    let mut out = sheet.render();
    if all.len() > NAMED_MAX {
        let _ = writeln!(out, "  … {} more", human::len(all.len() - NAMED_MAX));
    }
    out
}
