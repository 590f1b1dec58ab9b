//! `CancelTask` (A2A-16).

use std::time::Duration;

use tenure_core::Code;

use super::AgentCall;
use crate::Backend;
use crate::a2a::error::{A2aError, A2aReason};
use crate::a2a::wire::{A2aCancel, A2aTask};

/// How long the answer waits for a worker to stop. A worker that takes longer is asked to stop all the same.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// Why a Task is cancelled.
const REASON: &str = "canceled by the caller";

impl<B: Backend> AgentCall<B> {
    /// A2A-16: asks that a task be canceled, and answers with the task as it then is: canceled at once if no
    /// worker has it, and else perhaps still at work.
    ///
    /// # Errors
    /// There is no such task, or it has ended.
    pub(crate) async fn cancel(&self, asked: &A2aCancel) -> Result<A2aTask, A2aError> {
        let (task, fold) = self.find(&asked.id).await?;
        if fold.has_ended() {
            return Err(too_late());
        }
        match self.client.cancel(&task, REASON).await {
            Ok(_) => {}
            Err(refused) if refused.code == Code::TaskCancelling => {} // Somebody has asked before.
            Err(refused) if refused.code == Code::TaskTerminal => return Err(too_late()),
            Err(refused) => return Err(refused.into()),
        }
        let fold = self.reader().read_on(&task, Some(fold)).await?;
        let fold = self.settle(task, fold, STOPS_WITHIN).await?;
        Ok(fold.into_shown())
    }
}

fn too_late() -> A2aError {
    A2aError::new(A2aReason::TaskNotCancelable, "the task has ended")
}
