//! What a node takes at a time, at its limits and over them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::{Value as Json, json};
use tenure_core::Code;
use tenure_core::command::create::CreateTask;
use tenure_core::features::Features;
use tenure_core::record::{Value, ValueBody};
use tenure_core::sessions::WorkerSessions;
use tenure_core::status::{Role, StepStatus, TaskStatus};
use tenure_core::view::{
    ClaimResult, ListInput, QueryInput, StepPage, TaskView, View, WriteSummary,
};
use tenure_node::{Node, Settings, StartError};
use tenure_ports::ClientPort as _;
use tenure_sdk::nats;
use tenure_wire::bus::operate::NodeFacts;
use tenure_wire::bus::request::{Ask, Entries, Entry, GetInput, List, Request};
use tenure_wire::bus::subject::{ClientName, ClusterName, Token, inbox};
use tenure_wire::bus::worker::{Bye, Claim, Delivery, HANDLERS_MAX, Hello, Word};
use tenure_wire::bus::{MESSAGE_MAX, V};

use crate::common::{Caller, Hand, PARTITIONS, Servers, input, until};
use crate::servers::{nats_with, redis};
use crate::workers::{report, tell};

/// Writes go on where no more may be read.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_reads_are_told_to_come_again() {
    let servers = Servers::start();
    let settings = Settings { reads_max: 0, ..servers.settings("n1") };
    let node = servers.node_of(settings).await;
    let bob = Caller::new(&servers).await;
    bob.create("t", &["a"]).await;
    let refused = bob.ask::<TaskView>("t", "unused", Ask::Get(GetInput {})).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    assert_eq!(refused.details["kind"], "overloaded");
    assert!(refused.details["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0));
    node.stop().await;

    let settings = Settings { reads_max: 1, ..servers.settings("n2") };
    let _node = servers.node_of(settings).await;
    for _ in 0..3 {
        // Each gives its leave back, if not at once.
        until(async || bob.ask::<TaskView>("t", "unused", Ask::Get(GetInput {})).await.is_ok())
            .await;
    }
}

/// CTRL-06: of what is too long for a message a Task says where its lists are, a page has fewer Steps, and
/// a write names none.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_for_a_message_is_answered_in_short() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    bob.create("t", &["a"]).await;
    let say = async |id: &str, command: Json| -> WriteSummary {
        let command = serde_json::from_value(command).unwrap();
        bob.ask("t", id, Ask::Command(Box::new(command))).await.unwrap()
    };
    for part in 0..3 {
        let add = |n: usize| {
            json!({"op": "add_step", "step": {"step_id": format!("b{part}-{n}"), "title": "b",
                "summary": "x".repeat(60_000), "depends_on_step_ids": ["a"]}})
        };
        let operations: Vec<Json> = (0..8).map(add).collect();
        let patch = json!({"operation": "task_update", "input": {"operations": operations}});
        assert_eq!(say(&format!("patch-{part}"), patch).await.steps.len(), 8);
    }
    let view: TaskView = bob.ask("t", "unused", Ask::Get(GetInput {})).await.unwrap();
    assert_eq!((view.steps.len(), view.task.counts.pending), (0, 24));
    assert_eq!(view.left_out.unwrap().version, view.task.version);
    let page: StepPage = bob.ask("t", "unused", Ask::Steps(QueryInput::default())).await.unwrap();
    assert_eq!((page.steps.len(), page.next_offset), (12, Some(12)));
    let done = say("cancel", json!({"operation": "task_cancel", "input": {}})).await;
    assert_eq!((done.steps.len(), done.event_ids.len()), (0, 26));
}

