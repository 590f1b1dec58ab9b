//! Reads the Task of a call.

use tenure_core::id::TaskId;
use tenure_core::view::TaskView;
use tenure_core::{Code, Rejection, RejectionKind, Task};
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;

/// A Task in full. One that is too long for an answer is made of its log.
///
/// # Errors
/// There is no such Task, or it cannot be read.
pub(super) async fn load<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
) -> Result<TaskView, Rejection> {
    let view = client.get(task).await?;
    match view.left_out {
        None => Ok(view),
        Some(_) => Box::pin(load_log(client, task)).await,
    }
}

async fn load_log<P: ClientPort>(client: &Client<P>, task: &TaskId) -> Result<TaskView, Rejection> {
    let broken = |why: String| {
        let message = format!("the log of task {task} cannot be folded: {why}");
        Rejection::new(Code::StorageError, message).of_kind(RejectionKind::ReplayFailed)
    };
    let (mut fold, mut after) = (None, 0);
    loop {
        let page = client.port().log(task, after).await?;
        for commit in &page.commits {
            after = commit.last_seq();
            match &mut fold {
                None => fold = Some(Task::restore(commit).map_err(|it| broken(it.to_string()))?),
                Some(task) => {
                    Task::replay(task, commit).map_err(|it| broken(it.to_string()))?;
                }
            }
        }
        if !page.more || page.commits.is_empty() {
            let fold = fold.ok_or_else(|| broken("it is empty".into()))?;
            return Ok(TaskView::as_it_was(&fold.durable()));
        }
    }
}
