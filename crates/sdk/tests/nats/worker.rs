//! The worker's end: links, grants, reports, leases.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::command::RunOutcome;
use tenure_core::event::ReleaseReason;
use tenure_core::id::{AttemptId, PoolId, RunId, SessionId, TaskId};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Holding, Pulse, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_sdk::nats::NatsWorker;
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tenure_wire::bus::decode;
use tenure_wire::bus::subject::{ParsedSubject, Token, WorkerName, WorkerVerb};
use tenure_wire::bus::worker::{
    Delivery, Heartbeat, Hello, Report, ReportResult, Reported, Reports, Word,
};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::node::{Node, grant};
use crate::server::Server;

pub(crate) const LONG: u64 = 60_000;

pub(crate) fn name() -> WorkerName {
    let token = |text| Token::new(text).unwrap();
    WorkerName { pool: PoolId::new("pool").unwrap(), principal: token("w"), boot: token("b1") }
}

pub(crate) async fn start(server: &Server, handlers: Handlers) -> WorkerPool<NatsWorker> {
    let connection = server.connect(name().inbox()).await;
    let (worker, deliveries) = NatsWorker::join(connection, &name(), None).await.unwrap();
    let options = Options::new(NonZeroUsize::new(4).unwrap());
    WorkerPool::start(worker, deliveries, handlers, options)
}

