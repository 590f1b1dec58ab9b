//! What orchestrators ask, and what they are answered.

use std::time::Duration;

use async_nats::HeaderMap;
use futures::StreamExt as _;
use nix::sys::signal::Signal;
use serde_json::json;
use tenure_cluster::JetStreamJournal;
use tenure_core::Code;
use tenure_core::command::Command;
use tenure_core::features::Features;
use tenure_core::status::{Policy, TaskStatus};
use tenure_core::view::write::TaskHeader;
use tenure_core::view::{QueryInput, StepPage, TaskView, WriteSummary};
use tenure_wire::bus::event::{EventPage, Published, ReadEvents};
use tenure_wire::bus::request::{
    Ask, Committed, Entries, GetInput, Hello, List, LogPage, ReadLog, ReadUntil, Request, Welcome,
};
use tenure_wire::bus::subject::ClusterName;
use tenure_wire::bus::{Answer, V, decode, encode};

use crate::common::{Caller, PARTITIONS, Servers, input, until};

fn cancel() -> Ask {
    let command = json!({"operation": "task_cancel", "input": {}});
    Ask::Command(Box::new(serde_json::from_value::<Command>(command).unwrap()))
}

/// Mechanisms 11: an owner holds its answer to a reader of a log until there is what the reader waits for.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_reader_of_a_log_is_held() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let read = async |task, which| bob.ask::<LogPage>(task, "unused", Ask::ReadLog(which)).await;
    let works = async {
        let made = bob.create("t1", &["a"]).await.version;
        let cancels = bob.ask::<WriteSummary>("t1", "c", cancel());
        (made, tokio::join!(read("t1", ReadLog::from(made).waiting(ReadUntil::More)), cancels))
    };
    let before_it_is_made = read("t1", ReadLog::from(0).waiting(ReadUntil::Settled));
    let (whole, (made, (next, ended))) = tokio::join!(before_it_is_made, works);
    let (whole, next, log) = (whole.unwrap(), next.unwrap(), bob.log("t1").await.unwrap());
    assert_eq!((whole.commits, whole.version), (log.commits.clone(), log.version));
    assert_eq!((whole.status, whole.more), (TaskStatus::Cancelled, false));
    assert!(ended.unwrap().version > made && log.commits[1..].starts_with(&next.commits[..1]));

    let shortly = |after| ReadLog { wait_ms: 50, ..ReadLog::from(after) };
    let version = bob.create("t2", &["a"]).await.version;
    let nothing = read("t2", shortly(version)).await.unwrap();
    assert_eq!((nothing.commits.len(), nothing.version), (0, version), "nothing came in time");
    assert_eq!(read("t2", shortly(0)).await.unwrap().version, version, "this is there already");
    for until in [ReadUntil::More, ReadUntil::Settled] {
        let refused = read("t3", ReadLog { until, ..shortly(0) }).await.unwrap_err();
        assert_eq!(refused.code, Code::TaskNotFound, "it was not made meanwhile");
    }
}

