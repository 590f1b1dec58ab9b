//! How the reducer records Artifacts that events name (ART-01).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Task;
use super::apply::{Applied, At, Contradiction};
use super::undo::Note;
use crate::event::ReportFacts;
use crate::id::{ArtifactId, AttemptId, Millis, StepId};
use crate::record::{Artifact, ArtifactInput};
use crate::status::{ArtifactKind, ArtifactState};
use crate::table::Pos;

impl Task {
    pub(super) fn add_artifacts(
        &mut self,
        pos: Pos,
        report: &ReportFacts,
        attempt: Option<Pos>,
        at: At,
    ) -> Result<Vec<ArtifactId>, Contradiction> {
        let step_id = self.steps[pos].spec.step_id.clone();
        let attempt_id = attempt.map(|a| self.attempts[a].attempt_id);
        for artifact in &report.artifacts {
            self.add_artifact(artifact, Some(&step_id), attempt_id, at.time)?;
        }
        for id in &report.artifact_ids {
            if self.artifacts.find(id).is_none() {
                self.add_artifact(&external(id), Some(&step_id), attempt_id, at.time)?;
            }
        }
        let named = report.artifacts.iter().map(|a| &a.artifact_id);
        Ok(named.chain(&report.artifact_ids).cloned().collect())
    }

    /// A new artifact, or another state, place, size or digest of a known one (ART-01).
    pub(super) fn add_artifact(
        &mut self,
        given: &ArtifactInput,
        step_id: Option<&StepId>,
        attempt_id: Option<AttemptId>,
        at: Millis,
    ) -> Applied {
        if let Some(pos) = self.artifacts.find(&given.artifact_id) {
            let old = Arc::clone(&self.artifacts[pos]);
            let mut new = Artifact::clone(&old);
            new.given.state = given.state;
            new.given.uri = given.uri.clone().or(new.given.uri);
            new.given.size_bytes = given.size_bytes.or(new.given.size_bytes);
            new.given.digest = given.digest.clone().or(new.given.digest);
            self.note(|_| Note::Artifact(pos, Arc::clone(&old)));
            self.derived.take_artifact(&old);
            self.derived.put_artifact(&new);
            self.artifacts[pos] = Arc::new(new);
            return Ok(());
        }
        let artifact = Artifact {
            given: given.clone(),
            step_id: step_id.cloned(),
            attempt_id,
            created_at: at,
        };
        self.note(|_| Note::ArtifactAdded);
        self.derived.put_artifact(&artifact);
        self.artifacts.push(Arc::new(artifact));
        Ok(())
    }
}

fn external(id: &ArtifactId) -> ArtifactInput {
    ArtifactInput {
        artifact_id: id.clone(),
        name: id.as_str().into(),
        description: None,
        media_type: None,
        kind: ArtifactKind::External,
        uri: None,
        data: None,
        size_bytes: None,
        digest: None,
        state: ArtifactState::Available,
    }
}
