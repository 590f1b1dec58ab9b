//! Parents and children on different nodes.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use serde_json::json;
use tenure_core::Code;
use tenure_core::command::create::Parent;
use tenure_core::status::TaskStatus;
use tenure_core::view::WriteSummary;
use tenure_node::Node;
use tenure_wire::bus::request::{Ask, ReadParent, Request};

use crate::common::{Caller, PARTITIONS, Servers, input, until};

/// A Task of a partition of this node.
fn of(node: &Node, bob: &Caller, name: &str) -> String {
    let served = node.served();
    let mut all = (0..).map(|n| format!("{name}{n}"));
    all.find(|id| served.contains(&bob.key(id).partition(PARTITIONS))).unwrap()
}

/// CANCEL-03, REL-05, mechanisms 12: a child asks the owner of its parent how that is, when it is made and
/// later, and reads no log for it; what is asked is for nodes alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_asks_another_node_for_its_parent() {
    let servers = Servers::start();
    let one = Node::start(servers.settings("n1")).await.unwrap();
    let two = Node::start(servers.settings("n2")).await.unwrap();
    let shares = || (one.served(), two.served());
    until(async || {
        let (a, b) = shares();
        !a.is_empty() && !b.is_empty() && a.len() + b.len() == PARTITIONS as usize
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await; // Shares may move for a moment.
    let bob = Caller::new(&servers).await;
    let spy = servers.client().await;
    let mut asked = spy.subscribe("tenure.v1.system.*.*.cmd.*").await.unwrap();
    spy.flush().await.unwrap();
    let (parent, child) = (of(&one, &bob, "p"), of(&two, &bob, "c"));
    bob.create(&parent, &["a"]).await;
    let mut given = input(&child, &["a"]);
    given.parent_task_id = Some(parent.parse().unwrap());
    let made = Ask::Create(Box::new(given));
    let _: WriteSummary = bob.ask(&child, "create-child", made).await.unwrap();
    until(async || bob.events(&parent).await.contains(&"task_linked".to_owned())).await;
    let cancel = json!({"operation": "task_cancel", "input": {}});
    let cancel = Ask::Command(serde_json::from_value(cancel).unwrap());
    let _: WriteSummary = bob.ask(&parent, "cancel", cancel).await.unwrap();
    until(async || bob.log(&child).await.unwrap().status == TaskStatus::Cancelled).await;

    let ask = Ask::ReadParent(ReadParent { child: child.parse().unwrap(), record: false });
    let refused = bob.ask::<Parent>(&parent, "unused", ask).await.unwrap_err();
    assert_eq!(refused.code, Code::ToolNotAvailable);
    spy.publish("tenure.v1.system.s1.spy.cmd.99", "".into()).await.unwrap(); // So far.
    let mut operations = BTreeSet::new();
    loop {
        let message = asked.next().await.unwrap();
        if message.payload.is_empty() {
            break;
        }
        operations.insert(Request::read(&message.payload).unwrap().head.operation);
    }
    assert_eq!(operations.into_iter().collect::<Vec<_>>(), ["read_parent"]);
}
