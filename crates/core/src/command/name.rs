//! The other names of operations (5.2, 5.3): those of the agents' tools, and those by which the
//! control plane calls operations that agents have as tools.

use super::Operator;
use super::create::CreateTask;
use crate::status::Policy;

impl Operator {
    /// The agents' tools, by the names that a model is given: exactly these twelve (PERM-17).
    pub const TOOLS: [(&'static str, Self); 12] = [
        ("agent.task_template", Self::TaskTemplate),
        ("agent.task_create", Self::TaskCreate),
        ("agent.task_get", Self::TaskGet),
        ("agent.task_list", Self::TaskList),
        ("agent.task_update", Self::TaskUpdate),
        ("agent.task_query_steps", Self::TaskQuerySteps),
        ("agent.task_claim_step", Self::TaskClaimStep),
        ("agent.task_update_step", Self::TaskUpdateStep),
        ("agent.task_complete", Self::TaskComplete),
        ("agent.task_fail", Self::TaskFail),
        ("agent.task_cancel", Self::TaskCancel),
        ("agent.dispatch_worker", Self::DispatchWorker),
    ];

    /// The control plane's names of these operations. Its other operations have one name.
    pub const CONTROL_PLANE: [(&'static str, Self); 8] = [
        ("create_task", Self::TaskCreate),
        ("update_task", Self::TaskUpdate),
        ("start_task", Self::DispatchWorker),
        ("cancel_task", Self::TaskCancel),
        ("complete_task", Self::TaskComplete),
        ("fail_task", Self::TaskFail),
        ("list_tasks", Self::TaskList),
        ("get_task", Self::TaskGet),
    ];

    /// The operation with this name, be it its own or another.
    pub fn called(name: &str) -> Option<Self> {
        let others = || Self::TOOLS.iter().chain(&Self::CONTROL_PLANE);
        let other = || others().find(|(other, _)| *other == name).map(|(_, operation)| *operation);
        Self::from_name(name).or_else(other)
    }
}

impl CreateTask {
    /// The input as an agent's tool takes it: `dispatch` and `completion` are `manual` by default.
    /// Under any other name of the operation they are `auto` (POL-01).
    #[must_use]
    pub fn by_agent(mut self) -> Self {
        self.dispatch.get_or_insert(Policy::Manual);
        self.completion.get_or_insert(Policy::Manual);
        self
    }

    /// The input as the operation takes it under this name.
    #[must_use]
    pub fn called(self, name: &str) -> Self {
        match Operator::TOOLS.iter().any(|(tool, _)| *tool == name) {
            true => self.by_agent(),
            false => self,
        }
    }
}