/// Handlers: `count` counts and ends, `wait` ends when told.
pub(crate) fn handlers(count: &Arc<AtomicUsize>, go: &Arc<Notify>) -> Handlers {
    let (count, go) = (Arc::clone(count), Arc::clone(go));
    let handlers = Handlers::new().on("count", move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(()))
    });
    let waits = handlers.unwrap().on("wait", move |_| {
        let go = Arc::clone(&go);
        async move {
            go.notified().await;
            Ok(())
        }
    });
    waits.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_run_once_and_its_report_is_repeated_until_it_is_recorded() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    node.link(&name(), "l", 4).await;

    let one = grant("count", LONG);
    node.deliver(&name(), "l", 1, vec![one.clone()]).await;
    let (reports, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    assert!(matches!(reports.reports[0].word, Word::EndRun { .. } | Word::TaskUpdateStep(_)));
    let refused = Rejection::new(Code::NotOwner, "another's");
    node.answer::<Reported>(&message, Err(refused)).await;
    let (again, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    assert_eq!(again.reports[0], reports.reports[0]);
    node.record(&message, 9).await;

    // The same again, and then one behind a gap: the room says what is missing.
    node.deliver(&name(), "l", 1, vec![one]).await;
    node.deliver(&name(), "l", 3, vec![grant("count", LONG)]).await;
    while node.awaits_room("l").await.got != 1 {}
    node.deliver(&name(), "l", 2, vec![grant("count", LONG), grant("count", LONG)]).await;
    let mut recorded = 0;
    while recorded < 2 {
        let (_, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
        recorded += node.record(&message, 10).await;
    }
    let room = node.awaits_room("l").await;
    assert_eq!((room.seen, room.got, room.free >= 4), (3, 3, true));
    assert_eq!(count.load(Ordering::SeqCst), 3);
    pool.drain().await;
    assert_eq!(pool.in_hand(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_attempt_is_renewed_at_once_and_given_up_if_nobody_answers() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    node.link(&name(), "l", 4).await;

    let begun = Instant::now();
    node.deliver(&name(), "l", 1, vec![grant("wait", 6_000)]).await;
    let mut beats = 0;
    while pool.in_hand() > 0 || beats == 0 {
        let next = tokio::time::timeout(Duration::from_millis(50), node.hears()).await;
        beats +=
            usize::from(matches!(next, Ok((ParsedSubject::Worker(_, WorkerVerb::Heartbeat), _))));
        assert!(begun.elapsed() < Duration::from_secs(20), "the worker keeps what is not its");
    }
    let kept = begun.elapsed();
    assert!(
        kept >= Duration::from_millis(1_750) && kept < Duration::from_millis(5_400),
        "{kept:?}"
    );
    assert!(beats >= 1, "a heartbeat at once");

    let begun = Instant::now();
    node.deliver(&name(), "l", 2, vec![grant("wait", 6_000)]).await;
    while begun.elapsed() < Duration::from_millis(6_500) {
        let next = tokio::time::timeout(Duration::from_millis(50), node.hears()).await;
        if let Ok((ParsedSubject::Worker(_, WorkerVerb::Heartbeat), message)) = next {
            node.renew(&message).await;
        }
    }
    assert_eq!(pool.in_hand(), 1, "answers keep it");
}

/// Takes in what the worker says until it has nothing in hand, and answers its reports so far.
async fn until_given_up(node: &mut Node, pool: &WorkerPool<NatsWorker>) -> Vec<Reports> {
    let (begun, mut reports) = (Instant::now(), Vec::new());
    while pool.in_hand() > 0 || begun.elapsed() < Duration::from_millis(300) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the worker keeps what is not its");
        let next = tokio::time::timeout(Duration::from_millis(50), node.hears()).await;
        if let Ok((ParsedSubject::Worker(_, WorkerVerb::Report(0)), message)) = next {
            reports.push(decode(&message.payload).unwrap());
        }
    }
    reports
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_was_given_up_does_not_begin_again() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let handlers = handlers(&count, &go);
    let begun = Arc::clone(&count);
    let handlers = handlers.on("long", move |_| {
        begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    });
    let pool = start(&server, handlers.unwrap()).await;
    node.link(&name(), "l", 4).await;
    let one = grant("long", 1500);
    node.deliver(&name(), "l", 1, vec![one.clone()]).await;
    while node.awaits_room("l").await.got != 1 {}
    let (said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    let is_given_back = |it: &Report| {
        matches!(it.word, Word::ReleaseStep { reason: ReleaseReason::Fenced, .. }) // LEASE-17
    };
    assert!(said.reports.iter().all(is_given_back), "{said:?}");
    node.record(&message, 6).await;
    assert_eq!(until_given_up(&mut node, &pool).await, [], "nothing else is said of it");
    assert_eq!(count.load(Ordering::SeqCst), 1);

    // The next owner of its partition finds it claimed, and grants it again.
    let mut node = Node::start(&server, "n2").await;
    node.link(&name(), "m", 4).await;
    node.deliver(&name(), "m", 1, vec![one]).await;
    while node.awaits_room("m").await.got != 1 {}
    assert_eq!(until_given_up(&mut node, &pool).await, []);
    assert_eq!(count.load(Ordering::SeqCst), 1, "it ran once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_could_not_be_recorded_in_time_is_no_failure() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    node.link(&name(), "l", 4).await;
    // Nobody answers its report, and the patience with it is longer than the lease.
    node.deliver(&name(), "l", 1, vec![grant("count", 1500)]).await;
    let reports = reported_within(&mut node, Duration::from_secs(8)).await;
    assert!(!reports.is_empty());
    assert!(reports.iter().all(|one| one == &reports[0]), "{reports:#?}");
    pool.drain().await;
}

/// What the worker reports within a time.
async fn reported_within(node: &mut Node, within: Duration) -> Vec<Word> {
    let (begun, mut words) = (Instant::now(), Vec::new());
    while begun.elapsed() < within {
        let next = tokio::time::timeout(Duration::from_millis(50), node.hears()).await;
        if let Ok((ParsedSubject::Worker(_, WorkerVerb::Report(0)), message)) = next {
            let reports: Reports = decode(&message.payload).unwrap();
            words.extend(reports.reports.into_iter().map(|report| report.word));
        }
    }
    words
}

/// Handlers that say something for their Run, and then end at once or never.
fn with_run_results() -> Handlers {
    let ends = Handlers::new().on("ends", |ctx| async move {
        ctx.set_run_result("as you like it")?;
        Ok(ctx.complete(None)?)
    });
    let stays = ends.unwrap().on("stays", |ctx| async move {
        ctx.set_run_result("as you like it")?;
        ctx.start().await?; // Whoever hears that knows that it has been said.
        std::future::pending().await
    });
    stays.unwrap()
}

fn run_result() -> Word {
    Word::EndRun { outcome: RunOutcome::Finished, result: Some("as you like it".to_owned()) }
}

/// RUN-11, DISP-13: what a Run says in the end is sent, though its Task has ended meanwhile: once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_result_of_a_run_is_sent_after_the_end_of_its_task() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let pool = start(&server, with_run_results()).await;
    node.link(&name(), "l", 4).await;

    // It hears of the end with the answer to its report.
    node.deliver(&name(), "l", 1, vec![grant("ends", LONG)]).await;
    let (said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    assert!(matches!(said.reports[0].word, Word::TaskUpdateStep(_)));
    let error = Some(Rejection::new(Code::TaskTerminal, "the task is cancelled"));
    let results =
        vec![ReportResult { version: None, cancel_requested: false, time_left_ms: None, error }];
    node.answer(&message, Ok(Reported { results })).await;
    let (said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    assert_eq!(said.reports[0].word, run_result());
    node.answer::<Reported>(&message, Err(Rejection::new(Code::NotOwner, "another's"))).await;

    // It is told of the end. What it sends next is of this Step: the word before was its last.
    let one = grant("stays", LONG);
    let lost = Some(one.grant.as_ref().unwrap().attempt_id);
    node.deliver(&name(), "l", 2, vec![one]).await;
    let (said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    assert!(matches!(said.reports[0].word, Word::TaskUpdateStep(_)));
    node.record(&message, 9).await;
    node.deliver(&name(), "l", 3, vec![Delivery { lost, ..Delivery::default() }]).await;
    let (said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    assert_eq!(said.reports[0].word, run_result());
    node.record(&message, 9).await;
    pool.drain().await;
}

/// CANCEL-07: a handler learns from the answer to its report that it is asked to stop, though no other word of
/// that came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_to_a_report_asks_a_handler_to_stop() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let obeys = Handlers::new().on("obeys", |ctx| async move {
        ctx.start().await?;
        while !ctx.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    });
    let pool = start(&server, obeys.unwrap()).await;
    node.link(&name(), "l", 4).await;
    node.deliver(&name(), "l", 1, vec![grant("obeys", LONG)]).await;
    let (_, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    let stop =
        ReportResult { version: Some(4), cancel_requested: true, time_left_ms: None, error: None };
    node.answer(&message, Ok(Reported { results: vec![stop] })).await;
    let (said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    let ended = Word::EndRun { outcome: RunOutcome::Cancelled, result: None };
    assert_eq!(said.reports[0].word, ended);
    node.record(&message, 5).await;
    pool.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_finds_its_nodes_again_when_the_server_was_gone() {
    let mut server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go): (_, Arc<Notify>) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    node.link(&name(), "l", 4).await;
    node.deliver(&name(), "l", 1, vec![grant("wait", LONG)]).await;
    while node.awaits_room("l").await.got != 1 {}

    server.kill();
    go.notify_one();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.restart();
    let mut node = Node::start(&server, "n1").await;
    node.link(&name(), "m", 4).await;
    node.deliver(&name(), "m", 1, vec![grant("count", LONG)]).await;
    let mut recorded = 0;
    while recorded < 2 {
        let (_, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
        recorded += node.record(&message, 5).await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    pool.drain().await;
}

/// LEASE-05: a heartbeat whose connection is gone waits for no answer any more, which went to that one: the
/// next goes over another at once. What it takes to come back is the machine's, so one of a few has to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_ends_with_its_connection() {
    let mut server = Server::start();
    let connection = server.connect_for(name().inbox(), Duration::from_secs(20)).await;
    let (worker, _deliveries) = NatsWorker::join(connection, &name(), None).await.unwrap();
    let worker = Arc::new(worker);
    let task_id = TaskId::new("t").unwrap();
    let held = Holding {
        task: TaskKey { session_id: SessionId::new("s").unwrap(), task_id },
        run_id: RunId(Uuid::now_v7()),
        attempt_id: AttemptId(Uuid::now_v7()),
        fencing_token: 3,
        lease_ms: LONG,
        input_seen: None,
    };
    let until_answered = Duration::from_secs(2);
    for _ in 0..4 {
        let mut node = Node::start(&server, "n1").await;
        let begun = Instant::now();
        let (beating, held) = (Arc::clone(&worker), held.clone());
        let beat = tokio::spawn(async move { beating.heartbeat(&[held]).await });
        node.awaits::<Heartbeat>(WorkerVerb::Heartbeat).await;
        server.kill();
        server.restart();
        assert_eq!(beat.await.unwrap(), [Pulse::Unknown]);
        if begun.elapsed() < until_answered {
            return;
        }
    }
    panic!("it waits for who cannot answer any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_worker_says_goodbye() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let connection = server.connect(name().inbox()).await;
    let (worker, _deliveries) = NatsWorker::join(connection, &name(), None).await.unwrap();
    node.awaits::<Hello>(WorkerVerb::Hello).await;
    drop(worker);
    while !matches!(node.hears().await.0, ParsedSubject::Worker(_, WorkerVerb::Bye)) {}
}

/// OWN-01: a worker takes no work of a cluster where its results would go to another partition, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_no_work_of_a_cluster_of_another_placement() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    node.awaits::<Hello>(WorkerVerb::Hello).await;
    node.deliver(&name(), "l", 1, Vec::new()).await; // The link may open first: no room is stated yet.
    node.say_alive_in(1, &[0]).await;
    let refused = timeout(Duration::from_secs(20), pool.port().denied()).await.unwrap();
    assert_eq!(refused.code, Code::ValidationError);
    assert!(refused.message.contains("tenure wal export --all"), "{refused}");
    node.deliver(&name(), "l", 1, vec![grant("count", LONG)]).await;
    pool.drain().await;
    drop(pool);
    loop {
        match node.hears().await.0 {
            ParsedSubject::Worker(_, WorkerVerb::Bye) => break,
            ParsedSubject::Worker(_, WorkerVerb::Hello) => {}
            other => panic!("nothing else is said: {other:?}"),
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// CTRL-09: what a node cannot take is no better when it is said again. A worker that is told so ends, and says
/// why; one that is only too many asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_ends_when_a_node_cannot_take_what_it_says() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    node.awaits::<Hello>(WorkerVerb::Hello).await;
    node.refuse(&name(), Rejection::new(Code::Unavailable, "too many links")).await;
    node.awaits::<Hello>(WorkerVerb::Hello).await;
    node.refuse(&name(), Rejection::invalid("handlers", "no such name")).await;
    let refused = timeout(Duration::from_secs(20), pool.port().denied()).await.unwrap();
    assert_eq!((refused.code, refused.message.as_str()), (Code::ValidationError, "no such name"));
    drop(pool);
    while !matches!(node.hears().await.0, ParsedSubject::Worker(_, WorkerVerb::Bye)) {}
}
