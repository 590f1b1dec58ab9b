//! What docs/protocol.md says to whoever writes a worker or a client from it, sent as it says.

use std::time::Duration;

use async_nats::RequestErrorKind;
use futures::StreamExt as _;
use serde_json::{Value as Json, json};
use tenure_core::view::ClaimResult;
use tenure_core::{Code, Rejection};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::operate::{NodeFacts, Nodes, RefusedFacts};
use tenure_wire::bus::subject::{ClusterName, WorkerName};
use tenure_wire::bus::{V, decode, encode};
use tokio::time::timeout;

use crate::common::{Caller, Hand, PARTITIONS, Servers, until};
use crate::workers::one_grant;

/// Whatever is waited for comes sooner.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a worker, as they are.
async fn say(hand: &Hand, subject: String, bytes: Vec<u8>) {
    hand.client.publish(subject, bytes.into()).await.unwrap();
    hand.client.flush().await.unwrap();
}

async fn hello(hand: &Hand, message: &Json) {
    say(
        hand,
        format!("{}.hello", hand.name.root(&ClusterName::default())),
        encode(message).unwrap(),
    )
    .await;
}

fn is_of(refused: &Rejection, field: &str, right: &str) {
    assert_eq!((refused.code, &refused.details["field"]), (Code::ValidationError, &field.into()));
    assert!(refused.message.contains(right), "{refused}");
}

async fn refused(bob: &Caller) -> Vec<RefusedFacts> {
    bob.say::<NodeFacts>("nodes", &Nodes { v: V, audit: false, after: None }).await.unwrap().refused
}

/// CTRL-09: a worker whose hello or whose room cannot be taken would wait for work for ever. It is told what is
/// wrong, though it asked for no answer, and so is whoever looks for workers.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_told_why_it_gets_no_work() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::unheard(&servers, "alice").await;
    let form = "1 to 128 characters a-z";
    for (message, field, right) in [
        (json!({"v": 1, "handlers": ["echo", "sendEmail"]}), "handlers[1]", form),
        (json!({"v": 1, "handlers": "echo"}), "handlers", "expected a sequence"),
        (json!({"v": 2, "handlers": ["echo"]}), "v", "only 1"),
        (json!({"handlers": ["echo"]}), "message", "missing field `v`"),
        (json!([1, ["echo"]]), "message", "a map with named fields"),
        (json!("hello"), "message", "a map with named fields"),
    ] {
        hello(&alice, &message).await;
        is_of(&alice.refusal().await, field, right);
    }
    say(&alice, format!("{}.hello", alice.name.root(&ClusterName::default())), Vec::new()).await;
    is_of(&alice.refusal().await, "message", "cannot be read");
    let said = refused(&bob).await;
    let [one] = &said[..] else { panic!("one login: {said:?}") };
    assert_eq!((one.pool.as_str(), one.principal.as_str()), ("default", "alice"));
    assert_eq!(one.boot.as_str(), "b1");
    is_of(&one.error, "message", "cannot be read");

    alice.hello().await;
    assert_eq!(refused(&bob).await, [], "it has a link");
    let room = |more: Json| {
        let mut room =
            json!({"v": 1, "link": alice.link, "number": 1, "free": 1, "seen": 0, "got": 0});
        room.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        encode(&room).unwrap()
    };
    let to = format!("{}.node.{}", alice.name.root(&ClusterName::default()), alice.node);
    let (many, less) = (room(json!({"free": "many"})), room(json!({"free": -1})));
    for (bytes, right) in [(many, "expected a whole number"), (less, "expected a whole number")] {
        say(&alice, to.clone(), bytes).await;
        is_of(&alice.refusal().await, "free", right);
    }
    is_of(&refused(&bob).await[0].error, "free", "expected a whole number");

    let WorkerName { principal, boot, .. } = &alice.name;
    let elsewhere = format!("tenure.v1.worker.Mail.{principal}.{boot}.hello");
    say(&alice, elsewhere, encode(&json!({"v": 1})).unwrap()).await;
    is_of(&alice.refusal().await, "worker_pool_id", form);
    until(async || refused(&bob).await.iter().any(|one| one.pool == "Mail")).await;
}

