//! How the reducer records Artifacts that events name (ART-01).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Task;
use super::apply::{Applied, At, Contradiction};
use super::undo::Note;
use crate::event::ReportFacts;
use crate::id::{ArtifactId, Millis, StepId};
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
        for artifact in &report.artifacts {
            self.add_artifact(artifact, Some(&step_id), attempt, at.time)?;
        }
        for id in &report.artifact_ids {
            match self.artifacts.find(id) {
                Some(known) if self.artifacts[known].step_id.as_ref() == Some(&step_id) => {
                    self.name_artifact(known, attempt);
                }
                Some(_) => {}
                None => self.add_artifact(&external(id), Some(&step_id), attempt, at.time)?,
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
        attempt: Option<Pos>,
        at: Millis,
    ) -> Applied {
        if let Some(pos) = self.artifacts.find(&given.artifact_id) {
            self.change_artifact(pos, |artifact| {
                let known = &mut artifact.given;
                known.state = given.state;
                known.uri = given.uri.clone().or(known.uri.take());
                known.size_bytes = given.size_bytes.or(known.size_bytes);
                known.digest = given.digest.clone().or(known.digest.take());
                artifact.named_by = attempt;
            });
            return Ok(());
        }
        let artifact = Artifact {
            given: given.clone(),
            step_id: step_id.cloned(),
            attempt_id: attempt.map(|a| self.attempts[a].attempt_id),
            named_by: attempt,
            created_at: at,
        };
        self.note(|_| Note::ArtifactAdded);
        let pos = self.artifacts.push(Arc::new(artifact));
        self.artifact_in(pos);
        Ok(())
    }

    /// Notes that a report on an artifact's own Step named it by its id alone (TERM-10).
    fn name_artifact(&mut self, pos: Pos, attempt: Option<Pos>) {
        if self.artifacts[pos].named_by != attempt {
            self.change_artifact(pos, |artifact| artifact.named_by = attempt);
        }
    }

    fn change_artifact(&mut self, pos: Pos, change: impl FnOnce(&mut Artifact)) {
        self.note(|task| Note::Artifact(pos, Arc::clone(&task.artifacts[pos])));
        self.artifact_out(pos);
        change(Arc::make_mut(&mut self.artifacts[pos]));
        self.artifact_in(pos);
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
