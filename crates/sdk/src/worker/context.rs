//! The step context: what a handler gets, and the words it may say (CTX).

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use smol_str::SmolStr;
use tenure_core::command::StepReport;
use tenure_core::id::{ArtifactId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::record::{ArtifactInput, Object, Progress, Value};
use tenure_core::status::{ArtifactKind, ArtifactState, ReplyKind, StepStatus, WaitKind};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Grant, Recorded};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Why a word was not accepted.
pub type Refused = Rejection;

/// How reports leave a context.
pub(super) trait Reporter: Send + Sync {
    /// Sends a report that is not the last word.
    fn send(
        &self,
        grant: &Grant,
        report: StepReport,
    ) -> BoxFuture<'static, Result<Recorded, Rejection>>;
}

/// A direct dependency and its output.
#[derive(Debug, Clone, Copy)]
pub struct Dependency<'a> {
    /// Its id.
    pub step_id: &'a StepId,
    /// What it completed with.
    pub output: Option<&'a Value>,
}

/// The word a handler ends with, kept until it returns.
#[derive(Debug, Default)]
pub enum Spoken {
    /// None yet.
    #[default]
    Nothing,
    /// The last word.
    Final(Box<StepReport>),
}

struct Shared {
    grant: Grant,
    cancelled: CancellationToken,
    reporter: Arc<dyn Reporter>,
    spoken: Mutex<Spoken>,
    artifacts: Mutex<Vec<ArtifactInput>>,
}

/// What a handler gets: its Step, its inputs, and the words it may say. Cheap to clone.
///
/// A final word (`complete`, `fail`, …) is sent when the handler returns; after the first one every
/// later word is refused with `stale_attempt` (CTX-10). A handler that returns without one fails
/// its Step (CTX-12).
#[derive(Clone)]
pub struct StepContext {
    shared: Arc<Shared>,
}

impl fmt::Debug for StepContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepContext").field("grant", &self.shared.grant).finish_non_exhaustive()
    }
}

