//! What each role may do, and what is tried in vain.

use std::sync::Arc;

use async_nats::HeaderMap;
use futures::{FutureExt as _, StreamExt as _};
use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_core::Commit;
use tenure_core::status::Role;
use tenure_ports::Journal as _;
use tenure_testkit::conformance::{History, read_all};
use tenure_wire::bus::subject::{Token, is_inbox_of};

use crate::place::{PATIENCE, Place, User};

impl Place {
    async fn may_say(&self, user: &User, subjects: &[&str]) {
        for subject in subjects {
            assert!(self.delivers(user, subject).await, "{subject} is not delivered");
        }
        assert!(user.was_never_refused());
    }

    async fn may_not_say(&self, user: &User, subjects: &[&str]) {
        for subject in subjects {
            assert!(!self.delivers(user, subject).await, "{subject} is delivered");
            user.is_refused("publish", subject).await;
        }
    }

    /// Pairs of what is subscribed to, and what is said then.
    async fn may_hear(&self, user: &User, subjects: &[(&str, &str)]) {
        for (pattern, subject) in subjects {
            assert!(self.hears(user, pattern, subject).await, "{subject} is not heard");
        }
        assert!(user.was_never_refused());
    }

    async fn may_not_hear(&self, user: &User, subjects: &[(&str, &str)]) {
        for (pattern, subject) in subjects {
            assert!(!self.hears(user, pattern, subject).await, "{pattern} hears {subject}");
            user.is_refused("subscription", pattern).await;
        }
    }
}

/// A worker speaks for itself and hears what is for it.
#[tokio::test]
async fn a_worker_works() {
    let place = Place::open().await;
    let worker = place.user("worker-1").await;
    let own = "tenure.v1.worker.default.worker-1.boot";
    let said = ["hello", "bye", "hb", "node.one", "report.0", "query.3", "claim.7"];
    let said = said.map(|verb| format!("{own}.{verb}"));
    place.may_say(&worker, &said.each_ref().map(String::as_str)).await;
    let heard = [
        ("_INBOX.worker.worker-1.boot.>", "_INBOX.worker.worker-1.boot.d.one"),
        ("tenure.v1.node.>", "tenure.v1.node.one.alive"),
        ("tenure.v1.node.*.hungry", "tenure.v1.node.one.hungry"),
    ];
    place.may_hear(&worker, &heard).await;
}

/// A worker names another principal, another pool, another role, a node, an event, the log or the
/// store's own interface.
#[tokio::test]
async fn a_worker_speaks_for_nobody_else() {
    let place = Place::open().await;
    let worker = place.user("worker-1").await;
    let attacks = [
        "tenure.v1.worker.default.worker-2.boot.report.0",
        "tenure.v1.worker.default.worker-11.boot.hb",
        "tenure.v1.worker.default.*.boot.hb",
        "tenure.v1.worker.gpu.worker-1.boot.hello",
        "tenure.v1.orchestrator.main.worker-1.cmd.0",
        "tenure.v1.orchestrator.main.orchestrator-1.cmd.0",
        "tenure.v1.observer.main.worker-1.cmd.0",
        "tenure.v1.node.one.alive",
        "tenure.v1.node.one.hungry",
        "tenure.v1.event.main.task",
        "tenure.wal.0",
        "tenure.index.0",
        "_INBOX.worker.worker-1.boot.d.one",
        "_INBOX.worker.worker-2.boot.d.one",
        "_INBOX.scheduler.one.1",
        "$JS.API.INFO",
        "$JS.API.STREAM.CREATE.MINE",
        "$JS.API.STREAM.DELETE.TENURE_WAL_0",
        "$JS.API.STREAM.MSG.GET.TENURE_WAL_0",
        "$JS.API.DIRECT.GET.TENURE_WAL_0",
        "$JS.API.CONSUMER.CREATE.TENURE_WAL_0",
        "$JS.ACK.TENURE_WAL_0.c.1.1.1.1.0",
        "$SYS.REQ.SERVER.PING",
        "anything",
    ];
    place.may_not_say(&worker, &attacks).await;
}

