//! [`TaskFold`]: the A2A task that the log of a Task tells of, commit by commit.
//!
//! Whoever folds the same log gets the same task and the same updates in the same order, at every gateway:
//! so streams agree, and a place in the log is a place in all of them.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use tenure_core::event::{Body, Event, ReportFacts};
use tenure_core::id::{ArtifactId, BlobHash, Ref, StepId};
use tenure_core::record::{ArtifactInput, Blob, Progress, Reason, Value};
use tenure_core::status::{ReplyKind, StepStatus, TaskStatus, WaitKind};
use tenure_core::view::gateway::{A2aFacts, A2aState, a2a_state};
use tenure_core::view::{Facts, Known, StepRef, View};
use tenure_core::{Commit, Task};

use super::BlobBytes;
use super::artifact::{ArtifactChunk, add_chunk, chunk_of};
use super::input::{AGENT, CALLER, CONTEXT, input_of_step, message_in};
use super::parts::parts_of;
use super::stored::{blob_of, message_of};
use super::weights::Weights;
use crate::a2a::wire::{
    A2aArtifact, A2aArtifactUpdate, A2aMessage, A2aMetadata, A2aPart, A2aStatusUpdate, A2aTask,
    A2aTaskStatus, A2aUpdate, is_interrupted, is_settled, to_timestamp,
};

/// What progress is called in the metadata of an update.
const PROGRESS: &str = "tenure_progress";

/// What the messages that no worker has read are called in the metadata of a completed task (CTRL-12).
const UNREAD: &str = "tenure_unread_messages";

/// The name of the artifact that is the result of a task.
const OUTPUT: &str = "output";

/// Why a log cannot be folded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FoldError(String);

/// A task in the making. For each commit of the log, in order: [`begin`](Self::begin) or
/// [`replay`](Self::replay), then [`tell`](Self::tell).
#[derive(Debug, Clone)]
pub(crate) struct TaskFold {
    task: Task,
    shown: A2aTask,
    /// The artifacts of the Task that are shown.
    shown_artifacts: BTreeSet<ArtifactId>,
    /// The answer, if the worker gave one that is no artifact of a task (CTX-01).
    direct: Option<A2aMessage>,
    /// The references that were looked at for a message.
    heard: BTreeSet<Ref>,
    /// What the messages and the artifacts that are shown weigh.
    said: Weights,
    made: Weights,
    /// Whether something was left out.
    is_cut: bool,
}

/// What a commit brings beside a new state.
#[derive(Debug, Default)]
struct CommitNews {
    chunks: Vec<ArtifactChunk>,
    note: Option<Progress>,
}

impl TaskFold {
    /// The task at the first commit of its log.
    ///
    /// # Errors
    /// It is not the first commit of a log.
    pub(crate) fn begin(first: &Commit) -> Result<Self, FoldError> {
        let task = Task::restore(first).map_err(|illegal| FoldError(illegal.to_string()))?;
        let view = task.durable();
        let spec = &view.head().spec;
        let context = spec.labels.get(CONTEXT).map(ToString::to_string).unwrap_or_default();
        let status = A2aTaskStatus {
            state: A2aState::Submitted,
            message: None,
            timestamp: to_timestamp(first.created_at),
        };
        let shown = A2aTask {
            id: view.task_id().to_string(),
            context_id: context,
            status,
            artifacts: Vec::new(),
            history: Vec::new(),
            metadata: None,
        };
        let (shown_artifacts, direct, heard, said, made, is_cut) = Default::default();
        Ok(Self { task, shown, shown_artifacts, direct, heard, said, made, is_cut })
    }

    /// Takes the next commit.
    ///
    /// # Errors
    /// It does not follow.
    pub(crate) fn replay(&mut self, commit: &Commit) -> Result<(), FoldError> {
        Task::replay(&mut self.task, commit).map_err(|illegal| FoldError(illegal.to_string()))
    }

    /// The blobs that [`tell`](Self::tell) wants to read for the commit that was taken last, the newest first.
    pub(crate) fn wanted(&self, commit: &Commit) -> Vec<BlobHash> {
        let view = self.task.durable();
        let mut wanted = Vec::new();
        for event in commit.events.iter().rev() {
            match &event.body {
                Body::TaskCreated(_) => {
                    wanted.extend(message_input(&view).and_then(Value::blob).map(|it| it.hash));
                }
                Body::TaskCompleted(_) => {
                    wanted.extend(view.output().and_then(Value::blob).map(|it: Blob| it.hash));
                }
                body => {
                    let new = messages_to(body).iter().rev().filter(|it| !self.heard.contains(*it));
                    wanted.extend(new.filter_map(blob_of));
                }
            }
        }
        let mut known = BTreeSet::new();
        wanted.retain(|hash| known.insert(*hash));
        wanted
    }