/// CTRL-01, CTRL-04
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_made_read_and_cancelled_over_nats() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let client = servers.client().await;
    let mut hints = client.subscribe("tenure.v1.event.s1.t1").await.unwrap();
    let hello = encode(&Hello { v: V, features: Features::default() }).unwrap();
    let options =
        async_nats::ConnectOptions::new().custom_inbox_prefix("_INBOX.orchestrator.bob.b2");
    let asking = options.connect(servers.url()).await.unwrap();
    let subject = format!("{}.hello", bob.name.root(&ClusterName::default()));
    let welcome = asking.request(subject, hello.into()).await.unwrap();
    let welcome = decode::<Answer<Welcome>>(&welcome.payload).unwrap().into_result().unwrap();
    assert_eq!(welcome.partitions, PARTITIONS);

    let made = bob.create("t1", &["a", "b"]).await;
    assert_eq!(made.version, made.event_ids.len() as u64);
    let TaskHeader::Summary(task) = &made.task else { panic!("{made:?}") };
    let partition = bob.key("t1").partition(PARTITIONS); // 2.1: stream and partition.
    assert_eq!(task.wal_path, Some(format!("TENURE_WAL_{partition}/{partition}")));
    let again = bob.create("t1", &["a", "b"]).await;
    assert_eq!(again.event_ids, made.event_ids, "the same command again is answered as before");
    let conflict = bob.try_create("t1", "other", &["a"]).await.unwrap_err();
    assert_eq!(conflict.code, Code::TaskIdConflict);

    let view: TaskView = bob.ask("t1", "x", Ask::Get(GetInput {})).await.unwrap();
    assert_eq!(view.steps.len(), 2);
    let page: StepPage = bob
        .ask("t1", "x", Ask::Steps(QueryInput { limit: Some(1), ..Default::default() }))
        .await
        .unwrap();
    assert_eq!((page.steps.len(), page.next_offset), (1, Some(1)));
    let list = Ask::List(List::default());
    let entries: Entries = bob.ask("t1", "x", list.clone()).await.unwrap();
    assert_eq!(entries.entries.len(), 1);

    let done: WriteSummary = bob.ask("t1", "c", cancel()).await.unwrap();
    assert!(done.version > made.version);
    let log = bob.log("t1").await.unwrap();
    assert_eq!((log.status, log.version), (TaskStatus::Cancelled, done.version));
    let entries: Entries = bob.ask("t1", "x", list).await.unwrap();
    assert_eq!(entries.entries, [], "ended tasks only if asked for");

    let ended = async {
        while let Some(hint) = hints.next().await {
            let hint: Committed = decode(&hint.payload).unwrap();
            if hint.ended.is_some() {
                return hint;
            }
        }
        unreachable!()
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    assert_eq!((ended.version, ended.ended), (done.version, Some(TaskStatus::Cancelled)));
    node.stop().await;
}

/// CTRL-09, OWN-03
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_refused_with_a_reason() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let right = bob.key("t1").partition(PARTITIONS);
    let wrong = (right + 1) % PARTITIONS;
    let create = Ask::Create(Box::new(input("t1", &["a"])));
    let request = Request::new(None, None, create).write().unwrap();
    let refused = bob.raw::<WriteSummary>(wrong, request).await.unwrap_err();
    assert_eq!((refused.code, &refused.details["partition"]), (Code::NotOwner, &right.into()));
    let refused = bob.raw::<WriteSummary>(right, vec![0xc1]).await.unwrap_err();
    assert_eq!(refused.code, Code::ValidationError);
    let nowhere = Request::new(None, None, Ask::Get(GetInput {})).write().unwrap();
    let refused = bob.raw::<TaskView>(right, nowhere).await.unwrap_err();
    assert_eq!(
        (refused.code, &refused.details["field"]),
        (Code::ValidationError, &"task_id".into())
    );
    let refused = bob.log("t1").await.unwrap_err();
    assert_eq!(refused.code, Code::TaskNotFound);
    let claim = json!({"operation": "task_claim_step",
        "input": {"run_id": "01900000-0000-7000-8000-000000000001", "step_id": "a"}});
    let claim: Command = serde_json::from_value(claim).unwrap();
    bob.create("t1", &["a"]).await;
    let refused =
        bob.ask::<WriteSummary>("t1", "x", Ask::Command(Box::new(claim))).await.unwrap_err();
    assert_eq!(refused.code, Code::ToolNotAvailable);
}