/// A worker listens to others, to everything, or takes messages from those they are for.
#[tokio::test]
async fn a_worker_listens_to_nobody_else() {
    let place = Place::open().await;
    let worker = place.user("worker-1").await;
    let other = "_INBOX.worker.worker-2.boot.d.one";
    let attacks = [
        (">", other),
        ("_INBOX.>", other),
        ("_INBOX.worker.>", other),
        ("_INBOX.worker.*.boot.>", other),
        ("_INBOX.worker.worker-2.>", other),
        ("_INBOX.scheduler.>", "_INBOX.scheduler.one.1"),
        ("tenure.>", "tenure.wal.0"),
        ("tenure.wal.>", "tenure.wal.0"),
        ("tenure.v1.>", "tenure.v1.event.main.task"),
        ("tenure.v1.event.>", "tenure.v1.event.main.task"),
        ("tenure.v1.worker.>", "tenure.v1.worker.default.worker-2.boot.report.0"),
        ("tenure.v1.worker.default.worker-1.>", "tenure.v1.worker.default.worker-1.boot.hb"),
        ("tenure.v1.orchestrator.>", "tenure.v1.orchestrator.main.orchestrator-1.cmd.0"),
        ("$JS.EVENT.>", "$JS.EVENT.ADVISORY.API"),
    ];
    place.may_not_hear(&worker, &attacks).await;
    for (pattern, subject) in [
        ("tenure.v1.node.>", "tenure.v1.node.one.alive"),
        ("_INBOX.worker.worker-1.boot.>", "_INBOX.worker.worker-1.boot.d.one"),
    ] {
        assert!(!place.hears_in_group(&worker, pattern, subject).await, "{pattern} in a group");
        worker.is_refused("subscription", pattern).await;
    }
}

/// The server traces a message to wherever its header says, unless the sender may not write there.
#[tokio::test]
async fn a_trace_goes_nowhere_its_sender_may_not() {
    let place = Place::open().await;
    let (worker, journal) = (place.user("worker-1").await, place.user("journal").await);
    let control = place.user("control").await;
    let forged = "_INBOX.scheduler.one.1";
    let own = "tenure.v1.worker.default.worker-1.boot.hb";
    let mut acks = journal.client.subscribe(forged).await.unwrap();
    let mut traces = control.client.subscribe(own).await.unwrap();
    assert!(place.delivers(&journal, "tenure.index.0").await, "it is subscribed");
    assert!(place.delivers(&control, "tenure.v1.node.one.hungry").await, "it is subscribed");
    for to in [forged, own] {
        let hello = "tenure.v1.worker.default.worker-1.boot.hello";
        let headers = HeaderMap::from_iter([header("Nats-Trace-Dest", to)]);
        place.delivers_with(&worker, hello, None, headers).await;
    }
    let trace = tokio::time::timeout(PATIENCE, traces.next()).await;
    assert!(trace.expect("a trace where it may").is_some());
    assert!(acks.next().now_or_never().is_none(), "a trace where it may not");
}

fn header(name: &'static str, value: &str) -> (async_nats::HeaderName, async_nats::HeaderValue) {
    (async_nats::HeaderName::from_static(name), value.parse().unwrap())
}

/// An orchestrator commands in its session, an observer looks; both hear its events.
#[tokio::test]
async fn clients_ask_in_their_session() {
    let place = Place::open().await;
    for role in ["orchestrator", "observer"] {
        let user = place.user(&format!("{role}-1")).await;
        let root = format!("tenure.v1.{role}.main.{role}-1");
        let (hello, command) = (format!("{root}.hello"), format!("{root}.cmd.3"));
        place.may_say(&user, &[&hello, &command]).await;
        let inbox = format!("_INBOX.{role}.{role}-1.boot.1");
        let heard = [
            (inbox.as_str(), inbox.as_str()),
            ("tenure.v1.event.main.>", "tenure.v1.event.main.t"),
        ];
        place.may_hear(&user, &heard).await;
    }
}

