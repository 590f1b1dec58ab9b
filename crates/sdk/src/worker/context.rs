//! The step context: the input that a handler gets, and the reports that it may make (CTX).

mod command;
mod last;
mod look;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::command::StepReport;
use tenure_core::event::Bindings;
use tenure_core::id::{Ref, StepId};
use tenure_core::record::{ArtifactInput, Object, Progress, RemoteRef, Value, ValueBody};
use tenure_core::status::{ArtifactKind, ReplyKind, StepStatus, WaitKind};
use tenure_core::view::ClaimResult;
use tenure_core::view::claim::DependencyResult;
use tenure_core::{Code, Limits, Rejection};
use tokio_util::sync::CancellationToken;

pub(super) use self::last::Final;
use self::last::said_already;
use super::late_input::LateInputs;
use super::reporter::Reporter;
use super::stop::StopRequest;
use super::words::{inline, reason};

/// Why a report was not accepted.
pub type Refused = Rejection;

struct ContextShared {
    claim: ClaimResult,
    stop: StopRequest,
    inputs: LateInputs,
    reporter: Arc<dyn Reporter>,
    /// The final report of the handler, held until it returns.
    spoken: Mutex<Option<Final>>,
    artifacts: Mutex<Vec<ArtifactInput>>,
    /// The peer that the handler has named last.
    peer: Mutex<Option<RemoteRef>>,
    /// The result of the Run itself.
    run_result: Mutex<Option<String>>,
    /// What the worker itself lacked for the Step.
    lacked: Mutex<Option<String>>,
}

/// The context of a handler: its Step, its inputs, and the reports that it may make. Cheap to clone.
///
/// The worker sends a final report (`complete`, `fail`, …) when the handler returns. After the first one, every
/// later report is refused with `stale_attempt` (CTX-10). A handler that returns without one fails its Step (CTX-12).
#[derive(Clone)]
pub struct StepContext {
    shared: Arc<ContextShared>,
}

impl fmt::Debug for StepContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepContext").field("claim", &self.shared.claim).finish_non_exhaustive()
    }
}

