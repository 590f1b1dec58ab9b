//! A cluster of one or more nodes, and clients that say what they like.

use std::future::Future;
use std::time::{Duration, Instant};

use async_nats::{HeaderMap, Message, RequestErrorKind};
use futures::StreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tenure_core::Rejection;
use tenure_core::command::create::CreateTask;
use tenure_core::features::Features;
use tenure_core::id::SessionId;
use tenure_core::sessions::WorkerSessions;
use tenure_core::status::Role;
use tenure_core::view::WriteSummary;
use tenure_node::{Nats, Node, Settings};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::request::{Ask, LogPage, ReadLog, Request};
use tenure_wire::bus::subject::{ClientName, ClusterName, Token, WorkerName};
use tenure_wire::bus::worker::{Capacity, Deliveries, Delivery, Hello};
use tenure_wire::bus::{Answer, V, decode, encode};

use crate::servers::{Server, nats, redis};

pub(crate) const PARTITIONS: u32 = 4;

/// The servers of a cluster.
pub(crate) struct Servers {
    pub(crate) nats: Server,
    pub(crate) redis: Server,
}

impl Servers {
    pub(crate) fn start() -> Self {
        Self { nats: nats(), redis: redis(&[]) }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.nats.port)
    }

    pub(crate) fn settings(&self, node: &str) -> Settings {
        let redis = format!("redis://127.0.0.1:{}", self.redis.port);
        let (node, pool) = (Token::new(node).unwrap(), "default".parse().unwrap());
        let mut settings = Settings::new(Nats::at(self.url()), redis, node, pool);
        settings.partitions = PARTITIONS;
        settings.scheduler.limits.lease_ms = 3_000;
        settings.scheduler.tick = Duration::from_millis(100);
        settings
    }

    /// A node, as soon as it owns everything.
    pub(crate) async fn node(&self) -> Node {
        self.node_of(self.settings("n1")).await
    }

    pub(crate) async fn node_of(&self, settings: Settings) -> Node {
        let node = Node::start(settings).await.unwrap();
        until(async || node.served().len() == PARTITIONS as usize).await;
        node
    }

    pub(crate) async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.url()).await.unwrap()
    }
}

