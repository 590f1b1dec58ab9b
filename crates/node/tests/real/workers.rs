//! What workers say, what they are sent, and what becomes of those that say nothing.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use nix::sys::signal::Signal;
use tenure_core::command::{Close, StepReport};
use tenure_core::features::Features;
use tenure_core::sessions::WorkerSessions;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::{ClaimResult, View, WriteSummary};
use tenure_core::{Code, Command};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::node::Hungry;
use tenure_wire::bus::operate::{Drain, Drained, LeasePage, ListLeases};
use tenure_wire::bus::request::Ask;
use tenure_wire::bus::worker::{
    Bye, Delivery, Heartbeat, Hello, Holding, Pulses, Report, ReportResult, Reported, Reports, Word,
};
use tenure_wire::bus::{V, decode, encode};

use crate::common::{Caller, Hand, PARTITIONS, Servers, until};

pub(crate) fn report(claim: &ClaimResult, status: StepStatus) -> Report {
    let (attempt_id, fencing_token) = (Some(claim.attempt_id), Some(claim.fencing_token));
    let (session_id, task_id) = (claim.session_id.clone(), claim.task_id.clone());
    let word = StepReport {
        attempt_id,
        fencing_token,
        status: Some(status),
        ..StepReport::on(claim.step.step_id.clone())
    };
    Report { session_id, task_id, run_id: claim.run_id, word: Word::TaskUpdateStep(word) }
}

pub(crate) async fn tell(hand: &Hand, reports: Vec<Report>) -> Vec<ReportResult> {
    let (session_id, task_id) = (reports[0].session_id.clone(), reports[0].task_id.clone());
    let partition = TaskKey { session_id, task_id }.partition(PARTITIONS);
    let reports = Reports { v: V, room: None, reports };
    let reported: Reported = hand.ask(&format!("report.{partition}"), &reports).await.unwrap();
    reported.results
}

fn holding(claim: &ClaimResult) -> Holding {
    Holding {
        session_id: claim.session_id.clone(),
        task_id: claim.task_id.clone(),
        run_id: claim.run_id,
        attempt_id: claim.attempt_id,
        fencing_token: claim.fencing_token,
        input_seen: None,
    }
}

pub(crate) async fn one_grant(hand: &mut Hand) -> ClaimResult {
    let mut deliveries = hand.take().await;
    assert_eq!(deliveries.len(), 1, "{deliveries:?}");
    *deliveries.remove(0).grant.expect("a grant")
}

/// A Task of one Step, and the worker that it was granted to.
pub(crate) async fn one_granted(servers: &Servers) -> (Caller, Hand, ClaimResult) {
    let bob = Caller::new(servers).await;
    let mut alice = Hand::join(servers, "alice").await;
    alice.room(1).await;
    bob.create("t1", &["a"]).await;
    let claim = one_grant(&mut alice).await;
    (bob, alice, claim)
}

/// ATT-12: an Attempt names what the worker's `hello` said of machine and build.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_names_what_hello_said() {
    let servers = Servers::start();
    let node = servers.node().await;
    let (bob, _alice, claim) = one_granted(&servers).await;
    let said = move |task: &View<'_>| task.attempt(claim.attempt_id).unwrap().origin.clone();
    let said = node.scheduler().read(&bob.key("t1"), said).await.unwrap().unwrap();
    let said = (said.worker_host.as_deref(), said.worker_build.as_deref());
    assert_eq!(said, (Some("rack-7"), Some("hand 2")));
}

/// CLAIM-14, LEASE-04, REPORT-14
#[tokio::test(flavor = "multi_thread")]
async fn a_step_goes_to_a_worker_and_its_result_comes_back() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::join(&servers, "alice").await;
    alice.room(1).await;
    bob.create("t1", &["a", "b"]).await;
    let claim = one_grant(&mut alice).await;
    assert_eq!(claim.step.step_id.as_str(), "a");
    alice.room(0).await;
    let holdings = vec![holding(&claim)];
    let pulses: Pulses = alice.ask("hb", &Heartbeat { v: V, holdings }).await.unwrap();
    assert_eq!(pulses.pulses[0].lease_ms, Some(3_000), "{pulses:?}");

    let done = report(&claim, StepStatus::Completed);
    let results = tell(&alice, vec![done.clone(), done.clone()]).await;
    assert!(results.iter().all(|result| result.error.is_none()), "{results:?}");
    assert_eq!(results[0].version, results[1].version, "said twice, it is recorded once");
    let mut stale = holding(&claim);
    stale.fencing_token += 1;
    let pulses: Pulses = alice.ask("hb", &Heartbeat { v: V, holdings: vec![stale] }).await.unwrap();
    let error = pulses.pulses[0].error.as_ref().unwrap();
    assert_eq!((pulses.pulses[0].lease_ms, error.code), (None, Code::StaleAttempt));

    alice.room(1).await;
    let claim = one_grant(&mut alice).await;
    tell(&alice, vec![report(&claim, StepStatus::Completed)]).await;
    assert_eq!(bob.log("t1").await.unwrap().status, TaskStatus::Completed);
    let completed = bob.events("t1").await;
    assert_eq!(completed.iter().filter(|name| *name == "task_step_completed").count(), 2);
}

