//! Statuses as people see them: a mark, a word, a colour.

use std::fmt::Display;

use tenure_core::id::StepId;
use tenure_core::status::StepStatus;
use tenure_core::view::Normal;

use super::output::{Paint, Stream, Tone};
use super::sheet::{Text, toned};

/// The colour of a status.
pub(crate) fn tone(status: Normal) -> Tone {
    use Normal as N;
    match status {
        N::Completed => Tone::Good,
        N::Failed | N::Lost | N::TimedOut | N::Unknown => Tone::Bad,
        N::Running | N::Preparing => Tone::Active,
        N::Cancelled | N::Archived | N::Draft | N::Accepted | N::Queued | N::Released => {
            Tone::Faint
        }
        N::Stale
        | N::Cancelling
        | N::Paused
        | N::Blocked
        | N::WaitingInput
        | N::WaitingPermission
        | N::WaitingResource
        | N::Retrying => Tone::Caution,
    }
}

/// A status as a cell.
pub(crate) fn cell(status: Normal) -> Text {
    toned(status, tone(status))
}

/// One character per status, readable without colour.
pub(crate) fn mark(status: StepStatus) -> char {
    match status {
        StepStatus::Pending => '·',
        StepStatus::Ready => '○',
        StepStatus::Claimed => '◌',
        StepStatus::Running => '▶',
        StepStatus::Blocked => '‖',
        StepStatus::Completed => '✔',
        StepStatus::Failed => '✘',
        StepStatus::Cancelled => '⊘',
    }
}

/// The colour of a native status.
pub(crate) fn step_tone(status: StepStatus) -> Tone {
    match status {
        StepStatus::Pending | StepStatus::Ready | StepStatus::Cancelled => Tone::Faint,
        StepStatus::Claimed | StepStatus::Running => Tone::Active,
        StepStatus::Blocked => Tone::Caution,
        StepStatus::Completed => Tone::Good,
        StepStatus::Failed => Tone::Bad,
    }
}

/// The first line about a Step.
pub(crate) fn heading(
    step: &StepId,
    status: StepStatus,
    normal: Normal,
    of: impl Display,
) -> String {
    let paint = Paint::of(Stream::Stdout);
    let (mark, id) = (paint.text(step_tone(status), mark(status)), paint.text(Tone::Strong, step));
    format!("{mark} {id}  {}  of {of}\n", paint.text(tone(normal), normal))
}
