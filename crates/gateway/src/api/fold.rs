//! Folds the log of a Task here, for the questions that no operation of the bus answers: what a patch would
//! do, and the parts of a Task that is too long for an answer.

use std::collections::HashMap;

use tenure_core::id::{AttemptId, Millis, TaskId};
use tenure_core::view::{Known, LeaseFact, TaskView};
use tenure_core::{Code, Limits, Rejection, RejectionKind, Task};
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;

/// A Task as its log says, and what its owner said beside it.
#[derive(Debug)]
pub(super) struct LogReplica {
    /// The Task.
    pub(super) task: Task,
    /// The owner's clock.
    now: Millis,
    /// How long leases of open Attempts still last, in milliseconds.
    leases: HashMap<AttemptId, u64>,
    wal_path: Option<String>,
    steps_max: Option<usize>,
}

impl LogReplica {
    /// Reads the log of a Task, page by page, to its end.
    ///
    /// # Errors
    /// `task_not_found`; the log cannot be read.
    pub(super) async fn read<P: ClientPort>(
        client: &Client<P>,
        id: &TaskId,
    ) -> Result<Self, Rejection> {
        let (mut task, mut after) = (None, 0);
        loop {
            let page = client.port().log(id, after).await?;
            for commit in &page.commits {
                let replayed = match &mut task {
                    Some(task) => Task::replay(task, commit),
                    None => Task::restore(commit).map(|begun| task = Some(begun)),
                };
                replayed.map_err(|illegal| broken(id, &illegal.to_string()))?;
                after = commit.last_seq();
            }
            if page.more && !page.commits.is_empty() {
                continue;
            }
            let task = task.ok_or_else(|| broken(id, "it is empty"))?;
            let leases = page.leases.into_iter().collect();
            let (now, wal_path, steps_max) = (page.now, page.wal_path, page.steps_max);
            return Ok(Self { task, now, leases, wal_path, steps_max });
        }
    }

    /// The limits of the owner, as far as it says them.
    pub(super) fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits { steps_max: self.steps_max.unwrap_or(default.steps_max), ..default }
    }

    /// Looks at the Task with what is known beside its log.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Task, &Known<'_>) -> T) -> T {
        let lease = |attempt: AttemptId| {
            let left = *self.leases.get(&attempt)?;
            let expires_at = self.now.saturating_add_unsigned(left);
            Some(LeaseFact { expires_at, valid: left > 0 })
        };
        let known = Known { wal_path: self.wal_path.as_deref(), ..Known::new(self.now, &lease) };
        look(&self.task, &known)
    }

    /// The whole Task.
    pub(super) fn view(&self) -> TaskView {
        self.look(|task, known| TaskView::of(&task.durable(), known))
    }
}

fn broken(task: &TaskId, why: &str) -> Rejection {
    let message = format!("the log of task {task} cannot be folded: {why}");
    Rejection::new(Code::StorageError, message).of_kind(RejectionKind::ReplayFailed)
}