    /// What the commit that was taken last tells, in order. An artifact comes before the status that it
    /// belongs to, so that the end of a task comes last.
    pub(crate) fn tell(&mut self, commit: &Commit, blobs: &BlobBytes) -> Vec<A2aUpdate> {
        let mut news = CommitNews::default();
        for event in &commit.events {
            self.hear(event, blobs, &mut news);
        }
        let mut updates: Vec<A2aUpdate> =
            news.chunks.into_iter().map(|chunk| self.add(chunk)).collect();
        updates.extend(self.restate(commit, news.note.as_ref()));
        updates
    }

    /// Leaves out the oldest of what was said, and of what was made, so that the rest of each takes at most so many
    /// bytes of memory. What is told of later commits stays the same.
    pub(crate) fn trim(&mut self, bytes_max: usize) {
        let (said, made) = (self.said.shrink(bytes_max), self.made.shrink(bytes_max));
        self.shown.history.drain(..said);
        self.shown.artifacts.drain(..made);
        self.is_cut |= said + made > 0;
    }

    /// Whether something was left out.
    pub(crate) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The task.
    pub(crate) const fn shown(&self) -> &A2aTask {
        &self.shown
    }

    /// The task, for somebody who needs nothing else.
    pub(crate) fn into_shown(self) -> A2aTask {
        self.shown
    }

    /// The answer that is no task, if the worker gave one.
    pub(crate) const fn direct(&self) -> Option<&A2aMessage> {
        self.direct.as_ref()
    }

    /// The version of the Task.
    pub(crate) fn version(&self) -> u64 {
        self.task.durable().version()
    }

    /// The version that changes with what orchestrators change alone (OCC-07).
    pub(crate) fn spec_version(&self) -> u64 {
        self.task.durable().spec_version()
    }