/// An orchestrator or observer names another session, principal or role, an event, a worker, the log.
#[tokio::test]
async fn clients_do_nothing_else() {
    let place = Place::open().await;
    for (role, other) in [("orchestrator", "observer"), ("observer", "orchestrator")] {
        let user = place.user(&format!("{role}-1")).await;
        let attacks = [
            &format!("tenure.v1.{role}.other.{role}-1.cmd.0"),
            &format!("tenure.v1.{role}.main.{role}-2.cmd.0"),
            &format!("tenure.v1.{other}.main.{role}-1.cmd.0"),
            &format!("tenure.v1.{other}.main.{other}-1.cmd.0"),
            &format!("tenure.v1.system.main.{role}-1.cmd.0"),
            &format!("tenure.v1.orchestrator.main.{role}-1.drain"),
            &format!("tenure.v1.orchestrator.main.{role}-1.import.0"),
            "tenure.v1.orchestrator.main.operator.drain",
            "tenure.v1.worker.default.worker-1.boot.report.0",
            "tenure.v1.node.one.alive",
            "tenure.v1.event.main.task",
            "tenure.wal.0",
            "$JS.API.STREAM.DELETE.TENURE_WAL_0",
            "_INBOX.worker.worker-1.boot.d.one",
            "_INBOX.scheduler.one.1",
        ];
        place.may_not_say(&user, &attacks).await;
        let other_inbox = format!("_INBOX.{other}.{other}-1.boot.1");
        let heard = [
            (">", "tenure.v1.event.other.task"),
            ("_INBOX.>", other_inbox.as_str()),
            (other_inbox.as_str(), other_inbox.as_str()),
            ("tenure.v1.event.>", "tenure.v1.event.other.task"),
            ("tenure.v1.event.*.task", "tenure.v1.event.other.task"),
            ("tenure.v1.event.other.>", "tenure.v1.event.other.task"),
            ("tenure.v1.worker.>", "tenure.v1.worker.default.worker-1.boot.report.0"),
            ("tenure.wal.0", "tenure.wal.0"),
        ];
        place.may_not_hear(&user, &heard).await;
        let events = "tenure.v1.event.main.>";
        assert!(!place.hears_in_group(&user, events, "tenure.v1.event.main.task").await);
    }
}

/// An operator is an orchestrator of every session, who may also drain and import. It is nobody else.
#[tokio::test]
async fn an_operator_looks_after_all_sessions() {
    let place = Place::open().await;
    let operator = place.user("operator").await;
    let said = [
        "tenure.v1.orchestrator.main.operator.cmd.3",
        "tenure.v1.orchestrator.main.operator.drain",
        "tenure.v1.orchestrator.other.operator.import.0",
    ];
    place.may_say(&operator, &said).await;
    let inbox = "_INBOX.orchestrator.operator.boot.1";
    let event = "tenure.v1.event.other.task";
    place.may_hear(&operator, &[(inbox, inbox), ("tenure.v1.event.>", event)]).await;
    let attacks = [
        "tenure.v1.orchestrator.main.orchestrator-1.cmd.0",
        "tenure.v1.observer.main.operator.cmd.0",
        "tenure.v1.system.main.operator.cmd.0",
        "tenure.v1.worker.default.worker-1.boot.report.0",
        "tenure.v1.node.one.alive",
        "tenure.v1.event.main.task",
        "tenure.wal.0",
        "$JS.API.STREAM.DELETE.TENURE_WAL_0",
        "_INBOX.orchestrator.orchestrator-1.boot.1",
    ];
    place.may_not_say(&operator, &attacks).await;
    let heard = [
        (">", "tenure.wal.0"),
        ("_INBOX.orchestrator.orchestrator-1.>", "_INBOX.orchestrator.orchestrator-1.boot.1"),
        ("tenure.v1.orchestrator.>", "tenure.v1.orchestrator.main.orchestrator-1.cmd.0"),
    ];
    place.may_not_hear(&operator, &heard).await;
    assert!(!place.hears_in_group(&operator, event, event).await);
}

