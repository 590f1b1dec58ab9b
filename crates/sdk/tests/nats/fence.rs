//! A worker that cannot renew what it holds, and is not even told so.

use std::future::{Pending, pending};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use futures::channel::mpsc::unbounded;
use tenure_core::Rejection;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, CommandId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_sdk::worker::{Handlers, Options, WorkerPool};

use crate::node::grant;

/// A way to a scheduler that takes everything in, and answers nothing for ever.
#[derive(Debug)]
struct Silent(AgentId);

impl WorkerPort for Silent {
    type Answer = Pending<Result<Recorded, Rejection>>;

    const IS_REMOTE: bool = true;

    fn id(&self) -> &AgentId {
        &self.0
    }

    fn credit(&self, _: Credit) {}

    fn query(
        &self,
        _: &RunOffer,
        _: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        pending()
    }

    fn look(
        &self,
        _: &TaskKey,
        _: RunId,
        _: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static {
        pending()
    }

    fn claim(
        &self,
        _: &RunOffer,
        _: &StepId,
        _: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        pending()
    }

    fn leave(&self, _: &RunOffer, _: Option<ReasonInput>, _: Option<Credit>) -> Self::Answer {
        pending()
    }

    fn report(&self, _: &Holding, _: StepReport, _: Option<Credit>) -> Self::Answer {
        pending()
    }

    fn end_run(
        &self,
        _: &Holding,
        _: RunOutcome,
        _: Option<String>,
        _: Option<Credit>,
    ) -> Self::Answer {
        pending()
    }

    fn release(&self, _: &Holding, _: GiveBack, _: Option<Credit>) -> Self::Answer {
        pending()
    }

    fn heartbeat(&self, _: &[Holding]) -> impl Future<Output = Vec<Pulse>> + Send {
        pending()
    }
}

/// LEASE-05, CTX-11: a worker looks at its leases itself: it stops by itself before one ends, though its heartbeat
/// is still without an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_stops_by_itself_while_its_heartbeat_waits() {
    let (to_worker, deliveries) = unbounded();
    let handlers = Handlers::new().on("wait", |_| pending()).unwrap();
    let options = Options::new(NonZeroUsize::MIN);
    let silent = Silent(AgentId::new("w").unwrap());
    let pool = WorkerPool::start(silent, deliveries, handlers, options);
    let begun = Instant::now();
    let claim = grant("wait", 900).grant.unwrap();
    to_worker.unbounded_send(Delivery::Grant(claim)).unwrap();
    let until = async |is_held: bool| {
        while (pool.in_hand() > 0) != is_held {
            assert!(begun.elapsed() < Duration::from_secs(20), "held: {}", pool.in_hand());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    until(true).await;
    until(false).await;
    assert!(
        begun.elapsed() >= Duration::from_millis(270),
        "a third of it is certain, less a tenth"
    );
}
