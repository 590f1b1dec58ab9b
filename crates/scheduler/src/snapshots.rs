//! Makes snapshots of Tasks for a journal that stores them, so that a long Task need not be read
//! from its first commit (mechanisms 5).

use std::sync::Arc;

use tenure_core::Task;
use tenure_core::view::View;
use tenure_ports::journal::{EncodedSnapshot, TaskKey};
use tenure_ports::{Journal, Leases};
use tenure_wire::stored::{SnapshotError, encode_snapshot};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::node::NodeShared;
use crate::task::{Msg, ReadFn};

/// Gives the journal the snapshots that it wants, one after another, so that only one Task is in
/// memory twice.
pub(crate) fn store_snapshots<J: Journal, L: Leases>(
    node: &Arc<NodeShared<J, L>>,
) -> Option<JoinHandle<()>> {
    let mut wanted = node.journal.wanted()?;
    let node = Arc::downgrade(node);
    Some(tokio::spawn(async move {
        while let Some(wanted) = wanted.recv().await {
            let Some(node) = node.upgrade() else { return };
            let Some(task) = copy(&node, &wanted.key).await else { continue };
            match spawn_blocking(move || fold(task)).await {
                Ok(Ok(folded)) => node.journal.keep(&wanted.key, folded).await,
                Ok(Err(error)) => {
                    tracing::error!(task = %wanted.key, %error, "its snapshot is not stored")
                }
                Err(error) => {
                    tracing::error!(task = %wanted.key, %error, "its snapshot is not stored")
                }
            }
        }
    }))
}

/// A copy of a live Task as it is now, if it is on this node. The Task's actor does nothing more
/// for a snapshot.
async fn copy<J: Journal, L: Leases>(node: &NodeShared<J, L>, key: &TaskKey) -> Option<Task> {
    let address = node.directory.get(key)?;
    let (sender, copied) = oneshot::channel();
    let reader: ReadFn = Box::new(move |task| {
        let live = task.ok().filter(|task| !task.status().is_terminal());
        let _ = sender.send(live.map(View::to_task)); // The receiver may have gone.
    });
    address.cast(Msg::Read(reader)).ok()?;
    copied.await.ok().flatten()
}

fn fold(task: Task) -> Result<EncodedSnapshot, SnapshotError> {
    let records = task.into_snapshot();
    let bytes = encode_snapshot(&records)?;
    Ok(EncodedSnapshot { version: records.version(), bytes })
}
