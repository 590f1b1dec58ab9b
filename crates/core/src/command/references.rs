//! What reports and inputs may refer to: artifacts must exist (ART-05) and keep their identity
//! (ART-01), offsets only rise (PROG-03), and lists stay short enough (PROG-04).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::create::CreateTask;
use super::validate::names;
use super::{Command, StepReport, Tx};
use crate::id::{ArtifactId, Ref, TaskId};
use crate::patch::{Change, Operation};
use crate::record::{ArtifactInput, Progress, Value, ValueBody, add_once};
use crate::reject::{Code, Rejection};
use crate::status::Role;
use crate::table::Pos;
use crate::task::Task;

/// What a [`Ref`] names (2.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An artifact of the same Task.
    Own(ArtifactId),
    /// An artifact of another Task of the session, or of this Task under its full name.
    Of(TaskId, ArtifactId),
    /// Something elsewhere.
    Elsewhere,
}

impl Ref {
    /// What it names.
    ///
    /// # Errors
    /// `validation_error` if it is neither an artifact, an artifact of a Task, nor a URI.
    pub fn target(&self) -> Result<Target, Rejection> {
        let text = self.as_str();
        if text.contains(':') {
            return Ok(Target::Elsewhere);
        }
        Ok(match text.split_once('/') {
            Some((task, artifact)) => Target::Of(TaskId::new(task)?, ArtifactId::new(artifact)?),
            None => Target::Own(ArtifactId::new(text)?),
        })
    }
}

impl Value {
    /// The same value for a reader outside the Task: a reference to an own artifact names the Task, too.
    pub(super) fn seen_from_outside(&self, task: &TaskId) -> Self {
        let own = value_ref(Some(self)).and_then(|r| match r.target() {
            Ok(Target::Own(artifact)) => Ref::new(format!("{task}/{artifact}")).ok(),
            _ => None,
        });
        match own {
            Some(reference) => Self { body: ValueBody::Ref(reference), ..self.clone() },
            None => self.clone(),
        }
    }
}

/// Artifacts of other Tasks that these refs name. The scheduler looks up whether they exist (ART-05).
fn foreign<'a>(own: &TaskId, refs: impl Iterator<Item = &'a Ref>) -> Vec<(TaskId, ArtifactId)> {
    let targets = refs.filter_map(|r| r.target().ok());
    let foreign = targets.filter_map(|target| match target {
        Target::Of(task, artifact) if task != *own => Some((task, artifact)),
        Target::Of(..) | Target::Own(_) | Target::Elsewhere => None,
    });
    foreign.collect()
}

impl Command {
    /// Artifacts of other Tasks than `own` that the command refers to. Before the decision, the
    /// scheduler looks them up, and refuses missing ones with [`unknown_artifact`].
    pub fn foreign_artifacts(&self, own: &TaskId) -> Vec<(TaskId, ArtifactId)> {
        let following = self.following().iter().flat_map(Self::references);
        foreign(own, self.references().chain(following).map(|(_, r)| r))
    }

    /// The refs in the command, each with the index of its operation in a patch.
    fn references(&self) -> impl Iterator<Item = (Option<usize>, &Ref)> {
        let (operations, plain): (&[Operation], Vec<&Ref>) = match self {
            Self::TaskUpdate { operations } => (operations, Vec::new()),
            Self::TaskUpdateStep(report) => (&[], report_refs(report).collect()),
            Self::TaskComplete(complete) => {
                let refs = complete.evidence_refs.iter();
                (&[], refs.chain(value_ref(complete.output.as_ref())).collect())
            }
            Self::TaskFact(fact) => (&[], value_ref(Some(&fact.payload)).into_iter().collect()),
            Self::AppendTaskProgress(given) => {
                let refs = given.evidence_refs.iter().chain(&given.input_refs);
                (&[], refs.chain(progress_refs(&given.progress)).collect())
            }
            _ => (&[], Vec::new()),
        };
        let of_patch = operations.iter().enumerate();
        let of_patch = of_patch
            .flat_map(|(at, op)| operation_refs(op).into_iter().map(move |r| (Some(at), r)));
        plain.into_iter().map(|r| (None, r)).chain(of_patch)
    }
}