/// Mechanisms 15: a request whose answer would go elsewhere is dropped, and writes nothing anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_makes_the_scheduler_write_for_them() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    bob.create("t1", &["a"]).await;
    let client = servers.client().await;
    let mut overheard = client.subscribe(">").await.unwrap();
    client.flush().await.unwrap();
    let partition = bob.key("t1").partition(PARTITIONS);
    let subject = format!("{}.cmd.{partition}", bob.name.root(&ClusterName::default()));
    let request =
        Request::new(Some("t1".parse().unwrap()), None, Ask::Get(GetInput {})).write().unwrap();
    for reply in ["tenure.wal.0", "$JS.API.STREAM.PURGE.TENURE_WAL_0", "_INBOX.worker.eve.b.r.1"] {
        client.publish_with_reply(subject.clone(), reply, request.clone().into()).await.unwrap();
    }
    // What comes after them was heard after them.
    let view: TaskView = bob.ask("t1", "x", Ask::Get(GetInput {})).await.unwrap();
    assert_eq!(view.steps.len(), 1);
    client.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut subjects = Vec::new();
    while let Ok(Some(message)) =
        tokio::time::timeout(Duration::from_millis(100), overheard.next()).await
    {
        subjects.push(message.subject.to_string());
    }
    assert!(!subjects.is_empty());
    let stray = subjects.iter().filter(|subject| {
        subject.starts_with("tenure.wal")
            || subject.starts_with("$JS.API.STREAM.PURGE")
            || subject.starts_with("_INBOX.worker")
    });
    assert_eq!(stray.count(), 0, "{subjects:?}");
}

/// A log that is longer than an answer comes in parts, and so does a commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_comes_in_parts() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let ids: Vec<String> = (0..6_000).map(|n| format!("step-with-a-long-name-{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let made = bob.create("t1", &ids).await;
    let (mut lines, mut from, mut parts) = (Vec::new(), 0, 0);
    loop {
        let ask = Ask::ReadLog(ReadLog { from, ..ReadLog::default() });
        let page: LogPage = bob.ask("t1", "x", ask).await.unwrap();
        parts += 1;
        assert_eq!(page.version, made.version);
        lines.extend_from_slice(&page.commits[0].0);
        match page.cut {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!(parts > 1);
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let types = lines.map(|line| {
        let line: serde_json::Value = serde_json::from_slice(line).unwrap();
        line["event_type"].as_str().unwrap().to_owned()
    });
    let types: Vec<String> = types.collect();
    assert_eq!(types.first().map(String::as_str), Some("task_created"));
    assert_eq!(types.len() as u64, made.version);
}

/// OWN-04, REL-05, CANCEL-03: parents and children hear of each other wherever they live.
#[tokio::test(flavor = "multi_thread")]
async fn families_span_nodes() {
    let servers = Servers::start();
    let one = servers.node().await;
    let two = tenure_node::Node::start(servers.settings("n2")).await.unwrap();
    until(async || !two.served().is_empty() && !one.served().is_empty()).await;
    until(async || one.served().len() + two.served().len() == PARTITIONS as usize).await;
    tokio::time::sleep(Duration::from_secs(2)).await; // No partition moves any more.
    let bob = Caller::new(&servers).await;
    let of_one = one.served();
    let name_in = |is_ones: bool| {
        let names = (0..).map(|n| format!("family-{is_ones}-{n}"));
        let fits = |name: &String| of_one.contains(&bob.key(name).partition(PARTITIONS)) == is_ones;
        names.into_iter().find(fits).unwrap()
    };
    let (parent, child) = (name_in(true), name_in(false));
    bob.create(&parent, &["a"]).await;
    let mut input = input(&child, &["a"]);
    input.parent_task_id = Some(parent.parse().unwrap());
    let made: WriteSummary =
        bob.ask(&child, "child", Ask::Create(Box::new(input.clone()))).await.unwrap();
    assert!(made.version > 0);
    until(async || bob.events(&parent).await.contains(&"task_linked".to_owned())).await;
    let _: WriteSummary = bob.ask(&parent, "c", cancel()).await.unwrap();
    until(async || bob.log(&child).await.unwrap().status == TaskStatus::Cancelled).await;
    let orphan = name_in(false).replace("family", "orphan");
    input.task_id = Some(orphan.parse().unwrap());
    input.parent_task_id = Some("nobody".parse().unwrap());
    let refused = bob.ask::<WriteSummary>(&orphan, "o", Ask::Create(Box::new(input))).await;
    assert_eq!(refused.unwrap_err().code, Code::TaskNotFound);
    two.stop().await;
    one.stop().await;
}

/// WAL-15: the same commands leave the same log, whatever keeps it: but for ids, times and epochs.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_cluster_is_that_of_one_process() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let boot = tenure_wire::bus::subject::Token::new("b3").unwrap();
    let name = Caller::new(&servers).await.name;
    let inbox = tenure_wire::bus::subject::inbox(name.role, &name.principal, &boot);
    let settings = tenure_sdk::nats::NatsSettings::new(servers.url());
    let connection = tenure_sdk::nats::Connection::open(&settings, inbox).await.unwrap();
    let cluster = tenure_sdk::nats::NatsClient::join(connection, &name).await.unwrap();
    let config = tenure_scheduler::Config::embedded("default".parse().unwrap());
    let journal = std::sync::Arc::new(tenure_testkit::MemoryJournal::default());
    let leases = std::sync::Arc::new(tenure_local::MemoryLeases::default());
    let alone = tenure_scheduler::Scheduler::start(journal, leases, config).await.unwrap();
    let alone = alone.client(name.role, name.agent().unwrap(), name.session.clone());
    assert_eq!(scripted(&cluster).await, scripted(&alone).await);
}

