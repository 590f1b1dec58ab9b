//! The first reason for which nothing of a Task runs, in words.

use tenure_core::Task;
use tenure_core::eligibility::Obstacle;
use tenure_core::id::{Millis, StepId};
use tenure_core::view::explain::{ForWhom, Group, Remedy};
use tenure_core::view::{ExplainTaskInput, Known, TaskExplanation, View, explain_task};
use tenure_ports::ClientPort as _;
use tenure_ports::erased::ErasedClient;
use tenure_sdk::client::Client;

use crate::answer::human;
use crate::task::describe;

/// How many remedies a line names.
const REMEDIES_MAX: usize = 3;

/// The most decisive of the reasons for which no Step runs.
#[derive(Debug)]
pub(crate) struct WaitReason {
    /// The reason.
    pub(crate) text: String,
    /// Its code; none of what keeps the Task as a whole from completing.
    code: Option<Obstacle>,
    /// A Step that waits for this reason, and how many do; none where the Task as a whole waits.
    step: Option<(StepId, usize)>,
    remedies: Vec<Remedy>,
}

impl WaitReason {
    /// Finds it from the log alone; `None` if nothing is in the way, or if it cannot be said.
    pub(crate) fn of(task: &View<'_>, now: Millis) -> Option<Self> {
        let known = Known::new(now, &|_| None);
        Self::first_of(explain_task(task, ForWhom::default(), &known).ok()?)
    }

    /// The first of an explanation.
    pub(crate) fn first_of(told: TaskExplanation) -> Option<Self> {
        if let Some(first) = told.hindrances.into_iter().next() {
            let (text, remedies) = (first.text, first.remedies);
            return Some(Self { text, code: None, step: None, remedies });
        }
        // What only waits for another Step does not say what that one waits for.
        let is_root = |group: &&Group| group.headline != Obstacle::DependencyPending;
        let group = told.groups.iter().find(is_root).or(told.groups.first())?.clone();
        let first = group.example.reasons.into_iter().next()?;
        let step = Some((group.example.step_id, group.count));
        Some(Self { text: first.text, code: Some(first.code), step, remedies: first.remedies })
    }

    /// The operations that would change it, as the beginning of a sentence.
    pub(crate) fn ways(&self) -> String {
        let ways: Vec<String> = self.remedies.iter().take(REMEDIES_MAX).map(describe).collect();
        match ways.is_empty() {
            true => String::new(),
            false => format!("this would change it: {}; ", ways.join("; or ")),
        }
    }

    /// Whether another says the same, though with other times.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.code, &self.step, &self.remedies) == (other.code, &other.step, &other.remedies)
    }

    /// A line for somebody who watches the Task.
    pub(super) fn line(&self) -> String {
        let who = match &self.step {
            Some((step, 1)) if !self.text.starts_with("step ") => format!("step {step}: "),
            Some((step, count)) if *count > 1 => format!("step {step} and {} more: ", count - 1),
            _ => String::new(),
        };
        let (text, ways) = (human::one_line(&self.text), self.ways());
        let ways = ways.strip_suffix("; ").map(|ways| format!("; {ways}")).unwrap_or_default();
        format!("waiting: {who}{text}{ways}")
    }
}

/// Asks the owner of a Task of a cluster, which knows the workers.
pub(crate) async fn reason_from_owner(
    client: &Client<ErasedClient>,
    task: &Task,
) -> Option<WaitReason> {
    let whom = ExplainTaskInput { run_id: None, worker_id: None };
    let told: TaskExplanation = client.port().ask(task.task_id(), whom).await.ok()?;
    WaitReason::first_of(told)
}

/// Finds the reason in the log of a Task in a directory.
pub(crate) async fn reason_from_log(task: &Task) -> Option<WaitReason> {
    WaitReason::of(&task.durable(), human::now())
}
