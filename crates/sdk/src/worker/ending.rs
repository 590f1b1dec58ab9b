//! Ends an Attempt: runs its handler to the end, and repeats its final report until it is recorded.
//!
//! Step 10 of the walk in docs/architecture.md.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::id::AttemptId;
use tenure_core::record::ValueBody;
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Credit, Holding, Recorded, WorkerPort as _};
use tokio_util::sync::CancellationToken;

use super::context::{Final, StepContext};
use super::handler::HandlerError;
use super::pool::{AttemptStage, Loss, PoolShared, resend};
use super::values::{Large, large_output};

/// How often a worker puts an output again that the scheduler does not find.
const PUT_AGAIN_MAX: usize = 3;

/// How long the return of a fenced Step waits for an answer before it is sent again.
const PATIENCE: Duration = Duration::from_secs(5);

impl PoolShared {
    /// Sends the final report, with the capacity that the worker then has, until it is recorded.
    pub(super) async fn finish(
        &self,
        held: &Holding,
        ctx: &StepContext,
        cancelled: &CancellationToken,
        took: Option<Duration>,
    ) {
        let (lost, is_surplus) = match self.open.lock().get_mut(&held.attempt_id) {
            Some(open) => {
                open.is_reported = open.lost.is_none();
                (open.lost, open.stage == AttemptStage::Surplus)
            }
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
        match lost {
            Some(Loss::Told) => {
                self.give_up(held.attempt_id);
                self.port.credit(capacity);
                return self.hand_on(held, ctx).await;
            }
            Some(Loss::Fenced) => {
                self.port.credit(capacity);
                self.give_back_fenced(held).await;
                return self.give_up(held.attempt_id);
            }
            None => {}
        }
        match (ctx.take_final(), cancelled.is_cancelled()) {
            (Some(word), _) => {
                if let Some(open) = self.open.lock().get_mut(&held.attempt_id) {
                    open.stage = AttemptStage::Said;
                }
                self.say(held, ctx, word, capacity).await;
            }
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

    /// LEASE-17: gives back a Step whose handler was stopped for want of a lease, as soon as a node
    /// answers, unless the worker leaves before.
    async fn give_back_fenced(&self, held: &Holding) {
        let mut pauses = resend();
        loop {
            let released = self.port.release(held, GiveBack::because(ReleaseReason::Fenced), None);
            let refused = match tokio::time::timeout(PATIENCE, released).await {
                Ok(Ok(_)) => return,
                Ok(Err(refused)) if !refused.code.is_retryable() => return, // It is lost.
                Ok(Err(refused)) => refused,
                Err(_) => Rejection::new(Code::Unavailable, "nobody has answered"),
            };
            if !self.is_accepting() {
                return;
            }
            tokio::time::sleep(pauses.after(&refused)).await;
        }
    }

    /// Sends the final report of a handler; a large output before it, as a blob.
    async fn say(&self, held: &Holding, ctx: &StepContext, mut word: Final, capacity: Credit) {
        let port = &self.port;
        let mut large = None;
        if let Final::Report(report) = &mut word {
            large = large_output(report);
            if let Some(large) = &large {
                port.credit(capacity); // The put may take long, and the slot is free.
                if let Err(refused) = self.stow(held, ctx, report, large).await {
                    return self.note_refused(held, ctx, (&refused, &word), capacity).await;
                }
            }
        }
        let tell = |capacity| match &word {
            Final::Report(report) => port.report(held, (**report).clone(), capacity),
            Final::GiveBack(how) => port.release(held, *how, capacity),
        };
        let mut told = self.until_recorded(held, capacity, tell).await;
        // The store has lost the blob between its put and the report.
        for _ in 0..PUT_AGAIN_MAX {
            let Some(large) = &large else { break };
            if !told.as_ref().is_err_and(|refused| refused.code == Code::BlobMissing)
                || self.put_output(held, ctx, large).await.is_err()
            {
                break;
            }
            told = self.until_recorded(held, capacity, tell).await;
        }
        if let Err(refused) = told {
            self.note_refused(held, ctx, (&refused, &word), capacity).await;
        }
    }

    /// Puts a large output, and names it in the report. If it can never be put, the report becomes that of
    /// a failure (VALUE-02). `Err` if the Attempt is over.
    async fn stow(
        &self,
        held: &Holding,
        ctx: &StepContext,
        report: &mut Box<StepReport>,
        large: &Large,
    ) -> Result<(), Rejection> {
        match self.put_output(held, ctx, large).await {
            Ok(()) => {
                if let Some(output) = &mut report.output {
                    output.body = ValueBody::Blob(large.0);
                }
                Ok(())
            }
            Err(over) if over.code.ends_attempt() || self.is_lost(held.attempt_id) => Err(over),
            Err(refused) => {
                let bytes = Arc::clone(&large.1);
                **report = self.output_failed(held, ctx, &refused, bytes).await;
                Ok(())
            }
        }
    }

    /// What a worker does when a final report does not count.
    async fn note_refused(
        &self,
        held: &Holding,
        ctx: &StepContext,
        (refused, word): (&Rejection, &Final),
        capacity: Credit,
    ) {
        let port = &self.port;
        match refused {
            over if over.code == Code::TaskTerminal => self.hand_on(held, ctx).await,
            // A retryable refusal ends the repeats only if the Attempt was fenced.
            over if over.code.is_retryable() || over.code.ends_attempt() => {}
            refused => {
                // Without a report the lease would expire, and the next try would end in the same
                // way.
                let word = ctx.ended_by(refused, word);
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

    /// Whether an Attempt is lost, however the worker learned it.
    pub(super) fn is_lost(&self, attempt: AttemptId) -> bool {
        self.open.lock().get(&attempt).is_none_or(|open| open.lost.is_some())
    }

    /// Removes an Attempt, which the worker does not begin again.
    fn give_up(&self, attempt: AttemptId) {
        self.past.lock().note(attempt);
        self.open.lock().remove(&attempt);
    }

    /// Logs that a final report was refused. If somebody else has ended the Attempt before, the work of its handler
    /// was for nothing, and no other line says so: heartbeats after the final report log nothing.
    fn say_refused(&self, held: &Holding, refused: &Rejection) {
        let (task, attempt) = (&held.task, held.attempt_id);
        let stage = self.open.lock().get(&attempt).map(|open| open.stage);
        if refused.code == Code::StaleAttempt && stage == Some(AttemptStage::Said) {
            tracing::warn!(%task, %attempt, %refused, "the attempt was lost before its report");
        } else {
            tracing::debug!(%task, %attempt, %refused, "the report does not count");
        }
    }

    /// Repeats a call until there is a final answer: the worker never drops a result while its
    /// Attempt may still count.
    async fn until_recorded(
        &self,
        held: &Holding,
        capacity: Credit,
        call: impl Fn(Option<Credit>) -> BoxFuture<'static, Result<Recorded, Rejection>>,
    ) -> Result<(), Rejection> {
        let mut answer = call(Some(capacity)).await;
        let mut pauses = resend();
        loop {
            let refused = match answer {
                Ok(_) => return Ok(()),
                Err(refused) => refused,
            };
            if !refused.code.is_retryable() {
                self.say_refused(held, &refused);
                return Err(refused);
            }
            if self.is_lost(held.attempt_id) {
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
