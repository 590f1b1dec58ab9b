//! `tenure task get`: a Task in full (GET).

use std::fmt::Write as _;

use tenure_core::id::AgentId;
use tenure_core::record::{Edge, EdgeReason};
use tenure_core::status::{AcceptanceState, EdgeKind, EdgeStatus, StepStatus};
use tenure_core::view::{Known, StepView, TaskView, View};

use crate::answer::{
    Exit, Failure, Format, Paint, Shape, Sheet, Stream, Tone, human, output, section, status, text,
    toned,
};
use crate::place::{Host, OfTask};
use crate::run;
use crate::step::{step_rows, value};

/// How many relations to show.
const RELATED_MAX: usize = 20;
/// A Task with no more Steps than this is shown with all of them; of a larger one only Steps that
/// run or have trouble.
const STEPS_MAX: usize = 50;

pub(super) fn run(args: &OfTask) -> Result<Exit, Failure> {
    let (data, loaded) = args.load()?;
    data.look(&loaded, |view, known| {
        let go_on = || match run::goes_on(&loaded.task) {
            true => data.resume(&loaded.key),
            false => format!("`{}` says what it waits for", data.explain(&loaded.key)),
        };
        let resume = (data.host == Host::Nobody).then(go_on);
        let page = TaskNotes { host: Some(data.host.clone()), resume, note: None };
        print_task(view, known, &page, args.look.output)
    })
}

/// What to print about a Task beside the facts of its log.
pub(crate) struct TaskNotes {
    /// What runs it, if its present state is shown.
    pub(crate) host: Option<Host>,
    /// How to go on with it, if nothing runs it.
    pub(crate) resume: Option<String>,
    /// The moment whose state is shown, if not the present.
    pub(crate) note: Option<String>,
}

/// Prints a Task in full.
pub(crate) fn print_task(
    view: &View<'_>,
    known: &Known<'_>,
    page: &TaskNotes,
    format: Format,
) -> Result<Exit, Failure> {
    let task = TaskView::of(view, known);
    format.answer(&task, Shape::one("task_id"), || output::print(render(&task, known, page)))
}

fn render(task: &TaskView, known: &Known<'_>, page: &TaskNotes) -> String {
    let paint = Paint::of(Stream::Stdout);
    let head = &task.task;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}  {}  {}",
        paint.text(Tone::Strong, format_args!("{}/{}", head.session_id, head.task_id)),
        paint.text(status::tone(head.status), head.status),
        counts(task),
    );
    out.push_str(&fields(task, known, page).render());
    if !task.summary.is_empty() && task.summary != head.title {
        let _ = writeln!(out, "\n{}", human::indented(&task.summary, "  ").trim_end());
    }
    out.push('\n');
    out.push_str(&steps(task, known));
    section(&mut out, "output", &value(task.output.as_ref()));
    section(&mut out, "acceptance", &acceptance(task));
    section(&mut out, "related", &related(task));
    out
}

/// The criteria of acceptance and their states.
fn acceptance(task: &TaskView) -> String {
    let mut sheet = Sheet::bare();
    for one in &task.acceptance {
        let (tone, what) = (acceptance_tone(one.state), one.text.as_deref().unwrap_or_default());
        let place = one.reference.as_ref().map_or("", |place| place.as_str());
        sheet.row([
            toned(format_args!("  {}", one.id), Tone::Strong),
            toned(one.state, tone),
            text(human::cut(&human::one_line(what), 100)),
            text(human::cut(place, 100)),
        ]);
    }
    if sheet.is_empty() { String::new() } else { sheet.render() }
}

const fn acceptance_tone(state: AcceptanceState) -> Tone {
    match state {
        AcceptanceState::Met => Tone::Good,
        AcceptanceState::Waived => Tone::Faint,
        AcceptanceState::Unknown | AcceptanceState::Unmet => Tone::Caution,
    }
}

/// The relations to other Tasks and to things elsewhere, with the ids that `task unlink` takes. The
/// artifacts that Steps made and used are shown with the Steps.
fn related(task: &TaskView) -> String {
    use EdgeKind as E;
    let is_told = |edge: &&Edge| {
        let is_of_data =
            matches!(edge.kind, E::ProducedArtifact | E::ConsumedArtifact | E::SourceAttempt);
        edge.status == EdgeStatus::Active && !is_of_data
    };
    let mut all = task.relationships.iter().filter(is_told);
    let mut sheet = Sheet::bare();
    for edge in all.by_ref().take(RELATED_MAX) {
        let reason = match &edge.reason {
            Some(EdgeReason::Text(text)) => human::one_line(text),
            Some(EdgeReason::Whole(reason)) => human::one_line(&reason.message),
            None => String::new(),
        };
        sheet.row([
            text(format_args!("  {}", edge.kind)),
            toned(&edge.to, Tone::Strong),
            text(&edge.edge_id),
            text(human::cut(&reason, 100)),
        ]);
    }
    let mut out = if sheet.is_empty() { String::new() } else { sheet.render() };
    let rest = all.count();
    if rest > 0 {
        let _ = writeln!(out, "  … {} more: -o json", human::len(rest));
    }
    out
}