impl CreateTask {
    /// Artifacts of other Tasks that the Steps' inputs refer to. The scheduler looks them up, as
    /// for a [`Command`].
    pub fn foreign_artifacts(&self, own: &TaskId) -> Vec<(TaskId, ArtifactId)> {
        foreign(own, self.steps.iter().filter_map(|s| value_ref(s.input.as_ref())))
    }
}

fn report_refs(report: &StepReport) -> impl Iterator<Item = &Ref> {
    let listed = [&report.input_refs, &report.output_refs, &report.checkpoint_refs];
    let listed = listed.into_iter().flatten();
    listed.chain(value_ref(report.output.as_ref())).chain(progress_refs(&report.progress))
}

fn progress_refs(progress: &Option<Progress>) -> impl Iterator<Item = &Ref> {
    progress.iter().flat_map(|delta| delta.output_refs.iter().chain(delta.output_offsets.keys()))
}

fn value_ref(value: Option<&Value>) -> Option<&Ref> {
    match &value?.body {
        ValueBody::Ref(reference) => Some(reference),
        ValueBody::Data(_) | ValueBody::Blob(_) => None,
    }
}

fn operation_refs(operation: &Operation) -> Vec<&Ref> {
    match operation {
        Operation::ReopenStep { input_refs, .. } => input_refs.iter().collect(),
        Operation::AddStep { step, .. } => value_ref(step.input.as_ref()).into_iter().collect(),
        Operation::UpdateStep { fields, .. } => match &fields.input {
            Change::Set(value) => value_ref(Some(value)).into_iter().collect(),
            Change::Keep | Change::Clear => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// ART-05: the refusal of a reference to an artifact that does not exist.
pub fn unknown_artifact(reference: &Ref) -> Rejection {
    let message = format!("{reference} names an artifact that does not exist");
    Rejection::invalid("ref", message).with("ref", reference.as_str())
}

impl Task {
    /// ART-05, for this Task's artifacts: the scheduler looks up those of others.
    fn check_reference(&self, reference: &Ref) -> Result<(), Rejection> {
        let own = match reference.target()? {
            Target::Elsewhere => return Ok(()),
            Target::Of(task, _) if task != *self.task_id() => return Ok(()),
            Target::Of(_, artifact) | Target::Own(artifact) => artifact,
        };
        self.artifacts.find(&own).map(drop).ok_or_else(|| unknown_artifact(reference))
    }

    /// ART-05 for a new Task, which has no artifacts yet.
    pub(super) fn check_first_references(&self) -> Result<(), Rejection> {
        for (at, step) in self.steps.iter().enumerate() {
            if let Some(reference) = value_ref(step.spec.input.as_ref()) {
                let field = format!("steps[{at}].input.ref");
                self.check_reference(reference).map_err(|no| no.with("field", field))?;
            }
        }
        Ok(())
    }

    /// ART-01: a repeated announcement of an artifact describes the same artifact.
    fn check_artifacts(&self, given: &[ArtifactInput], step: Option<Pos>) -> Result<(), Rejection> {
        let mut seen: BTreeMap<&ArtifactId, &ArtifactInput> = BTreeMap::new();
        for artifact in given {
            let id = &artifact.artifact_id;
            let stored = self.artifacts.by_key(id);
            let belongs = stored.is_none_or(|old| {
                step.is_none_or(|pos| old.step_id.as_ref() == Some(&self.steps[pos].spec.step_id))
            });
            if !belongs {
                let message = format!("artifact {id} is another step's; take a new id");
                return Err(Rejection::new(Code::PermissionDenied, message)
                    .with("artifact_id", id.as_str()));
            }
            let before = seen.insert(id, artifact).or(stored.map(|old| &old.given));
            if let Some(field) = before.and_then(|old| changed_field(old, artifact)) {
                let message =
                    format!("artifact {id} keeps its {field}; a new version takes a new id");
                return Err(Rejection::invalid("artifacts", message)
                    .with("artifact_id", id.as_str())
                    .with("changed", field));
            }
        }
        Ok(())
    }
}

/// The first field that changed although it must not: only state, place, size and digest may.
fn changed_field(old: &ArtifactInput, new: &ArtifactInput) -> Option<&'static str> {
    fn differs<T: PartialEq>(old: &Option<T>, new: &Option<T>) -> bool {
        new.is_some() && old != new
    }
    let fields = [
        ("name", old.name != new.name),
        ("kind", old.kind != new.kind),
        ("description", differs(&old.description, &new.description)),
        ("media_type", differs(&old.media_type, &new.media_type)),
        ("data", differs(&old.data, &new.data)),
    ];
    fields.into_iter().find(|(_, changed)| *changed).map(|(field, _)| field)
}

/// PROG-03: the offsets in a log of output never fall.
fn check_offsets(old: Option<&Progress>, delta: Option<&Progress>) -> Result<(), Rejection> {
    let (Some(old), Some(delta)) = (old, delta) else { return Ok(()) };
    for (reference, &offset) in &delta.output_offsets {
        let reached = old.output_offsets.get(reference).copied().unwrap_or(0);
        if offset < reached {
            let message = format!("offset {offset} of {reference} is behind {reached}");
            return Err(Rejection::invalid("progress.output_offsets", message)
                .with("ref", reference.as_str())
                .with("current", reached));
        }
    }
    Ok(())
}

impl Tx<'_, '_> {
    /// Checks the artifacts and the progress of a report on a Step. A worker changes artifacts of
    /// its own Step only (PERM-13).
    pub(super) fn check_reported(&self, pos: Pos, report: &StepReport) -> Result<(), Rejection> {
        let own = (self.cx.caller.role == Role::Worker).then_some(pos);
        self.task.check_input_seen(report.input_seen)?;
        self.task.check_artifacts(&report.artifacts, own)?;
        let state = &self.task.steps[pos].state;
        if let Some(attempt) = state.last_attempt.map(|at| &self.task.attempts[at]) {
            self.check_list("output_refs", &attempt.output_refs, &report.output_refs)?;
            self.check_list("checkpoint_refs", &attempt.checkpoint_refs, &report.checkpoint_refs)?;
        }
        self.check_progress(state.facts().progress.as_ref(), report.progress.as_ref())
    }

    /// Checks artifacts and progress of the Task itself.
    pub(super) fn check_reported_on_task(
        &self,
        artifacts: &[ArtifactInput],
        progress: Option<&Progress>,
    ) -> Result<(), Rejection> {
        self.task.check_artifacts(artifacts, None)?;
        self.check_progress(Some(&self.task.head.progress), progress)
    }

    fn check_progress(
        &self,
        old: Option<&Progress>,
        delta: Option<&Progress>,
    ) -> Result<(), Rejection> {
        if let (Some(old), Some(delta)) = (old, delta) {
            self.check_list("progress.output_refs", &old.output_refs, &delta.output_refs)?;
        }
        check_offsets(old, delta)
    }

    /// P30, PROG-04: whether a list of refs that is added to stays short enough: whatever is added is compared with
    /// all that is there.
    pub(super) fn check_list(
        &self,
        field: &str,
        there: &[Ref],
        given: &[Ref],
    ) -> Result<(), Rejection> {
        let limits = self.cx.limits;
        let both = there.iter().chain(given).map(Ref::as_str);
        if given.is_empty() || names(field, both, 0, limits).is_ok() {
            return Ok(());
        }
        let mut all = there.to_vec();
        add_once(&mut all, given);
        names(field, all.iter().map(Ref::as_str), 0, limits).map_err(|refused| {
            let what = "with those that it has already; give one ref to a document that lists more";
            let message = format!("{}, {what}", refused.message);
            Rejection { message, ..refused }
        })
    }

    /// ART-05, after the command's own artifacts were added; a refusal removes these again.
    pub(super) fn check_references(&self, command: &Command) -> Result<(), Rejection> {
        for (operation, reference) in command.references() {
            self.task.check_reference(reference).map_err(|no| match operation {
                Some(at) => no.with("op_index", at),
                None => no,
            })?;
        }
        Ok(())
    }
}
