//! Makes the lines for people about a commit.

use std::cell::OnceCell;

use tenure_core::Commit;
use tenure_core::event::{Body, Event, LeaseEnd, ReleaseReason};
use tenure_core::id::{Millis, StepId};
use tenure_core::record::Reason;
use tenure_core::status::StepStatus;
use tenure_core::view::View;

use super::ended::{EndCauses, is_end_of_task};
use super::seen::SeenCommit;
use super::words::duration;
use crate::answer::{Paint, Tone};

/// Columns of the first word of a line: "completed" is the longest.
const WORD_WIDTH: usize = 9;
/// Columns of a step's id, where it is not longer.
const ID_WIDTH: usize = 20;

/// One thing that happened to a Step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepNews {
    pub(super) tone: Tone,
    word: &'static str,
    step_id: StepId,
    text: String,
}

impl StepNews {
    /// As a line.
    pub(super) fn line(&self, paint: Paint) -> String {
        let word = paint.text(self.tone, format_args!("{:<WORD_WIDTH$}", self.word));
        let id = self.step_id.as_str();
        match self.text.as_str() {
            "" => format!("{word}  {id}"),
            text => format!("{word}  {id:<ID_WIDTH$}  {text}"),
        }
    }

    /// Whether it is a failure.
    pub(super) fn is_bad(&self) -> bool {
        matches!(self.tone, Tone::Bad | Tone::Caution)
    }
}

/// The changes of Steps in a commit that are worth a line.
pub(super) fn news<'a>(seen: &'a SeenCommit<'_>) -> impl Iterator<Item = StepNews> + 'a {
    let causes = OnceCell::new();
    seen.commit.events.iter().filter_map(move |event| of(seen, &causes, event))
}

/// The news of one event. `causes` are those of the Task after the commit, once they are needed.
fn of<'a>(
    seen: &SeenCommit<'a>,
    causes: &OnceCell<EndCauses<'a>>,
    event: &Event,
) -> Option<StepNews> {
    let step_id = event.step_id.clone()?;
    let (tone, word, text) = match &event.body {
        Body::StepCompleted(_) => (Tone::Good, "completed", took(&seen.view, &step_id)),
        // The end of the Task is news only for a Step that ran.
        Body::StepFailed(p) if is_end_of_task(StepStatus::Failed, Some(&p.reason)) => {
            p.attempt_id?;
            (Tone::Caution, "stopped", stopped(&seen.view, causes, &step_id))
        }
        Body::StepCancelled(p) if is_end_of_task(StepStatus::Cancelled, p.reason.as_ref()) => {
            p.attempt_id?;
            (Tone::Caution, "stopped", stopped(&seen.view, causes, &step_id))
        }
        Body::StepFailed(p) => failed(seen.commit, &step_id, &p.reason),
        Body::StepCancelled(p) => {
            (Tone::Caution, "cancelled", p.reason.as_ref().map(in_words).unwrap_or_default())
        }
        Body::StepBlocked(p) => (Tone::Caution, "blocked", in_words(&p.reason)),
        Body::StepLeaseExpired(p) => match p.reason {
            LeaseEnd::LeaseExpired => (Tone::Bad, "lost", "its worker gave no sign of life".into()),
            LeaseEnd::Outage => {
                (Tone::Caution, "lost", "its worker could not be heard for a while".into())
            }
            LeaseEnd::HostRestarted => {
                (Tone::Caution, "again", "it ran when an earlier run was cut off".into())
            }
            LeaseEnd::Released if p.release_reason == Some(ReleaseReason::Unfit) => {
                (Tone::Caution, "released", "its worker could not run it".into())
            }
            LeaseEnd::Released => (Tone::Faint, "released", "it was given back".into()),
        },
        _ => return None,
    };
    Some(StepNews { tone, word, step_id, text })
}

/// Why the end of the Task stopped a Step.
fn stopped<'a>(view: &View<'a>, causes: &OnceCell<EndCauses<'a>>, step_id: &StepId) -> String {
    let causes = causes.get_or_init(|| EndCauses::of(view));
    let cause = view.step(step_id).and_then(|step| causes.stopped_by(view, step));
    cause.map(|cause| format!("because {cause}")).unwrap_or_default()
}

/// How long the newest Attempt took.
fn took(view: &View<'_>, step_id: &StepId) -> String {
    let attempt = view.step(step_id).and_then(|step| view.attempts_of(step).next());
    let time = attempt.and_then(|a| Some(a.ended_at? - a.started_at));
    time.map(duration).unwrap_or_default()
}

fn failed(commit: &Commit, step_id: &StepId, reason: &Reason) -> (Tone, &'static str, String) {
    match next_try(commit, step_id) {
        None => (Tone::Bad, "failed", in_words(reason)),
        Some(wait) => {
            let text = format!("{}; again in {}", in_words(reason), duration(wait));
            (Tone::Caution, "failed", text)
        }
    }
}

/// How long until the Step that just failed is tried again.
fn next_try(commit: &Commit, step_id: &StepId) -> Option<Millis> {
    commit.events.iter().find_map(|event| match &event.body {
        Body::StepReopened(p) if event.step_id.as_ref() == Some(step_id) => {
            Some(p.not_before.map_or(0, |at| at - commit.created_at))
        }
        _ => None,
    })
}

/// A reason in one line.
fn in_words(reason: &Reason) -> String {
    let line = reason.message.lines().next().unwrap_or_default();
    match line {
        "" => reason.code.to_string(),
        line if line == reason.code => line.to_owned(),
        line => format!("{line} ({})", reason.code),
    }
}