/// Mechanisms 7: what a worker does not say to have got is sent again, the same Attempt, and then the
/// Step goes to another.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_not_heard_of_is_repeated_and_then_taken_back() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut deaf = Hand::join(&servers, "deaf").await;
    deaf.room(1).await;
    bob.create("t1", &["a"]).await;
    let first = deaf.next().await;
    let claim = first.deliveries[0].grant.clone().unwrap();
    let again = deaf.next().await;
    assert_eq!((again.first, &again.deliveries), (1, &first.deliveries), "the same once more");
    let mut alice = Hand::join(&servers, "alice").await;
    let begun = Instant::now();
    let second = loop {
        alice.room(1).await; // A worker that is silent is forgotten.
        deaf.room(0).await;
        let next = tokio::time::timeout(Duration::from_millis(500), alice.take()).await;
        if let Ok(mut deliveries) = next {
            break deliveries.remove(0).grant.unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "nobody else gets the step");
    };
    assert_ne!(second.attempt_id, claim.attempt_id);
    assert_eq!(second.ordinal, 2);
    let late = tell(&deaf, vec![report(&claim, StepStatus::Completed)]).await;
    assert_eq!(late[0].error.as_ref().unwrap().code, Code::StaleAttempt);
    let done = tell(&alice, vec![report(&second, StepStatus::Completed)]).await;
    assert_eq!(done[0].error, None);
}

/// A worker that leaves gets nothing more, and what it did not get goes to another at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_leaves_is_forgotten() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut deaf = Hand::join(&servers, "deaf").await;
    deaf.room(5).await;
    let pool = "default".parse().unwrap();
    crate::common::until(async || node.scheduler().pool_facts(&pool).free == 5).await;
    bob.create("t1", &["a"]).await;
    deaf.next().await;
    deaf.say("bye", &Bye { v: V }).await;
    let mut alice = Hand::join(&servers, "alice").await;
    alice.room(1).await;
    let claim = one_grant(&mut alice).await;
    assert_eq!(claim.ordinal, 2);
    assert_eq!(node.scheduler().pool_facts(&pool).workers, 1);
}

/// Mechanisms 8: what is said of another link says nothing, and the worker is told of the right one.
#[tokio::test(flavor = "multi_thread")]
async fn room_on_another_link_is_no_room() {
    let servers = Servers::start();
    let node = servers.node().await;
    let mut alice = Hand::join(&servers, "alice").await;
    let link = std::mem::replace(&mut alice.link, "an-old-one".into());
    alice.room(64).await;
    let told = alice.next().await;
    assert_eq!((told.link.as_str(), told.first, told.deliveries.len()), (link.as_str(), 1, 0));
    let pool = "default".parse().unwrap();
    assert_eq!(node.scheduler().pool_facts(&pool).free, 0);
    alice.link = link;
    alice.room(64).await;
    crate::common::until(async || node.scheduler().pool_facts(&pool).free == 64).await;
}

/// LEASE-08, LEASE-16
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_worker_s_step_goes_to_another() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut lost = Hand::join(&servers, "lost").await;
    lost.room(1).await;
    let begun = Instant::now();
    bob.create("t1", &["a"]).await;
    let claim = one_grant(&mut lost).await;
    lost.room(0).await;
    let mut alice = Hand::join(&servers, "alice").await;
    let second = loop {
        alice.room(1).await;
        let next = tokio::time::timeout(Duration::from_millis(500), alice.take()).await;
        if let Ok(mut deliveries) = next {
            break deliveries.remove(0).grant.unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the lease does not end");
    };
    assert!(begun.elapsed() >= Duration::from_secs(3), "its lease lasted");
    assert_eq!((second.ordinal, second.attempt_id == claim.attempt_id), (2, false));
    let late = tell(&lost, vec![report(&claim, StepStatus::Completed)]).await;
    assert_eq!(late[0].error.as_ref().unwrap().code, Code::StaleAttempt);
}