/// `3 of 7 steps completed, 1 running, 3 pending`.
fn counts(task: &TaskView) -> String {
    let counts = &task.task.counts;
    let all = [
        (counts.running, StepStatus::Running),
        (counts.claimed, StepStatus::Claimed),
        (counts.ready, StepStatus::Ready),
        (counts.pending, StepStatus::Pending),
        (counts.blocked, StepStatus::Blocked),
        (counts.failed, StepStatus::Failed),
        (counts.cancelled, StepStatus::Cancelled),
    ];
    let steps = human::plural(task.steps.len(), "step");
    let mut out = format!("{} of {steps} completed", human::count(counts.completed.into()));
    for (n, status) in all.into_iter().filter(|(n, _)| *n > 0) {
        let _ = write!(out, ", {} {status}", human::count(n.into())); // Writing to a String never fails.
    }
    out
}

fn fields(task: &TaskView, known: &Known<'_>, page: &TaskNotes) -> Sheet {
    let head = &task.task;
    let mut sheet = Sheet::bare();
    sheet.field("  title", human::one_line(&head.title));
    if let Some(reason) = &head.status_reason {
        let message = human::one_line(&reason.message);
        let plain = message.is_empty() || message == reason.code.as_str();
        sheet.field(
            "  reason",
            if plain { reason.code.to_string() } else { format!("{} ({message})", reason.code) },
        );
    }
    sheet
        .field("  result", head.result_summary.as_deref().map(human::one_line).unwrap_or_default());
    sheet.field("  created", human::local_and_ago(head.created_at, known.now));
    if let Some(started) = head.started_at {
        let took = human::between(started, head.ended_at.unwrap_or(known.now));
        sheet.field("  started", format!("{}, took {took}", human::local(started)));
    }
    sheet.field("  ended", head.ended_at.map(human::local).unwrap_or_default());
    let policies = format!("dispatch {}, completion {}", head.dispatch, head.completion);
    sheet.field("  policy", policies);
    let who = |agent: &Option<AgentId>| agent.as_ref().map(ToString::to_string).unwrap_or_default();
    sheet.field("  owner", who(&head.owner));
    sheet.field("  asked by", who(&task.requested_by));
    if let Some(closing) = &head.cancel_requested {
        let (intent, at) = (closing.intent, human::local_and_ago(closing.at, known.now));
        sheet.field("  closing", format!("{intent} asked for by {}, {at}", closing.by));
    }
    sheet.field("  note", diagnostics(task));
    if !head.native_status.is_terminal() {
        sheet.field("  host", page.host.as_ref().map(Host::describe).unwrap_or_default());
        sheet.field("  go on", page.resume.as_deref().unwrap_or_default());
    }
    sheet.field("  cwd", task.cwd.as_deref().map(human::one_line).unwrap_or_default());
    sheet.field("  log", head.wal_path.clone().unwrap_or_default());
    sheet.field("  version", format!("{}{}", head.version, page.note.as_deref().unwrap_or("")));
    sheet
}

fn diagnostics(task: &TaskView) -> String {
    let said = &task.task.diagnostics;
    let all = [
        (said.stalled, "stalled: no step moves by itself"),
        (said.completeable, "completeable: every required step is completed"),
        (said.overdue, "overdue: the deadline has passed"),
    ];
    let said: Vec<&str> = all.into_iter().filter(|(is, _)| *is).map(|(_, text)| text).collect();
    said.join("; ")
}

fn steps(task: &TaskView, known: &Known<'_>) -> String {
    let is_small = task.steps.len() <= STEPS_MAX;
    let worth_showing = |step: &&StepView| {
        use StepStatus as S;
        is_small || matches!(step.status, S::Claimed | S::Running | S::Blocked | S::Failed)
    };
    let shown: Vec<&StepView> = task.steps.iter().filter(worth_showing).take(STEPS_MAX).collect();
    let mut out = match shown.is_empty() {
        true => String::new(),
        false => step_rows(&shown, &task.attempts, known.now).render(),
    };
    let rest = task.steps.len() - shown.len();
    if rest > 0 {
        let head = &task.task;
        let _ = writeln!(
            out,
            "… {} more: tenure step list {}/{} --all",
            human::plural(rest, "step"),
            head.session_id,
            head.task_id
        );
    }
    out
}