/// A gateway acts as whoever has come to it, in every role that callers have.
#[tokio::test]
async fn a_gateway_acts_for_its_callers() {
    let place = Place::open().await;
    let gateway = place.user("gateway").await;
    let said = [
        "tenure.v1.orchestrator.main.ann.cmd.3",
        "tenure.v1.observer.other.bob.nodes",
        "tenure.v1.worker.gpu.worker-2.boot.report.0",
    ];
    place.may_say(&gateway, &said).await;
    let heard = [
        ("_INBOX.orchestrator.ann.boot.>", "_INBOX.orchestrator.ann.boot.1"),
        ("_INBOX.observer.bob.boot.>", "_INBOX.observer.bob.boot.1"),
        ("_INBOX.worker.worker-2.boot.>", "_INBOX.worker.worker-2.boot.d.one"),
        ("tenure.v1.event.other.task", "tenure.v1.event.other.task"),
        ("tenure.v1.node.>", "tenure.v1.node.one.alive"),
        ("tenure.v1.worker.gpu.worker-2.boot.hello", "tenure.v1.worker.gpu.worker-2.boot.hello"),
    ];
    place.may_hear(&gateway, &heard).await;
}

/// A gateway takes the part of no node, writes no log, and does nothing that it does not offer.
#[tokio::test]
async fn a_gateway_does_nothing_that_callers_may_not() {
    let place = Place::open().await;
    let gateway = place.user("gateway").await;
    let attacks = [
        "tenure.v1.orchestrator.main.ann.drain",
        "tenure.v1.orchestrator.main.ann.import.0",
        "tenure.v1.system.main.ann.cmd.0",
        "tenure.v1.node.one.alive",
        "tenure.v1.event.main.task",
        "_INBOX.orchestrator.ann.boot.1",
        "_INBOX.worker.worker-1.boot.d.one",
        "_INBOX.scheduler.one.1",
        "tenure.wal.0",
        "tenure.index.0",
        "$JS.API.STREAM.DELETE.TENURE_WAL_0",
        "$JS.API.STREAM.MSG.GET.TENURE_WAL_0",
        "anything",
    ];
    place.may_not_say(&gateway, &attacks).await;
    let heard = [
        (">", "tenure.wal.0"),
        ("_INBOX.>", "_INBOX.scheduler.one.1"),
        ("_INBOX.system.>", "_INBOX.system.one.1"),
        ("tenure.v1.orchestrator.>", "tenure.v1.orchestrator.main.orchestrator-1.cmd.0"),
        ("tenure.v1.worker.>", "tenure.v1.worker.default.worker-1.boot.report.0"),
        ("tenure.wal.>", "tenure.wal.0"),
    ];
    place.may_not_hear(&gateway, &heard).await;
    let events = "tenure.v1.event.main.task";
    assert!(!place.hears_in_group(&gateway, events, events).await);
}

/// The users of the scheduler that answer strangers cannot write into the log, nor call the store, nor
/// forge an acknowledgement; each does its own part.
#[tokio::test]
async fn the_scheduler_is_three_users() {
    let place = Place::open().await;
    let (control, intake) = (place.user("control").await, place.user("intake").await);
    place
        .may_say(&control, &["_INBOX.worker.worker-1.boot.d.one", "tenure.v1.node.one.hungry"])
        .await;
    let from_worker = "tenure.v1.worker.default.worker-1.boot.report.0";
    place.may_hear(&control, &[("tenure.v1.worker.*.*.*.report.0", from_worker)]).await;
    let said = ["_INBOX.orchestrator.o.b.1", "_INBOX.observer.o.b.1", "tenure.v1.event.main.task"];
    place.may_say(&intake, &said).await;
    let from_client = "tenure.v1.orchestrator.main.orchestrator-1.hello";
    place.may_hear(&intake, &[("tenure.v1.orchestrator.*.*.hello", from_client)]).await;
    let some_node = "tenure.v1.orchestrator.*.*.hello";
    assert!(place.hears_in_group(&intake, some_node, from_client).await);
    for user in [control, intake] {
        let attacks = [
            "tenure.wal.0",
            "tenure.index.0",
            "$JS.API.STREAM.INFO.TENURE_WAL_0",
            "$JS.ACK.TENURE_WAL_0.c.1.1.1.1.0",
            "_INBOX.scheduler.one.1",
            "tenure.v1.worker.default.worker-1.boot.report.0",
        ];
        place.may_not_say(&user, &attacks).await;
        place.may_not_hear(&user, &[("_INBOX.scheduler.>", "_INBOX.scheduler.one.1")]).await;
    }
}

