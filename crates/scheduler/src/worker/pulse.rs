//! What a Task says of Attempts whose holders renew their leases.

use tenure_core::id::{AgentId, Millis};
use tenure_core::view::View;
use tenure_ports::bus::{Holding, Pulse};

/// Judges by the durable state: whatever an append in flight may end, or ask for, has not happened,
/// as it may fail or take long.
pub(super) fn judge(
    task: &View<'_>,
    who: &AgentId,
    holdings: &[Holding],
    now: Millis,
) -> Vec<(Pulse, u64)> {
    let lease_ms = |held: &Holding| task.attempt(held.attempt_id).map_or(0, |a| a.lease_ms);
    holdings.iter().map(|held| (pulse(task, who, held, now), lease_ms(held))).collect()
}

fn pulse(task: &View<'_>, who: &AgentId, held: &Holding, now: Millis) -> Pulse {
    match task.check_holder(who, held.attempt_id, held.fencing_token) {
        Ok(()) => {
            let attempt = task.attempt(held.attempt_id);
            let cancel_requested = attempt.is_some_and(|attempt| task.is_asked_to_stop(attempt));
            let time_left_ms = attempt.and_then(|attempt| task.time_to_stop(attempt, now));
            Pulse::Renewed { cancel_requested, time_left_ms }
        }
        // An Attempt that is not known here may be another owner's, or come into the log in a
        // moment.
        Err(_) if task.is_behind(held.fencing_token) => Pulse::Unknown,
        Err(_) if task.may_go_on(who, held.attempt_id, held.fencing_token) => Pulse::Unknown,
        Err(rejection) => Pulse::Lost(rejection),
    }
}
