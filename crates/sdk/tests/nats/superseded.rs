//! A worker that comes through one process after another, as one over HTTP comes through gateways.

use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_ports::bus::{Delivery, WorkerPort as _};
use tenure_sdk::nats::NatsWorker;
use tenure_wire::bus::subject::WorkerVerb;
use tenure_wire::bus::worker::{Bye, Hello};
use tokio::time::timeout;

use crate::node::{Node, grant};
use crate::server::Server;
use crate::worker::{LONG, name};

/// Whatever is waited for comes sooner than this.
const SOON: Duration = Duration::from_secs(10);

/// How long a test waits for what must not come.
const A_WHILE: Duration = Duration::from_millis(300);

async fn join(server: &Server, build: &str) -> (NatsWorker, UnboundedReceiver<Delivery>) {
    let connection = server.connect(name().inbox()).await;
    NatsWorker::join_for_now(connection, &name(), None, build).await.unwrap()
}

/// docs/http.md, When a gateway goes: a process ends when another one joins later under the worker's name. What
/// comes from then on is for the other one, and no goodbye ends the links of that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_gives_way_to_a_later_one() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (first, mut of_first) = join(&server, "one").await;
    node.awaits::<Hello>(WorkerVerb::Hello).await;
    node.deliver(&name(), "l", 1, Vec::new()).await;
    node.awaits::<Hello>(WorkerVerb::Hello).await; // It says it once more on a link that it did not know.
    node.say_alive(&[0]).await;
    assert!(timeout(A_WHILE, first.superseded()).await.is_err(), "it hears only itself");
    let (second, mut of_second) = join(&server, "two").await;
    timeout(SOON, first.superseded()).await.expect("it hears the other one");
    node.deliver(&name(), "m", 1, vec![grant("wait", LONG)]).await;
    let came = timeout(SOON, of_second.next()).await.expect("the other one works");
    assert!(matches!(came, Some(Delivery::Grant(_))), "{came:?}");
    assert!(of_first.try_recv().is_err(), "nothing comes twice");
    first.leave_pool().await.unwrap();
    let bye = timeout(A_WHILE, node.awaits::<Bye>(WorkerVerb::Bye));
    assert!(bye.await.is_err(), "it says no goodbye");
    second.leave_pool().await.unwrap();
    node.awaits::<Bye>(WorkerVerb::Bye).await;
}
