//! The client's end: retries, long creates, lists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::Message;
use tenure_core::features::Features;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::record::Progress;
use tenure_core::status::{Role, TaskStatus};
use tenure_core::view::snapshot::TaskRecord;
use tenure_core::view::{GetInput, Normal, Snapshot, ViewsInput, WriteSummary};
use tenure_core::{Code, Command, Rejection};
use tenure_ports::ClientPort as _;
use tenure_ports::placement::PLACEMENT;
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::NatsClient;
use tenure_wire::bus::V;
use tenure_wire::bus::request::{Ask, Committed, Entries, Request, ViewPage, Welcome};
use tenure_wire::bus::subject::{ClientName, ClientVerb, ClusterName, Token, event, inbox};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::node::Node;
use crate::server::Server;

fn name() -> ClientName {
    let session = SessionId::new("s").unwrap();
    ClientName { role: Role::Orchestrator, session, principal: Token::new("o").unwrap() }
}

fn an_inbox() -> String {
    inbox(Role::Orchestrator, &name().principal, &Token::new("b").unwrap())
}

/// A client of a node that answers its first question.
async fn join(server: &Server, node: &mut Node, partitions: u32) -> NatsClient {
    join_for(server, node, partitions, Duration::from_secs(1)).await
}

async fn join_for(
    server: &Server,
    node: &mut Node,
    partitions: u32,
    patience: Duration,
) -> NatsClient {
    let (connection, name) = (server.connect_for(an_inbox(), patience).await, name());
    let joined = tokio::spawn(async move { NatsClient::join(connection, &name).await });
    let (verb, message) = node.asked().await;
    assert_eq!(verb, ClientVerb::Hello);
    let welcome = Welcome {
        node: "n1".into(),
        partitions,
        placement: PLACEMENT,
        features: Features::default(),
    };
    node.answer(&message, Ok(welcome)).await;
    joined.await.unwrap().unwrap()
}

/// A node that hangs gets its part of the hellos, too. Another one is asked soon.
#[tokio::test]
async fn a_hello_without_an_answer_is_soon_said_again() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let connection = server.connect_for(an_inbox(), Duration::from_secs(30)).await;
    let joined = tokio::spawn(async move { NatsClient::join(connection, &name()).await });
    assert_eq!(node.asked().await.0, ClientVerb::Hello);
    let again = timeout(Duration::from_secs(4), node.asked()).await;
    let (verb, message) = again.expect("a request may take five seconds");
    assert_eq!(verb, ClientVerb::Hello);
    let (node_id, placement, features) = ("n1".into(), PLACEMENT, Features::default());
    let welcome = Welcome { node: node_id, partitions: 1, placement, features };
    node.answer(&message, Ok(welcome)).await;
    joined.await.unwrap().unwrap();
}

/// OWN-01: a client asks nothing of a cluster whose Tasks it would look for elsewhere, and says what to do.
#[tokio::test]
async fn a_cluster_of_another_placement_is_refused() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    for (placement, advice) in [(1, "tenure wal export --all"), (3, "use the version")] {
        let (connection, name) = (server.connect(an_inbox()).await, name());
        let joined = tokio::spawn(async move { NatsClient::join(connection, &name).await });
        let (_, message) = node.asked().await;
        let welcome =
            Welcome { node: "n1".into(), partitions: 8, placement, features: Features::default() };
        node.answer(&message, Ok(welcome)).await;
        let refused = joined.await.unwrap().unwrap_err();
        assert_eq!(refused.code, Code::ValidationError);
        let said = format!("its placement is {placement}, and this version's 2");
        assert!(refused.message.contains(&said), "{refused}");
        assert!(refused.message.contains(advice), "{refused}");
    }
}

/// CTRL-11: a wait ends where the server does not let its login in any more.
#[tokio::test]
async fn a_wait_ends_with_a_login_that_is_not_let_in_any_more() {
    let mut server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = Client::new(join(&server, &mut node, 1).await);
    server.kill();
    server.restart_with(&["--user", "ann", "--pass", "another"]);
    let task = TaskId::new("t").unwrap();
    let waited = timeout(Duration::from_secs(30), client.wait_for_end(&task)).await;
    let refused = waited.expect("it does not wait for a password").unwrap_err();
    assert_eq!(refused.code, Code::Unauthenticated, "{refused}");
}

fn written(version: u64) -> WriteSummary {
    let task = serde_json::json!({ "operation": "task_get", "task_id": "t", "version": version });
    let summary = serde_json::json!({ "task": task, "event_ids": [], "version": version });
    serde_json::from_value(summary).unwrap()
}

