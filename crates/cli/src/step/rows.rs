//! Steps as a table.

use std::collections::BTreeMap;

use tenure_core::id::{Millis, StepId};
use tenure_core::status::StepStatus;
use tenure_core::view::{AttemptView, Normal, StepView};

use crate::answer::{Sheet, Tone, human, number, status, text, toned};

/// Steps as a table, with how often each was tried. An Attempt that was given back is no try (LEASE-18).
pub(crate) fn step_rows(steps: &[&StepView], attempts: &[AttemptView], now: Millis) -> Sheet {
    let mut tries: BTreeMap<&StepId, (u32, &AttemptView)> = BTreeMap::new();
    for attempt in attempts.iter().filter(|a| a.normalized_status != Normal::Released) {
        let (count, newest) = tries.entry(&attempt.step_id).or_insert((0, attempt));
        *count += 1;
        if attempt.ordinal > newest.ordinal {
            *newest = attempt;
        }
    }
    let mut sheet =
        Sheet::new(&["", "STEP", "STATUS", "TRIES", "TOOK", "HANDLER", "POOL", "WAITS FOR / WHY"]);
    for step in steps {
        let tried = tries.get(&step.spec.step_id);
        let took = tried.map(|(_, a)| human::between(a.started_at, a.ended_at.unwrap_or(now)));
        sheet.row([
            toned(status::mark(step.status), status::step_tone(step.status)),
            toned(&step.spec.step_id, Tone::Strong),
            status::cell(step.normalized_status),
            number(tried.map(|(count, _)| count.to_string()).unwrap_or_default()),
            number(took.unwrap_or_default()),
            text(&step.spec.handler),
            text(&step.spec.worker_pool_id),
            text(human::cut(&why(step, now), 100)),
        ]);
    }
    sheet
}

/// What a Step waits for, or why it ended as it did.
pub(super) fn why(step: &StepView, now: Millis) -> String {
    if let Some(reason) = step.facts.as_ref().and_then(|facts| facts.status_reason.as_ref()) {
        let waits = step.wait_kind.map(|kind| format!("{kind}: ")).unwrap_or_default();
        return format!("{waits}{}", human::one_line(human::said(reason)));
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