/// CTRL-01, 5.2, 5.3, POL-01: what agents and the control plane call an operation is what it is called. An
/// agent that says nothing of policies makes a Task that does nothing by itself.
#[tokio::test(flavor = "multi_thread")]
async fn operations_are_asked_for_by_all_their_names() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let ask = async |task: &str, operation: &str, input: serde_json::Value| {
        let id = format!("{task} {operation}");
        let request = json!({"v": 1, "operation": operation, "task_id": task, "command_id": id,
            "input": input});
        let partition = bob.key(task).partition(PARTITIONS);
        bob.raw::<serde_json::Value>(partition, encode(&request).unwrap()).await.unwrap()
    };
    let policies = async |task: &str| {
        let view: TaskView = bob.ask(task, "x", Ask::Get(GetInput {})).await.unwrap();
        (view.task.dispatch, view.task.completion)
    };
    let task = |name: &str| serde_json::to_value(input(name, &["a"])).unwrap();
    ask("by-agent", "agent.task_create", task("by-agent")).await;
    assert_eq!(policies("by-agent").await, (Policy::Manual, Policy::Manual));
    ask("by-client", "create_task", task("by-client")).await;
    assert_eq!(policies("by-client").await, (Policy::Auto, Policy::Auto));

    for name in ["agent.task_get", "get_task"] {
        assert_eq!(ask("by-agent", name, json!({})).await["task_id"], "by-agent", "{name}");
    }
    for name in ["agent.task_list", "list_tasks"] {
        let page = ask("by-agent", name, json!({})).await;
        assert!(page["tasks"].as_array().unwrap().iter().any(|it| it["task_id"] == "by-agent"));
    }
    let steps = ask("by-agent", "agent.task_query_steps", json!({})).await;
    assert_eq!(steps["steps"][0]["step_id"], "a");
    assert!(ask("by-agent", "agent.task_template", json!({})).await["text"].is_string());
    ask("by-agent", "update_task", json!({"title": "new", "reason": {"message": "better"}})).await;
    let patch = json!({"operations": [{"op": "update_task", "summary": "newer"}]});
    ask("by-agent", "agent.task_update", patch).await;
    let view: TaskView = bob.ask("by-agent", "x", Ask::Get(GetInput {})).await.unwrap();
    assert_eq!((&*view.task.title, &*view.summary), ("new", "newer"));
    for name in ["agent.dispatch_worker", "start_task"] {
        let made = ask("by-agent", name, json!({"worker_pool_id": "elsewhere"})).await;
        assert!(made["run_id"].is_string() || made["run_id"].is_array(), "{made}");
    }
    let done = json!({"step_id": "a", "status": "completed"});
    ask("by-agent", "agent.task_update_step", done.clone()).await;
    ask("by-agent", "complete_task", json!({})).await;
    ask("by-client", "cancel_task", json!({})).await;
    for (task, create, end, status) in [
        ("a1", "agent.task_create", "agent.task_cancel", TaskStatus::Cancelled),
        ("a2", "agent.task_create", "agent.task_fail", TaskStatus::Failed),
        ("a3", "create_task", "fail_task", TaskStatus::Failed),
    ] {
        ask(task, create, serde_json::to_value(input(task, &["a"])).unwrap()).await;
        ask(task, end, json!({})).await;
        assert_eq!(bob.log(task).await.unwrap().status, status, "{end}");
    }
    ask("a4", "agent.task_create", serde_json::to_value(input("a4", &["a"])).unwrap()).await;
    ask("a4", "agent.task_update_step", done).await;
    assert_eq!(bob.log("a4").await.unwrap().status, TaskStatus::Running, "nobody has ended it");
    ask("a4", "agent.task_complete", json!({})).await;
    for task in ["by-agent", "a4"] {
        assert_eq!(bob.log(task).await.unwrap().status, TaskStatus::Completed);
    }
    node.stop().await;
}

