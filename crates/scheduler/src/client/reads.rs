//! Reads that look at more than how a Task stands: lists, explanations, histories.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::command::{Operator, check_tool};
use tenure_core::id::TaskId;
use tenure_core::view::explain::ForWhom;
use tenure_core::view::{
    ExplainInput, Explanation, InspectInput, Inspection, Known, ListInput, ReplayInput, TaskPage,
    TaskSummary, TaskView, explain, inspect, list_entry, timeline,
};
use tenure_core::{Caller, Code, Commit, Rejection, Task};
use tenure_ports::journal::{Entry, TaskKey};
use tenure_ports::{Journal, Leases};

use super::{ClientLink, PAGE_EVENTS};
use crate::task::open::{load_until, unreadable};

impl<J: Journal, L: Leases> ClientLink<J, L> {
    /// `agent.task_list` of these Tasks of the session, at most so many. No log is read of a Task of
    /// which the index tells that it is before the page, or of one behind it, and no more of ended ones
    /// than `most`: where so many do not belong into the list, it is cut short (LIST-07).
    ///
    /// # Errors
    /// Not for this caller; `validation_error` for the input.
    pub async fn tasks_page(
        &self,
        entries: Vec<Entry>,
        input: &ListInput,
        most: usize,
    ) -> Result<TaskPage, Rejection> {
        self.may_list()?;
        let limit = input.limit(&self.scheduler.node.config.limits)?.min(most);
        let (mut page, mut passed, mut opened) = (TaskPage::default(), 0, 0);
        for entry in Entry::in_order(entries, input) {
            let is_told = !entry.damaged && input.is_told_by_index(entry.ended.is_some());
            if passed < input.offset && is_told {
                passed += 1;
                continue;
            }
            opened += usize::from(entry.ended.is_some());
            if opened > most.saturating_add(1) {
                page.cut(input.offset, page.tasks.len());
                break;
            }
            let task = &entry.key.task_id;
            match self.line(task).await {
                Ok(line) if !input.admits(line.listed()) => {}
                Ok(_) if passed < input.offset => passed += 1,
                Ok(_) if page.tasks.len() == limit => {
                    page.cut(input.offset, limit);
                    break;
                }
                Ok(line) => page.tasks.push(line),
                Err(gone) if gone.code == Code::TaskNotFound => {}
                Err(broken) if broken.code == Code::StorageError => {
                    page.unreadable.push(task.clone());
                }
                Err(refused) => return Err(refused),
            }
        }
        Ok(self.fit(page, |page| page.halve(input.offset)))
    }

    async fn line(&self, task: &TaskId) -> Result<TaskSummary, Rejection> {
        let look = |task: &Task, caller: &Caller, known: &Known<'_>| {
            list_entry(&task.durable(), caller, known)
        };
        self.look(task, look).await?
    }

    pub(super) async fn explained(
        &self,
        task: &TaskId,
        input: ExplainInput,
    ) -> Result<Explanation, Rejection> {
        check_tool(&self.caller, Operator::InspectTask)?;
        let scheduler = self.scheduler.clone();
        let look = move |task: &Task, _: &Caller, known: &Known<'_>| {
            let view = task.durable();
            let step = view.step(&input.step_id).filter(|_| !view.status().is_terminal());
            let pool = step.map(|step| scheduler.pool_facts(&step.spec.worker_pool_id));
            let whom = ForWhom { run_id: input.run_id, worker: input.worker_id.as_ref(), pool };
            explain(&view, &input.step_id, whom, known)
        };
        self.look(task, look).await?
    }

    pub(super) async fn inspected(
        &self,
        task: &TaskId,
        input: InspectInput,
    ) -> Result<Inspection, Rejection> {
        check_tool(&self.caller, Operator::InspectTask)?;
        let key = self.key(task);
        self.version(&key).await?; // There is such a Task.
        let (range, last) = (input.range(), *input.range().end());
        let commits = self.commits_within(&key, range.clone()).await?;
        let told = timeline(&key.session_id, task, &commits, range);
        let look = move |task: &Task, _: &Caller, known: &Known<'_>| {
            inspect(&task.durable(), told, last, known)
        };
        let history = self.look(task, look).await?;
        Ok(self.fit(history, Inspection::halve))
    }

    pub(super) async fn replayed(
        &self,
        task: &TaskId,
        input: ReplayInput,
    ) -> Result<TaskView, Rejection> {
        check_tool(&self.caller, Operator::InspectTask)?;
        let key = self.key(task);
        let version = self.version(&key).await?;
        let seq = match input.to_seq {
            Some(0) => return Err(Rejection::invalid("to_seq", "the first event is 1")),
            given => given.unwrap_or(version).min(version),
        };
        let journal = self.scheduler.journal();
        let task = load_until(&**journal, &key, seq).await.map_err(|error| unreadable(&error))?;
        Ok(self.fit(TaskView::as_it_was(&task.durable()), TaskView::shorten_as_it_was))
    }

    async fn version(&self, key: &TaskKey) -> Result<u64, Rejection> {
        self.scheduler.read(key, |task| task.durable().version()).await
    }

    /// The commits that have these events, from the first on, as many as a page has. What lies before
    /// and behind a page is not read for it.
    pub(super) async fn commits_within(
        &self,
        key: &TaskKey,
        events: RangeInclusive<u64>,
    ) -> Result<Vec<Commit>, Rejection> {
        let first = (*events.start()).max(1);
        let last = (*events.end()).min(first.saturating_add(PAGE_EVENTS - 1));
        let read: Arc<Mutex<Vec<Commit>>> = Arc::default();
        let into = Arc::clone(&read);
        let each = move |commit| {
            into.lock().push(commit);
            ControlFlow::Continue(())
        };
        let journal = self.scheduler.journal();
        let read_part = journal.read_part(key, first..=last, each);
        read_part.await.map_err(|error| unreadable(&error))?;
        let commits = std::mem::take(&mut *read.lock());
        Ok(commits)
    }
}
