//! A node that does what the test tells it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Message, Subscriber};
use futures::StreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::Rejection;
use tenure_core::id::{AttemptId, HandlerName, PoolId, RunId, SessionId, StepId, TaskId};
use tenure_core::record::StepSpec;
use tenure_core::view::ClaimResult;
use tenure_ports::placement::PLACEMENT;
use tenure_wire::bus::node::Alive;
use tenure_wire::bus::subject::{ClientVerb, ClusterName, ParsedSubject, WorkerName, WorkerVerb};
use tenure_wire::bus::worker::{
    Capacity, Deliveries, Delivery, Heartbeat, Hello, Pulse, Pulses, ReportResult, Reported,
    Reports,
};
use tenure_wire::bus::{Answer, V, decode, encode};
use uuid::Uuid;

use crate::server::Server;

/// Whatever a test waits for comes sooner than this.
const SOON: Duration = Duration::from_secs(20);

/// A node, and everything that was said to it.
pub(crate) struct Node {
    client: Client,
    name: &'static str,
    said: Subscriber,
}

impl Node {
    /// Hears all workers and clients.
    pub(crate) async fn start(server: &Server, name: &'static str) -> Self {
        let client = async_nats::connect(server.url()).await.unwrap();
        let said = client.subscribe("tenure.v1.*.*.*.>").await.unwrap();
        client.flush().await.unwrap();
        // The server knows the subscription when it answers something later.
        let _ = client.request("nobody", "".into()).await;
        Self { client, name, said }
    }

    pub(crate) async fn publish<T: Serialize>(&self, subject: String, message: &T) {
        self.client.publish(subject, encode(message).unwrap().into()).await.unwrap();
    }

    pub(crate) async fn answer<T: Serialize>(&self, to: &Message, answer: Result<T, Rejection>) {
        let reply = to.reply.clone().expect("a request").to_string();
        self.publish(reply, &Answer::from(answer)).await;
    }

    pub(crate) async fn say_alive(&self, owned: &[u32]) {
        self.say_alive_in(PLACEMENT, owned).await;
    }

    /// The same as a node of a cluster of this placement.
    pub(crate) async fn say_alive_in(&self, placement: u32, owned: &[u32]) {
        let (node, owned) = (self.name.into(), owned.to_vec());
        let (features, lacks) = Default::default();
        let alive = Alive { v: V, node, partitions: 1, placement, owned, features, lacks };
        self.publish(format!("tenure.v1.node.{}.alive", self.name), &alive).await;
    }

    pub(crate) async fn deliver(
        &self,
        to: &WorkerName,
        link: &str,
        first: u64,
        deliveries: Vec<Delivery>,
    ) {
        let (node, link) = (self.name.into(), link.into());
        let batch = Deliveries { v: V, node, link, first, deliveries };
        self.publish(format!("{}.d.{}", to.inbox(), self.name), &batch).await;
    }

    /// Says to a worker that what it says cannot be taken.
    pub(crate) async fn refuse(&self, worker: &WorkerName, refused: Rejection) {
        let answer = Answer::<()>::from(Err(refused));
        self.publish(format!("{}.d.{}", worker.inbox(), self.name), &answer).await;
    }

    /// The next that workers and clients say.
    pub(crate) async fn hears(&mut self) -> (ParsedSubject, Message) {
        loop {
            let next = tokio::time::timeout(SOON, self.said.next()).await;
            let message = next.expect("something is said").unwrap();
            if let Some(heard) = ParsedSubject::read(&ClusterName::default(), &message.subject) {
                return (heard, message);
            }
        }
    }

    /// The next word of one kind, read; others are passed over, which go on for ever.
    pub(crate) async fn awaits<T: DeserializeOwned>(&mut self, verb: WorkerVerb) -> (T, Message) {
        let until = tokio::time::Instant::now() + SOON;
        while tokio::time::Instant::now() < until {
            let (heard, message) = self.hears().await;
            if matches!(heard, ParsedSubject::Worker(_, said) if said == verb) {
                return (decode(&message.payload).unwrap(), message);
            }
        }
        panic!("{verb:?} is said");
    }

    /// Opens a link when it is asked to, and waits until there is at least this much room on it.
    pub(crate) async fn link(&mut self, worker: &WorkerName, link: &str, free: u64) {
        self.awaits::<Hello>(WorkerVerb::Hello).await; // The worker listens when it says that.
        self.say_alive(&[0]).await;
        self.deliver(worker, link, 1, Vec::new()).await;
        while self.awaits_room(link).await.free < free {}
    }

    pub(crate) async fn awaits_room(&mut self, link: &str) -> Capacity {
        loop {
            let (room, _) = self.awaits::<Capacity>(WorkerVerb::Room).await;
            if room.link == link {
                return room;
            }
        }
    }

    /// Says the same of every report, and answers with the Attempts' number.
    pub(crate) async fn record(&self, message: &Message, version: u64) -> usize {
        let reports: Reports = decode(&message.payload).unwrap();
        let recorded = ReportResult {
            version: Some(version),
            cancel_requested: false,
            time_left_ms: None,
            error: None,
        };
        let results = vec![recorded; reports.reports.len()];
        self.answer(message, Ok(Reported { results })).await;
        reports.reports.len()
    }

    pub(crate) async fn renew(&self, message: &Message) {
        let heartbeat: Heartbeat = decode(&message.payload).unwrap();
        let pulse = |attempt_id| Pulse {
            attempt_id,
            lease_ms: Some(1000),
            cancel_requested: false,
            time_left_ms: None,
            error: None,
        };
        let attempts = heartbeat.holdings.into_iter().map(|held| held.attempt_id);
        self.answer(message, Ok(Pulses { pulses: attempts.map(pulse).collect() })).await;
    }

    /// The next request of a client.
    pub(crate) async fn asked(&mut self) -> (ClientVerb, Message) {
        loop {
            if let (ParsedSubject::Client(_, verb), message) = self.hears().await {
                return (verb, message);
            }
        }
    }
}

/// A grant of a Step of its own, for the handler of this name.
pub(crate) fn grant(handler: &str, lease_ms: u64) -> Delivery {
    let step = StepSpec {
        step_id: StepId::new("a").unwrap(),
        title: "a".into(),
        summary: "".into(),
        depends_on_step_ids: Vec::new(),
        required: true,
        worker_pool_id: PoolId::new("pool").unwrap(),
        handler: HandlerName::new(handler).unwrap(),
        input: None,
        inputs_from: None,
        retry_policy: None,
        assignee: None,
        claim_only_by: None,
        ext: None,
    };
    let claim = ClaimResult {
        session_id: SessionId::new("s").unwrap(),
        task_id: TaskId::new("t").unwrap(),
        run_id: RunId(Uuid::now_v7()),
        attempt_id: AttemptId(Uuid::now_v7()),
        ordinal: 1,
        was_lost: false,
        host_died: false,
        fencing_token: 3,
        lease_expires_at: 0,
        lease_ms,
        step: Arc::new(step),
        retry_policy: None,
        dependencies: Vec::new(),
        input_refs: Arc::new([]),
        input_seen: 0,
        checkpoint_refs: Vec::new(),
        instructions: None,
        bindings: None,
        trace: None,
    };
    Delivery { grant: Some(Box::new(claim)), ..Delivery::default() }
}