/// CLAIM-14: a Step that is too long for a message, with what it is handed of those before it, fails for that
/// reason and is given to nobody else. The link goes on behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_too_long_to_be_sent_fails_and_says_so() {
    const BEFORE: usize = 20;
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::join(&servers, "alice").await;
    alice.room(64).await;
    let before: Vec<String> = (0..BEFORE).map(|n| format!("a{n}")).collect();
    let step = |id: &str, on: &[String]| {
        json!({"step_id": id, "title": id, "summary": "", "depends_on_step_ids": on,
               "handler": "noop"})
    };
    let mut steps: Vec<Json> = before.iter().map(|id| step(id, &[])).collect();
    steps.push(step("z", &before));
    let input = json!({"task_id": "t", "title": "t", "summary": "", "steps": steps});
    let create = Ask::Create(Box::new(serde_json::from_value(input).unwrap()));
    bob.ask::<WriteSummary>("t", "create", create).await.unwrap();
    let mut granted = Vec::new();
    while granted.len() < BEFORE {
        granted.extend(alice.take().await.into_iter().filter_map(|one| one.grant));
    }
    alice.room(64 - BEFORE as u64).await;
    for claim in &granted {
        let mut done = report(claim, StepStatus::Completed);
        let Word::TaskUpdateStep(word) = &mut done.word else { panic!("{done:?}") };
        let body = ValueBody::Data(vec![b'x'; 60_000].into());
        word.output = Some(Value::of("text/plain", body));
        let results = tell(&alice, vec![done]).await;
        assert!(results[0].error.is_none(), "{results:?}");
    }
    let instead = alice.take().await;
    assert_eq!(instead, [Delivery::default()], "so that what is numbered goes on");
    let look = |task: &View<'_>| {
        let z = task.step(&"z".parse().unwrap()).unwrap();
        let why = z.state.facts().status_reason.as_ref().map(|reason| reason.code.to_string());
        (task.status(), why, task.attempts_len())
    };
    let ends = async || node.scheduler().read(&bob.key("t"), look).await.unwrap();
    until(async || ends().await.0 == TaskStatus::Failed).await;
    let too_long = Some("claim_too_long".to_owned());
    assert_eq!(ends().await, (TaskStatus::Failed, too_long, BEFORE + 1));

    bob.create("u", &["a"]).await;
    alice.room(1).await;
    let next = alice.take().await;
    assert_eq!(next[0].grant.as_ref().unwrap().task_id.as_str(), "u", "{next:?}");
}

/// A worker too many gets no link; it does as soon as another has left.
#[tokio::test(flavor = "multi_thread")]
async fn so_many_workers_have_a_link() {
    let servers = Servers::start();
    let settings = Settings { links_max: 1, ..servers.settings("n1") };
    let _node = servers.node_of(settings).await;
    let mut alice = Hand::join(&servers, "alice").await;
    alice.hello().await; // Nobody new.
    let mut carol = Hand::unheard(&servers, "carol").await;
    let hello = Hello {
        v: V,
        handlers: None,
        sessions: WorkerSessions::ALL,
        worker_host: None,
        worker_build: None,
        features: Features::default(),
    };
    carol.say("hello", &hello).await;
    let refused = carol.refusal().await;
    assert!(refused.code.is_retryable(), "{refused}");
    alice.say("bye", &Bye { v: V }).await;
    let begun = Instant::now();
    carol.say("hello", &hello).await;
    while carol.hear().await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "she gets no link");
        carol.say("hello", &hello).await;
    }
}

/// One login cannot take all links of a node, nor its memory by what it says: others get links all the same.
#[tokio::test(flavor = "multi_thread")]
async fn one_principal_takes_no_more_than_its_share() {
    let servers = Servers::start();
    let settings = Settings { links_max: 8, ..servers.settings("n1") };
    let _node = servers.node_of(settings).await;
    let first = Hand::join(&servers, "eve").await;
    let mut second = Hand::unheard_boot(&servers, "eve", "b2").await;
    second.hello().await;
    let mut third = Hand::unheard_boot(&servers, "eve", "b3").await;
    let hello = |handlers: Option<usize>| Hello {
        v: V,
        handlers: handlers
            .map(|count| (0..count).map(|at| format!("h{at}").parse().unwrap()).collect()),
        sessions: WorkerSessions::ALL,
        worker_host: None,
        worker_build: None,
        features: Features::default(),
    };
    third.say("hello", &hello(None)).await;
    let refused = third.refusal().await;
    assert!(refused.code.is_retryable() && refused.message.contains("2 links"), "{refused}");
    Hand::join(&servers, "bob").await;
    first.say("bye", &Bye { v: V }).await;
    let begun = Instant::now();
    third.say("hello", &hello(None)).await;
    while third.hear().await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "there is room for a link again");
        third.say("hello", &hello(None)).await;
    }

    let mut greedy = Hand::unheard(&servers, "greedy").await;
    greedy.say("hello", &hello(Some(HANDLERS_MAX + 1))).await;
    let refused = greedy.refusal().await;
    assert_eq!(refused.code, Code::ValidationError, "{refused}");
    assert_eq!(refused.details["field"], "handlers", "{refused:?}");
    greedy.say("hello", &hello(Some(HANDLERS_MAX))).await;
    greedy.hear().await.unwrap();
}

