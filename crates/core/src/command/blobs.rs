//! The blobs that a request or an event names (VALUE-01). `view/blobs.rs` says who may put and get them.
//!
//! Before the scheduler decides a request, it looks up the blobs that the request names, so that no
//! event in a log names a blob that was never put. Replay looks up none.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::create::CreateTask;
use super::report::stale;
use super::validate::blob_size;
use super::{Caller, Command, Write};
use crate::event::Body;
use crate::id::{AttemptId, BlobHash};
use crate::limits::Limits;
use crate::patch::{Change, Operation};
use crate::record::{Blob, Value, ValueBody};
use crate::reject::{Code, Rejection};
use crate::status::Role;

impl Command {
    /// The blobs that the command names. Before the decision, the scheduler looks them up, and refuses
    /// missing ones with [`blob_missing`].
    pub fn blobs(&self) -> Vec<Blob> {
        match self {
            Self::TaskUpdate { operations } => of_patch(operations),
            Self::TaskUpdateStep(report) => report.output.iter().filter_map(Value::blob).collect(),
            Self::TaskComplete(given) => given.output.iter().filter_map(Value::blob).collect(),
            Self::TaskFact(fact) => {
                let following = fact.then.iter().flat_map(Self::blobs);
                fact.payload.blob().into_iter().chain(following).collect()
            }
            _ => Vec::new(),
        }
    }

    fn values_mut(&mut self) -> Vec<&mut Value> {
        match self {
            Self::TaskUpdate { operations } => {
                operations.iter_mut().filter_map(value_mut).collect()
            }
            Self::TaskUpdateStep(report) => report.output.iter_mut().collect(),
            Self::TaskComplete(given) => given.output.iter_mut().collect(),
            Self::TaskFact(fact) => {
                let following = fact.then.iter_mut().flat_map(Self::values_mut);
                core::iter::once(&mut fact.payload).chain(following).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl CreateTask {
    /// The blobs that the Steps' inputs name, and the outputs that are taken over, as for a [`Command`].
    pub fn blobs(&self) -> Vec<Blob> {
        let inputs = self.steps.iter().filter_map(|step| step.input.as_ref());
        let outputs = self.taken_over.iter().filter_map(|(_, taken)| taken.output.as_ref());
        let facts = self.facts.iter().map(|fact| &fact.payload);
        inputs.chain(outputs).chain(facts).filter_map(Value::blob).collect()
    }
}

impl Write {
    /// Takes out the values that have more bytes than fit inline, and names them as blobs in their place:
    /// whoever sends the request puts these first.
    pub fn take_large(&mut self, inline_max: usize) -> Vec<(Blob, Arc<[u8]>)> {
        let mut large = Vec::new();
        for value in self.values_mut() {
            if let ValueBody::Data(data) = &value.body
                && data.len() > inline_max
            {
                let blob = Blob::of(data);
                large.push((blob, Arc::clone(data)));
                value.body = ValueBody::Blob(blob);
            }
        }
        large
    }

    fn values_mut(&mut self) -> Vec<&mut Value> {
        match self {
            Self::Create(input) => {
                input.steps.iter_mut().filter_map(|s| s.input.as_mut()).collect()
            }
            Self::RetryEnded(_) => Vec::new(),
            Self::Command(command) => command.values_mut(),
        }
    }
}

fn value_mut(operation: &mut Operation) -> Option<&mut Value> {
    match operation {
        Operation::AddStep { step, .. } => step.input.as_mut(),
        Operation::UpdateStep { fields, .. } => match &mut fields.input {
            Change::Set(value) => Some(value),
            Change::Keep | Change::Clear => None,
        },
        _ => None,
    }
}

impl Body {
    /// The blobs that the event names.
    pub fn blobs(&self) -> Vec<Blob> {
        match self {
            Self::TaskCreated(created) => {
                created.task.steps.iter().filter_map(|step| step.input.as_ref()?.blob()).collect()
            }
            Self::TaskUpdated(updated) => of_patch(&updated.operations),
            Self::StepCompleted(done) => done.output.iter().filter_map(Value::blob).collect(),
            Self::StepTakenOver(done) => done.output.iter().filter_map(Value::blob).collect(),
            Self::TaskCompleted(end) => end.output.iter().filter_map(Value::blob).collect(),
            Self::TaskFact(fact) => fact.payload.blob().into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

fn of_patch(operations: &[Operation]) -> Vec<Blob> {
    let blob = |operation: &Operation| match operation {
        Operation::AddStep { step, .. } => step.input.as_ref()?.blob(),
        Operation::UpdateStep { fields, .. } => match &fields.input {
            Change::Set(value) => value.blob(),
            Change::Keep | Change::Clear => None,
        },
        _ => None,
    };
    operations.iter().filter_map(blob).collect()
}

/// An Attempt as its holder names it beside a request for a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobHolder {
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Its token.
    pub fencing_token: u64,
}

/// The refusal of a worker that names a Task that does not exist: as for an Attempt that is not its
/// own, so that it cannot find out which Tasks exist (PERM-16).
pub fn no_blob_task(caller: &Caller, holder: Option<BlobHolder>, refused: Rejection) -> Rejection {
    match (refused.code, caller.role) {
        (Code::TaskNotFound, Role::Worker) if holder.is_none() => no_holder(),
        (Code::TaskNotFound, Role::Worker) => stale(),
        _ => refused,
    }
}

pub(crate) fn no_holder() -> Rejection {
    Rejection::invalid("attempt_id", "a worker names the attempt that it holds, and its token")
}

/// VALUE-02: checks how many bytes a blob is to have.
///
/// # Errors
/// `value_too_large`
pub fn check_blob_size(blob: Blob, limits: &Limits) -> Result<(), Rejection> {
    blob_size("data", blob, limits)
}

/// Checks bytes that somebody wants to store as a blob.
///
/// # Errors
/// `value_too_large`; `validation_error` if they are not what the ref says.
pub fn check_blob(blob: Blob, bytes: &[u8], limits: &Limits) -> Result<(), Rejection> {
    check_blob_size(blob, limits)?;
    let given = Blob::of(bytes);
    if given == blob {
        return Ok(());
    }
    let message = format!(
        "the {} bytes are not those of {}: their digest is sha256:{}",
        given.size_bytes,
        blob.reference(),
        given.hash
    );
    Err(Rejection::invalid("data", message).with("ref", blob.reference().as_str()))
}

/// VALUE-01: the refusal of a read: the blob is not there, or is damaged.
pub fn blob_lost(hash: BlobHash) -> Rejection {
    let reference = Blob::reference_to(hash);
    Rejection::new(Code::BlobMissing, format!("{reference} is not there, or is damaged"))
        .with("ref", reference.as_str())
}

/// VALUE-01: the refusal of what names a blob that is not there, or has another size. Whoever has the
/// bytes puts them (again), and repeats the command.
pub fn blob_missing(blob: Blob) -> Rejection {
    let reference = blob.reference();
    let message = format!("{reference} of {} bytes is not there; put it first", blob.size_bytes);
    Rejection::new(Code::BlobMissing, message)
        .with("ref", reference.as_str())
        .with("size_bytes", blob.size_bytes)
}
