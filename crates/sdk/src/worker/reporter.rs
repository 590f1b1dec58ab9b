//! Sends the reports of a handler that are not final, and its queries, over the port, and repeats
//! them for a while.

use std::sync::Arc;

use futures::future::BoxFuture;
use tenure_core::command::StepReport;
use tenure_core::view::{ClaimResult, Look, Looked};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Holding, Recorded, WorkerPort};

use super::context::Reporter;
use super::pool::{PoolShared, resend};
use super::runs::repeated;
use crate::clock::Moment;

pub(super) struct PortReporter<P>(pub(super) Arc<PoolShared<P>>);

impl<P: WorkerPort> Reporter for PortReporter<P> {
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
                    Err(no) if no.code == Code::Unavailable && !pauses.are_longest() => {
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
}
