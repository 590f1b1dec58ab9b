//! What the tools of a command act on: a Step that its worker has claimed, or a Run under which the command claims
//! one.

use std::sync::Arc;

use futures::future::BoxFuture;
use tenure_core::Rejection;
use tenure_core::id::{RunId, SessionId, StepId, TaskId};
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer};

use crate::worker::context::StepContext;

/// A dispatched Run whose command chooses its Step.
pub(in crate::worker) trait HostedTools: Send + Sync {
    /// The Run.
    fn offer(&self) -> &RunOffer;

    /// The Step that was claimed under it, if one was.
    fn held(&self) -> Option<StepContext>;

    /// Reads a Task, as far as the Run may.
    fn look(&self, task: TaskId, look: Look) -> BoxFuture<'static, Result<Looked, Rejection>>;

    /// Claims a Step, whose lease its worker holds from then on.
    fn claim(
        &self,
        task: TaskId,
        step: StepId,
    ) -> BoxFuture<'static, Result<ClaimResult, Rejection>>;
}

/// Whose tools a command has.
#[derive(Clone)]
pub(in crate::worker) enum RunToolsOf {
    /// Those of a Step that its worker has claimed.
    Step(StepContext),
    /// Those of a Run under which it claims one itself.
    Run(Arc<dyn HostedTools>),
}

impl RunToolsOf {
    pub(super) fn session(&self) -> &SessionId {
        match self {
            Self::Step(ctx) => &ctx.claim().session_id,
            Self::Run(run) => &run.offer().session_id,
        }
    }

    pub(super) fn task(&self) -> &TaskId {
        match self {
            Self::Step(ctx) => &ctx.claim().task_id,
            Self::Run(run) => &run.offer().task_id,
        }
    }

    pub(super) fn run_id(&self) -> RunId {
        match self {
            Self::Step(ctx) => ctx.claim().run_id,
            Self::Run(run) => run.offer().run_id,
        }
    }

    /// The Step in hand, if there is one.
    pub(super) fn held(&self) -> Option<StepContext> {
        match self {
            Self::Step(ctx) => Some(ctx.clone()),
            Self::Run(run) => run.held(),
        }
    }

    pub(super) async fn look(&self, task: TaskId, look: Look) -> Result<Looked, Rejection> {
        match self {
            Self::Step(ctx) => ctx.look_at(&task, look).await,
            Self::Run(run) => run.look(task, look).await,
        }
    }

    pub(super) async fn claim(&self, task: TaskId, step: StepId) -> Result<ClaimResult, Rejection> {
        match self {
            Self::Step(ctx) => ctx.claim_another(&task, step).await,
            Self::Run(run) => run.claim(task, step).await,
        }
    }
}
