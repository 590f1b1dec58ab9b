//! What the worker of a claim is sent.

use tenure_core::Task;
use tenure_core::table::Pos;
use tenure_ports::bus::{Grant, Holding};
use tenure_ports::journal::TaskKey;

/// The grant of an open Attempt (CLAIM-14).
pub(crate) fn grant_of(key: &TaskKey, task: &Task, attempt: Pos, lease_ms: u64) -> Grant {
    let attempt = task.attempt_at(attempt);
    let spec = &task.step_at(attempt.step).spec;
    let policy = attempt.retry_policy.as_deref();
    let outputs = spec.depends_on_step_ids.iter().filter_map(|id| task.step(id));
    Grant {
        holding: Holding {
            task: key.clone(),
            run_id: attempt.run_id,
            attempt_id: attempt.attempt_id,
            fencing_token: attempt.fencing_token,
            lease_ms: policy.and_then(|p| p.heartbeat_ms).unwrap_or(lease_ms),
        },
        step_id: spec.step_id.clone(),
        title: spec.title.to_string(),
        ordinal: attempt.ordinal,
        start_to_close_ms: policy.and_then(|p| p.start_to_close_ms),
        handler: spec.handler.clone(),
        input: spec.input.clone(),
        dependencies: outputs
            .map(|dep| (dep.spec.step_id.clone(), dep.state.facts().output.clone()))
            .collect(),
        input_refs: attempt.input_refs.to_vec(),
    }
}
