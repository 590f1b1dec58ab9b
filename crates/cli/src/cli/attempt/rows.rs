//! Attempts as a table.

use tenure_core::id::Millis;
use tenure_core::view::AttemptView;

use crate::cli::answer::output::Tone;
use crate::cli::answer::sheet::{Sheet, number, text, toned};
use crate::cli::answer::{human, status};

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