/// Steers a Task by hand, and answers its log without what no two logs share.
async fn scripted(port: &impl tenure_ports::ClientPort) -> Vec<serde_json::Value> {
    let mut create = input("t1", &["a", "b"]);
    create.dispatch = Some(Policy::Manual);
    create.completion = Some(Policy::Manual);
    let around = |id: &str| tenure_core::Context::new(id.parse().unwrap());
    port.write(&"t1".parse().unwrap(), around("c1"), create).await.unwrap();
    let id = "t1".parse().unwrap();
    let commands = [
        json!({"operation": "task_update", "input": {"operations": [
            {"op": "add_step", "step": {"step_id": "c", "title": "c", "summary": "",
             "depends_on_step_ids": ["a"]}},
            {"op": "cancel_step", "step_id": "b"}]}}),
        json!({"operation": "block_task", "input": {"reason": {"message": "a question"}}}),
        json!({"operation": "reopen_task", "input": {}}),
        json!({"operation": "dispatch_worker", "input": {"worker_pool_id": "default",
               "allowed_step_ids": ["a"]}}),
        json!({"operation": "task_cancel", "input": {"reason": {"message": "enough"}}}),
    ];
    for (at, command) in commands.into_iter().enumerate() {
        let command: Command = serde_json::from_value(command).unwrap();
        port.write(&id, around(&format!("c{}", at + 2)), command).await.unwrap();
    }
    let page = port.log(&id, 0).await.unwrap();
    let mut lines = Vec::new();
    for commit in &page.commits {
        tenure_wire::stored::encode(commit, port.session(), &id, &mut lines).unwrap();
    }
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| shared(serde_json::from_slice(line).unwrap())).collect()
}

/// An event without ids, times, epoch and checksum.
pub(crate) fn shared(value: serde_json::Value) -> serde_json::Value {
    const OWN: &[&str] =
        &["commit_id", "event_id", "epoch", "crc", "run_id", "actor_run_id", "attempt_id"];
    match value {
        serde_json::Value::Object(map) => {
            let is_shared = |key: &String| !OWN.contains(&key.as_str()) && !key.ends_with("_at");
            map.into_iter().filter(|(k, _)| is_shared(k)).map(|(k, v)| (k, shared(v))).collect()
        }
        serde_json::Value::Array(all) => all.into_iter().map(shared).collect(),
        other => other,
    }
}

/// EVENT-08: who listens to a Task's events hears that somebody has asked for them, and how far they were
/// told; so of many one need ask.
#[tokio::test(flavor = "multi_thread")]
async fn who_follows_a_task_hears_that_somebody_has_asked() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let made = bob.create("t", &["a"]).await.version;
    let client = servers.client().await;
    let mut told = client.subscribe("tenure.v1.event.s1.t.public").await.unwrap();
    let mut next = async || {
        let message = tokio::time::timeout(Duration::from_secs(10), told.next()).await;
        decode::<Published>(&message.expect("a message").unwrap().payload).unwrap()
    };
    for after in [0, u64::MAX] {
        let ask = Ask::ReadEvents(ReadEvents { after });
        let page: EventPage = bob.ask("t", "unused", ask).await.unwrap();
        assert_eq!((page.version, page.events.is_empty()), (made, after > 0));
        let Published { after, page, .. } = next().await;
        assert_eq!((after, page.through, page.version), (made, made, made));
        assert!(page.events.is_empty());
    }
    let done: WriteSummary = bob.ask("t", "c", cancel()).await.unwrap();
    let Published { after, page, .. } = next().await;
    assert_eq!((after, page.through), (made, done.version));
    assert!(page.events.iter().any(|event| event.terminal));
}