/// Answers with long pages of views, and of lists, for ever.
async fn answer_with_long_pages(mut node: Node) {
    let record = |number: u32| TaskRecord {
        task_id: TaskId::new(format!("t{number}")).unwrap(),
        title: "x".repeat(64 << 10).into(),
        status: Normal::Queued,
        native_status: TaskStatus::Running,
        owner: None,
        scope: None,
        current_run_id: None,
        progress: Progress::default(),
        relationships: Vec::new(),
        artifact_ids: Vec::new(),
        evidence_refs: Vec::new(),
    };
    let tasks = Some((0..15).map(record).collect());
    let page = ViewPage {
        snapshot: Snapshot { tasks, ..Snapshot::default() },
        next: Some(TaskId::new("t").unwrap()),
    };
    loop {
        let (_, message) = next_request(&mut node).await;
        node.answer(&message, Ok(&page)).await;
    }
}

/// Mechanisms 15: those who made the Tasks have chosen how long their titles are. Whoever reads all of them is told
/// what to ask for instead, and takes no more memory than it may.
#[tokio::test]
async fn views_are_gathered_up_to_a_length_and_as_far_as_there_is_capacity() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = join_for(&server, &mut node, 2, Duration::from_secs(30)).await;
    let answers = tokio::spawn(answer_with_long_pages(node));
    let views = async |client: NatsClient| client.views(ViewsInput::default()).await;
    let refused = views(client.clone()).await.unwrap_err();
    assert_eq!(refused.code, Code::ValidationError, "{refused}");
    assert_eq!(refused.details["field"], "views");
    let taken = Arc::new(AtomicUsize::new(0));
    let small = client.within_capacity(move |bytes| {
        match taken.fetch_add(bytes, Ordering::Relaxed) + bytes {
            0..=4_000_000 => Ok(Box::new(())),
            _ => Err(Rejection::new(Code::Unavailable, "full")),
        }
    });
    let refused = views(small).await.unwrap_err();
    assert_eq!((refused.code, &*refused.message), (Code::Unavailable, "full"));
    answers.abort();
}

async fn next_request(node: &mut Node) -> (Request, Message) {
    let (verb, message) = node.asked().await;
    assert!(matches!(verb, ClientVerb::Command(_)), "{verb:?}");
    (Request::read(&message.payload).unwrap(), message)
}

#[tokio::test]
async fn nobody_there_is_known_at_once_and_said_when_patience_is_over() {
    let server = Server::start();
    let begun = Instant::now();
    let refused = NatsClient::join(server.connect(an_inbox()).await, &name()).await.unwrap_err();
    assert_eq!((refused.code, &*refused.message), (Code::Unavailable, "nobody serves this now"));
    assert!(!refused.details.contains_key("kind"), "nothing is in doubt");
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_answered_for_good_is_asked_again_under_the_same_id() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = Client::new(join(&server, &mut node, 1).await);
    let task = TaskId::new("t").unwrap();
    let asking = tokio::spawn(async move { client.cancel(&task, "enough").await });
    let (first, message) = next_request(&mut node).await;
    node.answer::<WriteSummary>(&message, Err(Rejection::new(Code::NotOwner, "not mine"))).await;
    let (second, message) = next_request(&mut node).await;
    assert_eq!(first, second);
    assert!(first.head.command_id.is_some());
    node.answer(&message, Ok(written(4))).await;
    assert_eq!(asking.await.unwrap().unwrap().version, 4);
}

/// WAL-09, mechanisms 16: each command has its time, though the node that got it says nothing: whether
/// it took effect is not known then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_never_answered_is_given_up() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = Client::new(join(&server, &mut node, 1).await);
    let task = TaskId::new("t").unwrap();
    let refused = client.cancel(&task, "enough").await.unwrap_err();
    assert_eq!((refused.code, &refused.details["kind"]), (Code::Unavailable, &"ambiguous".into()));
    let (request, _) = next_request(&mut node).await;
    assert!(request.head.command_id.is_some(), "it was sent");
}

/// Mechanisms 16: of so many questions that are not answered one more waits for its turn.
#[tokio::test]
async fn what_is_asked_beside_256_others_waits() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = join_for(&server, &mut node, 1, Duration::from_secs(60)).await;
    let mut asking = JoinSet::new();
    for number in 0..257 {
        let (client, task) = (client.clone(), TaskId::new(format!("t{number}")).unwrap());
        asking.spawn(async move { client.ask(&task, GetInput {}).await });
    }
    // The newest question about each Task: who has asked again hears no answer to an older one.
    let mut asked = BTreeMap::new();
    while asked.len() < 256 {
        let (request, message) = next_request(&mut node).await;
        asked.insert(request.head.task_id.unwrap(), message);
    }
    // All of them have begun by now. What is asked of every node takes no turn, and comes behind them.
    let sentinel = tokio::spawn(async move { client.nodes().await });
    while let (ClientVerb::Command(_), message) = node.asked().await {
        let again = Request::read(&message.payload).unwrap().head.task_id.unwrap();
        assert!(asked.insert(again.clone(), message).is_some(), "{again} did not wait");
    }
    let (first, newest) = asked.first_key_value().unwrap();
    let none = || Err(Rejection::new(Code::TaskNotFound, "there is none"));
    node.answer::<()>(newest, none()).await;
    loop {
        let (request, message) = next_request(&mut node).await;
        let task = request.head.task_id.unwrap();
        if task == *first {
            node.answer::<()>(&message, none()).await; // It was asked again before it heard that.
        } else if !asked.contains_key(&task) {
            break;
        }
    }
    let ended = asking.join_next().await.unwrap().unwrap();
    assert_eq!(ended.unwrap_err().code, Code::TaskNotFound, "a turn without an answer");
    sentinel.abort();
}

