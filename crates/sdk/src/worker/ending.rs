//! Ends an Attempt: runs its handler to the end, and repeats its final report until it is recorded.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tenure_core::command::{GiveBack, RunOutcome};
use tenure_core::event::ReleaseReason;
use tenure_core::id::AttemptId;
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Credit, Holding, WorkerPort};
use tokio_util::sync::CancellationToken;

use super::context::{Final, StepContext};
use super::handler::HandlerError;
use super::pool::{AttemptStage, Loss, PoolShared, resend};

impl<P: WorkerPort> PoolShared<P> {
    /// Sends the final report, with the capacity that the worker then has, until it is recorded.
    pub(super) async fn finish(
        &self,
        held: &Holding,
        ctx: &StepContext,
        cancelled: &CancellationToken,
        took: Option<Duration>,
    ) {
        let (lost, is_surplus) = match self.open.lock().get(&held.attempt_id) {
            Some(open) => (open.lost, open.stage == AttemptStage::Surplus),
            None => (Some(Loss::Fenced), false),
        };
        let (capacity, draining) = {
            let mut capacity = self.capacity.lock();
            capacity.lost -= u64::from(ctx.claim().was_lost);
            // A Step that was given back has freed its capacity already.
            let credit = if is_surplus { capacity.credit() } else { capacity.free_up(took) };
            (credit, !capacity.accepting)
        };
        self.give_back_surplus();
        if let Some(loss) = lost {
            self.give_up(held.attempt_id);
            self.port.credit(capacity);
            if loss == Loss::Told {
                self.hand_on(held, ctx).await;
            }
            return;
        }
        match (ctx.take_final(), cancelled.is_cancelled()) {
            (Some(word), _) => self.say(held, ctx, &word, capacity).await,
            (None, true) if draining || is_surplus => {
                let why = if is_surplus { ReleaseReason::Surplus } else { ReleaseReason::Draining };
                let released = |capacity| self.port.release(held, GiveBack::because(why), capacity);
                let _ = self.until_recorded(held, capacity, released).await; // Then it is over.
            }
            (None, stopped) => {
                let how = if stopped { RunOutcome::Cancelled } else { RunOutcome::Finished };
                let ended = |capacity| self.port.end_run(held, how, ctx.run_result(), capacity);
                let _ = self.until_recorded(held, capacity, ended).await; // Then it is over.
            }
        }
        // In any case: a repeated grant of the Attempt may still arrive.
        self.give_up(held.attempt_id);
    }

    /// Sends the final report of a handler.
    async fn say(&self, held: &Holding, ctx: &StepContext, word: &Final, capacity: Credit) {
        let port = &self.port;
        let tell = |capacity| match word {
            Final::Report(report) => port.report(held, (**report).clone(), capacity),
            Final::GiveBack(how) => port.release(held, *how, capacity),
        };
        match self.until_recorded(held, capacity, tell).await {
            Ok(()) => {}
            Err(over) if over.code == Code::TaskTerminal => self.hand_on(held, ctx).await,
            // A retryable refusal ends the repeats only if the Attempt is lost: then the worker
            // reports nothing more about it, least of all a failure.
            Err(over) if over.code.is_retryable() => {
                if self.is_notified_of_loss(held.attempt_id) {
                    self.hand_on(held, ctx).await;
                }
            }
            Err(over) if over.code.ends_attempt() => {}
            Err(refused) => {
                // Without a report the lease would expire, and the next try would end in the same
                // way.
                let word = ctx.failed_by(&refused);
                let again = |_| port.report(held, word.clone(), None);
                let _ = self.until_recorded(held, capacity, again).await; // Then it is lost.
            }
        }
    }

    /// RUN-11: the outcome of the Step is decided, but the orchestrator that dispatched the Run
    /// still gets the Run's own result.
    async fn hand_on(&self, held: &Holding, ctx: &StepContext) {
        if let Some(result) = ctx.run_result() {
            let ended = self.port.end_run(held, RunOutcome::Finished, Some(result), None);
            let _ = ended.await; // Sent once: nothing depends on it.
        }
    }

    /// Whether the scheduler has said that an Attempt is lost: its Task may have ended.
    fn is_notified_of_loss(&self, attempt: AttemptId) -> bool {
        let open = self.open.lock();
        open.get(&attempt).is_some_and(|open| open.lost == Some(Loss::Told))
    }

    /// Removes an Attempt, which the worker does not begin again.
    fn give_up(&self, attempt: AttemptId) {
        self.past.lock().note(attempt);
        self.open.lock().remove(&attempt);
    }

    /// Repeats a call until there is a final answer: the worker never drops a result while its
    /// Attempt may still count.
    async fn until_recorded(
        &self,
        held: &Holding,
        capacity: Credit,
        call: impl Fn(Option<Credit>) -> P::Answer,
    ) -> Result<(), Rejection> {
        let mut answer = call(Some(capacity)).await;
        let mut pauses = resend();
        loop {
            let refused = match answer {
                Ok(_) => return Ok(()),
                Err(refused) => refused,
            };
            if !refused.code.is_retryable() {
                let (task, attempt) = (&held.task, held.attempt_id);
                tracing::debug!(%task, %attempt, %refused, "the report does not count");
                return Err(refused);
            }
            if self.open.lock().get(&held.attempt_id).is_none_or(|open| open.lost.is_some()) {
                return Err(refused);
            }
            tokio::time::sleep(pauses.after(&refused)).await;
            answer = call(None).await;
        }
    }
}

/// Runs a handler to its end, or until it is ended by force, by dropping its future.
pub(super) async fn carry_out(
    handler: impl Future<Output = Result<(), HandlerError>>,
    ctx: &StepContext,
    forced: &CancellationToken,
) {
    tokio::select! {
        ended = AssertUnwindSafe(handler).catch_unwind() => match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => ctx.fail_if_silent(&error.to_string()),
            Err(panic) => ctx.fail_if_silent(&panic_message(&*panic)),
        },
        () = forced.cancelled() => {}
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the handler panicked: {}", text.as_deref().unwrap_or("no message"))
}
