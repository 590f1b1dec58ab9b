//! Works under a dispatched Run: looks for a Step in its scope, claims it, and runs it.
//!
//! Losing a claim is normal (CLAIM-09): the worker looks for another Step. Finding nothing is a
//! success (DISP-12). If there is no answer now, the worker leaves the Run alone, and the scheduler
//! offers it again.

use std::collections::HashMap;
use std::sync::Arc;

use tenure_core::id::{AttemptId, CommandId};
use tenure_core::view::{ClaimResult, RunOffer};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::WorkerPort;
use uuid::Uuid;

use super::pool::{AttemptStage, PoolShared, resend};
use super::words::reason;

/// How often a worker looks for a Step under one Run before it does something else.
const LOOKS_MAX: usize = 1000;

/// The result of looking for a Step.
enum LookResult {
    /// A Step, claimed.
    Step(Box<ClaimResult>),
    /// Nothing is ready in the scope.
    Nothing,
    /// Only Steps for which this worker has no handler.
    Unfit,
}

/// A signal that came for an Attempt before the answer to its claim, as the two take different
/// ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlySignal {
    Stop,
    Lost,
}

/// Signals for unknown Attempts, stored while the worker looks for a Step under some Run.
#[derive(Debug, Default)]
pub(super) struct Early {
    looking: usize,
    signals: HashMap<AttemptId, EarlySignal>,
}

impl Early {
    pub(super) fn note(&mut self, attempt: AttemptId, signal: EarlySignal) {
        if self.looking > 0 {
            self.signals.insert(attempt, signal);
        }
    }

    pub(super) fn take(&mut self, attempt: AttemptId) -> Option<EarlySignal> {
        self.signals.remove(&attempt)
    }

    fn begin(&mut self) {
        self.looking += 1;
    }

    fn end(&mut self) {
        self.looking -= 1;
        if self.looking == 0 {
            self.signals.clear();
        }
    }
}

impl<P: WorkerPort> PoolShared<P> {
    /// Uses the capacity that the offer took for one Step of the Run's scope.
    pub(super) async fn work_under(self: Arc<Self>, run: RunOffer) {
        self.early.lock().begin();
        self.look_and_work(run).await;
        self.early.lock().end();
    }

    async fn look_and_work(self: &Arc<Self>, run: RunOffer) {
        let found = if self.is_accepting() { self.find(&run).await } else { Err(leaving()) };
        let declined = match found {
            Ok(LookResult::Step(claim)) => return self.begin(*claim, AttemptStage::Kept),
            Ok(LookResult::Nothing) => None,
            Ok(LookResult::Unfit) => {
                let message = "no handler of this worker runs what is ready in the scope";
                Some(reason("unknown_handler", message, None, None))
            }
            Err(refused) => {
                tracing::debug!(run = %run.run_id, %refused, "the run cannot be used now");
                return self.free_capacity();
            }
        };
        let capacity = self.freed();
        // If this message is lost, the scheduler offers the Run again after a lease duration.
        let _ = self.port().leave(&run, declined, Some(capacity)).await;
    }

    async fn find(&self, run: &RunOffer) -> Result<LookResult, Rejection> {
        let mut offset = 0;
        for _ in 0..LOOKS_MAX {
            let page = repeated(|| self.port().query(run, offset)).await?;
            let fitting = page.steps.iter().find(|step| self.runs(&step.spec.handler));
            let Some(step) = fitting else {
                match page.next_offset {
                    Some(next) => offset = next,
                    None if offset == 0 && page.steps.is_empty() => return Ok(LookResult::Nothing),
                    None => return Ok(LookResult::Unfit),
                }
                continue;
            };
            let Ok(command_id) = CommandId::new(Uuid::now_v7().to_string()) else {
                return Err(leaving());
            };
            let claimed = repeated(|| self.port().claim(run, &step.spec.step_id, &command_id));
            match claimed.await {
                Ok(claim) => return Ok(LookResult::Step(Box::new(claim))),
                Err(lost) if is_lost(lost.code) => offset = 0,
                Err(refused) => return Err(refused),
            }
        }
        Err(Rejection::new(Code::Unavailable, "others are faster, again and again"))
    }
}

/// CLAIM-09: another worker was faster, or the Step has just changed.
fn is_lost(code: Code) -> bool {
    matches!(code, Code::StepAlreadyClaimed | Code::StepNotReady | Code::StepOutOfScope)
}

/// Repeats a request a few times if there is no answer.
pub(super) async fn repeated<T, F: Future<Output = Result<T, Rejection>>>(
    ask: impl Fn() -> F,
) -> Result<T, Rejection> {
    let mut pauses = resend();
    loop {
        match ask().await {
            Err(refused) if refused.code.is_retryable() && !pauses.are_longest() => {
                tokio::time::sleep(pauses.after(&refused)).await;
            }
            answer => return answer,
        }
    }
}

fn leaving() -> Rejection {
    Rejection::new(Code::Unavailable, "this worker takes no more work")
}