/// Waits until something holds.
pub(crate) async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not come to pass");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends a request, and again while nobody listens: the server may read a node's subscriptions a
/// moment after the node has sent them.
async fn request(client: &async_nats::Client, subject: String, bytes: Vec<u8>) -> Message {
    let begun = Instant::now();
    loop {
        match client.request(subject.clone(), bytes.clone().into()).await {
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                assert!(begun.elapsed() < Duration::from_secs(10), "nobody listens to {subject}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answer => return answer.unwrap(),
        }
    }
}

/// An orchestrator that speaks for itself.
pub(crate) struct Caller {
    pub(crate) name: ClientName,
    pub(crate) client: async_nats::Client,
}

impl Caller {
    pub(crate) async fn new(servers: &Servers) -> Self {
        let principal = Token::new("bob").unwrap();
        let session: SessionId = "s1".parse().unwrap();
        let name = ClientName { role: Role::Orchestrator, session, principal };
        let options = async_nats::ConnectOptions::new()
            .custom_inbox_prefix("_INBOX.orchestrator.bob.b1")
            .request_timeout(Some(Duration::from_secs(10)));
        Self { name, client: options.connect(servers.url()).await.unwrap() }
    }

    pub(crate) fn key(&self, task: &str) -> TaskKey {
        TaskKey { session_id: self.name.session.clone(), task_id: task.parse().unwrap() }
    }

    /// Bytes to the owner of a partition, as they are.
    pub(crate) async fn raw<T: DeserializeOwned>(
        &self,
        partition: u32,
        bytes: Vec<u8>,
    ) -> Result<T, Rejection> {
        let subject = format!("{}.cmd.{partition}", self.name.root(&ClusterName::default()));
        let answer = request(&self.client, subject, bytes).await;
        decode::<Answer<T>>(&answer.payload).unwrap().into_result()
    }

    /// The same with headers.
    pub(crate) async fn raw_with<T: DeserializeOwned>(
        &self,
        partition: u32,
        headers: HeaderMap,
        bytes: Vec<u8>,
    ) -> Result<T, Rejection> {
        let subject = format!("{}.cmd.{partition}", self.name.root(&ClusterName::default()));
        let answer = self.client.request_with_headers(subject, headers, bytes.into()).await;
        decode::<Answer<T>>(&answer.unwrap().payload).unwrap().into_result()
    }

    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        task: &str,
        command_id: &str,
        ask: Ask,
    ) -> Result<T, Rejection> {
        let (id, command_id) = (task.parse().unwrap(), command_id.parse().unwrap());
        let request = Request::new(Some(id), Some(command_id), ask);
        self.raw(self.key(task).partition(PARTITIONS), request.write().unwrap()).await
    }

    /// A word to all nodes, which the first of them answers.
    pub(crate) async fn say<T: DeserializeOwned>(
        &self,
        verb: &str,
        message: &impl Serialize,
    ) -> Result<T, Rejection> {
        let subject = format!("{}.{verb}", self.name.root(&ClusterName::default()));
        let answer = request(&self.client, subject, encode(message).unwrap()).await;
        decode::<Answer<T>>(&answer.payload).unwrap().into_result()
    }

    /// A Task of these Steps, none after another.
    pub(crate) async fn create(&self, task: &str, steps: &[&str]) -> WriteSummary {
        self.try_create(task, &format!("create-{task}"), steps).await.unwrap()
    }

    pub(crate) async fn try_create(
        &self,
        task: &str,
        command_id: &str,
        steps: &[&str],
    ) -> Result<WriteSummary, Rejection> {
        self.ask(task, command_id, Ask::Create(Box::new(input(task, steps)))).await
    }

    pub(crate) async fn log(&self, task: &str) -> Result<LogPage, Rejection> {
        self.ask(task, "unused", Ask::ReadLog(ReadLog::default())).await
    }

    /// The same as soon as somebody serves it.
    pub(crate) async fn log_when_served(&self, task: &str) -> LogPage {
        let partition = self.key(task).partition(PARTITIONS);
        let ask = Ask::ReadLog(ReadLog::default());
        let request = Request::new(Some(task.parse().unwrap()), None, ask).write().unwrap();
        let subject = format!("{}.cmd.{partition}", self.name.root(&ClusterName::default()));
        let begun = Instant::now();
        loop {
            let answer = self.client.request(subject.clone(), request.clone().into()).await;
            if let Ok(answer) = answer
                && let Ok(page) = decode::<Answer<LogPage>>(&answer.payload).unwrap().into_result()
            {
                return page;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "nobody serves it");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The names of the events of a Task.
    pub(crate) async fn events(&self, task: &str) -> Vec<String> {
        let page = self.log(task).await.unwrap();
        assert!(!page.more);
        let lines = page.commits.iter().flat_map(|commit| commit.0.split(|byte| *byte == b'\n'));
        let events = lines.filter(|line| !line.is_empty()).map(|line| {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            line["event_type"].as_str().unwrap().to_owned()
        });
        events.collect()
    }
}

pub(crate) fn input(task: &str, steps: &[&str]) -> CreateTask {
    let step = |id: &&str| {
        json!({"step_id": id, "title": id, "summary": "", "depends_on_step_ids": [],
               "handler": "noop"})
    };
    let steps: Vec<_> = steps.iter().map(step).collect();
    let input = json!({"task_id": task, "title": task, "summary": "", "steps": steps});
    serde_json::from_value(input).unwrap()
}

/// A worker that speaks for itself.
pub(crate) struct Hand {
    pub(crate) name: WorkerName,
    pub(crate) client: async_nats::Client,
    inbox: async_nats::Subscriber,
    pub(crate) link: String,
    pub(crate) node: String,
    /// Statements of room so far.
    number: u64,
    pub(crate) seen: u64,
    pub(crate) got: u64,
}

impl Hand {
    /// Says hello, and waits for the link.
    pub(crate) async fn join(servers: &Servers, principal: &str) -> Self {
        let mut hand = Self::unheard(servers, principal).await;
        hand.hello().await;
        hand
    }

    /// Has said nothing yet.
    pub(crate) async fn unheard(servers: &Servers, principal: &str) -> Self {
        Self::unheard_boot(servers, principal, "b1").await
    }

    /// One of several workers of a principal.
    pub(crate) async fn unheard_boot(servers: &Servers, principal: &str, boot: &str) -> Self {
        let (principal, boot) = (Token::new(principal).unwrap(), Token::new(boot).unwrap());
        let name = WorkerName { pool: "default".parse().unwrap(), principal, boot };
        let options = async_nats::ConnectOptions::new()
            .custom_inbox_prefix(name.inbox())
            .request_timeout(Some(Duration::from_secs(10)));
        let client = options.connect(servers.url()).await.unwrap();
        let inbox = client.subscribe(format!("{}.d.*", name.inbox())).await.unwrap();
        let (link, node) = Default::default();
        Self { name, client, inbox, link, node, number: 0, seen: 0, got: 0 }
    }

    pub(crate) async fn hello(&mut self) {
        self.hello_with(Features::default()).await;
    }

    pub(crate) async fn hello_with(&mut self, features: Features) {
        let (worker_host, worker_build) = (Some("rack-7".into()), Some("hand 2".into()));
        let handlers = None;
        self.say(
            "hello",
            &Hello {
                v: V,
                handlers,
                sessions: WorkerSessions::ALL,
                worker_host,
                worker_build,
                features,
            },
        )
        .await;
        let deliveries = self.next().await;
        (self.link, self.node) = (deliveries.link.to_string(), deliveries.node.to_string());
        (self.number, self.seen, self.got) = (0, 0, 0);
        assert_eq!((deliveries.first, deliveries.deliveries), (1, vec![]));
    }

    pub(crate) async fn say(&self, verb: &str, message: &impl Serialize) {
        let subject = format!("{}.{verb}", self.name.root(&ClusterName::default()));
        self.client.publish(subject, encode(message).unwrap().into()).await.unwrap();
        self.client.flush().await.unwrap();
    }

    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        verb: &str,
        message: &impl Serialize,
    ) -> Result<T, Rejection> {
        let subject = format!("{}.{verb}", self.name.root(&ClusterName::default()));
        let answer = request(&self.client, subject, encode(message).unwrap()).await;
        decode::<Answer<T>>(&answer.payload).unwrap().into_result()
    }

    /// States room for so many more.
    pub(crate) async fn room(&mut self, free: u64) {
        self.number += 1;
        let (number, seen, got) = (self.number, self.seen, self.got);
        let room =
            Capacity { v: V, link: self.link.as_str().into(), number, free, seen, got, lost: 0 };
        self.say(&format!("node.{}", self.node), &room).await;
    }

    /// The next message to this worker.
    pub(crate) async fn next(&mut self) -> Deliveries {
        self.hear().await.expect("a delivery")
    }

    /// The next message to this worker, or that it gets none.
    pub(crate) async fn hear(&mut self) -> Result<Deliveries, Rejection> {
        let next = tokio::time::timeout(Duration::from_secs(10), self.inbox.next());
        let message = next.await.expect("a message in time").unwrap();
        match decode::<Answer<()>>(&message.payload).map(|answer| answer.error) {
            Ok(Some(refused)) => Err(refused),
            _ => Ok(decode(&message.payload).unwrap()),
        }
    }

    /// That this worker gets nothing, and why.
    pub(crate) async fn refusal(&mut self) -> Rejection {
        self.hear().await.expect_err("a refusal")
    }

    /// The next deliveries, of which it says nothing.
    pub(crate) async fn take(&mut self) -> Vec<Delivery> {
        let deliveries = self.next().await;
        assert_eq!(deliveries.first, self.got + 1);
        self.got += deliveries.deliveries.len() as u64;
        self.seen += deliveries.deliveries.iter().filter(|d| d.uses_capacity()).count() as u64;
        deliveries.deliveries
    }
}
