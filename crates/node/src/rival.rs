//! Asks over NATS whether another node serves a partition that this one is about to take. Redis
//! decides who may take a partition. Where nodes use different Redis servers, each server decides
//! otherwise, and the log would let the nodes take the partition from each other for ever.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Request, Subscriber};
use futures::StreamExt as _;
use tenure_wire::bus::node::Serves;
use tenure_wire::bus::subject::{ClusterName, Token};
use tenure_wire::bus::{V, decode};
use tokio::time::timeout;
use uuid::Uuid;

use crate::bus::say;
use crate::gate::Gate;

/// How long a node may take to answer that it has a partition. A killed node has no subscription,
/// and the server says so at once; a node that hangs counts as having lost the partition after this
/// time.
const PATIENCE: Duration = Duration::from_millis(300);

/// The prefix of the inboxes for the answers.
const INBOX: &str = "_INBOX.system.";

/// The subject on which a partition's owner is asked.
pub(crate) fn subject(cluster: &ClusterName, partition: u32) -> String {
    format!("{}.system.serves.{partition}", cluster.root())
}

/// Another node that serves the partition, and whose Redis has confirmed its lease.
pub(crate) async fn of(
    client: Client,
    cluster: ClusterName,
    node: Token,
    partition: u32,
) -> Option<String> {
    let inbox = format!("{INBOX}{node}.{}", Uuid::now_v7().simple());
    let asked = Request::new().inbox(inbox).timeout(Some(PATIENCE));
    let answer =
        timeout(2 * PATIENCE, client.send_request(subject(&cluster, partition), asked)).await;
    let serves: Serves = decode(&answer.ok()?.ok()?.payload).ok()?;
    (serves.is_sure && serves.node != node.as_str()).then(|| serves.node.into())
}

/// Answers the nodes that ask who serves a partition.
pub(crate) async fn hear(gate: Arc<Gate>, partition: u32, mut asked: Subscriber) {
    while let Some(message) = asked.next().await {
        let Some(reply) = message.reply.filter(|reply| reply.starts_with(INBOX)) else { continue };
        let owns = gate.fence.journal.owned().epoch(partition).is_some();
        // A node that is not sure stays silent: the answer of one that is sure may follow.
        if !owns || !gate.fence.keeper.is_certain() {
            continue;
        }
        let serves = Serves { v: V, node: gate.node.as_str().into(), is_sure: true };
        say(&gate.control, &reply, &serves).await;
    }
}
