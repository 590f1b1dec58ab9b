//! A worker that claims nothing under a Run: it ends the Run, or lets it go.

use std::future::{Pending, Ready, pending, ready};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::unbounded;
use parking_lot::Mutex;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, CommandId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::status::TaskStatus;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};

/// A scheduler that shows an empty page, and is away when the Run is first ended.
#[derive(Debug, Clone)]
struct Empty {
    agent: AgentId,
    task_status: Option<TaskStatus>,
    /// What it was told, one word each.
    told: Arc<Mutex<Vec<&'static str>>>,
}

impl WorkerPort for Empty {
    type Answer = Ready<Result<Recorded, Rejection>>;

    fn id(&self) -> &AgentId {
        &self.agent
    }

    fn credit(&self, credit: Credit) {
        if credit.seen > 0 {
            self.told.lock().push("credit");
        }
    }

    fn query(
        &self,
        _: &RunOffer,
        _: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        let task_status = self.task_status;
        ready(Ok(StepPage {
            steps: Vec::new(),
            next_offset: None,
            truncated: false,
            version: 3,
            spec_version: 0,
            no_step_available: Some(task_status.is_none()),
            task_status,
            diagnostics: None,
        }))
    }

    fn look(
        &self,
        _: &TaskKey,
        _: RunId,
        _: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static {
        pending()
    }

    fn blob_get(
        &self,
        _: &Holding,
        _: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static {
        pending()
    }

    fn blob_put(
        &self,
        _: &Holding,
        _: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static {
        pending()
    }

    fn claim(
        &self,
        _: &RunOffer,
        _: &StepId,
        _: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        let nothing: Pending<_> = pending();
        nothing
    }

    fn leave(
        &self,
        _: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Self::Answer {
        assert_eq!(declined, None);
        let mut told = self.told.lock();
        told.push(if room.is_some() { "ended, and credit" } else { "ended" });
        ready(match told.len() {
            1 => Err(Rejection::new(Code::Unavailable, "it is away")),
            _ => Ok(Recorded { version: 4, cancel_requested: false, time_left_ms: None }),
        })
    }

    fn report(&self, _: &Holding, _: StepReport, _: Option<Credit>) -> Self::Answer {
        unreachable!("nothing is held")
    }

    fn end_run(
        &self,
        _: &Holding,
        _: RunOutcome,
        _: Option<String>,
        _: Option<Credit>,
    ) -> Self::Answer {
        unreachable!("nothing is held")
    }

    fn release(&self, _: &Holding, _: GiveBack, _: Option<Credit>) -> Self::Answer {
        unreachable!("nothing is held")
    }

    fn heartbeat(&self, _: &[Holding]) -> impl Future<Output = Vec<Pulse>> + Send {
        ready(Vec::new())
    }
}

/// DISP-16, VIEW-16: a worker that finds nothing ends the Run, until that is recorded; if the Task gives out
/// nothing at present, it lets the Run go without a word.
#[tokio::test]
async fn a_worker_that_finds_nothing_ends_the_run_or_lets_it_go() {
    for (task_status, expected) in
        [(None, vec!["ended, and credit", "ended"]), (Some(TaskStatus::Paused), vec!["credit"])]
    {
        let told = Arc::default();
        let port =
            Empty { agent: AgentId::new("w").unwrap(), task_status, told: Arc::clone(&told) };
        let (to_worker, deliveries) = unbounded();
        let handlers = Handlers::new().on("default", |_| pending()).unwrap();
        let _pool = WorkerPool::start(port, deliveries, handlers, Options::new(NonZeroUsize::MIN));
        to_worker.unbounded_send(Delivery::Run(Box::new(offer()))).unwrap();
        tokio::time::timeout(Duration::from_secs(20), async {
            while told.lock().len() < expected.len() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(*told.lock(), expected);
    }
}

fn offer() -> RunOffer {
    RunOffer {
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        run_id: "00000000-0000-0000-0000-000000000001".parse().unwrap(),
        worker_pool_id: "default".parse().unwrap(),
        allowed_step_ids: None,
        instructions: None,
        bindings: None,
        expires_at: None,
    }
}
