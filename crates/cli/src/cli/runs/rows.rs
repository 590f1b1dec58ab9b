//! Runs as a table.

use tenure_core::id::Millis;
use tenure_core::status::RunState;
use tenure_core::view::RunView;

use crate::cli::answer::human;
use crate::cli::answer::output::Tone;
use crate::cli::answer::sheet::{Sheet, text, toned};

/// Runs as a table.
pub(super) fn rows(runs: &[RunView], now: Millis) -> Sheet {
    let mut sheet = Sheet::new(&["RUN", "STATE", "POOL", "SCOPE", "STEP", "WORKER", "WHY"]);
    for run in runs {
        let state = match run.end_reason {
            Some(end) => format!("{}: {end}", run.state),
            None if run.state == RunState::Dispatched => match run.expires_at {
                Some(at) => format!("{}, for {} more", run.state, human::between(now, at)),
                None => run.state.to_string(),
            },
            None => run.state.to_string(),
        };
        let scope = run.allowed_step_ids.as_ref().map_or_else(
            || "any".to_owned(),
            |steps| steps.iter().map(|step| step.as_str()).collect::<Vec<_>>().join(","),
        );
        let why = run.reason.as_ref().map(|reason| human::one_line(&reason.message));
        sheet.row([
            toned(run.run_id, Tone::Strong),
            text(state),
            text(&run.worker_pool_id),
            text(human::cut(&scope, 40)),
            text(run.claimed_step_id.as_ref().map_or("", |step| step.as_str())),
            text(run.worker_id.as_ref().map(human::worker).unwrap_or_default()),
            text(human::cut(&why.unwrap_or_default(), 60)),
        ]);
    }
    sheet
}
