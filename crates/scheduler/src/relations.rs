//! Looks up what a command says of other Tasks, before the Task itself judges the command: the core
//! decides, and the facts are gathered here.
//!
//! Step 4 of the walk in docs/architecture.md.

use std::collections::BTreeSet;

use tenure_core::command::create::{CreateTask, Defaults, Parent};
use tenure_core::command::references::unknown_artifact;
use tenure_core::command::relate::check_blocks;
use tenure_core::command::{Cx, Link, Operator, RetryEnded, check_tool};
use tenure_core::id::{ArtifactId, Digest, Millis, Ref, SessionId, TaskId};
use tenure_core::status::Policy;
use tenure_core::view::View;
use tenure_core::{Caller, Code, Command, Rejection, RejectionKind, Task};
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};

use crate::ask::{Envelope, WriteAnswer};
use crate::handle::{Lane, Scheduler};

/// How many Tasks are read at most in search of a cycle of blocking Tasks.
const LOOKED_AT_MAX: usize = 1_000;

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// `retry_task` on a Task that has ended: makes the same DAG again as a new Task, with an edge
    /// `retry_of`; the old one is untouched (RETRY-12). With `keep_completed` the new Task takes over what
    /// is completed (RETRY-15).
    ///
    /// # Errors
    /// The refusals of `retry_task` and of a create; `invalid_transition` while the old Task lives.
    pub async fn retry(
        &self,
        envelope: Envelope,
        new: TaskId,
        how: RetryEnded,
    ) -> Result<WriteAnswer, Rejection> {
        check_tool(&envelope.caller, Operator::RetryTask)?;
        let old = key(&envelope.caller.session_id, &how.retry_of);
        let permit = self.permit(Lane::Creates, &envelope.caller)?;
        let made = key(&envelope.caller.session_id, &new);
        let rules = self.node.limits_of(&made).rules;
        let read = move |task: &View<'_>| task.retry_input(new, &how, rules);
        let input = self.look(&old, read).await??;
        self.copy_blobs(&old, &key(&old.session_id, input.task_id()?), input.blobs()).await?;
        self.create_in(permit, envelope, Box::new(input), Policy::Auto).await
    }

    /// Has a Task that is about to be made take over the completed Steps of an ended one that it has
    /// unchanged (RETRY-15), and gives it their blobs.
    ///
    /// # Errors
    /// The old Task lives or cannot be read, or a blob cannot be copied.
    pub async fn take_over(
        &self,
        old: &TaskKey,
        mut new: CreateTask,
    ) -> Result<CreateTask, Rejection> {
        let read = move |task: &View<'_>| task.take_over_into(&mut new).map(|()| new);
        let new = self.look(old, read).await??;
        let to = key(&old.session_id, new.task_id()?);
        self.copy_blobs(old, &to, new.blobs()).await?;
        Ok(new)
    }

    /// What a new Task needs to know of its parent. The parent records the child before the child
    /// is made, so that no child is unknown to its parent, whatever breaks off then (REL-05). For a
    /// repetition the parent records nothing again.
    ///
    /// # Errors
    /// What a create of this Task would be refused with, before the parent records anything; the
    /// parent cannot be asked, or cannot record the child.
    pub(crate) async fn parent_of(
        &self,
        child: &TaskKey,
        (envelope, digest): (&Envelope, Option<Digest>),
        (input, defaults): (&CreateTask, &Defaults),
        is_new: bool,
    ) -> Result<Option<Parent>, Rejection> {
        let Some(parent) = &input.parent_task_id else { return Ok(None) };
        let (parent, id) = (key(&child.session_id, parent), &child.task_id);
        let known = found(match self.node.is_elsewhere(&parent) {
            Some(peers) => peers.parent(&parent, id).await,
            None => {
                Box::pin(self.recall(&parent, &envelope.caller)).await?;
                Box::pin(self.parent(&parent, id)).await
            }
        })?;
        if !is_new || !known.as_ref().is_some_and(|known| known.adopts) {
            return Ok(known);
        }
        let cx = Cx {
            caller: &envelope.caller,
            stamp: self.node.clock.stamp(self.node.clock.lead(Millis::MIN)),
            command_id: envelope.command_id(),
            digest,
            expected_version: envelope.expected_version(),
            expected_spec_version: envelope.expected_spec_version(),
            trace: None,
            epoch: 0,
            limits: self.node.limits_of(child),
        };
        // A rehearsal: the parent records no child that would be refused.
        Task::create(&cx, input, defaults, known.as_ref())?;
        found(match self.node.is_elsewhere(&parent) {
            Some(peers) => peers.record(&parent, id).await,
            None => Box::pin(self.record(&parent, id)).await,
        })
    }

    /// Refuses a command that refers to what does not exist.
    pub(crate) async fn check_relations(
        &self,
        of: &TaskKey,
        caller: &Caller,
        command: &Command,
    ) -> Result<(), Rejection> {
        if let Command::LinkTasks(link) = command {
            Box::pin(self.in_turn(caller, self.check_link(of, link))).await??;
        }
        self.check_artifacts(caller, command.foreign_artifacts(&of.task_id)).await?;
        self.check_blobs(of, command.blobs()).await
    }

    /// Refuses artifacts of other Tasks that do not exist (ART-05).
    pub(crate) async fn check_artifacts(
        &self,
        caller: &Caller,
        artifacts: Vec<(TaskId, ArtifactId)>,
    ) -> Result<(), Rejection> {
        for (task, artifact) in artifacts {
            let (key, id) = (key(&caller.session_id, &task), artifact.clone());
            let look = Box::pin(self.look(&key, move |task| task.artifact(&id).is_some()));
            let has = if self.node.is_elsewhere(&key).is_some() {
                self.in_turn(caller, look).await?
            } else {
                Box::pin(self.recall(&key, caller)).await?;
                look.await
            };
            // RECOVER-04: a Task that cannot be read counts as having no artifacts.
            if found(has.or_else(damaged_has_none))? != Some(true) {
                return Err(unknown_artifact(&Ref::new(format!("{task}/{artifact}"))?));
            }
        }
        Ok(())
    }

    /// Refuses a link whose other end does not exist, or with which Tasks would visibly block each
    /// other in a cycle (REL-06).
    async fn check_link(&self, from: &TaskKey, link: &Link) -> Result<(), Rejection> {
        // The link's end is not a Task.
        let Ok(to) = TaskId::new(link.to.as_str()) else { return Ok(()) };
        if to != from.task_id {
            self.look(&key(&from.session_id, &to), |_| ()).await?;
        }
        let Some((blocker, blocked)) = link.blocking(&from.task_id) else { return Ok(()) };
        let edges = self.blocking(&from.session_id, [&blocker, &blocked]).await?;
        check_blocks(&blocker, &blocked, &edges)
    }

    /// The `blocks` edges around two Tasks, each as blocker and blocked, found by following them
    /// from Task to Task.
    async fn blocking(
        &self,
        session: &SessionId,
        ends: [&TaskId; 2],
    ) -> Result<Vec<(TaskId, TaskId)>, Rejection> {
        let mut seen: BTreeSet<TaskId> = ends.iter().copied().cloned().collect();
        let mut work: Vec<TaskId> = seen.iter().cloned().collect();
        let mut edges = Vec::new();
        while let Some(task) = work.pop() {
            let blocks = |task: &View<'_>| task.blocking_edges();
            let stored = found(self.look(&key(session, &task), blocks).await)?;
            for (blocker, blocked) in stored.unwrap_or_default() {
                for end in [&blocker, &blocked] {
                    if seen.len() < LOOKED_AT_MAX && seen.insert(end.clone()) {
                        work.push(end.clone());
                    }
                }
                edges.push((blocker, blocked));
            }
        }
        if seen.len() >= LOOKED_AT_MAX {
            let [blocker, blocked] = ends;
            tracing::warn!(%blocker, %blocked, "not all tasks that block each other were looked at");
        }
        Ok(edges)
    }
}

fn key(session: &SessionId, task: &TaskId) -> TaskKey {
    TaskKey { session_id: session.clone(), task_id: task.clone() }
}

/// A damaged log stays unreadable however often it is read, so its Task counts as having nothing.
fn damaged_has_none(refused: Rejection) -> Result<bool, Rejection> {
    match refused.kind() {
        Some(RejectionKind::ReplayFailed) => Ok(false),
        _ => Err(refused),
    }
}

/// A Task that does not exist is an answer, not a failure.
fn found<T>(read: Result<T, Rejection>) -> Result<Option<T>, Rejection> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(rejection) if rejection.code == Code::TaskNotFound => Ok(None),
        Err(rejection) => Err(rejection),
    }
}
