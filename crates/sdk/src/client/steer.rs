//! The client's commands that steer a Task: one method for each command of an orchestrator.

use tenure_core::command::{
    AppendProgress, Dispatch, KeepFact, Link, RetryEnded, RetrySteps, RunAndWhy, StepReport,
    Unlink, Why,
};
use tenure_core::id::{EdgeId, Ref, RunId, StepId, TaskId};
use tenure_core::patch::{Operation, ReasonInput};
use tenure_core::status::EdgeKind;
use tenure_core::view::board::{compose, template};
use tenure_core::view::{Board, BoardInput, Snapshot, ViewName, ViewsInput, WriteSummary};
use tenure_core::{Command, Context, Rejection};
use tenure_ports::ClientPort;

use super::Client;
use crate::answer;

/// The code of a reopening that brings an answer (A2A-10).
const INPUT_RECEIVED: &str = "input_received";

impl<P: ClientPort> Client<P> {
    /// Pauses a Task: no more of its Steps are dispatched, and running ones go on.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn pause(&self, task: &TaskId, why: &str) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::PauseTask(because(why))).await
    }

    /// Resumes a paused Task.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn resume(&self, task: &TaskId, why: &str) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::ResumeTask(because(why))).await
    }

    /// Blocks a Task, because it waits for something: none of its Steps is dispatched until it is
    /// reopened.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn block(&self, task: &TaskId, why: &str) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::BlockTask(because(why))).await
    }

    /// Reopens a blocked Task.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn reopen(&self, task: &TaskId, why: &str) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::ReopenTask(because(why))).await
    }

    /// Archives an ended Task.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn archive(&self, task: &TaskId) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::ArchiveTask(Why::default())).await
    }

    /// Tries failed Steps of a live Task again: those that are named, or all.
    ///
    /// # Errors
    /// Why the scheduler refuses it: none of them has failed, for one.
    pub async fn retry(
        &self,
        task: &TaskId,
        steps: &[StepId],
        why: &str,
    ) -> Result<WriteSummary, Rejection> {
        let step_ids = (!steps.is_empty()).then(|| steps.to_vec());
        let retry = RetrySteps { reason: reason(why), step_ids };
        self.command(task, Command::RetryTask(retry)).await
    }

    /// Makes a Task that has ended again, as `new` (RETRY-12): the same DAG with all Steps pending,
    /// and an edge `retry_of`. The old Task does not change.
    ///
    /// # Errors
    /// Why the scheduler refuses it: it is live, or there is such a Task as the new one.
    pub async fn retry_ended(
        &self,
        old: &TaskId,
        new: TaskId,
        why: &str,
    ) -> Result<WriteSummary, Rejection> {
        let input = RetryEnded {
            deadline_at: None,
            deadline_ms: None,
            keep_completed: false,
            reason: reason(why),
            retry_of: old.clone(),
            wal_name: None,
        };
        self.retry_ended_as(new, self.context()?, input).await
    }

    /// The same under a given command id, with a reason that may have a code and details, all of which the
    /// edge stores, with another deadline, and whether to take over what is completed.
    ///
    /// # Errors
    /// As [`retry_ended`](Self::retry_ended).
    pub async fn retry_ended_as(
        &self,
        new: TaskId,
        context: Context,
        input: RetryEnded,
    ) -> Result<WriteSummary, Rejection> {
        self.port.write(&new, context, input).await
    }

    /// Relates a Task to another of its session, or to something elsewhere.
    ///
    /// # Errors
    /// Why the scheduler refuses it: there is no such Task, or the relation would close a cycle.
    pub async fn link(
        &self,
        task: &TaskId,
        kind: EdgeKind,
        to: Ref,
    ) -> Result<WriteSummary, Rejection> {
        self.link_as(task, Link { kind, reason: None, to }).await
    }

    /// The same with a reason.
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub async fn link_as(&self, task: &TaskId, link: Link) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::LinkTasks(link)).await
    }

    /// Removes a relation.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn unlink(&self, task: &TaskId, edge_id: EdgeId) -> Result<WriteSummary, Rejection> {
        self.unlink_as(task, Unlink { edge_id, reason: None }).await
    }

    /// The same with a reason.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink).
    pub async fn unlink_as(
        &self,
        task: &TaskId,
        unlink: Unlink,
    ) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::UnlinkTasks(unlink)).await
    }

    /// Dispatches a Run: a licence for one worker of a pool to claim one Step, of those in
    /// `allowed_step_ids` if there are any. The answer has its `run_id`. With `wait` the answer
    /// comes when the Run has ended, and has in `run_end` how it ended and the result of the Run
    /// itself (DISP-13).
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn dispatch(
        &self,
        task: &TaskId,
        dispatch: Dispatch,
    ) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::DispatchWorker(dispatch)).await
    }

    /// Cancels a Run, and asks its worker to stop if it has one.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn cancel_run(
        &self,
        task: &TaskId,
        run_id: RunId,
        why: &str,
    ) -> Result<WriteSummary, Rejection> {
        let because = RunAndWhy { reason: some(why), run_id };
        self.command(task, Command::CancelRun(because)).await
    }

    /// Cancels a Step that no worker holds.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn cancel_step(
        &self,
        task: &TaskId,
        step_id: StepId,
        why: &str,
    ) -> Result<WriteSummary, Rejection> {
        let cancel = Operation::CancelStep { reason: some(why), step_id };
        self.update(task, vec![cancel]).await
    }

    /// Reopens a blocked or failed Step.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn reopen_step(
        &self,
        task: &TaskId,
        step_id: StepId,
        why: &str,
    ) -> Result<WriteSummary, Rejection> {
        let input_refs = Vec::new();
        let reopen = Operation::ReopenStep { input_refs, reason: some(why), step_id };
        self.update(task, vec![reopen]).await
    }

    /// Answers a Step that asked for input: the Step goes on, and its next Attempt finds the answer
    /// in [`StepContext::answers`](crate::worker::StepContext::answers).
    ///
    /// # Errors
    /// Why the scheduler refuses it: the Step is not blocked or failed, or the answer is longer
    /// than a reference may be (some 3 KB). Store a longer one elsewhere, and answer with its
    /// address.
    pub async fn answer(
        &self,
        task: &TaskId,
        step_id: StepId,
        text: &str,
    ) -> Result<WriteSummary, Rejection> {
        self.update(task, vec![answering(step_id, text)?]).await
    }

    /// Reports on a Step as the orchestrator: its status, results, progress (3.2).
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn report(
        &self,
        task: &TaskId,
        report: StepReport,
    ) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::TaskUpdateStep(report)).await
    }

    /// Adds progress, artifacts, evidence, late input or the state of delivery to a Task.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn note(
        &self,
        task: &TaskId,
        facts: AppendProgress,
    ) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::AppendTaskProgress(facts)).await
    }

    /// Keeps a fact with a Task, of which the scheduler makes nothing ([`facts`](Self::facts)).
    ///
    /// # Errors
    /// Why the scheduler refuses it: the Task has ended, or the fact is too large.
    pub async fn keep_fact(
        &self,
        task: &TaskId,
        fact: KeepFact,
    ) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::TaskFact(fact)).await
    }

    /// Views of all live Tasks of the session and of the newest ended ones; none named: all views.
    /// The second value names partitions that did not answer.
    ///
    /// # Errors
    /// The caller may not read them.
    pub async fn views(&self, views: &[ViewName]) -> Result<(Snapshot, Vec<u32>), Rejection> {
        self.views_of(ViewsInput::of(views)).await
    }

    /// The same for some of the Tasks: those in some statuses, or those that users see (VIEW-10).
    /// The counts of `task_summary` do not depend on this choice.
    ///
    /// # Errors
    /// As [`views`](Self::views).
    pub async fn views_of(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        self.port.views(input).await
    }

    /// A short text about these Tasks, for the context of a model (PROMPT): within the budget of
    /// the scheduler's configuration, or a smaller one.
    ///
    /// # Errors
    /// There is no such Task as one of them, or the budget is above the configured one.
    pub async fn board(&self, tasks: &[TaskId], input: BoardInput) -> Result<Board, Rejection> {
        let mut lines = Vec::new();
        for task in tasks {
            lines.push(self.port.ask(task, input).await?);
        }
        Ok(compose(&lines, input.budget_of(&lines)))
    }

    /// CTRL-10: how to write a Task, for the context of a model. The text is built in, so this
    /// sends no request.
    pub fn template() -> Board {
        template()
    }
}

/// The operation that [`Client::answer`] sends, for a patch that has others too.
///
/// # Errors
/// The answer is longer than a reference may be.
pub fn answering(step_id: StepId, text: &str) -> Result<Operation, Rejection> {
    let received = ReasonInput { code: Some(INPUT_RECEIVED.into()), ..reason("") };
    let input_refs = vec![answer::to_ref(text)?];
    Ok(Operation::ReopenStep { input_refs, reason: Some(received), step_id })
}

fn because(why: &str) -> Why {
    Why { reason: some(why) }
}

fn some(why: &str) -> Option<ReasonInput> {
    (!why.is_empty()).then(|| reason(why))
}

fn reason(why: &str) -> ReasonInput {
    ReasonInput { code: None, details: None, message: why.to_owned(), retryable: None }
}
