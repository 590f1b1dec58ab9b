//! The client's queries beyond a Task's present state: lists, reasons why Steps wait, and history.

use std::ops::RangeInclusive;

use tenure_core::Rejection;
use tenure_core::id::{StepId, TaskId};
use tenure_core::view::{
    ExplainInput, ExplainTaskInput, Explanation, FactsInput, FactsPage, InspectInput, Inspection,
    ListInput, ReplayInput, TaskExplanation, TaskPage, TaskView,
};
use tenure_ports::ClientPort;

use super::Client;

impl<P: ClientPort> Client<P> {
    /// A page of the Tasks of the session, each in its present state (`agent.task_list`, LIST):
    /// live ones, the oldest first, and if asked for, ended ones, the newest first. `user_facing`
    /// leaves out internal Tasks, for lists that users see (VIEW-10). [`list`](Self::list) returns
    /// fewer fields of all Tasks, and costs less.
    ///
    /// # Errors
    /// `validation_error` for the limit; the caller may not list.
    pub async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        self.port.tasks(input).await
    }

    /// Why a Step is not running, with the evidence and the operations that would change it.
    ///
    /// # Errors
    /// There is no such Step.
    pub async fn explain(&self, task: &TaskId, step_id: StepId) -> Result<Explanation, Rejection> {
        self.port.ask(task, ExplainInput::about(step_id)).await
    }

    /// Why the Steps of a Task are not running, in groups of one reason.
    ///
    /// # Errors
    /// There is no such Task.
    pub async fn explain_task(&self, task: &TaskId) -> Result<TaskExplanation, Rejection> {
        self.port.ask(task, ExplainTaskInput::default()).await
    }

    /// A page of the facts that gateways keep with a Task ([`keep_fact`](Self::keep_fact)).
    ///
    /// # Errors
    /// There is no such Task; `validation_error` for the limit.
    pub async fn facts(&self, task: &TaskId, input: FactsInput) -> Result<FactsPage, Rejection> {
        self.port.ask(task, input).await
    }

    /// The history of a Task (VIEW-12): its events in this range of `wal_seq`, and the content of
    /// their Steps, as it is now and as each Attempt got it.
    ///
    /// # Errors
    /// There is no such Task, or its log cannot be read.
    pub async fn inspect(
        &self,
        task: &TaskId,
        range: RangeInclusive<u64>,
    ) -> Result<Inspection, Rejection> {
        let (from, to) = (Some(*range.start()), Some(*range.end()));
        let first = InspectInput { from_seq: from, to_seq: to };
        let mut all = self.port.ask(task, first).await?;
        let last = all.task.version.min(*range.end()); // Events that are added meanwhile are left out.
        while let Some(next) = all.next_seq.filter(|next| *next <= last) {
            let rest = InspectInput { from_seq: Some(next), to_seq: Some(last) };
            all.append(self.port.ask(task, rest).await?);
        }
        Ok(all)
    }

    /// A Task as it was after the commit that has event `to_seq` of its log.
    ///
    /// # Errors
    /// There is no such Task, or its log cannot be read.
    pub async fn replay(&self, task: &TaskId, to_seq: u64) -> Result<TaskView, Rejection> {
        self.port.ask(task, ReplayInput { to_seq: Some(to_seq) }).await
    }
}
