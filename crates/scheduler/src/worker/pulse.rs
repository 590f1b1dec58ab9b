//! What a Task says of Attempts whose holders renew their leases.

use tenure_core::id::{AgentId, Millis};
use tenure_core::view::View;
use tenure_ports::bus::{Holding, Pulse};
use tenure_wire::bus::worker::LateInput;

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
    if task.attempt(held.attempt_id).is_none_or(|attempt| attempt.worker_id != *who) {
        // The same is said of a Task that is not there, or has ended (PERM-16).
        return Pulse::Unknown;
    }
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

/// How many entries of late input are sent again at a time.
const AGAIN_MAX: usize = 100;

/// What has come to the Task's `input_refs` and these holders have not seen (CTRL-12): it is sent again with each
/// heartbeat, as it may have been lost with a link. A worker skips what it has.
pub(super) fn unseen(task: &View<'_>, who: &AgentId, holdings: &[Holding]) -> Vec<LateInput> {
    if task.pushed_inputs() == 0 {
        return Vec::new();
    }
    let of = |held: &Holding| {
        let attempt = task.attempt(held.attempt_id)?;
        task.check_holder(who, held.attempt_id, held.fencing_token).ok()?;
        let seen = held.input_seen.and_then(|seen| u32::try_from(seen).ok()).unwrap_or(0);
        let (after, refs) = task.inputs_for(attempt, seen);
        let input_refs = refs[..refs.len().min(AGAIN_MAX)].to_vec();
        let attempt_id = held.attempt_id;
        (!input_refs.is_empty()).then_some(LateInput { attempt_id, after, input_refs })
    };
    holdings.iter().filter_map(of).collect()
}