/// The journal does all that it does, and cannot be made to destroy a log.
#[tokio::test(flavor = "multi_thread")]
async fn the_journal_adds_and_never_takes_away() {
    let place = Place::open().await;
    let user = place.user("journal").await;
    let settings = LogSettings { node: "one".into(), partitions: 2, ..LogSettings::default() };
    let journal = JetStreamJournal::open(user.client.clone(), settings).await.unwrap();
    let mut history = History::of("main", "task");
    let epoch = journal.take(history.key.partition(2)).await.unwrap();
    let decided = |commit: Arc<Commit>| Arc::new(Commit { epoch, ..Commit::clone(&commit) });
    let commit = decided(history.create());
    journal.create(&history.key, &history.wal_name, vec![commit]).await.unwrap();
    let after = history.last_seq();
    let commit = decided(history.work(5));
    journal.append(&history.key, after, vec![commit]).await.unwrap();
    assert_eq!(read_all(&journal, &history.key).await.unwrap().len(), 2);
    assert!(user.was_never_refused());
    let attacks = [
        "$JS.API.STREAM.DELETE.TENURE_WAL_0",
        "$JS.API.STREAM.PURGE.TENURE_WAL_0",
        "$JS.API.STREAM.MSG.DELETE.TENURE_WAL_0",
        "$JS.API.STREAM.UPDATE.TENURE_WAL_0",
        "tenure.v1.event.main.task",
        "_INBOX.worker.worker-1.boot.d.one",
    ];
    place.may_not_say(&user, &attacks).await;
    place.may_not_hear(&user, &[("tenure.v1.>", "tenure.v1.event.main.task")]).await;
}

/// A sender chooses the reply subject freely: the server delivers the request. The answer is what
/// counts: into the log, to the store or to the journal's inboxes the answering user cannot send it;
/// where it could, the scheduler must look at the subject.
#[tokio::test]
async fn an_answer_goes_to_the_inbox_of_who_asked() {
    let place = Place::open().await;
    let control = place.user("control").await;
    let worker = place.user("worker-1").await;
    let hb = "tenure.v1.worker.default.worker-1.boot.hb";
    let mut asked = control.client.subscribe("tenure.v1.worker.>").await.unwrap();
    assert!(place.delivers(&control, "tenure.v1.node.one.hungry").await, "it is subscribed");
    let may_control_say = [
        ("_INBOX.worker.worker-1.boot.r.1", true),
        ("_INBOX.worker.worker-2.boot.r.1", true), // Only the scheduler itself can refuse these.
        ("tenure.v1.node.one.alive", true),
        ("_INBOX.scheduler.one.1", false),
        ("_INBOX.orchestrator.orchestrator-1.boot.1", false),
        ("tenure.wal.0", false),
        ("$JS.API.STREAM.DELETE.TENURE_WAL_0", false),
    ];
    for (reply, arrives) in may_control_say {
        assert!(place.delivers_with(&worker, hb, Some(reply), HeaderMap::new()).await);
        let request = asked.next().await.unwrap();
        let marker = asked.next().await.unwrap();
        assert!(marker.reply.is_none());
        let given = request.reply.unwrap();
        assert_eq!(place.delivers(&control, &given).await, arrives, "{reply}");
        let principal = Token::new("worker-1").unwrap();
        let own = reply.starts_with("_INBOX.worker.worker-1.");
        assert_eq!(is_inbox_of(&given, Role::Worker, &principal), own, "{reply}");
    }
    // The store acknowledges on subjects of this form: the server takes no request with one.
    let forged = Some("$JS.ACK.TENURE_WAL_0.c.1.1.1.1.0");
    assert!(!place.delivers_with(&worker, hb, forged, HeaderMap::new()).await);
}
