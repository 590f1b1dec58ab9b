//! What callers of an agent reach: of ours, or of any other that speaks A2A, says again what it is told, and
//! tells the time when it is asked for it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::line::{Line, post_with};
use super::visitor::{Figure, LINES, figure, percentiles};

/// For how long messages are sent all the time, and before that, so that what the first ones pay for is there.
const SENDING: Duration = Duration::from_secs(5);
const WARMING: Duration = Duration::from_secs(1);

/// Messages that are sent one by one.
const LONE: usize = 500;

/// Streams that are read one by one.
const STREAMS: usize = 100;

/// What is said to have the time told, and how the answer begins: nanoseconds since 1970 stand behind that.
pub(super) const ASKS_TIME: &str = "what time is it?";
pub(super) const TOLD_TIME: &str = "at:";

/// How an agent is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpokenVersion {
    /// A2A 1.0 over JSON-RPC.
    #[value(name = "1.0")]
    V1,
    /// A2A 0.3 over JSON-RPC.
    #[value(name = "0.3")]
    V03,
}

/// Where an agent is, on this machine.
#[derive(Debug, Clone)]
pub(crate) struct AgentPlace {
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) version: SpokenVersion,
}

impl AgentPlace {
    /// The agent at `http://127.0.0.1:PORT/PATH`.
    pub(crate) fn of_url(url: &str, version: SpokenVersion) -> Result<Self> {
        let rest = url.strip_prefix("http://").context("the address begins with http://")?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host: SocketAddr = host.parse().context("the address has an IP address and a port")?;
        ensure!(host.ip().is_loopback(), "the agent is on this machine");
        Ok(Self { port: host.port(), path: format!("/{path}"), version })
    }

    /// A message whose answer is awaited.
    fn says(&self, text: &str) -> Vec<u8> {
        let method = match self.version {
            SpokenVersion::V1 => "SendMessage",
            SpokenVersion::V03 => "message/send",
        };
        self.request(method, text)
    }

    /// A message with a stream of what comes of it.
    fn streams(&self, text: &str) -> Vec<u8> {
        let method = match self.version {
            SpokenVersion::V1 => "SendStreamingMessage",
            SpokenVersion::V03 => "message/stream",
        };
        self.request(method, text)
    }

    fn request(&self, method: &str, text: &str) -> Vec<u8> {
        let id = Uuid::now_v7().to_string();
        let (version, params) = match self.version {
            SpokenVersion::V1 => ("1.0", params_of_v1(&id, text)),
            SpokenVersion::V03 => ("0.3", params_of_v03(&id, text)),
        };
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let headers = format!("a2a-version: {version}\r\naccept: */*\r\n");
        post_with(&self.path, &headers, body.to_string().as_bytes())
    }

    /// What the answer contains if the task has been completed.
    fn completed(&self) -> &'static [u8] {
        match self.version {
            SpokenVersion::V1 => b"TASK_STATE_COMPLETED",
            SpokenVersion::V03 => b"\"completed\"",
        }
    }
}

fn params_of_v1(id: &str, text: &str) -> Json {
    let parts = json!([{ "text": text }]);
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": parts}})
}

fn params_of_v03(id: &str, text: &str) -> Json {
    let parts = json!([{"kind": "text", "text": text}]);
    json!({"message": {"kind": "message", "messageId": id, "role": "user", "parts": parts},
           "configuration": {"blocking": true, "acceptedOutputModes": ["text/plain"]}})
}

/// The time, as an agent tells it.
pub(super) fn told_time() -> Result<String> {
    Ok(format!("{TOLD_TIME}{}", now_ns()?))
}

fn now_ns() -> Result<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())
}

/// Messages over 64 connections, each of which sends the next when the answer has come. Figures, and how many
/// messages there were.
#[allow(clippy::cast_precision_loss)]
pub(crate) async fn rate(agent: &AgentPlace) -> Result<(Vec<Figure>, usize)> {
    let (times, took) = send(agent, SENDING).await?;
    let count = times.len();
    let rate = count as f64 / took.as_secs_f64();
    let mut figures = vec![figure("agent", rate, "messages/s", "must 3000, goal 6000")];
    figures.extend(percentiles(["agent p50 of 64", "agent p99 of 64"], times, ""));
    Ok((figures, count))
}

/// Has the agent, and whatever serves it, do for the first time what it does from then on.
pub(crate) async fn warm_up(agent: &AgentPlace) -> Result<()> {
    send(agent, WARMING).await.map(drop)
}

async fn send(agent: &AgentPlace, time: Duration) -> Result<(Vec<Duration>, Duration)> {
    let times = Rc::new(RefCell::new(Vec::new()));
    let mut running = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..LINES {
        let (agent, times) = (agent.clone(), Rc::clone(&times));
        running.spawn_local(async move {
            let mut line = Line::open(agent.port).await?;
            while begun.elapsed() < time {
                let took = say(&mut line, &agent).await?;
                times.borrow_mut().push(took);
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

/// Sends a message, and waits for the answer.
async fn say(line: &mut Line, agent: &AgentPlace) -> Result<Duration> {
    let request = agent.says("hello");
    let begun = Instant::now();
    let answer = line.ask(&request).await?;
    let took = begun.elapsed();
    let text = String::from_utf8_lossy(&answer.body);
    let is_completed =
        answer.body.windows(agent.completed().len()).any(|it| it == agent.completed());
    ensure!(answer.status == 200 && is_completed, "status {}: {text}", answer.status);
    Ok(took)
}

/// One message after another.
pub(crate) async fn lone(agent: &AgentPlace) -> Result<Vec<Figure>> {
    let mut line = Line::open(agent.port).await?;
    let mut times = Vec::new();
    for _ in 0..LONE {
        times.push(say(&mut line, agent).await?);
    }
    Ok(percentiles(["agent lone", "agent lone p99"], times, "must 3.5"))
}

/// One stream after another: from the moment when the agent reports an artifact until its reader has it.
pub(crate) async fn streamed(agent: &AgentPlace) -> Result<Vec<Figure>> {
    let mut line = Line::open(agent.port).await?;
    let mut times = Vec::new();
    for _ in 0..STREAMS {
        line.begin(&agent.streams(ASKS_TIME)).await?;
        line.until(TOLD_TIME.as_bytes()).await?;
        let told: u128 = line.digits().await?.parse()?;
        let took = now_ns()?.saturating_sub(told);
        line.until(b"\r\n0\r\n\r\n").await?;
        times.push(Duration::from_nanos(u64::try_from(took)?));
    }
    Ok(percentiles(["agent stream", "agent stream p99"], times, "must 2"))
}