/// IDEM-07: the parts are named after what is created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_task_is_created_in_parts() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = Client::new(join(&server, &mut node, 1).await);
    let creating = tokio::spawn(async move { client.create(long()).await });
    let (sizes, ids) = parts(&mut node).await;
    creating.await.unwrap().unwrap();
    assert_eq!(sizes, [17, 17, 6]);
    let (whole, _) = ids[1].split_once('/').unwrap();
    assert_eq!(ids[1..], [format!("{whole}/1"), format!("{whole}/2")]);
}

/// IDEM-07: a long Task that is handed in again comes in the same parts, each under the id that it had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_task_is_created_in_the_same_parts_again() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = Client::new(join(&server, &mut node, 1).await);
    let mut tries = Vec::new();
    for _ in 0..2 {
        let client = client.clone();
        let creating = tokio::spawn(async move { client.create(long().id("t")).await });
        let (_, ids) = parts(&mut node).await;
        tries.push((creating.await.unwrap().unwrap(), ids));
    }
    let [(first, ids), (again, same)] = &tries[..] else { panic!("{tries:?}") };
    assert_eq!(first, again);
    assert_ne!(ids[0], same[0], "each is a command of its own");
    assert_eq!(ids.len(), 3);
    assert_eq!(ids[1..], same[1..]);
}

fn long() -> Task {
    let steps = (0..40).map(|n| Step::new(&format!("s{n}")).summary(&"x".repeat(30_000)));
    Task::new("long").steps(steps)
}

/// Takes a long Task: how many Steps came in each part, and the ids of their commands.
async fn parts(node: &mut Node) -> (Vec<usize>, Vec<String>) {
    let (mut sizes, mut ids, mut whole) = (Vec::new(), Vec::new(), 0);
    while whole == 0 || sizes.iter().sum::<usize>() < whole {
        let (request, message) = next_request(node).await;
        ids.push(request.head.command_id.unwrap().to_string());
        node.answer(&message, Ok(written(1))).await;
        match request.ask {
            Ask::Create(input) => {
                let creation = input.creation.unwrap();
                assert_eq!((input.draft, creation.draft), (Some(true), false));
                whole = creation.steps as usize;
                sizes.push(input.steps.len());
            }
            Ask::Command(command) => match *command {
                Command::TaskUpdate { operations } => sizes.push(operations.len()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    (sizes, ids)
}

/// OWN-08: a list is gathered from all partitions, and says which did not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_names_the_partitions_that_did_not_answer() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = join(&server, &mut node, 2).await;
    let listing = tokio::spawn(async move { client.list(true).await });
    loop {
        let asked = tokio::time::timeout(Duration::from_millis(200), node.asked()).await;
        match asked {
            Ok((ClientVerb::Command(0), message)) => {
                node.answer(&message, Ok(Entries { entries: Vec::new(), more: false })).await;
            }
            _ if listing.is_finished() => break,
            _ => {}
        }
    }
    assert_eq!(listing.await.unwrap().unwrap().missing_partitions, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_come_from_when_it_has_returned() {
    use futures::StreamExt as _;
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let client = join(&server, &mut node, 1).await;
    let mut changes = client.changes(None).await.unwrap();
    let task = TaskId::new("t").unwrap();
    let asking = {
        let (client, task) = (client.clone(), task.clone());
        tokio::spawn(async move { client.ask(&task, GetInput {}).await })
    };
    node.asked().await; // The server has heard of the subscription before that.
    asking.abort();
    let subject = event(&ClusterName::default(), &name().session, Some(&task));
    node.publish(subject.clone(), &"not a hint").await;
    node.publish(subject, &Committed { v: V, version: 7, ended: None }).await;
    let changed = tokio::time::timeout(Duration::from_secs(20), changes.next()).await;
    let changed = changed.unwrap().unwrap();
    assert_eq!((changed.task_id, changed.version), (task, 7));
}
