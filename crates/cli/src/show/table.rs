//! Prints the end of a run for people: a table of Steps, the failures with their reasons, and one
//! line of summary.

use std::fmt::Write as _;

use tenure_core::id::Millis;
use tenure_core::record::Reason;
use tenure_core::status::{ArtifactKind, StepStatus, TaskStatus};
use tenure_core::view::{StepRef, View};

use super::ended::{EndCauses, StepEnd, StepEndCounts, StopCause, was_tried};
use super::report::Times;
use super::words::{duration, one_line, printable, steps};
use crate::answer::{Paint, Tone, human};

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
    let causes = EndCauses::of(view);
    let mut text = table(view, &causes, paint);
    tails(view, &causes, paint, &mut text);
    text.push('\n');
    text.push_str(&summary(view, &causes, elapsed, paint));
    text.push('\n');
    text
}

/// `build failed: 9 of 12 steps in 3.4 s; 1 failed, 2 stopped; step_failed: lint`.
fn summary(view: &View<'_>, causes: &EndCauses<'_>, elapsed: Millis, paint: Paint) -> String {
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
    let counts = |required| {
        let such = view.steps().filter(|step| step.spec.required == required);
        StepEndCounts::of(view, such).to_string()
    };
    for (what, counts) in [("", counts(true)), ("optional: ", counts(false))] {
        if !counts.is_empty() {
            let _ = write!(line, "; {what}{counts}");
        }
    }
    if let Some(reason) = head.status_reason.as_deref().filter(|_| head.status.is_terminal()) {
        let _ = write!(line, "; {}", in_words(reason));
    }
    if let Some(StopCause::Deadline) = causes.cause() {
        let _ = write!(line, ": {}", StopCause::Deadline);
    }
    line
}

/// `code: message`, and the code once only.
fn in_words(reason: &Reason) -> String {
    let (code, message) = (reason.code.as_str(), one_line(&reason.message));
    match message.strip_prefix(code) {
        Some(rest) if rest.is_empty() || rest.starts_with(": ") => message,
        _ if message.is_empty() => code.to_owned(),
        _ => format!("{code}: {message}"),
    }
}

fn table(view: &View<'_>, causes: &EndCauses<'_>, paint: Paint) -> String {
    let (chosen, left_out) = chosen(view, causes);
    let rows: Vec<[String; 5]> = chosen.iter().map(|&step| row(view, causes, step)).collect();
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

fn row(view: &View<'_>, causes: &EndCauses<'_>, step: StepRef<'_>) -> [String; 5] {
    let time = Times::of(view, step).duration().map(duration);
    let tries = view.tries_of(step).count();
    [
        step.id().to_string(),
        step.status().to_string(),
        if tries == 0 { String::new() } else { tries.to_string() },
        time.unwrap_or_default(),
        note(view, causes, step),
    ]
}

/// Why a Step did not complete, or the end of its output.
fn note(view: &View<'_>, causes: &EndCauses<'_>, step: StepRef<'_>) -> String {
    let facts = step.facts();
    let because = |what: &str| match causes.stopped_by(view, step) {
        Some(cause) => format!("{what} because {cause}"),
        None => what.to_owned(),
    };
    let note = match (StepEnd::of(view, step), &facts.status_reason, &facts.result_summary) {
        (StepEnd::Stopped, ..) => because("stopped"),
        (StepEnd::NotRun, ..) => because("not run"),
        (ended, Some(reason), _) if ended != StepEnd::Completed => human::said(reason).to_owned(),
        (.., Some(summary)) => summary.trim_end().lines().last().unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    human::cut(&one_line(&note), NOTE_CHARS)
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

/// The Steps worth a line, in creation order, and how many others there are. If there is no room for all
/// that did not complete, those that failed by themselves go first, and before all the one that failed the
/// Task.
fn chosen<'a>(view: &View<'a>, causes: &EndCauses<'a>) -> (Vec<StepRef<'a>>, usize) {
    let all: Vec<StepRef<'a>> = view.steps().collect();
    if all.len() <= ALL_MAX {
        return (all, 0);
    }
    let is_completed = |step: &&StepRef<'_>| step.status() == StepStatus::Completed;
    let mut chosen: Vec<StepRef<'a>> =
        all.iter().filter(|s| !is_completed(s) && was_tried(view, **s)).copied().collect();
    chosen.sort_by_key(|step| {
        (!causes.is_culprit(*step), StepEnd::of(view, *step) == StepEnd::Stopped)
    });
    chosen.truncate(NOT_COMPLETED_MAX);
    let mut slowest: Vec<_> = all.iter().filter(is_completed).collect();
    slowest.sort_by_key(|step| std::cmp::Reverse(Times::of(view, **step).duration()));
    chosen.extend(slowest.into_iter().take(SLOWEST));
    chosen.sort_by_key(|step| step.pos);
    let left_out = all.len() - chosen.len();
    (chosen, left_out)
}

/// The last lines of output of Steps that failed by themselves, the one that failed the Task first.
fn tails(view: &View<'_>, causes: &EndCauses<'_>, paint: Paint, text: &mut String) {
    let is_told = |s: &StepRef<'_>| {
        StepEnd::of(view, *s) == StepEnd::Failed
            && was_tried(view, *s)
            && s.facts().result_summary.is_some()
    };
    let mut told: Vec<StepRef<'_>> = view.failed().filter(is_told).collect();
    told.sort_by_key(|step| !causes.is_culprit(*step));
    for step in told.into_iter().take(TAILS) {
        let summary = step.facts().result_summary.as_deref().unwrap_or_default();
        let lines: Vec<&str> = summary.trim_end().lines().collect();
        let logs = logs_of(view, step).join(" and ");
        let place = if logs.is_empty() { logs } else { format!(", all of it in {logs}") };
        let id = paint.text(Tone::Strong, step.id());
        let _ = writeln!(text, "\n{id} said last{place}:");
        for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
            let _ = writeln!(text, "  {} {}", paint.text(Tone::Faint, "|"), printable(line));
        }
    }
}

/// The files with what a Step's last Attempt has printed: of standard output and standard error those that
/// are not empty.
fn logs_of<'a>(view: &View<'a>, step: StepRef<'a>) -> Vec<&'a str> {
    let newest = view.attempts_of(step).next().map(|attempt| attempt.attempt_id);
    let artifacts = step.facts().artifact_ids.iter().filter_map(|id| view.artifact(id));
    let artifacts: Vec<_> = artifacts.filter(|artifact| artifact.attempt_id == newest).collect();
    let last = |kind: ArtifactKind| {
        let of_kind =
            artifacts.iter().rev().copied().find(|artifact| artifact.given.kind == kind)?;
        let is_empty = of_kind.given.size_bytes == Some(0);
        of_kind.given.uri.as_deref().filter(|_| !is_empty)
    };
    [ArtifactKind::Stdout, ArtifactKind::Stderr].into_iter().filter_map(last).collect()
}
