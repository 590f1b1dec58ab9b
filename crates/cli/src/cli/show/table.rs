//! Prints the end of a run for people: a table of Steps, the failures with their reasons, and one
//! line of summary.

use std::fmt::Write as _;

use tenure_core::id::Millis;
use tenure_core::status::{ArtifactKind, StepStatus, TaskStatus};
use tenure_core::view::{StepRef, View};

use super::report::Times;
use super::words::{duration, one_line, printable, steps};
use crate::cli::answer::{Paint, Tone, human};

/// A Task with no more Steps than this is shown whole.
const ALL_MAX: usize = 40;
/// For a larger one: how many Steps that are not completed, and how many of the slowest completed
/// ones.
const NOT_COMPLETED_MAX: usize = 20;
const SLOWEST: usize = 5;

/// For how many failed Steps to show output, and how many lines of each.
const TAILS: usize = 3;
const TAIL_LINES: usize = 10;

/// The longest note, in characters.
const NOTE_CHARS: usize = 60;

/// The whole output when a run has ended.
pub(super) fn end(view: &View<'_>, elapsed: Millis, paint: Paint) -> String {
    let mut text = table(view, paint);
    tails(view, paint, &mut text);
    text.push('\n');
    text.push_str(&summary(view, elapsed, paint));
    text.push('\n');
    text
}

/// `build completed: 12 of 12 steps in 3.4 s`.
fn summary(view: &View<'_>, elapsed: Millis, paint: Paint) -> String {
    let (head, tally) = (view.head(), view.tally());
    let done = tally.of(StepStatus::Completed);
    let tone = match head.status {
        TaskStatus::Completed => Tone::Good,
        TaskStatus::Failed | TaskStatus::Cancelled => Tone::Bad,
        _ => Tone::Caution,
    };
    let status = paint.text(tone, head.status);
    let all = steps(tally.steps());
    let mut line = format!("{} {status}: {done} of {all} in {}", view.task_id(), duration(elapsed));
    if let Some(reason) = head.status_reason.as_deref().filter(|_| head.status.is_terminal()) {
        let _ = write!(line, "; {}", reason.code);
        if reason.message != reason.code.as_str() && !reason.message.is_empty() {
            let _ = write!(line, ": {}", one_line(&reason.message));
        }
    }
    line
}

fn table(view: &View<'_>, paint: Paint) -> String {
    let (chosen, left_out) = chosen(view);
    let rows: Vec<[String; 5]> = chosen.iter().map(|&step| row(view, step)).collect();
    let titles = ["STEP", "STATUS", "TRIES", "TIME", ""].map(str::to_owned);
    let width = |at: usize| {
        let cells = rows.iter().chain([&titles]).map(|row| row[at].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = paint.text(Tone::Faint, line(&titles, widths, None)) + "\n";
    for (row, step) in rows.iter().zip(&chosen) {
        text.push_str(&line(row, widths, Some((paint, tone(step.status())))));
        text.push('\n');
    }
    if left_out > 0 {
        let more = format!("… and {left_out} more that completed or never ran");
        text.push_str(&paint.text(Tone::Faint, more));
        text.push('\n');
    }
    text
}

fn row(view: &View<'_>, step: StepRef<'_>) -> [String; 5] {
    let time = Times::of(view, step).duration().map(duration);
    let tries = step.state.ordinal;
    [
        step.id().to_string(),
        step.status().to_string(),
        if tries == 0 { String::new() } else { tries.to_string() },
        time.unwrap_or_default(),
        note(step),
    ]
}

/// Why a Step did not complete, or the end of its output.
fn note(step: StepRef<'_>) -> String {
    let facts = step.facts();
    let note = match (&facts.status_reason, &facts.result_summary) {
        (Some(reason), _) if step.status() != StepStatus::Completed => human::said(reason),
        (_, Some(summary)) => summary.trim_end().lines().last().unwrap_or_default(),
        _ => "",
    };
    human::cut(&one_line(note), NOTE_CHARS)
}

fn line(cells: &[String; 5], widths: [usize; 4], status: Option<(Paint, Tone)>) -> String {
    let mut text = String::new();
    for (at, width) in widths.into_iter().enumerate() {
        let cell = format!("{:<width$}", cells[at]);
        match status.filter(|_| at == 1) {
            Some((paint, tone)) => text.push_str(&paint.text(tone, cell)),
            None => text.push_str(&cell),
        }
        text.push_str("  ");
    }
    text.push_str(&cells[4]);
    text.truncate(text.trim_end().len());
    text
}

fn tone(status: StepStatus) -> Tone {
    match status {
        StepStatus::Completed => Tone::Good,
        StepStatus::Failed => Tone::Bad,
        StepStatus::Cancelled | StepStatus::Blocked => Tone::Caution,
        StepStatus::Claimed | StepStatus::Running => Tone::Active,
        StepStatus::Pending | StepStatus::Ready => Tone::Faint,
    }
}

/// The Steps worth a line, in creation order, and how many others there are.
fn chosen<'a>(view: &View<'a>) -> (Vec<StepRef<'a>>, usize) {
    let all: Vec<StepRef<'a>> = view.steps().collect();
    if all.len() <= ALL_MAX {
        return (all, 0);
    }
    let mut chosen: Vec<StepRef<'a>> = Vec::new();
    let ran = |step: &&StepRef<'_>| step.state.ordinal > 0;
    let is_completed = |step: &&StepRef<'_>| step.status() == StepStatus::Completed;
    chosen.extend(all.iter().filter(|s| !is_completed(s) && ran(s)).take(NOT_COMPLETED_MAX));
    let mut slowest: Vec<_> = all.iter().filter(is_completed).collect();
    slowest.sort_by_key(|step| std::cmp::Reverse(Times::of(view, **step).duration()));
    chosen.extend(slowest.into_iter().take(SLOWEST));
    chosen.sort_by_key(|step| step.pos);
    let left_out = all.len() - chosen.len();
    (chosen, left_out)
}

/// The last lines of output of failed Steps.
fn tails(view: &View<'_>, paint: Paint, text: &mut String) {
    let spoke = view.failed().filter(|s| s.state.ordinal > 0 && s.facts().result_summary.is_some());
    for step in spoke.take(TAILS) {
        let summary = step.facts().result_summary.as_deref().unwrap_or_default();
        let lines: Vec<&str> = summary.trim_end().lines().collect();
        let place = log_of(view, step).map(|path| format!(", all of it in {path}"));
        let id = paint.text(Tone::Strong, step.id());
        let _ = writeln!(text, "\n{id} said last{}:", place.unwrap_or_default());
        for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
            let _ = writeln!(text, "  {} {}", paint.text(Tone::Faint, "|"), printable(line));
        }
    }
}

/// The file with the standard error of a Step's last Attempt.
fn log_of<'a>(view: &View<'a>, step: StepRef<'a>) -> Option<&'a str> {
    let artifacts = step.facts().artifact_ids.iter().rev().filter_map(|id| view.artifact(id));
    let mut logs = artifacts.filter(|artifact| artifact.given.kind == ArtifactKind::Stderr);
    logs.next()?.given.uri.as_deref()
}
