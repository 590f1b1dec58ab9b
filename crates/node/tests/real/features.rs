//! Nodes of different features in one cluster (EVOLVE-02), and late input for workers that can take it (CTRL-12).

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use tenure_core::features::{EDITION_2, Features, INPUT, OUTPUT, SESSIONS};
use tenure_core::view::WriteSummary;
use tenure_core::{Code, Command, Rejection};
use tenure_node::Node;
use tenure_wire::bus::node::Alive;
use tenure_wire::bus::operate::{NodeFacts, Nodes};
use tenure_wire::bus::request::{Ask, Hello as Greeting, Request, Welcome};
use tenure_wire::bus::subject::ClusterName;
use tenure_wire::bus::worker::LateInput;
use tenure_wire::bus::{Answer, V, decode};

use crate::common::{Caller, Hand, PARTITIONS, Servers, input, until};
use crate::workers::one_grant;

/// A node of the program before this one: it knows nothing of the second edition.
async fn old_node(servers: &Servers, name: &str) -> Node {
    let mut settings = servers.settings(name);
    settings.features = Features::default();
    Node::start(settings).await.unwrap()
}

/// The first event of a Task.
async fn created(bob: &Caller, task: &str) -> Value {
    let page = bob.log_when_served(task).await;
    let line = page.commits[0].0.split(|byte| *byte == b'\n').next().unwrap();
    serde_json::from_slice(line).unwrap()
}

/// Creates a Task, again while its partition changes hands.
async fn create(bob: &Caller, task: &str, more: Value) -> Result<WriteSummary, Rejection> {
    let mut given = serde_json::to_value(input(task, &["a"])).unwrap();
    given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    loop {
        let given = serde_json::from_value(given.clone()).unwrap();
        let command_id = format!("create-{task}").parse().unwrap();
        let ask = Ask::Create(Box::new(given));
        let request = Request::new(Some(task.parse().unwrap()), Some(command_id), ask);
        let partition = bob.key(task).partition(PARTITIONS);
        let subject = format!("{}.cmd.{partition}", bob.name.root(&ClusterName::default()));
        let made = bob.client.request(subject, request.write().unwrap().into()).await;
        let Ok(made) = made else {
            tokio::time::sleep(Duration::from_millis(50)).await; // Nobody serves it just now.
            continue;
        };
        match decode::<Answer<WriteSummary>>(&made.payload).unwrap().into_result() {
            Err(no) if no.code == Code::NotOwner || no.details.get("feature").is_none() => {
                assert!(no.code.is_retryable(), "{no}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            done => return done,
        }
    }
}

/// EVOLVE-02: as long as a node lives that lacks the second edition, plain creates make Tasks of rules 1, and what
/// names something new is refused with the feature; once it has gone, the logs may hold it. A node that lacks it and
/// comes then takes nothing, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_of_different_features_write_what_both_can_read() {
    let servers = Servers::start();
    let old = old_node(&servers, "old").await;
    until(async || old.served().len() == PARTITIONS as usize).await;
    let new = Node::start(servers.settings("new")).await.unwrap();
    until(async || !new.served().is_empty()).await;
    until(async || new.served().len() + old.served().len() == PARTITIONS as usize).await;
    let bob = Caller::new(&servers).await;

    let tasks: Vec<String> = (0..8).map(|n| format!("before-{n}")).collect();
    let labels = json!({"labels": {"team": "blue"}});
    for task in &tasks {
        let refused = create(&bob, task, labels.clone()).await.unwrap_err();
        assert_eq!(refused.code, Code::Unavailable, "{refused}");
        assert_eq!(refused.details["feature"], EDITION_2);
        create(&bob, task, json!({})).await.unwrap();
        let first = created(&bob, task).await;
        assert_eq!(first["payload"].get("rules"), None, "of rules 1: {first}");
        assert!(!first["command_digest"].as_str().unwrap().starts_with("2:"), "{first}");
    }

    old.stop().await;
    until(async || new.served().len() == PARTITIONS as usize).await;
    for (n, task) in tasks.iter().enumerate() {
        let after = format!("after-{n}");
        until(async || create(&bob, &after, labels.clone()).await.is_ok()).await;
        assert_eq!(created(&bob, &after).await["payload"]["rules"], 2);
        assert_eq!(created(&bob, task).await["payload"].get("rules"), None, "it keeps its rules");
    }

    let client = servers.client().await;
    let mut said = client.subscribe("tenure.v1.node.late.alive").await.unwrap();
    let late = old_node(&servers, "late").await;
    let alive = loop {
        let next = tokio::time::timeout(Duration::from_secs(20), said.next()).await;
        let alive: Alive = decode(&next.expect("it is there").unwrap().payload).unwrap();
        if !alive.lacks.is_empty() {
            break alive;
        }
    };
    assert_eq!((alive.lacks.to_string().as_str(), alive.owned.len()), (EDITION_2, 0));
    assert!(late.served().is_empty());
    assert_eq!(new.served().len(), PARTITIONS as usize);
    late.stop().await;
}

/// EVOLVE-02: nodes tell their features to clients and to those who look at them.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_its_features() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let all = Features::of([EDITION_2, INPUT, OUTPUT, SESSIONS]);
    let welcome: Welcome =
        bob.say("hello", &Greeting { v: V, features: Features::default() }).await.unwrap();
    assert_eq!(welcome.features, all);
    let facts: NodeFacts =
        bob.say("nodes", &Nodes { v: V, audit: false, after: None }).await.unwrap();
    assert_eq!((facts.features, facts.lacks), (all, Features::default()));
}

/// CTRL-12: late input goes to the worker of an open Attempt if it has the feature `input`, and only to it.
#[tokio::test(flavor = "multi_thread")]
async fn late_input_goes_to_workers_that_take_it() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    for (name, features, comes) in
        [("eve", Features::of([INPUT]), true), ("ann", Features::default(), false)]
    {
        let mut hand = Hand::unheard(&servers, name).await;
        hand.hello_with(features).await;
        let task = format!("for-{name}");
        bob.create(&task, &["a"]).await;
        hand.room(1).await;
        let claim = one_grant(&mut hand).await;
        for n in ["x", "y"] {
            let given = json!({"operation": "append_task_progress", "input": {"input_refs": [format!("urn:{n}")]}});
            let command: Command = serde_json::from_value(given).unwrap();
            let _: WriteSummary =
                bob.ask(&task, &format!("add-{n}"), Ask::Command(Box::new(command))).await.unwrap();
        }
        let cancel = json!({"operation": "task_cancel", "input": {"wait": false}});
        let command: Command = serde_json::from_value(cancel).unwrap();
        let _: WriteSummary =
            bob.ask(&task, "cancel", Ask::Command(Box::new(command))).await.unwrap();
        let mut got: Vec<LateInput> = Vec::new();
        'all: loop {
            for delivery in hand.take().await {
                got.extend(delivery.input.map(|input| *input));
                if delivery.cancel_requested.is_some() {
                    break 'all;
                }
            }
        }
        let refs: Vec<(u32, &str)> = got
            .iter()
            .flat_map(|one| one.input_refs.iter().map(|it| (one.after, it.as_str())))
            .collect();
        let expected: &[(u32, &str)] = if comes { &[(0, "urn:x"), (1, "urn:y")] } else { &[] };
        assert_eq!(refs, expected, "{name}");
        assert!(got.iter().all(|one| one.attempt_id == claim.attempt_id));
    }
}
