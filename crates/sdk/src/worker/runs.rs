//! Works under a dispatched Run: looks for a Step in its scope, claims it, and runs it.
//!
//! Losing a claim is normal (CLAIM-09): the worker looks for another Step. Finding nothing is a success, which the
//! worker says until it is recorded (DISP-12, DISP-16). If there is no answer now, or the Task gives out nothing at
//! present, the worker lets the Run go, and the scheduler offers it again. In a worker that starts a command for each
//! Run, the command does all this ([`hosted`](super::hosted)).

use std::sync::Arc;

use tenure_core::id::{AttemptId, CommandId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, RunOffer};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::WorkerPort;
use tenure_ports::map::IdMap;
use uuid::Uuid;

use super::pool::{AttemptStage, PoolShared, resend};
use super::words::reason;

/// How often a worker looks for a Step under one Run before it does something else.
const LOOKS_MAX: usize = 1000;

/// Why a worker claims nothing under a Run.
enum Unused {
    /// Nothing is ready in the scope.
    Nothing,
    /// The Task gives out nothing at present (VIEW-16).
    NotNow,
    /// Only Steps are ready for which this worker has no handler.
    Unfit,
    /// There is no answer, or the Run may not be used.
    Refused(Rejection),
}

impl From<Rejection> for Unused {
    fn from(refused: Rejection) -> Self {
        Self::Refused(refused)
    }
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
    signals: IdMap<AttemptId, EarlySignal>,
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

    pub(super) fn begin(&mut self) {
        self.looking += 1;
    }

    pub(super) fn end(&mut self) {
        self.looking -= 1;
        if self.looking == 0 {
            self.signals.clear();
        }
    }
}

impl PoolShared {
    /// Uses the capacity that the offer took for one Step of the Run's scope.
    pub(super) async fn work_under(self: Arc<Self>, run: RunOffer) {
        if let Some(command) = self.options.run_command.clone() {
            return Box::pin(self.host(run, &command)).await;
        }
        self.early.lock().begin();
        let found = if self.is_accepting() { self.find(&run).await } else { Err(leaving().into()) };
        let unused = found.map(|claim| self.begin(*claim, AttemptStage::Kept, None)).err();
        self.early.lock().end();
        match unused {
            None => {}
            Some(Unused::Nothing) => self.leave(&run, None).await,
            Some(Unused::Unfit) => {
                let message = "no handler of this worker runs what is ready in the scope";
                self.leave(&run, Some(reason("unknown_handler", message, None, None))).await;
            }
            Some(Unused::NotNow) => self.free_capacity(),
            Some(Unused::Refused(refused)) => {
                tracing::debug!(run = %run.run_id, %refused, "the run cannot be used now");
                self.free_capacity();
            }
        }
    }

    /// Ends a Run that has claimed nothing, until that is recorded (DISP-16). A worker that stops taking work
    /// does not repeat it: then the scheduler offers the Run again.
    pub(super) async fn leave(&self, run: &RunOffer, declined: Option<ReasonInput>) {
        let mut pauses = resend();
        let mut capacity = Some(self.freed());
        loop {
            match self.port().leave(run, declined.clone(), capacity.take()).await {
                Err(refused) if refused.code.is_retryable() && self.is_accepting() => {
                    tokio::time::sleep(pauses.after(&refused)).await;
                }
                _ => return,
            }
        }
    }

    async fn find(&self, run: &RunOffer) -> Result<Box<ClaimResult>, Unused> {
        let mut offset = 0;
        for _ in 0..LOOKS_MAX {
            let page = repeated(|| self.port().query(run, offset)).await?;
            let fitting = page.steps.iter().find(|step| self.runs(&step.spec.handler));
            let Some(step) = fitting else {
                match page.next_offset {
                    Some(next) => offset = next,
                    None if page.no_step_available == Some(false) => return Err(Unused::NotNow),
                    None if offset == 0 && page.steps.is_empty() => return Err(Unused::Nothing),
                    None => return Err(Unused::Unfit),
                }
                continue;
            };
            let Ok(command_id) = CommandId::new(Uuid::now_v7().to_string()) else {
                return Err(leaving().into());
            };
            let claimed = repeated(|| self.port().claim(run, &step.spec.step_id, &command_id));
            match claimed.await {
                Ok(claim) => return Ok(Box::new(claim)),
                Err(lost) if is_lost(lost.code) => offset = 0,
                Err(refused) => return Err(refused.into()),
            }
        }
        Err(Rejection::new(Code::Unavailable, "others are faster, again and again").into())
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