    /// Whether the task has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.durable().is_terminal()
    }

    /// Whether nothing more happens unless the caller says something: it has ended, or asks for something.
    pub(crate) fn is_settled(&self) -> bool {
        is_settled(self.shown.status.state)
    }

    /// Whether the task is one of this agent.
    pub(crate) fn is_of_agent(&self, agent: &str) -> bool {
        self.label(AGENT) == Some(agent)
    }

    /// Whether this caller has begun it.
    pub(crate) fn is_of_caller(&self, caller: &str) -> bool {
        self.label(CALLER) == Some(caller)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.task.durable().head().spec.labels.get(key).map(|value| value.as_str())
    }

    /// The Steps that wait for an answer or for a permission, in creation order.
    pub(crate) fn asking(&self) -> Vec<StepId> {
        asking(&self.task.durable()).map(|step| step.id().clone()).collect()
    }

    /// Notes what an event brings.
    fn hear(&mut self, event: &Event, blobs: &BlobBytes, news: &mut CommitNews) {
        if let Body::TaskCreated(_) = &event.body {
            let input = message_input(&self.task.durable()).cloned();
            self.remember(input.and_then(|input| message_in(&input, blobs)));
        }
        for reference in messages_to(&event.body) {
            if !self.heard.insert(reference.clone()) {
                continue; // It is in the history once, however often it is named.
            }
            let Some(message) = message_of(reference, blobs) else { continue };
            if is_interrupted(self.shown.status.state) {
                let question = self.shown.status.message.take();
                self.remember(question); // Before its answer.
            }
            self.remember(Some(message));
        }
        if let Some(facts) = facts_of(&event.body) {
            self.hear_artifacts(&facts.artifacts, news);
            news.note = facts.progress.clone().or(news.note.take());
        }
        match &event.body {
            Body::TaskProgress(told) => {
                self.hear_artifacts(&told.artifacts, news);
                news.note = told.progress.clone().or(news.note.take());
            }
            Body::StepTakenOver(taken) => self.hear_artifacts(&taken.artifacts, news),
            Body::TaskCompleted(ended) => {
                self.hear_artifacts(&ended.artifacts, news);
                self.hear_output(blobs, news);
            }
            _ => {}
        }
    }

    /// Adds to the history.
    fn remember(&mut self, message: Option<A2aMessage>) {
        let Some(message) = message else { return };
        self.said.note(self.shown.history.len(), &message, false);
        self.shown.history.push(message);
    }

    /// Notes artifacts. An address that is reported again is shown as it is now, because it may have changed (ART-01).
    /// Data never changes, and is shown once: it may be a chunk with others behind it.
    fn hear_artifacts(&mut self, given: &[ArtifactInput], news: &mut CommitNews) {
        for one in given {
            let view = self.task.durable();
            // A later report may say no more than that the artifact is there now (ART-01).
            let whole = view.artifact(&one.artifact_id).map(|known| known.given.clone());
            drop(view);
            let Some(whole) = whole else { continue };
            let Some(chunk) = chunk_of(&whole) else { continue };
            if self.shown_artifacts.insert(one.artifact_id.clone()) || whole.data.is_none() {
                news.chunks.push(chunk);
            }
        }
    }

    /// The result of the Task: an artifact, or a direct answer (CTX-01).
    fn hear_output(&mut self, blobs: &BlobBytes, news: &mut CommitNews) {
        let view = self.task.durable();
        let parts = view.output().map(|output| parts_of(output, blobs)).unwrap_or_default();
        if parts.is_empty() {
            return;
        }
        let id = format!("{}-{OUTPUT}", self.shown.id);
        let is_direct = replied_as(&view) == Some(ReplyKind::Direct);
        drop(view);
        if is_direct {
            // Whoever gets this answer learns of no task.
            let answer = A2aMessage::of_agent(id, &self.shown.context_id, "", parts);
            self.direct = Some(A2aMessage { task_id: None, ..answer });
            return;
        }
        let name = Some(OUTPUT.to_owned());
        let artifact = A2aArtifact { artifact_id: id, name, parts, ..A2aArtifact::default() };
        news.chunks.push(ArtifactChunk { artifact, append: false, last_chunk: true });
    }

    fn add(&mut self, chunk: ArtifactChunk) -> A2aUpdate {
        let place = add_chunk(&mut self.shown.artifacts, &chunk);
        self.made.note(place, &chunk.artifact, chunk.append);
        let ArtifactChunk { artifact, append, last_chunk } = chunk;
        A2aUpdate::ArtifactUpdate(A2aArtifactUpdate {
            task_id: self.shown.id.clone(),
            context_id: self.shown.context_id.clone(),
            artifact,
            append,
            last_chunk,
        })
    }

    /// The new status, if it is another one.
    fn restate(&mut self, commit: &Commit, note: Option<&Progress>) -> Option<A2aUpdate> {
        let (before, known) = (self.shown.status.state, self.words_now());
        let view = self.task.durable();
        let status = Facts::of(&view, &Known::new(commit.created_at, &|_| None)).status();
        let state = a2a_state(status, A2aFacts::of(&view)).unwrap_or(before);
        let goes_on = || known.clone().filter(|_| state == before && !is_settled(state));
        let said = self.words(&view, state).or_else(|| note.and_then(text_of)).or_else(goes_on);
        let unread = unread(&view);
        drop(view);
        if state == before && note.is_none() && said == known {
            return None;
        }
        self.set_status(state, said, commit);
        self.shown.metadata = unread.or(self.shown.metadata.take());
        Some(A2aUpdate::StatusUpdate(A2aStatusUpdate {
            task_id: self.shown.id.clone(),
            context_id: self.shown.context_id.clone(),
            status: self.shown.status.clone(),
            metadata: note.map(metadata_of),
        }))
    }

    /// What the agent says to a state. A direct answer is said with the end of the task, for those who have
    /// seen a task.
    fn words(&self, view: &View<'_>, state: A2aState) -> Option<Vec<A2aPart>> {
        let direct = self.direct.as_ref().map(|answer| answer.parts.clone());
        direct.or_else(|| words(view, state))
    }

    /// What the status says in words.
    fn words_now(&self) -> Option<Vec<A2aPart>> {
        self.shown.status.message.as_ref().map(|message| message.parts.clone())
    }

    /// Sets the status. A question that nobody will answer any more stays in the history; one that the agent still
    /// asks is not in it yet.
    fn set_status(&mut self, state: A2aState, said: Option<Vec<A2aPart>>, commit: &Commit) {
        let still_asks = is_interrupted(state) && said == self.words_now();
        let id = format!("{}-{}", self.shown.id, commit.last_seq());
        let message = said
            .map(|parts| A2aMessage::of_agent(id, &self.shown.context_id, &self.shown.id, parts));
        let status = A2aTaskStatus { state, message, timestamp: to_timestamp(commit.created_at) };
        let before = std::mem::replace(&mut self.shown.status, status);
        if is_interrupted(before.state) && !still_asks {
            self.remember(before.message);
        }
    }
}

/// The input of the Step that takes the message.
fn message_input<'a>(view: &View<'a>) -> Option<&'a Value> {
    view.steps().find_map(|step| input_of_step(step.spec.ext.as_ref(), step.spec.input.as_ref()))
}