/// A request as it is sent, with this more than its operation and its Task.
async fn ask(bob: &Caller, task: &str, operation: &str, more: Json) -> Result<Json, Rejection> {
    bob.raw(bob.key(task).partition(PARTITIONS), request(task, operation, more)).await
}

fn request(task: &str, operation: &str, more: Json) -> Vec<u8> {
    let mut message = json!({"v": 1, "task_id": task, "operation": operation});
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    encode(&message).unwrap()
}

/// What has no input that it needs, and is asked of a Task or of a partition.
const ASKED: [&str; 11] = [
    "task_get",
    "task_template",
    "task_query_steps",
    "task_list",
    "task_views",
    "task_board_summary",
    "inspect_task",
    "replay_task",
    "read_events",
    "list_index",
    "list_leases",
];

/// Section "Messages": what is left out, what is not known, and what is no map.
async fn inputs(bob: &Caller) {
    for operation in ASKED {
        for nothing in [json!({}), json!({"input": null}), json!({"input": {}})] {
            let asked = ask(bob, "t", operation, nothing.clone()).await;
            assert!(asked.is_ok(), "{operation} {nothing}: {asked:?}");
        }
        let misspelt = ask(bob, "t", operation, json!({"input": {"limmit": 1}})).await;
        is_of(&misspelt.unwrap_err(), "limmit", "`limmit`");
        let list = ask(bob, "t", operation, json!({"input": [[]]})).await;
        is_of(&list.unwrap_err(), "input", "a map with named fields");
    }
    let commands = [("pause_task", json!({})), ("resume_task", json!({"input": null}))];
    for (operation, nothing) in commands {
        let done = ask(bob, "t", operation, nothing).await;
        assert!(done.is_ok(), "{operation}: {done:?}");
    }
    let before = bob.events("t").await;
    for (input, field, right) in [
        (json!([{"message": "no more"}, false]), "input", "a map with named fields"),
        (json!({"raeson": null}), "raeson", "`raeson`"),
        (json!({"reason": {"message": 7}}), "reason.message", "expected a string"),
    ] {
        let refused = ask(bob, "t", "task_cancel", json!({"input": input})).await.unwrap_err();
        is_of(&refused, field, right);
    }
    let steps = async |input| ask(bob, "t", "task_query_steps", json!({"input": input})).await;
    is_of(&steps(json!({"offset": null})).await.unwrap_err(), "offset", "expected a whole number");
    assert!(steps(json!({"limit": null, "statuses": null})).await.is_ok());
    let partition = bob.key("t").partition(PARTITIONS);
    let list = bob.raw::<Json>(partition, encode(&json!([1, "task_get", "t"])).unwrap()).await;
    is_of(&list.unwrap_err(), "message", "a map with named fields");
    assert_eq!(bob.events("t").await, before, "what is refused has changed nothing");
}

/// Section "Events", 4: whoever has asked is told what happens, without being told what was.
async fn following(servers: &Servers, bob: &Caller) {
    let looker = servers.client().await;
    let subject = "tenure.v1.event.s1.t.public";
    let mut told = looker.subscribe(subject).await.unwrap();
    looker.request("nobody", "".into()).await.unwrap_err(); // The server knows of it when it answers.
    for above in [(1 << 53) - 1, u64::MAX] {
        let page = ask(bob, "t", "read_events", json!({"input": {"after": above}})).await.unwrap();
        assert_eq!((&page["events"], &page["through"]), (&json!([]), &json!(above)), "{page}");
        assert!(page["version"].as_u64().unwrap() < 100, "{page}");
    }
    ask(bob, "t", "pause_task", json!({})).await.unwrap();
    loop {
        let message = timeout(PATIENCE, told.next()).await.unwrap().unwrap();
        let said: Json = decode(&message.payload).unwrap();
        if said["events"].as_array().unwrap().iter().any(|it| it["event"] == "task.paused") {
            break;
        }
    }
    ask(bob, "t", "resume_task", json!({})).await.unwrap();
}

fn partition_of(claim: &ClaimResult) -> u32 {
    let (session_id, task_id) = (claim.session_id.clone(), claim.task_id.clone());
    TaskKey { session_id, task_id }.partition(PARTITIONS)
}

