//! What a worker says of Steps in its hand that were lost before.

use std::time::Duration;

use tenure_wire::bus::subject::WorkerVerb;
use tenure_wire::bus::worker::{Reports, Room};
use tokio::time::timeout;

use crate::node::{Node, grant};
use crate::server::Server;
use crate::worker::{LONG, handlers, name, start};

/// The next statement of room to a node that says so many.
async fn says_lost(node: &mut Node, link: &str, lost: u64) -> Room {
    let says = async {
        loop {
            let room = node.awaits_room(link).await;
            if room.lost == lost {
                return room;
            }
        }
    };
    timeout(Duration::from_secs(10), says).await.expect("it says so")
}

/// LEASE-19: as long as a worker has a Step in hand that was lost, it says so to every node: at once with the
/// acknowledgement, before the handler begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_says_to_every_node_that_it_has_what_was_lost() {
    let server = Server::start();
    let mut nodes = [Node::start(&server, "n1").await, Node::start(&server, "n2").await];
    let (count, go) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    let [gives, other] = &mut nodes;
    gives.link(&name(), "l", 2).await;
    other.link(&name(), "m", 2).await;

    let mut lost = grant("wait", LONG);
    lost.grant.as_mut().unwrap().was_lost = true;
    gives.deliver(&name(), "l", 1, vec![lost.clone(), grant("wait", LONG)]).await;
    let acknowledged = loop {
        let room = gives.awaits_room("l").await;
        if room.got == 2 {
            break room;
        }
    };
    assert_eq!(acknowledged.lost, 1);
    says_lost(other, "m", 1).await;
    gives.deliver(&name(), "l", 3, vec![lost]).await; // It came twice.
    while says_lost(gives, "l", 1).await.got < 3 {}

    for _ in 0..2 {
        go.notify_one();
        let (_, message) = gives.awaits::<Reports>(WorkerVerb::Report(0)).await;
        gives.record(&message, 6).await;
    }
    says_lost(gives, "l", 0).await;
    says_lost(other, "m", 0).await;
    pool.drain().await;
}