impl StepContext {
    pub(super) fn new(
        claim: ClaimResult,
        stop: StopRequest,
        inputs: LateInputs,
        reporter: Arc<dyn Reporter>,
    ) -> Self {
        let (spoken, artifacts, peer, run_result, lacked) = Default::default();
        let shared = ContextShared {
            claim,
            stop,
            inputs,
            reporter,
            spoken,
            artifacts,
            peer,
            run_result,
            lacked,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The Task's id.
    pub fn task_id(&self) -> &str {
        self.shared.claim.task_id.as_str()
    }

    /// The Task's session.
    pub fn session_id(&self) -> &str {
        self.shared.claim.session_id.as_str()
    }

    /// The Step's id.
    pub fn step_id(&self) -> &StepId {
        &self.shared.claim.step.step_id
    }

    /// The number of this try, from 1.
    pub fn attempt(&self) -> u32 {
        self.shared.claim.ordinal
    }

    /// The W3C `traceparent` below which spans of this handler go: that of the Attempt if the
    /// scheduler sends traces, otherwise the one that the maker of the Task gave, if any.
    pub fn traceparent(&self) -> Option<&str> {
        self.shared.claim.trace.as_deref()
    }

    /// The claim as it came. Handlers do not see its fencing token (CTX-13).
    pub(crate) fn claim(&self) -> &ClaimResult {
        &self.shared.claim
    }

    /// The title of the Step.
    pub fn title(&self) -> &str {
        &self.shared.claim.step.title
    }

    /// What the Step is to do.
    pub fn summary(&self) -> &str {
        &self.shared.claim.step.summary
    }

    /// The instructions that the orchestrator gave to the Run.
    pub fn instructions(&self) -> Option<&str> {
        self.shared.claim.instructions.as_deref()
    }

    /// The conversation and environment of the Run.
    pub fn bindings(&self) -> Option<&Bindings> {
        self.shared.claim.bindings.as_deref()
    }

    /// All references that the Step was given: with its input, by dependencies, and when it was
    /// reopened.
    pub fn input_refs(&self) -> &[Ref] {
        &self.shared.claim.input_refs
    }

    /// The references that were added to the Task's `input_refs` after the claim and that this handler has
    /// not taken yet (CTRL-12), in their order. Its later reports tell that it has seen them. They come only
    /// under `dispatch=auto`.
    pub fn take_late_inputs(&self) -> Vec<Ref> {
        self.shared.inputs.take()
    }

    /// As [`take_late_inputs`](Self::take_late_inputs), but waits until there are some.
    pub async fn late_inputs(&self) -> Vec<Ref> {
        self.shared.inputs.next().await
    }

    /// The checkpoints of earlier Attempts ([`checkpoint`](Self::checkpoint)).
    pub fn checkpoint_refs(&self) -> &[Ref] {
        &self.shared.claim.checkpoint_refs
    }

    /// The input of the Step.
    pub fn input(&self) -> Option<&Value> {
        self.shared.claim.step.input.as_ref()
    }

    /// The input of the Step, decoded from JSON as this type.
    ///
    /// # Errors
    /// There is no inline input, or it is not of that type.
    pub fn input_json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let data = self.input().and_then(Value::data).unwrap_or(b"null");
        serde_json::from_slice(data)
    }

    /// The answers of people since the Step was made, oldest first
    /// ([`Client::answer`](crate::client::Client::answer)). Outputs of other Steps are not among
    /// them, and neither are answers of more than some 3 KB ([`all_answers`](Self::all_answers)).
    pub fn answers(&self) -> Vec<String> {
        self.said_refs().filter_map(crate::answer::of_ref).collect()
    }

    /// The references that people may have given, and no other Step.
    fn said_refs(&self) -> impl Iterator<Item = &Ref> {
        let claim = &self.shared.claim;
        let outputs = claim.dependencies.iter().filter_map(|it| it.output.as_ref());
        let handed_on = outputs.chain(&claim.step.input).filter_map(|value| match &value.body {
            ValueBody::Ref(reference) => Some(reference),
            ValueBody::Data(_) | ValueBody::Blob(_) => None,
        });
        let handed_on: Vec<&Ref> = handed_on.collect();
        claim.input_refs.iter().filter(move |it| !handed_on.contains(it))
    }

    /// What other Steps hand on: those that this one names in `inputs_from`, in its order, else its direct
    /// dependencies, and instead of a `noop` the Steps that it joins.
    pub fn dependencies(&self) -> &[DependencyResult] {
        &self.shared.claim.dependencies
    }

    /// Whether the Step should stop (CTX-09). The handler may stop by itself; after the wait limit
    /// the worker ends it by force.
    pub fn is_cancelled(&self) -> bool {
        self.shared.stop.cancelled.is_cancelled()
    }

    /// How long the handler has left to stop, once it was asked to (POL-12): until then it may report
    /// checkpoints and artifacts, and after that the worker ends it by force.
    pub fn time_left(&self) -> Option<Duration> {
        self.shared.stop.time_left()
    }

    /// Resolves when the Step should stop.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.shared.stop.cancelled
    }