/// A command belongs below the span that its envelope names, or else the one of its headers.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_below_the_span_that_its_headers_name() {
    let servers = Servers::start();
    let node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let span = |n: u8| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b{n}-01");
    let later = span(4).replacen("00", "01", 1);
    let cases = [
        ("lower", None, vec![("traceparent", span(1))], Some(span(1))),
        ("upper", None, vec![("Traceparent", span(2))], Some(span(2))),
        ("envelope", Some(span(3)), vec![("traceparent", span(1))], Some(span(3))),
        ("later", None, vec![("traceparent", format!("{later}-more"))], Some(later)),
        ("none", None, vec![("traceparent", span(1).to_uppercase())], None),
        ("two", None, vec![("traceparent", span(1)), ("traceparent", span(2))], None),
    ];
    for (task, envelope, said, expected) in cases {
        let (id, ask) = (task.parse().unwrap(), Ask::Create(Box::new(input(task, &["a"]))));
        let mut request = Request::new(Some(id), Some("make".parse().unwrap()), ask);
        request.head.trace = envelope.map(Into::into);
        let mut headers = HeaderMap::new();
        said.iter().for_each(|(name, value)| headers.append(*name, value.as_str()));
        let partition = bob.key(task).partition(PARTITIONS);
        let made = bob.raw_with::<WriteSummary>(partition, headers, request.write().unwrap());
        made.await.unwrap();
        let log = bob.log(task).await.unwrap();
        let line = log.commits[0].0.split(|byte| *byte == b'\n').next().unwrap();
        let event: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert_eq!(event["trace"].as_str(), expected.as_deref(), "{task}");
    }
    node.stop().await;
}

/// Mechanisms 4: a node that cannot be sure to own a partition, as without Redis, answers a repeat as it
/// answers what is only read: by what the log says, and not where another has taken the partition.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_not_answered_by_an_owner_of_the_past() {
    let servers = Servers::start();
    let settings = servers.settings("n1");
    let (name, ownership) = (settings.cluster.as_str().to_owned(), settings.ownership);
    let _node = servers.node_of(settings).await;
    let bob = Caller::new(&servers).await;
    let made = bob.try_create("t", "c", &["a"]).await.unwrap();
    servers.redis.signal(Signal::SIGSTOP);
    tokio::time::sleep(2 * ownership).await; // Nothing says that its leases hold.
    let again = bob.try_create("t", "c", &["a"]).await.unwrap();
    assert_eq!(again.version, made.version, "the log says that it is the owner");

    let settings = tenure_cluster::LogSettings {
        name,
        partitions: PARTITIONS,
        node: "two".into(),
        ..tenure_cluster::LogSettings::default()
    };
    let other = JetStreamJournal::open(servers.client().await, settings).await.unwrap();
    let partition = bob.key("t").partition(PARTITIONS);
    let (id, create) = ("t".parse().unwrap(), Ask::Create(Box::new(input("t", &["a"]))));
    let request = Request::new(Some(id), Some("c".parse().unwrap()), create).write().unwrap();
    other.take(partition).await.unwrap();
    let subject = format!("{}.cmd.{partition}", bob.name.root(&ClusterName::default()));
    // It may have learned of the other by itself, and listen no more.
    if let Ok(answer) = bob.client.request(subject, request.into()).await {
        let answer = decode::<Answer<WriteSummary>>(&answer.payload).unwrap();
        assert_eq!(answer.into_result().unwrap_err().code, Code::NotOwner);
    }
    servers.redis.signal(Signal::SIGCONT);
}
