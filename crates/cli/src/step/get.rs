//! `tenure step get`: shows a Step in full, with its Attempts and the outputs of its dependencies.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use tenure_core::id::StepId;
use tenure_core::record::{Value, ValueBody};
use tenure_core::status::StepStatus;
use tenure_core::task::Attempt;
use tenure_core::view::artifact::ArtifactView;
use tenure_core::view::claim::DependencyResult;
use tenure_core::view::{AttemptView, Known, StepRef, StepView, View};
use tenure_ports::journal::TaskKey;

use super::rows::why;
use crate::answer::{
    Exit, Failure, Paint, Shape, Sheet, Stream, human, number, output, section, status, text,
};
use crate::attempt::attempt_rows;
use crate::logs::LogFinder;
use crate::place::{TaskReader, ViewArgs};

/// How many lines and characters of a value to show; JSON has it in full.
const VALUE_LINES_MAX: usize = 20;
const VALUE_CHARS_MAX: usize = 2_000;

/// Of how many Attempts to look for logs that no artifact names.
const ATTEMPTS_MAX: usize = 50;

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
    look: ViewArgs,
}

/// A Step in full.
#[derive(Serialize)]
struct Dossier {
    task_id: String,
    session_id: String,
    version: u64,
    step: StepView,
    /// What other steps hand on to it.
    dependencies: Vec<DependencyResult>,
    /// Newest first.
    attempts: Vec<AttemptView>,
    artifacts: Vec<ArtifactView>,
    /// What its commands wrote that is no artifact, as of an Attempt that runs or was killed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logs: Vec<StepLog>,
}

/// A file with what a command wrote.
#[derive(Serialize)]
struct StepLog {
    attempt: u32,
    stream: Stream,
    path: String,
    size_bytes: u64,
}

pub(super) fn run(args: &GetArgs) -> Result<Exit, Failure> {
    let data = TaskReader::open(&args.look.at)?;
    let loaded = data.load(&args.look.at.key(&args.task)?)?;
    let unknown = || loaded.unknown_step(&args.step);
    let id = StepId::new(&args.step).map_err(|_| unknown())?;
    data.look(&loaded, |view, known| {
        let step = view.step(&id).ok_or_else(unknown)?;
        let mut dossier = dossier(view, step, known);
        dossier.fill(&data, &loaded.key);
        let attempts = view.attempts_of(step).take(ATTEMPTS_MAX);
        dossier.find_logs(&LogFinder::of_directory(&data, &loaded.key), attempts);
        args.look.output.answer(&dossier, Shape::one("step/step_id"), || {
            output::print(render(view, step, &dossier, known))
        })
    })
}

impl Dossier {
    /// Reads the blobs of its values, so that they are shown as others are (VALUE-01).
    fn fill(&mut self, data: &TaskReader, key: &TaskKey) {
        if self.step.spec.input.as_ref().is_some_and(|it| it.blob().is_some()) {
            let spec = Arc::make_mut(&mut self.step.spec);
            spec.input.iter_mut().for_each(|input| data.fill(key, input));
        }
        if let Some(facts) = &mut self.step.facts
            && facts.output.as_ref().is_some_and(|it| it.blob().is_some())
        {
            let facts = Arc::make_mut(facts);
            facts.output.iter_mut().for_each(|output| data.fill(key, output));
        }
        let outputs = self.dependencies.iter_mut().filter_map(|it| it.output.as_mut());
        outputs.for_each(|output| data.fill(key, output));
    }

    /// Finds the logs of these Attempts that no artifact names.
    fn find_logs<'a>(
        &mut self,
        finder: &LogFinder<'_>,
        attempts: impl Iterator<Item = &'a Attempt>,
    ) {
        for attempt in attempts {
            for log in finder.expected(attempt) {
                let mut named = self.artifacts.iter().filter(|it| it.kind == log.kind());
                let is_named = named.any(|it| it.attempt_id == Some(attempt.attempt_id));
                if let Some(size_bytes) = log.size().filter(|_| !is_named) {
                    let path = log.path.display().to_string();
                    let (attempt, stream) = (attempt.ordinal, log.stream);
                    self.logs.push(StepLog { attempt, stream, path, size_bytes });
                }
            }
        }
    }
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
        logs: Vec::new(),
    }
}

fn render(view: &View<'_>, at: StepRef<'_>, dossier: &Dossier, known: &Known<'_>) -> String {
    let step = &dossier.step;
    let of = format_args!("{}/{}", dossier.session_id, dossier.task_id);
    let mut out = status::heading(&step.spec.step_id, step.status, step.normalized_status, of);
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
    if !dossier.logs.is_empty() {
        section(&mut out, "logs", &logs(&dossier.logs));
    }
    if !dossier.attempts.is_empty() {
        let rows = attempt_rows(&dossier.attempts, known.now, "  ").render();
        section(&mut out, "attempts, newest first", &rows);
    }
    out
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
    sheet.field(
        "  claim only by",
        step.spec.claim_only_by.as_ref().map(ToString::to_string).unwrap_or_default(),
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
        let _ = writeln!(out, "  {mark} {} ({status})", dependency.id()); // Writing to a String never fails.
    }
    if all.len() > NAMED_MAX {
        let _ = writeln!(out, "  … {} more", human::len(all.len() - NAMED_MAX));
    }
    out
}

/// A value for people: JSON indented, text unchanged, and the size of anything else.
pub(crate) fn value(value: Option<&Value>) -> String {
    let Some(value) = value else { return String::new() };
    let data = match &value.body {
        ValueBody::Ref(reference) => return format!("  {} at {reference}\n", value.content_type),
        ValueBody::Blob(blob) => {
            let (size, reference) = (human::bytes(blob.size_bytes), blob.reference());
            return format!("  {size} of {} at {reference}\n", value.content_type);
        }
        ValueBody::Data(data) => data,
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

fn logs(all: &[StepLog]) -> String {
    let mut sheet = Sheet::bare();
    for log in all {
        sheet.row([
            text(format_args!("  {}", log.stream.name())),
            text(format_args!("attempt {}", log.attempt)),
            number(human::bytes(log.size_bytes)),
            text(human::cut(&human::one_line(&log.path), 200)),
        ]);
    }
    sheet.render()
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