/// A worker that has not said what it can run is sent nothing: a word that opens a link is no hello.
#[tokio::test(flavor = "multi_thread")]
async fn only_who_said_hello_gets_steps() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::join(&servers, "alice").await;
    let pool = "default".parse().unwrap();
    alice.say("bye", &Bye { v: V }).await;
    // What is said on another subject may be heard first.
    crate::common::until(async || node.scheduler().pool_facts(&pool).workers == 0).await;
    alice.room(5).await;
    let told = alice.next().await;
    alice.link = told.link.to_string();
    alice.room(5).await;
    bob.create("t1", &["a"]).await;
    assert_eq!(node.scheduler().pool_facts(&pool).free, 0);
    alice.hello().await;
    alice.room(5).await;
    assert_eq!(one_grant(&mut alice).await.step.step_id.as_str(), "a");
}

/// Mechanisms 7: the server says that a worker is not there, and its Step goes to another at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_hears_goes_to_another_at_once() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut dead = Hand::join(&servers, "dead").await;
    dead.room(5).await;
    let pool = "default".parse().unwrap();
    crate::common::until(async || node.scheduler().pool_facts(&pool).free == 5).await;
    drop(dead); // Without a word.
    let client = servers.client().await;
    client.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    bob.create("t1", &["a"]).await;
    let asked = Instant::now();
    let mut alice = Hand::join(&servers, "alice").await;
    alice.room(1).await;
    let claim = one_grant(&mut alice).await;
    assert_eq!(claim.ordinal, 2);
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    let log = bob.log("t1").await.unwrap().commits;
    let log: String = log.iter().map(|commit| String::from_utf8_lossy(&commit.0)).collect();
    assert_eq!(log.matches(r#""reason":"released""#).count(), 1, "{log}");
}

/// Mechanisms 8: room is dropped when its worker has said nothing for 5 s.
#[tokio::test(flavor = "multi_thread")]
async fn the_room_of_a_worker_that_falls_silent_is_dropped() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut silent = Hand::join(&servers, "silent").await;
    let begun = Instant::now();
    silent.room(5).await;
    let pool = "default".parse().unwrap();
    crate::common::until(async || node.scheduler().pool_facts(&pool).free == 5).await;
    crate::common::until(async || node.scheduler().pool_facts(&pool).free == 0).await;
    assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(node.scheduler().pool_facts(&pool).workers, 0);
    bob.create("t1", &["a"]).await;
    let mut alice = Hand::join(&servers, "alice").await;
    alice.room(1).await;
    assert_eq!(one_grant(&mut alice).await.ordinal, 1, "nobody was given it before");
}

/// `list_leases` with `oldest` says what the owner knows, and asks no Redis for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_leases_are_told_while_redis_hangs() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::join(&servers, "alice").await;
    alice.room(2).await;
    bob.create("t", &["a", "b"]).await;
    let mut grants = Vec::new();
    while grants.len() < 2 {
        grants.extend(alice.take().await);
    }
    alice.room(0).await;
    servers.redis.signal(Signal::SIGSTOP);
    let oldest = async |most| {
        let which = ListLeases { oldest: Some(most), ..ListLeases::default() };
        let page: LeasePage = bob.ask("t", "unused", Ask::Leases(which)).await.unwrap();
        let open = page.leases.into_iter().filter_map(|row| Some(row.open?.step_id.to_string()));
        (open.collect::<Vec<_>>(), page.more)
    };
    assert_eq!(oldest(1).await, (vec!["a".to_owned()], true));
    assert_eq!(oldest(9).await, (vec!["a".to_owned(), "b".to_owned()], false));
    let first = grants.remove(0).grant.unwrap();
    let results = tell(&alice, vec![report(&first, StepStatus::Completed)]).await;
    assert!(results[0].error.is_none(), "{results:?}");
    until(async || oldest(9).await == (vec!["b".to_owned()], false)).await;
    servers.redis.signal(Signal::SIGCONT);
}

pub(crate) async fn drain(bob: &Caller, hand: &Hand, within_ms: Option<u64>) {
    let principal = Some(hand.name.principal.as_str().into());
    let which = Drain { v: V, pool: None, principal, boot: None, within_ms };
    let drained: Drained = bob.say("drain", &which).await.unwrap();
    assert_eq!(drained.workers.len(), 1);
}

/// The first deliveries on a link other than this one.
pub(crate) async fn on_the_next_link(hand: &mut Hand, old: &str, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        let next = hand.next().await;
        if next.link != old {
            all.extend(next.deliveries);
        }
    }
    all
}

