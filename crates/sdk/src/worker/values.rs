//! Values that are too large for a log (VALUE-01, VALUE-02): before a handler runs, the worker gets the
//! blobs that its claim carries, and before it reports a large output, it puts that as a blob. Handlers
//! see bytes and know nothing of blobs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::command::StepReport;
use tenure_core::record::{Blob, Object, StepSpec, Value, ValueBody};
use tenure_core::view::ClaimResult;
use tenure_core::{Code, Limits, Rejection};
use tenure_ports::blobs::{get_whole, put_whole};
use tenure_ports::bus::{Holding, WorkerPort};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::context::StepContext;
use super::pool::{PoolShared, resend};

/// How many bytes the blobs of one claim may have in all: the worker has them in memory together.
const CLAIM_BYTES_MAX: u64 = 256 << 20;

/// A large output: the bytes of its blob.
pub(super) type Large = (Blob, Arc<[u8]>);

/// The output of a report, if it is too large for a log.
pub(super) fn large_output(report: &StepReport) -> Option<Large> {
    match &report.output.as_ref()?.body {
        ValueBody::Data(data) if data.len() > Limits::default().value_bytes_max => {
            Some((Blob::of(data), Arc::clone(data)))
        }
        ValueBody::Data(_) | ValueBody::Blob(_) | ValueBody::Ref(_) => None,
    }
}

impl PoolShared {
    /// The claim with the bytes of all blobs that its values name. Waits as long as the store does not
    /// answer, unless the Step is to stop.
    pub(super) async fn with_blobs(
        &self,
        held: &Holding,
        claim: &mut ClaimResult,
        cancelled: &CancellationToken,
    ) -> Result<(), Rejection> {
        let outputs = claim.dependencies.iter().filter_map(|it| it.output.as_ref());
        let named = outputs.chain(&claim.step.input).filter_map(Value::blob);
        let bytes: u64 = named.map(|blob| blob.size_bytes).sum();
        if bytes > CLAIM_BYTES_MAX {
            let message = format!("the inputs have {bytes} bytes; at most {CLAIM_BYTES_MAX}");
            return Err(Rejection::new(Code::ValueTooLarge, message));
        }
        if let Some(input) = claim.step.input.as_ref().filter(|input| input.blob().is_some()) {
            let mut input = input.clone();
            self.fetch(held, &mut input, cancelled).await?;
            claim.step = Arc::new(StepSpec { input: Some(input), ..StepSpec::clone(&claim.step) });
        }
        for output in claim.dependencies.iter_mut().filter_map(|it| it.output.as_mut()) {
            self.fetch(held, output, cancelled).await?;
        }
        Ok(())
    }

    /// Replaces a blob by its bytes.
    async fn fetch(
        &self,
        held: &Holding,
        value: &mut Value,
        cancelled: &CancellationToken,
    ) -> Result<(), Rejection> {
        let Some(blob) = value.blob() else { return Ok(()) };
        let mut pauses = resend();
        loop {
            let got = get_whole(blob.hash, |asked| self.port.blob_get(held, asked)).await;
            let refused = match got {
                Ok(bytes) => {
                    value.body = ValueBody::Data(bytes);
                    return Ok(());
                }
                Err(refused) => refused,
            };
            if !refused.code.is_retryable() {
                return Err(refused);
            }
            tokio::select! {
                () = tokio::time::sleep(pauses.after(&refused)) => {}
                () = cancelled.cancelled() => return Err(refused),
            }
        }
    }

    /// VALUE-02: puts a large output, and tries for as long as the Step may take, or until the worker is
    /// ended by force. Its lease is renewed meanwhile. `Err` is why it cannot be put: a retryable refusal
    /// means that the time is over.
    pub(super) async fn put_output(
        &self,
        held: &Holding,
        ctx: &StepContext,
        (blob, bytes): &Large,
    ) -> Result<(), Rejection> {
        let (since, forced) = match self.open.lock().get(&held.attempt_id) {
            Some(open) => (open.since, open.stop.forced.clone()),
            None => (Instant::now(), CancellationToken::new()),
        };
        let until = ctx.claim().retry_policy.as_ref().and_then(|it| it.start_to_close_ms?.number());
        let until = until.and_then(|ms| since.checked_add(before_the_end(ms)));
        let mut pauses = resend();
        loop {
            let put = put_whole(*blob, bytes, |part| self.port.blob_put(held, part));
            let refused = tokio::select! {
                put = put => match put {
                    Ok(()) => return Ok(()),
                    Err(refused) => refused,
                },
                () = forced.cancelled() => return Err(not_put("the worker ends")),
            };
            let is_lost = self.is_lost(held.attempt_id);
            if !refused.code.is_retryable() || is_lost {
                return Err(refused);
            }
            let again = Instant::now() + pauses.after(&refused);
            if until.is_some_and(|until| again >= until) {
                return Err(not_put(&refused.message));
            }
            tracing::debug!(attempt = %held.attempt_id, %refused, "the output cannot be put yet");
            tokio::select! {
                () = sleep_until(again) => {}
                () = forced.cancelled() => return Err(not_put("the worker ends")),
            }
        }
    }

    /// VALUE-02: the report of an output that cannot be recorded, with a copy that stays with the worker.
    pub(super) async fn output_failed(
        &self,
        held: &Holding,
        ctx: &StepContext,
        refused: &Rejection,
        bytes: Arc<[u8]>,
    ) -> StepReport {
        let path = self.options.copies.join(held.attempt_id.to_string());
        let details = match save(path, bytes).await {
            Ok(path) => {
                let copy = path.display().to_string().into();
                Some(Object::from_iter([("copy".to_owned(), copy)]))
            }
            Err(error) => {
                tracing::error!(attempt = %held.attempt_id, %error, "an output cannot be copied");
                None
            }
        };
        ctx.output_failed(refused, details)
    }
}

/// How long after its claim a Step may still report: the scheduler ends it at its limit, by its own clock.
fn before_the_end(start_to_close_ms: u64) -> Duration {
    let margin = (start_to_close_ms / 10).min(2_000);
    Duration::from_millis(start_to_close_ms - margin)
}

/// The time is over in which an output can be put.
fn not_put(why: &str) -> Rejection {
    Rejection::new(Code::StorageUnavailable, format!("the output could not be stored: {why}"))
}

async fn save(path: PathBuf, bytes: Arc<[u8]>) -> std::io::Result<PathBuf> {
    if let Some(dir) = path.parent() {
        tokio::fs::create_dir_all(dir).await?;
    }
    let path = std::path::absolute(path)?;
    tokio::fs::write(&path, bytes).await?;
    Ok(path)
}
