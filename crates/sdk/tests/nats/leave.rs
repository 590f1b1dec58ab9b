//! How a worker leaves that an operator sends away.

use std::num::NonZeroUsize;
use std::time::Duration;

use tenure_core::event::ReleaseReason;
use tenure_core::id::AttemptId;
use tenure_sdk::nats::NatsWorker;
use tenure_sdk::worker::{Options, WorkerPool};
use tenure_wire::bus::subject::WorkerVerb;
use tenure_wire::bus::worker::{Delivery, Reports, Word};
use tokio::time::{Instant, timeout};

use crate::node::{Node, grant};
use crate::server::Server;
use crate::worker::{LONG, handlers, name};

/// A worker whose handlers have this grace, with a Step in hand whose handler hangs, and does not stop when it
/// is asked to.
async fn hanging(server: &Server, grace: Duration) -> (Node, WorkerPool<NatsWorker>, AttemptId) {
    let mut node = Node::start(server, "n1").await;
    let connection = server.connect(name().inbox()).await;
    let (worker, deliveries) = NatsWorker::join(connection, &name(), None).await.unwrap();
    let options = Options { grace, ..Options::new(NonZeroUsize::MIN) };
    let (count, go) = Default::default();
    let pool = WorkerPool::start(worker, deliveries, handlers(&count, &go), options);
    node.link(&name(), "l", 1).await;
    let hangs = grant("wait", LONG);
    let attempt = hangs.grant.as_ref().unwrap().attempt_id;
    node.deliver(&name(), "l", 1, vec![hangs]).await;
    while node.awaits_room("l").await.got != 1 {}
    (node, pool, attempt)
}

/// Tells the worker to leave, as the delivery of this number.
async fn drain(node: &Node, number: u64, time_left_ms: Option<u64>) {
    let drain = Delivery { drain: true, time_left_ms, ..Delivery::default() };
    node.deliver(&name(), "l", number, vec![drain]).await;
}

/// LEASE-18: waits until the Step goes back because the worker leaves, and until the worker is done.
async fn goes_back(node: &mut Node, pool: &WorkerPool<NatsWorker>, attempt: AttemptId) {
    let (said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    let [report] = &said.reports[..] else { panic!("{said:?}") };
    let Word::ReleaseStep { attempt_id, reason, retry_after_ms, .. } = &report.word else {
        panic!("{report:?}")
    };
    assert_eq!((*attempt_id, *reason), (attempt, ReleaseReason::Draining));
    assert_eq!(*retry_after_ms, None);
    node.record(&message, 5).await;
    timeout(Duration::from_secs(10), pool.drain()).await.expect("nothing is in hand");
}

/// docs/protocol.md, Leaving: when the time of a `drain` is over, a handler that hangs is asked to stop, then ended,
/// and its Step goes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_hangs_is_stopped_when_the_time_is_over() {
    let (server, grace) = (Server::start(), Duration::from_millis(200));
    let (mut node, pool, attempt) = hanging(&server, grace).await;
    let told = Instant::now();
    drain(&node, 2, Some(300)).await;
    pool.dismissed().await;
    goes_back(&mut node, &pool, attempt).await;
    assert!(told.elapsed() >= Duration::from_millis(500), "{:?}", told.elapsed());
}

/// docs/protocol.md, Leaving: without any time left its Step goes back at once, and its handler gets no grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_hangs_is_ended_at_once_by_force() {
    let (server, grace) = (Server::start(), Duration::from_secs(60));
    let (mut node, pool, attempt) = hanging(&server, grace).await;
    drain(&node, 2, Some(0)).await;
    goes_back(&mut node, &pool, attempt).await; // It waits for less than the grace.
}

/// docs/protocol.md, Leaving: a worker that is told no time waits for its handlers. A later, shorter time counts; a
/// later, longer one does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_waits_without_a_time_and_the_shortest_time_counts() {
    let (server, grace) = (Server::start(), Duration::from_millis(1));
    let (mut node, pool, attempt) = hanging(&server, grace).await;
    drain(&node, 2, None).await;
    drain(&node, 3, Some(LONG)).await;
    pool.dismissed().await;
    let early = timeout(Duration::from_millis(300), node.awaits::<Reports>(WorkerVerb::Report(0)));
    assert!(early.await.is_err(), "it goes back before its time");
    drain(&node, 4, Some(50)).await;
    drain(&node, 5, Some(LONG)).await;
    goes_back(&mut node, &pool, attempt).await;
}