/// CANCEL-07: what a worker has not said to have got when its link is replaced comes on the next: that it
/// is asked to stop, and that it is to leave.
#[tokio::test(flavor = "multi_thread")]
async fn signals_go_on_with_the_next_link() {
    let servers = Servers::start();
    let mut settings = servers.settings("n1");
    settings.scheduler.limits.cancel_wait_ms = 60_000;
    let _node = servers.node_of(settings).await;
    let (bob, mut alice, claim) = one_granted(&servers).await;
    alice.room(0).await;
    let close = Close { wait: Some(false), ..Close::default() };
    let cancel = Ask::Command(Box::new(Command::TaskCancel(close)));
    bob.ask::<WriteSummary>("t1", "cancel", cancel).await.unwrap();
    assert_eq!(alice.next().await.deliveries[0].cancel_requested, Some(claim.attempt_id));
    drain(&bob, &alice, None).await;
    let handlers = Some(vec!["noop".parse().unwrap()]);
    alice
        .say(
            "hello",
            &Hello {
                v: V,
                handlers,
                sessions: WorkerSessions::ALL,
                worker_host: None,
                worker_build: None,
                features: Features::default(),
            },
        )
        .await;
    let old = alice.link.clone();
    let told = on_the_next_link(&mut alice, &old, 2).await;
    assert!(told.iter().any(|it| it.cancel_requested == Some(claim.attempt_id)), "{told:?}");
    assert!(told.iter().any(|it| it.drain), "{told:?}");
}

/// Nor is it forgotten that a worker is to leave where it could not be reached for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_comes_again_is_still_to_leave() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::join(&servers, "alice").await;
    drain(&bob, &alice, None).await;
    let pool = "default".parse().unwrap();
    crate::common::until(async || node.scheduler().pool_facts(&pool).workers == 0).await;
    alice
        .say(
            "hello",
            &Hello {
                v: V,
                handlers: None,
                sessions: WorkerSessions::ALL,
                worker_host: None,
                worker_build: None,
                features: Features::default(),
            },
        )
        .await;
    let old = alice.link.clone();
    assert!(on_the_next_link(&mut alice, &old, 1).await[0].drain);
}

/// Mechanisms 8: every worker hears what a node says of itself, so it is said once for many that come together: a
/// hundred workers cost a hundred messages, not a hundred times as many.
#[tokio::test(flavor = "multi_thread")]
async fn workers_that_come_together_are_told_together() {
    let servers = Servers::start();
    let node = servers.node().await;
    let client = servers.client().await;
    let mut heard = client.subscribe("tenure.v1.node.*.alive").await.unwrap();
    let _inboxes = client.subscribe("_INBOX.worker.>").await.unwrap(); // They are there.
    client.flush().await.unwrap();
    let said = encode(&Hello {
        v: V,
        handlers: None,
        sessions: WorkerSessions::ALL,
        worker_host: None,
        worker_build: None,
        features: Features::default(),
    })
    .unwrap();
    let begun = Instant::now();
    for n in 0..100 {
        let subject = format!("tenure.v1.worker.default.w{n}.b1.hello");
        client.publish(subject, said.clone().into()).await.unwrap();
    }
    let last = "default".parse().unwrap();
    until(async || node.scheduler().pool_facts(&last).workers == 100).await;
    let mut said = 0;
    while tokio::time::timeout(Duration::from_millis(200), heard.next()).await.is_ok() {
        said += 1;
        assert!(said < 100, "each of them is told by itself");
    }
    let passed = usize::try_from(begun.elapsed().as_millis() / 100).unwrap();
    assert!((1..=passed + 2).contains(&said), "{said} in {:?}", begun.elapsed());
}

/// Mechanisms 8: a node with work that waits and no room for it says so, for each pool, until there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_room_says_that_it_is_hungry() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let client = servers.client().await;
    let mut heard = client.subscribe("tenure.v1.node.*.hungry").await.unwrap();
    client.flush().await.unwrap();
    let mut alice = Hand::join(&servers, "alice").await;
    bob.create("t1", &["a", "b", "c"]).await;
    let mut until_it_wants = async |wants: u64| {
        let begun = Instant::now();
        loop {
            let message = tokio::time::timeout(Duration::from_secs(10), heard.next()).await;
            let message = message.expect("it is said again").unwrap();
            assert_eq!(message.subject.as_str(), "tenure.v1.node.n1.hungry");
            let hungry: Hungry = decode(&message.payload).unwrap();
            assert_eq!((hungry.node.as_str(), hungry.pool.as_str()), ("n1", "default"));
            if hungry.wants == wants {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{hungry:?}");
        }
    };
    until_it_wants(3).await;
    alice.room(1).await;
    let claim = one_grant(&mut alice).await;
    alice.room(0).await;
    until_it_wants(2).await;
    alice.room(5).await;
    while alice.seen < 3 {
        alice.take().await;
    }
    tell(&alice, vec![report(&claim, StepStatus::Completed)]).await;
    let quiet =
        async { while tokio::time::timeout(Duration::from_secs(1), heard.next()).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), quiet).await.expect("it has all it wants");
}
