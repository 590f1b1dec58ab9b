//! Sends the reports of a handler that are not final, and its queries, over the port, and repeats
//! them for a while.

use std::sync::Arc;

use futures::future::BoxFuture;
use tenure_core::command::StepReport;
use tenure_core::id::{BlobHash, CommandId, StepId};
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer};
use tenure_core::{Code, Rejection};
use tenure_ports::blobs::get_whole;
use tenure_ports::bus::{Holding, Recorded, WorkerPort};

use super::pool::{PoolShared, resend};
use super::runs::repeated;
use crate::clock::Moment;

/// Sends the reports of a context to the scheduler.
pub(super) trait Reporter: Send + Sync {
    /// Sends a report that is not final.
    fn send(
        &self,
        claim: &ClaimResult,
        report: StepReport,
    ) -> BoxFuture<'static, Result<Recorded, Rejection>>;

    /// Queries the Task.
    fn look(
        &self,
        claim: &ClaimResult,
        look: Look,
    ) -> BoxFuture<'static, Result<Looked, Rejection>>;

    /// Reads a blob that the claim carries.
    fn blob(
        &self,
        claim: &ClaimResult,
        hash: BlobHash,
    ) -> BoxFuture<'static, Result<Arc<[u8]>, Rejection>>;

    /// Claims another Step of the Task under the same Run.
    fn claim(
        &self,
        claim: &ClaimResult,
        step: StepId,
        command: CommandId,
    ) -> BoxFuture<'static, Result<ClaimResult, Rejection>>;
}

pub(super) struct PortReporter(pub(super) Arc<PoolShared>);

impl Reporter for PortReporter {
    fn send(
        &self,
        claim: &ClaimResult,
        report: StepReport,
    ) -> BoxFuture<'static, Result<Recorded, Rejection>> {
        let (shared, held) = (Arc::clone(&self.0), Holding::of(claim));
        let asked = Moment::now(); // A lease counts from before the request.
        let mut sent = shared.port().report(&held, report.clone(), None);
        Box::pin(async move {
            let mut pauses = resend();
            loop {
                match sent.await {
                    // A node that has had too much of this principal takes the report later.
                    Err(no)
                        if no.code == Code::Unavailable
                            && (!pauses.are_longest() || no.details.contains_key("rate")) =>
                    {
                        tokio::time::sleep(pauses.after(&no)).await;
                    }
                    answer => {
                        if let Ok(said) = answer {
                            shared.note_recorded(held.attempt_id, asked, said);
                        }
                        return answer;
                    }
                }
                sent = shared.port().report(&held, report.clone(), None);
            }
        })
    }

    fn look(
        &self,
        claim: &ClaimResult,
        look: Look,
    ) -> BoxFuture<'static, Result<Looked, Rejection>> {
        let Holding { task, run_id, .. } = Holding::of(claim);
        let shared = Arc::clone(&self.0);
        Box::pin(async move { repeated(|| shared.port().look(&task, run_id, look.clone())).await })
    }

    fn blob(
        &self,
        claim: &ClaimResult,
        hash: BlobHash,
    ) -> BoxFuture<'static, Result<Arc<[u8]>, Rejection>> {
        let (shared, held) = (Arc::clone(&self.0), Holding::of(claim));
        Box::pin(async move {
            repeated(|| get_whole(hash, |asked| shared.port().blob_get(&held, asked))).await
        })
    }

    fn claim(
        &self,
        claim: &ClaimResult,
        step: StepId,
        command: CommandId,
    ) -> BoxFuture<'static, Result<ClaimResult, Rejection>> {
        let run = RunOffer {
            session_id: claim.session_id.clone(),
            task_id: claim.task_id.clone(),
            run_id: claim.run_id,
            worker_pool_id: claim.step.worker_pool_id.clone(),
            allowed_step_ids: None,
            instructions: None,
            bindings: None,
            expires_at: None,
        };
        let shared = Arc::clone(&self.0);
        Box::pin(async move { repeated(|| shared.port().claim(&run, &step, &command)).await })
    }
}