/// The references that an event brings to the Task or a Step, messages among them.
fn messages_to(body: &Body) -> &[Ref] {
    match body {
        Body::TaskProgress(told) => &told.input_refs,
        Body::StepReopened(reopened) => &reopened.input_refs,
        _ => &[],
    }
}

/// What a worker reports beside a status.
fn facts_of(body: &Body) -> Option<&ReportFacts> {
    match body {
        Body::StepStarted(it) => it.report.as_deref(),
        Body::StepUpdated(it) => it.report.as_deref(),
        Body::StepBlocked(it) => it.report.as_deref(),
        Body::StepCompleted(it) => it.report.as_deref(),
        Body::StepFailed(it) => it.report.as_deref(),
        Body::StepCancelled(it) => it.report.as_deref(),
        _ => None,
    }
}

/// As what the Step replied whose output is the Task's.
fn replied_as(view: &View<'_>) -> Option<ReplyKind> {
    result_step(view)?.facts().reply
}

/// The Step whose result is the Task's: the one that is named, or the only one that there is.
fn result_step<'a>(view: &View<'a>) -> Option<StepRef<'a>> {
    let head = view.head();
    if let Some(named) = head.output_from.as_ref().or(head.spec.output_from.as_ref()) {
        return view.step(named);
    }
    let mut all = view.steps();
    all.next().filter(|_| all.next().is_none())
}

/// Blocked Steps that wait for the caller, in creation order.
fn asking<'a>(view: &'a View<'a>) -> impl Iterator<Item = StepRef<'a>> + 'a {
    view.blocked().filter(|step| {
        step.status() == StepStatus::Blocked
            && matches!(step.state.wait_kind, Some(WaitKind::Input | WaitKind::Permission))
    })
}

/// What the agent says to a state: its question, the summary of its result, or why it has failed.
fn words(view: &View<'_>, state: A2aState) -> Option<Vec<A2aPart>> {
    let head = view.head();
    match state {
        A2aState::InputRequired | A2aState::AuthRequired => {
            let reason = asking(view).find_map(|step| step.facts().status_reason.as_ref())?;
            Some(question(reason))
        }
        A2aState::Completed => {
            let of_step = || result_step(view)?.facts().result_summary.clone();
            let text = head.result_summary.clone().or_else(of_step)?;
            Some(vec![A2aPart::text(&*text)])
        }
        A2aState::Failed | A2aState::Rejected => {
            // Of a Step that has failed the worker says why, and of the Task no more than which Step it was.
            let of_step = view.failed().find_map(|step| step.facts().status_reason.as_ref());
            why(of_step.or(head.status_reason.as_deref())?)
        }
        A2aState::Canceled => why(head.status_reason.as_deref()?),
        A2aState::Submitted | A2aState::Working => None,
    }
}

/// Why a task has ended, if anybody has said more than a code.
fn why(reason: &Reason) -> Option<Vec<A2aPart>> {
    let is_told = !reason.message.is_empty() && reason.message != reason.code.as_str();
    is_told.then(|| vec![A2aPart::text(&*reason.message)])
}

/// A question, with its details for programs.
fn question(reason: &Reason) -> Vec<A2aPart> {
    let details = reason.details.as_ref().filter(|details| !details.is_empty()).map(|details| {
        A2aPart::of(crate::a2a::wire::A2aContent::Data(Json::Object(details.clone())))
    });
    [A2aPart::text(&*reason.message)].into_iter().chain(details).collect()
}

/// Progress in words.
fn text_of(note: &Progress) -> Option<Vec<A2aPart>> {
    let text = note.summary.as_ref().or(note.current_step.as_ref())?;
    Some(vec![A2aPart::text(&**text)])
}

/// Progress for programs.
fn metadata_of(note: &Progress) -> A2aMetadata {
    let progress = json!({
        "percent": note.percent,
        "phase": note.phase,
        "summary": note.summary,
        "current_step": note.current_step,
    });
    let told = progress.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let told: A2aMetadata = told.map(|(name, value)| (name.clone(), value.clone())).collect();
    A2aMetadata::from_iter([(PROGRESS.to_owned(), Json::Object(told))])
}

/// How many messages no worker has read, of a completed task (CTRL-12).
fn unread(view: &View<'_>) -> Option<A2aMetadata> {
    let head = view.head();
    let unread =
        head.unread_input_refs.as_ref().filter(|_| head.status == TaskStatus::Completed)?;
    Some(A2aMetadata::from_iter([(UNREAD.to_owned(), unread.len().into())]))
}

#[cfg(test)]
mod tests;