/// An observer in the session of an orchestrator.
fn eve(bob: &Caller) -> ClientName {
    let (role, session) = (Role::Observer, bob.name.session.clone());
    ClientName { role, session, principal: Token::new("eve").unwrap() }
}

async fn observer(servers: &Servers, bob: &Caller) -> nats::NatsClient {
    let (eve, settings) = (eve(bob), nats::NatsSettings::new(servers.url()));
    let at = inbox(eve.role, &eve.principal, &Token::new("b").unwrap());
    let connection = nats::Connection::open(&settings, at).await.unwrap();
    nats::NatsClient::join(connection, &eve).await.unwrap()
}

/// LIST-06, LIST-07: a page costs its own Tasks and some single ones, however many are before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_far_behind_costs_little_more_than_the_first() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let ids: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
    for some in ids.chunks(50) {
        futures::future::join_all(some.iter().map(|id| bob.create(id, &["a"]))).await;
    }
    let (eve, client) = (eve(&bob), observer(&servers, &bob).await);
    let spy = servers.client().await;
    let mut heard =
        spy.subscribe(format!("{}.cmd.*", eve.root(&ClusterName::default()))).await.unwrap();
    spy.flush().await.unwrap();

    let (mut found, mut pages, mut offset) = (Vec::new(), 0, Some(0));
    while let Some(from) = offset {
        pages += 1;
        let input = ListInput { limit: Some(10), offset: from, ..ListInput::default() };
        let page = client.tasks(input).await.unwrap();
        found.extend(page.tasks);
        offset = page.next_offset;
        spy.publish(format!("{}.cmd.99", eve.root(&ClusterName::default())), "".into())
            .await
            .unwrap(); // So far.
        let (mut requests, mut rows) = (0, 0);
        loop {
            let message = heard.next().await.unwrap();
            if message.payload.is_empty() {
                break;
            }
            let request = Request::read(&message.payload).unwrap();
            let Ask::Tasks(list) = &request.ask else { panic!("{request:?}") };
            requests += 1;
            rows += list.limit.unwrap();
        }
        let doublings = (from / 10).max(1).next_power_of_two().ilog2();
        assert!(requests <= PARTITIONS * (1 + 2 * doublings), "{requests} from {from} on");
        assert!(rows <= 120, "{rows} from {from} on");
    }
    let whole = ListInput { limit: Some(500), ..ListInput::default() };
    assert_eq!(found, client.tasks(whole).await.unwrap().tasks);
    assert_eq!((found.len(), pages), (200, 20));
}

/// A Task whose Step `z` is ready, and is handed on more than a message holds.
async fn with_a_step_too_long(bob: &Caller, task: &str, dispatch: &str) {
    const PARENTS: usize = 20;
    let parents: Vec<String> = (0..PARENTS).map(|n| format!("p{n}")).collect();
    let step = |id: &str, on: &[String]| {
        json!({"step_id": id, "title": id, "summary": "", "depends_on_step_ids": on,
               "handler": "noop"})
    };
    let mut steps: Vec<Json> = parents.iter().map(|id| step(id, &[])).collect();
    steps.push(step("z", &parents));
    let long = json!({"task_id": task, "title": "t", "summary": "", "steps": steps,
                      "dispatch": dispatch});
    let create = Ask::Create(Box::new(serde_json::from_value(long).unwrap()));
    bob.ask::<WriteSummary>(task, "create", create).await.unwrap();
    for id in &parents {
        let output = json!({"content_type": "text/plain", "data": "x".repeat(60_000)});
        let input = json!({"step_id": id, "status": "completed", "output": output});
        let word = json!({"operation": "task_update_step", "input": input});
        let word = Ask::Command(Box::new(serde_json::from_value(word).unwrap()));
        bob.ask::<WriteSummary>(task, id, word).await.unwrap();
    }
}

