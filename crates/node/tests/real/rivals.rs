//! Nodes that ask different Redis.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tenure_node::Node;

use crate::common::{PARTITIONS, Servers, until};
use crate::servers::redis;

/// OWN-02, mechanisms 3: a node on another Redis takes no partition that somebody answers for. It takes
/// them all once nobody does.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_another_redis_takes_nothing_that_is_served() {
    let servers = Servers::start();
    let one = servers.node().await;
    let journal = Arc::clone(one.scheduler().journal());
    let before = journal.owned().all();
    let spy = servers.client().await;
    let mut asked = spy.subscribe("tenure.v1.system.serves.*").await.unwrap();

    let other = redis(&[]);
    let mut settings = servers.settings("n2");
    settings.redis = format!("redis://127.0.0.1:{}", other.port).into();
    let two = Node::start(settings).await.unwrap();
    // It has their leases, and asks for each of them again and again.
    for _ in 0..3 * PARTITIONS {
        let next = tokio::time::timeout(Duration::from_secs(30), asked.next()).await;
        assert!(next.unwrap().is_some());
    }
    assert_eq!(journal.owned().all(), before, "the first keeps all, in the same epochs");
    assert_eq!(two.served(), Vec::<u32>::new());
    one.stop().await;
    until(async || two.served().len() == PARTITIONS as usize).await;
    two.stop().await;
}
