//! `GetTask`, and how a task is found that a request names.

use tenure_core::id::TaskId;

use super::AgentCall;
use crate::Backend;
use crate::a2a::error::{A2aError, A2aReason};
use crate::a2a::map::TaskFold;
use crate::a2a::wire::{A2aGet, A2aTask};

impl<B: Backend> AgentCall<B> {
    /// A task.
    ///
    /// # Errors
    /// There is no such task, as far as the caller may know.
    pub(crate) async fn get(&self, asked: &A2aGet) -> Result<A2aTask, A2aError> {
        let (_, fold) = self.find(&asked.id).await?;
        Ok(fold.into_shown().with_history(asked.history_length))
    }

    /// The task of this id. One of another agent or another caller is not there.
    pub(super) async fn find(&self, id: &str) -> Result<(TaskId, TaskFold), A2aError> {
        let absent = || A2aError::no_task(id);
        let task = TaskId::new(id).map_err(|_| absent())?;
        let fold = self.reader().load(&task).await;
        let fold = fold.map_err(|error| match error.reason {
            A2aReason::TaskNotFound => absent(),
            _ => error,
        })?;
        if self.sees(&fold) { Ok((task, fold)) } else { Err(absent()) }
    }

    /// Whether the caller may know of a task.
    pub(super) fn sees(&self, fold: &TaskFold) -> bool {
        self.agent.shows_tasks()
            && fold.is_of_agent(&self.agent.name)
            && (self.agent.shared || fold.is_of_caller(self.caller()))
    }
}
