//! What becomes of the Step when the agent has answered, asks, has failed or cannot be reached.

use serde_json::{Value as Json, json};
use smol_str::SmolStr;
use tenure_a2a::{A2aArtifact, A2aMessage, A2aTask, A2aTaskStatus};
use tenure_core::id::{ArtifactId, Ref};
use tenure_core::record::{ArtifactInput, Object, RemoteRef};
use tenure_core::status::{ArtifactKind, ArtifactState};
use tenure_core::view::gateway::A2aState;
use tenure_core::{Limits, Rejection};

use super::errand::{Errand, ErrandEnd, ErrandError};
use super::mark::WorkMark;
use crate::a2a::{PeerError, PeerReason};
use crate::worker::words::cut;

/// The media type of an artifact as A2A has it.
const ARTIFACT: &str = "application/vnd.tenure.a2a-artifact+json";

/// How many artifacts of an agent are stored one by one; the output of the Step has all of them.
const ARTIFACTS_MAX: usize = 256;

impl Errand {
    /// Says the last word of the Attempt.
    pub(super) async fn finish(&mut self, end: ErrandEnd) -> Result<(), Rejection> {
        match end {
            ErrandEnd::Message(message) => {
                self.ctx.complete_json(&json!({"text": message.text(), "message": message}))
            }
            ErrandEnd::Asks(status) => self.ask(&status),
            ErrandEnd::Ended(task) => self.end(&task).await,
        }
    }

    /// Fails the Step, for good if another try would fail alike.
    pub(super) async fn fail(&self, error: ErrandError) -> Result<(), Rejection> {
        let error = match error {
            ErrandError::Local(refused) => return Err(refused),
            ErrandError::Peer(error) => error,
        };
        let message = cut(&error.to_string());
        match error {
            PeerError::Refused { reason: PeerReason::TaskNotFound, .. }
                if self.work.task.is_some() =>
            {
                self.mark(&WorkMark::Ended(self.work.round)).await?;
                self.ctx.fail("a2a_task_gone", &message, None)
            }
            PeerError::Refused { reason: PeerReason::Broken, .. } => {
                self.ctx.fail("a2a_failed", &message, None)
            }
            PeerError::Malformed { .. } => self.ctx.fail("a2a_malformed", &message, None),
            error if error.is_retryable() => self.ctx.fail("a2a_unreachable", &message, None),
            _ => self.ctx.reject(&message),
        }
    }

    /// The question of the agent becomes that of the Step.
    fn ask(&self, status: &A2aTaskStatus) -> Result<(), Rejection> {
        let question = said(status).unwrap_or_else(|| "the agent asks for input".to_owned());
        match status.state {
            A2aState::AuthRequired => self.ctx.request_auth(&question, Object::new()),
            _ => self.ctx.request_input(&question),
        }
    }

    async fn end(&mut self, task: &A2aTask) -> Result<(), Rejection> {
        if task.status.state == A2aState::Completed {
            return self.complete(task).await;
        }
        self.mark(&WorkMark::Ended(self.work.round)).await?;
        let why = said(&task.status);
        match task.status.state {
            A2aState::Rejected => {
                self.ctx.reject(why.as_deref().unwrap_or("the agent rejects the work"))
            }
            A2aState::Canceled => self.ctx.fail(
                "a2a_canceled",
                why.as_deref().unwrap_or("the agent's task was canceled"),
                None,
            ),
            _ => {
                self.ctx.fail("a2a_failed", why.as_deref().unwrap_or("the agent has failed"), None)
            }
        }
    }

    /// A2A-04: the Step is completed when everything of the agent's task is stored here.
    async fn complete(&mut self, task: &A2aTask) -> Result<(), Rejection> {
        let Some(remote) = self.noted.clone() else { return self.ctx.complete_json(&output(task)) };
        let agent = remote.remote_agent_ref.clone().unwrap_or_default();
        let mut refs = Vec::new();
        for artifact in task.artifacts.iter().take(ARTIFACTS_MAX) {
            let at = format!("{agent}#{}/{}", task.id, artifact.artifact_id);
            let id = self.ids.id(&format!("artifact {} {}", task.id, artifact.artifact_id));
            self.ctx.attach(stored(ArtifactId::new(id)?, artifact, &at));
            self.ctx.send_attached().await?;
            refs.extend(Ref::new(&at).ok());
        }
        let remote = RemoteRef { remote_artifact_refs: refs, reconciled: true, ..remote };
        self.ctx.delegate(remote.clone()).await?;
        self.noted = Some(remote);
        self.ctx.complete_json(&output(task))
    }
}

/// What an agent says about the state of its task.
fn said(status: &A2aTaskStatus) -> Option<String> {
    let text = status.message.as_ref().map(A2aMessage::text)?;
    Some(cut(&text)).filter(|text| !text.is_empty())
}

/// The output of the Step.
fn output(task: &A2aTask) -> Json {
    let texts = task.artifacts.iter().flat_map(|it| &it.parts).filter_map(|part| part.as_text());
    let texts: Vec<&str> = texts.collect();
    let message = task.status.message.as_ref();
    let text = match texts.is_empty() {
        true => message.map(A2aMessage::text).unwrap_or_default(),
        false => texts.join("\n"),
    };
    json!({
        "taskId": task.id,
        "contextId": task.context_id,
        "text": text,
        "artifacts": task.artifacts,
        "message": message,
    })
}

/// An artifact of the agent as one of this Task: inline if it is small enough, else as a reference. The output of the
/// Step has it in any case.
fn stored(artifact_id: ArtifactId, artifact: &A2aArtifact, at: &str) -> ArtifactInput {
    let text = json!(artifact).to_string();
    let is_small = text.len() <= Limits::default().value_bytes_max;
    let name = artifact.name.clone().unwrap_or_else(|| artifact.artifact_id.clone());
    ArtifactInput {
        artifact_id,
        name: cut(&name),
        description: artifact.description.as_deref().map(cut),
        media_type: Some(SmolStr::new_static(ARTIFACT)),
        kind: ArtifactKind::Data,
        uri: (!is_small).then(|| at.to_owned()),
        size_bytes: Some(text.len() as u64),
        data: is_small.then_some(text),
        digest: None,
        state: ArtifactState::Available,
    }
}