/// CLAIM-14: a Step that is too long for a message fails also where a worker claims it under its Run: it would be
/// held by nobody until its lease ends, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_too_long_to_be_claimed_fails_and_says_so() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    with_a_step_too_long(&bob, "long", "manual").await;
    let mut ann = Hand::join(&servers, "ann").await;
    ann.room(1).await;
    let run = json!({"operation": "dispatch_worker", "input": {"worker_pool_id": "default"}});
    let run = Ask::Command(Box::new(serde_json::from_value(run).unwrap()));
    bob.ask::<WriteSummary>("long", "dispatch", run).await.unwrap();
    let offer = ann.take().await.remove(0).run.expect("an offer");
    let partition = bob.key("long").partition(PARTITIONS);
    let claim = Claim {
        v: V,
        command_id: "claim".parse().unwrap(),
        session_id: offer.session_id.clone(),
        task_id: offer.task_id.clone(),
        run_id: offer.run_id,
        step_id: "z".parse().unwrap(),
    };
    let refused = ann.ask::<ClaimResult>(&format!("claim.{partition}"), &claim).await.unwrap_err();
    assert_eq!(refused.code, Code::ValidationError, "{refused:?}");
    assert!(refused.message.contains(&MESSAGE_MAX.to_string()), "it says the limit: {refused}");
    let why = |task: &View<'_>| {
        let z = task.step(&"z".parse().unwrap()).unwrap();
        let facts = z.state.facts();
        (z.status(), facts.status_reason.as_ref().map(|reason| reason.code.to_string()))
    };
    let failed = (StepStatus::Failed, Some("claim_too_long".to_owned()));
    until(async || node.scheduler().read(&bob.key("long"), why).await.unwrap() == failed).await;
}

/// A Step that is too long for a message fails, and costs its worker no room: the next one comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_cannot_be_sent_takes_no_room() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    with_a_step_too_long(&bob, "long", "auto").await;
    let mut ann = Hand::join(&servers, "ann").await;
    ann.room(1).await;
    assert_eq!(ann.take().await, [Delivery::default()], "there is nothing it could be told");
    until(async || bob.log("long").await.unwrap().status == TaskStatus::Failed).await;
    bob.create("next", &["a"]).await;
    let next = ann.take().await;
    assert_eq!(next[0].grant.as_ref().unwrap().task_id.as_str(), "next");
    // Nobody has acknowledged anything: all of it comes again, and there is no more room than there was.
    bob.create("last", &["a"]).await;
    let again = ann.next().await;
    assert_eq!((again.first, again.deliveries.len()), (1, 2));
    ann.room(0).await;
    let asked = json!({"v": V, "audit": true});
    until(async || {
        let facts: NodeFacts = bob.say("nodes", &asked).await.unwrap();
        (facts.workers[0].sent, facts.workers[0].seen) == (Some(1), Some(1))
    })
    .await;
}

/// Mechanisms 16: to count what a node keeps for work is a read like any other; what it knows anyway it says
/// however many read.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_is_a_read() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    for id in ["a", "b", "c"] {
        bob.create(id, &["s"]).await;
    }
    let asked = |audit: bool| json!({"v": V, "audit": audit});
    let facts: NodeFacts = bob.say("nodes", &asked(true)).await.unwrap();
    let kept = facts.kept.unwrap();
    assert_eq!((kept.live, kept.reads), (3, 0));
    node.stop().await;
    let _node = servers.node_of(Settings { reads_max: 0, ..servers.settings("n2") }).await;
    let refused = bob.say::<NodeFacts>("nodes", &asked(true)).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(bob.say::<NodeFacts>("nodes", &asked(false)).await.unwrap().kept.is_none());
}

/// The pages of a list are complete and in order; with ended Tasks, they are of one reading.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_many_comes_in_pages() {
    const TASKS: usize = 1_100;
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let is_there = |id: &String| bob.key(id).partition(PARTITIONS) == 0;
    let ids = (0..).map(|number| format!("t{number}")).filter(is_there);
    let mut ids: Vec<_> = ids.take(TASKS).collect();
    let late = (0..).map(|number| format!("z{number}")).find(is_there).unwrap();
    for some in ids.chunks(100) {
        futures::future::join_all(some.iter().map(|id| bob.create(id, &["a"]))).await;
    }
    let oldest = async |most: usize| -> Entries {
        let list = Ask::List(List { oldest: Some(most), ..List::default() });
        bob.raw(0, Request::new(None, None, list).write().unwrap()).await.unwrap()
    };
    for (most, count) in [(1, 1), (3, 3), (1_000, 1_000), (5_000, 1_000)] {
        let Entries { entries, more } = oldest(most).await;
        assert_eq!((entries.len(), more), (count, true), "{most}");
        assert!(entries.is_sorted_by_key(|entry| (entry.created_at, entry.task_id.clone())));
        assert!(ids[..100].contains(&entries[0].task_id.to_string()), "of those made first");
    }
    ids.sort();
    for include_terminal in [false, true] {
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let after = found.last().map(|id: &String| id.parse().unwrap());
            let list = Ask::List(List { after, include_terminal, ..List::default() });
            let request = Request::new(None, None, list).write().unwrap();
            let page: Entries = bob.raw(0, request).await.unwrap();
            found.extend(page.entries.into_iter().map(|entry| entry.task_id.to_string()));
            pages += 1;
            if pages == 1 && include_terminal {
                bob.create(&late, &["a"]).await;
            }
            if !page.more {
                break;
            }
        }
        assert_eq!((pages, &found), (2, &ids));
    }
}

