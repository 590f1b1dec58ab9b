//! What a session of MACP takes: a planner starts it and requests a task, an analyst accepts and completes it, and the
//! planner commits. Both speak gRPC, each message when the one before it is acknowledged.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use prost::Message;
use tenure_macp::TASK_MODE;
use tenure_macp::pb::macp_runtime_service_client::MacpRuntimeServiceClient;
use tenure_macp::pb::{CommitmentPayload, Envelope, SendRequest, SessionStartPayload};
use tenure_macp::task_pb::{
    TaskAcceptPayload, TaskCompletePayload, TaskRequestPayload, TaskUpdatePayload,
};
use tokio::task::JoinSet;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use super::house::House;
use super::visitor::{Figure, LINES, figure, percentiles};

/// How long sessions are held all the time, and before that, so that what the first ones pay for is there.
const HOLDING: Duration = Duration::from_secs(5);
const WARMING: Duration = Duration::from_secs(1);

/// Sessions one after another, and sessions before them.
const LONE: usize = 300;
const FIRST: usize = 20;

/// Messages of a session.
const MESSAGES: usize = 5;

/// Reports of progress in a long session, and how many of them are compared.
const UPDATES: usize = 4_000;
const COMPARED: usize = 400;

const PLANNER: &str = "planner";
const ANALYST: &str = "analyst";

/// A connection to the gateway.
#[derive(Clone)]
struct Wire(MacpRuntimeServiceClient<Channel>);

impl Wire {
    async fn open(house: &House) -> Result<Self> {
        let port = house.grpc.context("no gRPC is spoken")?;
        let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.connect().await?;
        Ok(Self(MacpRuntimeServiceClient::new(channel)))
    }

    /// Sends a message that has to be accepted. How long that took.
    async fn say(
        &mut self,
        who: &str,
        session: &str,
        kind: &str,
        of: &impl Message,
    ) -> Result<Duration> {
        let envelope = Envelope {
            macp_version: "1.0".into(),
            mode: TASK_MODE.into(),
            message_type: kind.into(),
            message_id: Uuid::now_v7().to_string(),
            session_id: session.into(),
            sender: who.into(),
            timestamp_unix_ms: now_ms()?,
            payload: of.encode_to_vec(),
        };
        let mut request = Request::new(SendRequest { envelope: Some(envelope) });
        request.metadata_mut().insert("authorization", format!("Bearer {who}").parse()?);
        let begun = Instant::now();
        let answer = self.0.send(request).await?.into_inner();
        let took = begun.elapsed();
        let ack = answer.ack.context("no Ack")?;
        ensure!(ack.ok && !ack.duplicate, "{kind}: {ack:?}");
        Ok(took)
    }

    /// Begins a session, to the end of its second last message. What each message took.
    async fn begin(&mut self, session: &str) -> Result<Vec<Duration>> {
        let start = self.say(PLANNER, session, "SessionStart", &start()).await?;
        let request = self.say(PLANNER, session, "TaskRequest", &request()).await?;
        let accept = TaskAcceptPayload { task_id: "t1".into(), ..Default::default() };
        let accept = self.say(ANALYST, session, "TaskAccept", &accept).await?;
        Ok(vec![start, request, accept])
    }

    /// Ends a session.
    async fn end(&mut self, session: &str) -> Result<Vec<Duration>> {
        let done = TaskCompletePayload {
            task_id: "t1".into(),
            output: br#"{"growth": "12%"}"#.to_vec(),
            summary: "Q4 revenue up 12%".into(),
            ..Default::default()
        };
        let done = self.say(ANALYST, session, "TaskComplete", &done).await?;
        let commit = self.say(PLANNER, session, "Commitment", &commit()).await?;
        Ok(vec![done, commit])
    }

    /// A whole session. What it took, and what each message did.
    async fn hold(&mut self) -> Result<(Duration, Vec<Duration>)> {
        let session = Uuid::new_v4().to_string();
        let begun = Instant::now();
        let mut each = self.begin(&session).await?;
        each.extend(self.end(&session).await?);
        Ok((begun.elapsed(), each))
    }
}

fn start() -> SessionStartPayload {
    SessionStartPayload {
        intent: "analyze Q4 sales data".into(),
        participants: vec![PLANNER.into(), ANALYST.into()],
        mode_version: "1.0.0".into(),
        configuration_version: "config.default".into(),
        ttl_ms: 300_000,
        ..Default::default()
    }
}