    /// CTX-01: completes the Step with a result.
    ///
    /// # Errors
    /// `stale_attempt` after a final word; `facts_unreconciled` while the facts of the peer are not stored here
    /// ([`delegate`](Self::delegate)): the handler goes on, and says another word later.
    pub fn complete(&self, output: Option<Value>) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Completed);
            report.output = output;
        })
    }

    /// CTX-01: completes the Step with a result as JSON.
    ///
    /// # Errors
    /// As [`complete`](Self::complete); `validation_error` if the value is not JSON.
    pub fn complete_json(&self, output: &impl Serialize) -> Result<(), Refused> {
        let data = serde_json::to_vec(output)
            .map_err(|error| Rejection::invalid("output", error.to_string()))?;
        self.complete(Some(Value::json(data)))
    }

    /// CTX-01: completes the Step with a result and a message to people.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub fn respond(&self, output: Option<Value>, message: &str) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Completed);
            report.output = output;
            report.reply = Some(ReplyKind::Message);
            report.result_summary = Some(message.into());
        })
    }

    /// CTX-01: completes the Step; the result is a direct message and no artifact of the Task.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub fn reply_directly(&self, message: &str) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Completed);
            report.output = Some(Value::inline("text/plain", message.as_bytes().to_vec()));
            report.reply = Some(ReplyKind::Direct);
        })
    }

    /// CTX-02: fails the Step. `code` is stable, `message` for people.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn fail(&self, code: &str, message: &str, details: Option<Object>) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Failed);
            report.reason = Some(reason(code, message, details, None));
        })
    }

    /// CTX-02: fails the Step, which is not tried again before this time has passed, also where its retry
    /// policy waits for less (RETRY-02); at most an hour.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn fail_for(
        &self,
        code: &str,
        message: &str,
        details: Option<Object>,
        pause: Duration,
    ) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Failed);
            report.reason = Some(reason(code, message, details, None));
            report.retry_after_ms = Some(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        })
    }

    /// CTX-04: rejects the work, which is then not tried again.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn reject(&self, message: &str) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Failed);
            report.reason = Some(reason("rejected", message, None, Some(false)));
        })
    }

    /// CTX-05: blocks the Step until a person answers.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn request_input(&self, prompt: &str) -> Result<(), Refused> {
        self.block(WaitKind::Input, "input_required", prompt, None)
    }

    /// The same with details for programs: the flat JSON `schema` of the answer, or several `questions` (docs/mcp.md).
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn request_form(&self, prompt: &str, details: Object) -> Result<(), Refused> {
        self.block(WaitKind::Input, "input_required", prompt, Some(details))
    }

    /// CTX-06: blocks the Step until it gets a permission. The log stores the details: never put secrets there.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn request_auth(&self, message: &str, details: Object) -> Result<(), Refused> {
        self.block(WaitKind::Permission, "auth_required", message, Some(details))
    }

    /// Adds a summary to the final report.
    ///
    /// # Errors
    /// `stale_attempt` if there is no final report yet.
    pub fn summarise(&self, summary: &str) -> Result<(), Refused> {
        match &mut *self.shared.spoken.lock() {
            Some(Final::Report(report)) => {
                report.result_summary = Some(summary.into());
                Ok(())
            }
            Some(Final::GiveBack(_)) => Ok(()), // Nobody reads a summary of it.
            None => Err(Rejection::new(Code::StaleAttempt, "say a final word first")),
        }
    }

    /// Sets the result of the Run itself, for an orchestrator that dispatched it and waits. It is
    /// no result of the Step, and is not stored (DISP-13). The last one counts.
    ///
    /// # Errors
    /// `validation_error` for more than 8 KiB.
    pub fn set_run_result(&self, text: &str) -> Result<(), Refused> {
        let most = Limits::default().progress_bytes_max;
        if text.len() > most {
            let message = format!("a run's result has {} bytes; at most {most}", text.len());
            return Err(Rejection::invalid("run_result", message));
        }
        *self.shared.run_result.lock() = Some(text.to_owned());
        Ok(())
    }

    /// CTX-07: reports progress on the Step. It is recorded when the future is done.
    ///
    /// # Errors
    /// `stale_attempt` after a final word or when the Attempt is over.
    pub async fn send_status(&self, progress: Progress) -> Result<(), Refused> {
        let mut report = self.report();
        report.status = Some(StepStatus::Running);
        report.progress = Some(progress);
        self.send(report).await
    }

    /// Reports that work has begun (S05). Optional.
    ///
    /// # Errors
    /// As [`send_status`](Self::send_status).
    pub async fn start(&self) -> Result<(), Refused> {
        let mut report = self.report();
        report.status = Some(StepStatus::Running);
        self.send(report).await
    }

    /// CTX-08: adds a text to the Step at once.
    ///
    /// # Errors
    /// As [`send_status`](Self::send_status).
    pub async fn emit_text_artifact(&self, name: &str, text: &str) -> Result<(), Refused> {
        self.emit(inline(name, ArtifactKind::Text, "text/plain", text)?).await
    }

    /// CTX-08: adds data to the Step at once.
    ///
    /// # Errors
    /// As [`send_status`](Self::send_status).
    pub async fn emit_data_artifact(
        &self,
        name: &str,
        data: &impl Serialize,
    ) -> Result<(), Refused> {
        let text = serde_json::to_string(data)
            .map_err(|error| Rejection::invalid("artifacts", error.to_string()))?;
        self.emit(inline(name, ArtifactKind::Data, "application/json", &text)?).await
    }

    /// ATT-09: adds a checkpoint at once, from which a later Attempt may go on: its
    /// [`checkpoint_refs`](Self::checkpoint_refs) have it.
    ///
    /// # Errors
    /// `validation_error` for a text that is no reference; otherwise as
    /// [`send_status`](Self::send_status).
    pub async fn checkpoint(&self, at: &str) -> Result<(), Refused> {
        let mut report = self.report();
        report.checkpoint_refs.push(Ref::new(at)?);
        self.send(report).await
    }

    /// ATT-09: adds a reference to an output of this Attempt, at once.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub async fn emit_output_ref(&self, to: &str) -> Result<(), Refused> {
        let mut report = self.report();
        report.output_refs.push(Ref::new(to)?);
        self.send(report).await
    }

    /// A2A-02: names the peer that does the work of this Step, or says with `reconciled` that its facts are
    /// stored here, at once. Until they are, the Step cannot be completed (REPORT-19).
    ///
    /// # Errors
    /// As [`send_status`](Self::send_status).
    pub async fn delegate(&self, to: RemoteRef) -> Result<(), Refused> {
        let report = StepReport { remote: Some(to.clone()), ..self.report() };
        self.send(report).await?;
        *self.shared.peer.lock() = Some(to);
        Ok(())
    }

    /// Adds an artifact to the final report.
    pub fn attach(&self, artifact: ArtifactInput) {
        self.shared.artifacts.lock().push(artifact);
    }

    /// Sends what is attached at once, as there will be no final report.
    pub(in crate::worker) async fn send_attached(&self) -> Result<(), Refused> {
        let mut report = self.report();
        report.artifacts.append(&mut self.shared.artifacts.lock());
        match report.artifacts.is_empty() {
            true => Ok(()),
            false => self.send(report).await,
        }
    }

    async fn emit(&self, artifact: ArtifactInput) -> Result<(), Refused> {
        let mut report = self.report();
        report.artifacts.push(artifact);
        self.send(report).await
    }

    async fn send(&self, report: StepReport) -> Result<(), Refused> {
        if self.shared.spoken.lock().is_some() {
            return Err(said_already());
        }
        let sent = self.shared.reporter.send(&self.shared.claim, report);
        sent.await.map(|_| ())
    }

    fn block(
        &self,
        kind: WaitKind,
        code: &str,
        message: &str,
        details: Option<Object>,
    ) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Blocked);
            report.wait_kind = Some(kind);
            report.reason = Some(reason(code, message, details, None));
        })
    }

    fn report(&self) -> StepReport {
        let claim = &self.shared.claim;
        let mut report = StepReport::on(claim.step.step_id.clone());
        report.attempt_id = Some(claim.attempt_id);
        report.fencing_token = Some(claim.fencing_token);
        report.input_seen = self.shared.inputs.seen();
        report
    }
}