/// The oldest live Tasks of partition 0, at most so many: page behind page, as a client asks for them.
async fn oldest(bob: &Caller, most: usize) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let last = all.last().map(|entry| (entry.created_at, entry.task_id.clone()));
        let (after_created_at, after) = last.unzip();
        let oldest = Some(most - all.len());
        let list = Ask::List(List { after, oldest, after_created_at, ..List::default() });
        let request = Request::new(None, None, list).write().unwrap();
        let page: Entries = bob.raw(0, request).await.unwrap();
        let is_last = !page.more || page.entries.is_empty();
        all.extend(page.entries);
        if is_last || all.len() >= most {
            return all;
        }
    }
}

/// CTRL-06, LIST-04: a list of Tasks whose titles are long comes in pages of as many as an answer holds, in
/// whatever order it is asked for, and is whole in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_long_titles_comes_in_pages() {
    const TASKS: usize = 30;
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let is_there = |id: &String| bob.key(id).partition(PARTITIONS) == 0;
    let ids = (0..).map(|number| format!("t{number}")).filter(is_there);
    let mut ids: Vec<_> = ids.take(TASKS).collect();
    for id in &ids {
        let title = "x".repeat(60_000).into();
        let long = CreateTask { title, ..input(id, &["a"]) };
        bob.ask::<WriteSummary>(id, id, Ask::Create(Box::new(long))).await.unwrap();
    }
    let found = oldest(&bob, 1_000).await;
    let oldest_ids: Vec<_> = found.iter().map(|entry| entry.task_id.to_string()).collect();
    assert!(found.is_sorted_by_key(|entry| (entry.created_at, entry.task_id.clone())));
    assert_eq!(oldest(&bob, 20).await, found[..20]);
    ids.sort();
    assert_eq!(oldest_ids.iter().collect::<BTreeSet<_>>(), ids.iter().collect());
    let client = observer(&servers, &bob).await;
    for include_terminal in [false, true] {
        let found = client.list(include_terminal).await.unwrap();
        let found = found.entries.iter().map(|entry| entry.key.task_id.to_string());
        assert!(found.eq(ids.iter().cloned()), "{include_terminal}");
        let input = ListInput { include_terminal, ..ListInput::default() };
        let (mut listed, mut offset) = (0, Some(0));
        while let Some(from) = offset {
            let page = client.tasks(ListInput { offset: from, ..input.clone() }).await.unwrap();
            (listed, offset) = (listed + page.tasks.len(), page.next_offset);
        }
        assert_eq!(listed, TASKS);
    }
}

/// A server of NATS that lets no message through as long as some are is refused, with the setting that mends it:
/// what is too long for it would be sent for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_nats_that_lets_no_long_message_through_is_refused() {
    for (max_payload, is_refused) in [(MESSAGE_MAX - 1, true), (MESSAGE_MAX, false)] {
        let nats = nats_with(&format!("max_payload: {max_payload}"));
        let servers = Servers { nats, redis: redis(&[]) };
        match Node::start(servers.settings("n1")).await {
            Ok(node) => {
                assert!(!is_refused, "{max_payload}");
                node.stop().await;
            }
            Err(refused) => {
                assert!(is_refused, "{max_payload}: {refused}");
                assert!(matches!(refused, StartError::Payload { .. }), "{refused}");
                assert!(refused.advice().contains("set max_payload: 1MB"), "{refused}");
            }
        }
        let streams = async_nats::jetstream::new(servers.client().await).stream_names();
        assert_eq!(streams.count().await == 0, is_refused, "who is refused has made nothing");
    }
}