impl StepContext {
    pub(super) fn new(
        grant: Grant,
        cancelled: CancellationToken,
        reporter: Arc<dyn Reporter>,
    ) -> Self {
        let (spoken, artifacts) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { grant, cancelled, reporter, spoken, artifacts }) }
    }

    /// The Task's id.
    pub fn task_id(&self) -> &str {
        self.shared.grant.holding.task.task_id.as_str()
    }

    /// The Task's session.
    pub fn session_id(&self) -> &str {
        self.shared.grant.holding.task.session_id.as_str()
    }

    /// The Step's id.
    pub fn step_id(&self) -> &StepId {
        &self.shared.grant.step_id
    }

    /// The number of this try, from 1.
    pub fn attempt(&self) -> u32 {
        self.shared.grant.ordinal
    }

    /// The grant as it came.
    pub fn grant(&self) -> &Grant {
        &self.shared.grant
    }

    /// What the Step was given.
    pub fn input(&self) -> Option<&Value> {
        self.shared.grant.input.as_ref()
    }

    /// What the Step was given, as JSON of a type.
    ///
    /// # Errors
    /// There is no inline input, or it is not of that type.
    pub fn input_json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let data = self.input().and_then(Value::data).unwrap_or(b"null");
        serde_json::from_slice(data)
    }

    /// Direct dependencies, in the order the Step names them.
    pub fn dependencies(&self) -> impl Iterator<Item = Dependency<'_>> {
        let all = self.shared.grant.dependencies.iter();
        all.map(|(step_id, output)| Dependency { step_id, output: output.as_ref() })
    }

    /// Whether the Step should stop (CTX-09). The handler may, and is ended at the wait limit.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.is_cancelled()
    }

    /// Resolves when the Step should stop.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.shared.cancelled
    }

    /// CTX-01: done, with a result.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn complete(&self, output: Option<Value>) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Completed);
            report.output = output;
        })
    }

    /// CTX-01: done, with a result as JSON.
    ///
    /// # Errors
    /// `stale_attempt` after a final word; `validation_error` if the value is not JSON.
    pub fn complete_json(&self, output: &impl Serialize) -> Result<(), Refused> {
        let data = serde_json::to_vec(output)
            .map_err(|error| Rejection::invalid("output", error.to_string()))?;
        self.complete(Some(Value::json(data)))
    }

    /// CTX-01: done, with a result and a message that says so.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn respond(&self, output: Option<Value>, message: &str) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Completed);
            report.output = output;
            report.reply = Some(ReplyKind::Message);
            report.result_summary = Some(message.into());
        })
    }

    /// CTX-01: done; the result is a direct message and no artifact of the Task.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn reply_directly(&self, message: &str) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Completed);
            report.output = Some(Value::inline("text/plain", message.as_bytes().to_vec()));
            report.reply = Some(ReplyKind::Direct);
        })
    }

    /// CTX-02: failed. `code` is stable, `message` for people.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn fail(&self, code: &str, message: &str, details: Option<Object>) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Failed);
            report.reason = Some(reason(code, message, details, None));
        })
    }

    /// CTX-04: refused, and not to be tried again.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn reject(&self, message: &str) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Failed);
            report.reason = Some(reason("rejected", message, None, Some(false)));
        })
    }

    /// CTX-05: waits for an answer from a person.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn request_input(&self, prompt: &str) -> Result<(), Refused> {
        self.block(WaitKind::Input, "input_required", prompt, None)
    }

    /// CTX-06: waits for a permission. Details are stored: never put secrets there.
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn request_auth(&self, message: &str, details: Object) -> Result<(), Refused> {
        self.block(WaitKind::Permission, "auth_required", message, Some(details))
    }

    /// A last text beside the final word.
    ///
    /// # Errors
    /// `stale_attempt` if no final word has been said.
    pub fn summarise(&self, summary: &str) -> Result<(), Refused> {
        match &mut *self.shared.spoken.lock() {
            Spoken::Final(report) => {
                report.result_summary = Some(summary.into());
                Ok(())
            }
            Spoken::Nothing => Err(Rejection::new(Code::StaleAttempt, "say a final word first")),
        }
    }

    /// CTX-07: progress on the Step. Recorded when the future is done.
    ///
    /// # Errors
    /// `stale_attempt` after a final word or when the Attempt is over.
    pub async fn send_status(&self, progress: Progress) -> Result<(), Refused> {
        let mut report = self.report();
        report.status = Some(StepStatus::Running);
        report.progress = Some(progress);
        self.send(report).await
    }

    /// Tells that work has begun (S05). Optional.
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

    /// Adds an artifact to the Step with its final word.
    pub fn attach(&self, artifact: ArtifactInput) {
        self.shared.artifacts.lock().push(artifact);
    }

    async fn emit(&self, artifact: ArtifactInput) -> Result<(), Refused> {
        let mut report = self.report();
        report.artifacts.push(artifact);
        self.send(report).await
    }

    async fn send(&self, report: StepReport) -> Result<(), Refused> {
        if matches!(*self.shared.spoken.lock(), Spoken::Final(_)) {
            return Err(said_already());
        }
        let sent = self.shared.reporter.send(&self.shared.grant, report);
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
        let grant = &self.shared.grant;
        let mut report = StepReport::on(grant.step_id.clone());
        report.attempt_id = Some(grant.holding.attempt_id);
        report.fencing_token = Some(grant.holding.fencing_token);
        report
    }

    fn speak(&self, say: impl FnOnce(&mut StepReport)) -> Result<(), Refused> {
        let mut spoken = self.shared.spoken.lock();
        if matches!(*spoken, Spoken::Final(_)) {
            return Err(said_already());
        }
        let mut report = self.report();
        say(&mut report);
        *spoken = Spoken::Final(Box::new(report));
        Ok(())
    }

    /// The final word with everything attached; none if the handler said none.
    pub(super) fn take_final(&self) -> Option<StepReport> {
        match std::mem::take(&mut *self.shared.spoken.lock()) {
            Spoken::Nothing => None,
            Spoken::Final(mut report) => {
                report.artifacts.append(&mut self.shared.artifacts.lock());
                Some(*report)
            }
        }
    }

    /// The final word of a handler that broke (CTX-03). What it had said before stands.
    pub(super) fn fail_if_silent(&self, message: &str) {
        let _ = self.fail("unhandled_exception", message, None); // Refused if it had spoken.
    }
}

fn said_already() -> Rejection {
    Rejection::new(Code::StaleAttempt, "the final word on this step has been said")
}

fn reason(
    code: &str,
    message: &str,
    details: Option<Object>,
    retryable: Option<bool>,
) -> ReasonInput {
    ReasonInput { code: Some(SmolStr::new(code)), details, message: message.into(), retryable }
}

fn inline(
    name: &str,
    kind: ArtifactKind,
    media: &str,
    text: &str,
) -> Result<ArtifactInput, Refused> {
    Ok(ArtifactInput {
        artifact_id: ArtifactId::new(Uuid::now_v7().to_string())?,
        name: name.into(),
        description: None,
        media_type: Some(SmolStr::new(media)),
        kind,
        uri: None,
        data: Some(text.into()),
        size_bytes: Some(text.len() as u64),
        digest: None,
        state: ArtifactState::Available,
    })
}