fn request() -> TaskRequestPayload {
    TaskRequestPayload {
        task_id: "t1".into(),
        title: "Q4 Sales Analysis".into(),
        instructions: "Run the sales pipeline".into(),
        requested_assignee: ANALYST.into(),
        input: br#"{"quarter": "Q4"}"#.to_vec(),
        deadline_unix_ms: 0,
    }
}

fn commit() -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: Uuid::new_v4().to_string(),
        action: "task.completed".into(),
        authority_scope: "data-analysis".into(),
        reason: "it was delivered".into(),
        mode_version: "1.0.0".into(),
        configuration_version: "config.default".into(),
        outcome_positive: true,
        ..Default::default()
    }
}

fn now_ms() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// Sessions on 64 connections, each of which holds the next when one has ended.
#[allow(clippy::cast_precision_loss)]
pub(super) async fn rate(house: &House) -> Result<Vec<Figure>> {
    held(house, WARMING).await?;
    let before = house.processes().cpu()?;
    let (times, took) = held(house, HOLDING).await?;
    let after = house.processes().cpu()?;
    let count = times.len() as f64;
    let mut figures = vec![figure("macp", count / took.as_secs_f64(), "sessions/s", "must 1000")];
    figures.extend(percentiles(["macp p50 of 64", "macp p99 of 64"], times, ""));
    for (kind, name) in [
        (house.door, "macp cpu door"),
        ("load", "macp cpu load"),
        ("scheduler", "macp cpu scheduler"),
        ("nats", "macp cpu nats"),
        ("redis", "macp cpu redis"),
    ] {
        if let (Some(before), Some(after)) = (before.get(kind), after.get(kind)) {
            let value = (after - before) * 1e3 / count;
            figures.push(figure(name, value, "us of processor a session", ""));
        }
    }
    Ok(figures)
}

async fn held(house: &House, time: Duration) -> Result<(Vec<Duration>, Duration)> {
    let times = Rc::new(RefCell::new(Vec::new()));
    let mut running = JoinSet::new();
    let begun = Instant::now();
    let is_over = Rc::new(Cell::new(false));
    for _ in 0..LINES {
        let (mut wire, times) = (Wire::open(house).await?, Rc::clone(&times));
        let is_over = Rc::clone(&is_over);
        running.spawn_local(async move {
            while !is_over.get() {
                let (took, _) = wire.hold().await?;
                times.borrow_mut().push(took);
                is_over.set(begun.elapsed() >= time);
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    let times = times.take();
    Ok((times, begun.elapsed()))
}

/// One session after another.
pub(super) async fn lone(house: &House) -> Result<Vec<Figure>> {
    let mut wire = Wire::open(house).await?;
    let (mut times, mut each) = (Vec::new(), vec![Vec::new(); MESSAGES]);
    for at in 0..FIRST + LONE {
        let (took, messages) = wire.hold().await?;
        if at >= FIRST {
            times.push(took); // The first pay for what later ones find made.
            each.iter_mut().zip(messages).for_each(|(all, took)| all.push(took));
        }
    }
    let mut figures = percentiles(["macp lone", "macp lone p99"], times, "must 8");
    let names = [
        ["macp start", "macp start p99"],
        ["macp request", "macp request p99"],
        ["macp accept", "macp accept p99"],
        ["macp complete", "macp complete p99"],
        ["macp commitment", "macp commitment p99"],
    ];
    for (names, times) in names.into_iter().zip(each) {
        figures.extend(percentiles(names, times, ""));
    }
    Ok(figures)
}

/// One session with many reports of progress: the last have to cost what the first do.
#[allow(clippy::cast_precision_loss)]
pub(super) async fn long(house: &House) -> Result<Vec<Figure>> {
    let mut wire = Wire::open(house).await?;
    let session = Uuid::new_v4().to_string();
    wire.begin(&session).await?;
    let mut times = Vec::new();
    for at in 0..FIRST + UPDATES {
        let progress = at as f64 / (FIRST + UPDATES) as f64;
        let (task_id, status) = ("t1".into(), "running".into());
        let update = TaskUpdatePayload { task_id, status, progress, ..Default::default() };
        let took = wire.say(ANALYST, &session, "TaskUpdate", &update).await?;
        if at >= FIRST {
            times.push(took);
        }
    }
    wire.end(&session).await?;
    let last = times.split_off(UPDATES - COMPARED);
    times.truncate(COMPARED);
    let mut figures = percentiles(["macp first messages", "macp first p99"], times, "");
    figures.extend(percentiles(["macp last messages", "macp last p99"], last, "as the first"));
    Ok(figures)
}
