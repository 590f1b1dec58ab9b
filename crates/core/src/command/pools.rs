//! The pools that a request names, so that a node can bound them (DISP-21).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::Command;
use super::create::CreateTask;
use crate::id::PoolId;
use crate::patch::{Change, Operation};
use crate::task::Task;

/// The field of a request that is the first to name a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolField {
    /// The default pool of a create.
    Default,
    /// A Step of a create, by its place.
    Step(usize),
    /// An operation of a patch that adds a Step, by its place.
    Added(usize),
    /// An operation of a patch that changes a Step, by its place.
    Changed(usize),
    /// The pool of a dispatch.
    Run,
}

impl PoolField {
    /// The place of the field in the request, to sort by.
    pub const fn place(self) -> usize {
        match self {
            Self::Default | Self::Run => 0,
            Self::Step(at) | Self::Added(at) | Self::Changed(at) => at + 1,
        }
    }

    /// The field's name in the request.
    pub fn name(self) -> String {
        match self {
            Self::Default => "default_worker_pool_id".into(),
            Self::Step(at) => format!("steps[{at}].worker_pool_id"),
            Self::Added(at) => format!("operations[{at}].step.worker_pool_id"),
            Self::Changed(at) => format!("operations[{at}].fields.worker_pool_id"),
            Self::Run => "worker_pool_id".into(),
        }
    }
}

/// The pools that a request names, each once.
pub type NamedPools<'a> = BTreeMap<&'a PoolId, PoolField>;

impl CreateTask {
    /// The pools that the create names, without the default of the orchestrator.
    pub fn pools(&self) -> NamedPools<'_> {
        let default = self.default_worker_pool_id.as_ref().map(|pool| (pool, PoolField::Default));
        let steps = self.steps.iter().enumerate();
        let steps = steps
            .filter_map(|(at, step)| Some((step.worker_pool_id.as_ref()?, PoolField::Step(at))));
        each_once(default.into_iter().chain(steps))
    }
}

impl Command {
    /// The pools that the command names for Steps and Runs.
    pub fn pools(&self) -> NamedPools<'_> {
        match self {
            Self::TaskUpdate { operations } => {
                each_once(operations.iter().enumerate().filter_map(|(at, one)| match one {
                    Operation::AddStep { step, .. } => {
                        Some((step.worker_pool_id.as_ref()?, PoolField::Added(at)))
                    }
                    Operation::UpdateStep { fields, .. } => match &fields.worker_pool_id {
                        Change::Set(pool) => Some((pool, PoolField::Changed(at))),
                        _ => None,
                    },
                    _ => None,
                }))
            }
            Self::DispatchWorker(dispatch) => {
                NamedPools::from([(&dispatch.worker_pool_id, PoolField::Run)])
            }
            _ => NamedPools::new(),
        }
    }
}

/// The first field that names each pool. A pool that is named again and again is looked up once.
fn each_once<'a>(named: impl Iterator<Item = (&'a PoolId, PoolField)>) -> NamedPools<'a> {
    let (mut all, mut last) = (NamedPools::new(), None);
    for (pool, field) in named {
        if last != Some(pool) {
            all.entry(pool).or_insert(field);
            last = Some(pool);
        }
    }
    all
}

impl Task {
    /// The pools of the Steps that have not ended, and of the Runs that nobody has used. This looks at all Steps.
    pub fn pools(&self) -> impl Iterator<Item = &PoolId> {
        let steps = self.steps.iter().filter(|step| step.state.status.is_unfinished());
        let runs = self.volatile.to_take.keys();
        steps.map(|step| &step.spec.worker_pool_id).chain(runs)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use alloc::vec::Vec;

    use super::*;

    /// DISP-21: each pool is named once, with the field of its first place.
    #[test]
    fn a_request_names_each_pool_once() {
        let create: CreateTask = serde_json::from_value(serde_json::json!({
            "task_id": "t", "title": "", "summary": "", "default_worker_pool_id": "d",
            "steps": [
                { "step_id": "a", "title": "" }, { "step_id": "b", "title": "", "worker_pool_id": "p" },
                { "step_id": "c", "title": "", "worker_pool_id": "d" },
                { "step_id": "e", "title": "", "worker_pool_id": "p" },
            ],
        }))
        .unwrap();
        let named = |pools: NamedPools<'_>| -> Vec<String> {
            pools.iter().map(|(pool, field)| format!("{pool} {}", field.name())).collect()
        };
        assert_eq!(
            named(create.pools()),
            ["d default_worker_pool_id", "p steps[1].worker_pool_id"]
        );
        let patch: Command = serde_json::from_value(serde_json::json!({
            "operation": "task_update",
            "input": { "operations": [
                { "op": "add_step", "step": { "step_id": "x", "title": "", "worker_pool_id": "p" } },
                { "op": "update_step", "step_id": "a", "fields": { "worker_pool_id": "q" } },
                { "op": "update_step", "step_id": "a", "fields": { "title": "q" } },
            ] },
        }))
        .unwrap();
        assert_eq!(
            named(patch.pools()),
            ["p operations[0].step.worker_pool_id", "q operations[1].fields.worker_pool_id"]
        );
    }
}