fn named(claim: &ClaimResult) -> Json {
    let (run, task) = (claim.run_id.0.to_string(), claim.task_id.as_str());
    json!({"session_id": "s1", "task_id": task, "run_id": run})
}

fn with(of: &Json, more: Json) -> Json {
    let mut all = of.clone();
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

/// Section "Dispatched Runs": looks, however nothing is said, and a query where nothing is left.
async fn looks(alice: &Hand, claim: &ClaimResult) {
    let partition = partition_of(claim);
    let look = async |look: Json| {
        let message = with(&named(claim), json!({"v": 1, "look": look}));
        alice.ask::<Json>(&format!("look.{partition}"), &message).await
    };
    let answers = [
        ("task_get", "run"),
        ("task_list", "tasks"),
        ("task_query_steps", "steps"),
        ("task_board_summary", "lines"),
    ];
    for (operation, has) in answers {
        for nothing in [json!({}), json!({"input": null}), json!({"input": {}})] {
            let seen = look(with(&json!({"operation": operation}), nothing)).await.unwrap();
            assert!(!seen[has].is_null(), "{operation}: {seen}");
        }
        let misspelt = json!({"operation": operation, "input": {"limmit": 1}});
        is_of(&look(misspelt).await.unwrap_err(), "limmit", "`limmit`");
    }
    let seen = look(json!({"operation": "task_get"})).await.unwrap();
    assert_eq!((&seen["task_id"], &seen["dependencies"]), (&json!("t"), &json!([])), "{seen}");
    let other = look(json!({"operation": "task_cancel", "input": {}})).await.unwrap_err();
    assert_eq!(other.details["field"], "operation", "{other}");
    let query = with(&named(claim), json!({"v": 1}));
    let page: Json = alice.ask(&format!("query.{partition}"), &query).await.unwrap();
    assert_eq!((&page["steps"], &page["no_step_available"]), (&json!([]), &json!(true)), "{page}");
}

/// Sections "Room" and "Heartbeats": what is fetched ahead is claimed, and renewed, as what runs is.
async fn fetches_ahead(alice: &mut Hand) -> Vec<ClaimResult> {
    alice.room(3).await;
    let mut claims: Vec<ClaimResult> = Vec::new();
    while claims.len() < 3 {
        claims.extend(alice.take().await.into_iter().filter_map(|it| it.grant).map(|it| *it));
    }
    alice.room(0).await;
    let held = |claim: &ClaimResult| {
        let attempt_id = claim.attempt_id.0.to_string();
        let more = json!({"attempt_id": attempt_id, "fencing_token": claim.fencing_token});
        with(&named(claim), more)
    };
    let holdings: Vec<Json> = claims.iter().map(held).collect();
    let renewed: Json = alice.ask("hb", &json!({"v": 1, "holdings": holdings})).await.unwrap();
    let pulses = renewed["pulses"].as_array().unwrap();
    assert_eq!(pulses.iter().filter(|pulse| pulse["lease_ms"] == 3_000).count(), 3, "{renewed}");
    claims
}

fn word(claim: &ClaimResult, operation: &str, more: Json) -> Json {
    let attempt_id = claim.attempt_id.0.to_string();
    let held = json!({"attempt_id": attempt_id, "fencing_token": claim.fencing_token});
    let word = json!({"operation": operation, "input": with(&held, more)});
    with(&named(claim), json!({"word": word}))
}

async fn report(alice: &Hand, partition: u32, reports: &[Json]) -> Vec<Json> {
    let message = json!({"v": 1, "reports": reports});
    let answer: Json = alice.ask(&format!("report.{partition}"), &message).await.unwrap();
    let results = answer["results"].as_array().unwrap().clone();
    assert!(results.iter().all(|result| result["error"].is_null()), "{results:?}");
    results
}

/// Section "Reports": more than one should send are taken all the same, and what was given back is named as lost.
async fn reports(alice: &mut Hand, claims: &[ClaimResult]) {
    let [one, two, three] = claims else { panic!("three: {claims:?}") };
    let (partition, step) = (partition_of(one), one.step.step_id.as_str());
    let progress = |n: usize| json!({"step_id": step, "progress": {"summary": n.to_string()}});
    let many: Vec<Json> = (0..257).map(|n| word(one, "task_update_step", progress(n))).collect();
    assert_eq!(report(alice, partition, &many).await.len(), 257);
    report(alice, partition, &[word(two, "release_step", json!({}))]).await;
    let over = alice.take().await;
    assert_eq!(over[0].lost, Some(two.attempt_id), "{over:?}");
    alice.room(1).await;
    let again = one_grant(alice).await;
    alice.room(0).await;
    for claim in [three, one, &again] {
        let done = json!({"step_id": claim.step.step_id.as_str(), "status": "completed"});
        report(alice, partition, &[word(claim, "task_update_step", done)]).await; // Never `running`.
    }
}

/// Section "A claim": the owner ends what takes too long, and says so.
async fn takes_too_long(bob: &Caller, alice: &mut Hand) {
    let steps = json!([{"step_id": "a", "title": "a", "summary": "", "depends_on_step_ids": [],
                        "retry_policy": {"max_attempts": 1, "start_to_close_ms": 300}}]);
    let input = json!({"task_id": "late", "title": "late", "summary": "", "steps": steps});
    ask(bob, "late", "task_create", json!({"command_id": "c", "input": input})).await.unwrap();
    alice.room(1).await;
    let claim = one_grant(alice).await;
    alice.room(0).await;
    let policy = claim.retry_policy.as_ref().unwrap();
    assert_eq!(policy.start_to_close_ms, Some(tenure_core::retry_policy::Limit::Of(300)));
    let over = alice.take().await;
    assert_eq!(over[0].lost, Some(claim.attempt_id), "{over:?}");
    let log = bob.log("late").await.unwrap();
    let text: Vec<u8> = log.commits.iter().flat_map(|commit| commit.0.clone()).collect();
    assert!(String::from_utf8(text).unwrap().contains("worker_timeout"));
}

/// Section "Links": another hello changes nothing, and what is counted goes with the name of the link.
async fn silence(bob: &Caller, mut mute: Hand) {
    let gone = async || {
        let facts: NodeFacts =
            bob.say("nodes", &Nodes { v: V, audit: false, after: None }).await.unwrap();
        facts.workers.iter().all(|worker| worker.principal != "mute")
    };
    until(gone).await;
    let before = mute.link.clone();
    mute.room(7).await;
    let opened = mute.next().await;
    assert_ne!(opened.link, *before, "by another word than a hello: nothing comes on it");
    mute.hello().await;
    let link = mute.link.clone();
    assert!(link != before && link != *opened.link, "a third");
    for _ in 0..3 {
        mute.hello().await;
        assert_eq!(mute.link, link);
    }
    mute.room(2).await;
    let free = async || {
        let facts: NodeFacts =
            bob.say("nodes", &Nodes { v: V, audit: false, after: None }).await.unwrap();
        facts.workers.iter().any(|worker| worker.principal == "mute" && worker.free == 2)
    };
    until(free).await;
}

/// Section "Subjects": whoever looks on makes others wait for what nobody answers.
async fn nobody_answers(servers: &Servers, bob: &Caller) {
    let subject = format!("{}.cmd.{PARTITIONS}", bob.name.root(&ClusterName::default()));
    let refused = bob.client.request(subject.clone(), "".into()).await.unwrap_err();
    assert_eq!(refused.kind(), RequestErrorKind::NoResponders);
    let looker = servers.client().await;
    let _all = looker.subscribe("tenure.>").await.unwrap();
    looker.request("nobody", "".into()).await.unwrap_err();
    let waits = timeout(Duration::from_millis(300), bob.client.request(subject, "".into())).await;
    assert!(waits.is_err(), "{waits:?}");
}

/// CTRL-01: whoever writes a client or a worker from docs/protocol.md is not misled.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_protocol_says_is_so() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mute = Hand::join(&servers, "mute").await; // And says no more for a while.
    bob.create("t", &["a", "b", "c"]).await;
    inputs(&bob).await;
    following(&servers, &bob).await;
    let mut alice = Hand::join(&servers, "alice").await;
    let claims = fetches_ahead(&mut alice).await;
    looks(&alice, &claims[0]).await;
    reports(&mut alice, &claims).await;
    takes_too_long(&bob, &mut alice).await;
    silence(&bob, mute).await;
    nobody_answers(&servers, &bob).await;
}
