//! When two states go on alike.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher};

use tenure_core::status::RunState;
use tenure_core::view::{StepRef, View};

use crate::world::World;

/// A number that two states share if, as far as the laws are concerned, the same inputs lead them to the same
/// states: what is left out is how they came about (numbers of events, ids, times that have passed, Attempts
/// before the last).
pub(crate) fn of(world: &World) -> u64 {
    let view = world.task.durable();
    let mut hash = DefaultHasher::new();
    let head = view.head();
    head.status.as_str().hash(&mut hash);
    head.spec.dispatch.as_str().hash(&mut hash);
    head.spec.completion.as_str().hash(&mut hash);
    head.cancel_requested.as_ref().map(|request| request.intent.as_str()).hash(&mut hash);
    head.archived_at.is_some().hash(&mut hash);
    head.input_refs.len().min(1).hash(&mut hash);
    world.task.next_due().map(|at| at.saturating_sub(world.now)).hash(&mut hash);
    for step in view.steps() {
        of_step(world, &view, step, &mut hash);
    }
    for artifact in view.artifacts() {
        artifact.given.state.as_str().hash(&mut hash);
        let attempt = artifact.attempt_id.and_then(|id| view.attempt(id));
        attempt.map(|a| (a.step_id.as_str(), a.ordinal)).hash(&mut hash);
    }
    let mut runs: BTreeMap<_, usize> = BTreeMap::new();
    for (pos, run) in view.live_runs().filter(|(_, run)| run.state == RunState::Dispatched) {
        let memory = view.memory_of(pos);
        let scope: Option<Vec<&str>> =
            run.allowed_step_ids.as_ref().map(|ids| ids.iter().map(|id| id.as_str()).collect());
        let taken_by = memory.taken_by.map(ToString::to_string);
        *runs.entry((scope, taken_by)).or_default() += 1;
    }
    runs.hash(&mut hash);
    hash.finish()
}

fn of_step(world: &World, view: &View<'_>, step: StepRef<'_>, hash: &mut DefaultHasher) {
    step.pos.hash(hash);
    let state = step.state;
    state.status.as_str().hash(hash);
    step.spec.required.hash(hash);
    step.spec.claim_only_by.is_some().hash(hash);
    step.spec.depends_on_step_ids.iter().for_each(|id| id.as_str().hash(hash));
    state.wait_kind.map(|kind| kind.as_str()).hash(hash);
    state.fatal_failure.hash(hash);
    (state.attempt_count, state.lost_count, state.outages).hash(hash);
    state.not_before.map(|at| at.saturating_sub(world.now)).hash(hash);
    let facts = step.facts();
    facts.remote.as_ref().map(|remote| remote.reconciled).hash(hash);
    view.attempts_of(step).count().hash(hash);
    if let Some(last) = view.attempts_of(step).next() {
        last.status.as_str().hash(hash);
        last.outcome.map(|outcome| outcome.as_str()).hash(hash);
        last.error.as_ref().map(|error| error.code.as_str()).hash(hash);
        last.was_unfit().hash(hash);
        last.updated_after_dispatch.hash(hash);
        last.remote.as_ref().map(|remote| remote.reconciled).hash(hash);
        let memory = view.memory_of(last.run);
        (memory.gone, memory.stopping.is_some()).hash(hash);
    }
}
