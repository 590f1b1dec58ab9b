//! The worker of the agent that is measured, in this process: it says again what it is told.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use tenure_core::id::PoolId;
use tenure_sdk::http::{HttpSettings, HttpWorker};
use tenure_sdk::nats::{NatsWorker, PoolMember, boot};
use tenure_sdk::worker::{HandlerError, Handlers, Options, StepContext, WorkerPool};
use tenure_wire::bus::subject::Token;

use super::agent::{ASKS_TIME, told_time};

/// The file of agents.
pub(super) const AGENTS: &str = r#"
[[agents]]
name = "echo"
description = "Says again what it is told."
pool = "agents"
"#;

/// The pool of the worker, its name, and that of its handler.
const POOL: &str = "agents";
const NAME: &str = "echo";

/// How long the agent thinks before it tells the time: what happened before has gone out by then.
const THINKS: Duration = Duration::from_millis(150);

/// A worker that works until it is dropped.
pub(crate) enum EchoWorker {
    /// Of a cluster.
    Nats(WorkerPool<NatsWorker>),
    /// Of a scheduler in the process of the gateway.
    Http(WorkerPool<HttpWorker>),
}

impl EchoWorker {
    /// A worker of a cluster, of so many messages at a time.
    pub(super) async fn over_nats(url: &str, at_once: usize) -> Result<Self> {
        let member = PoolMember { pool: POOL, name: NAME, build: None };
        let (handlers, options) = (handlers()?, options(at_once));
        Ok(Self::Nats(WorkerPool::connect(url, member, handlers, options).await?))
    }

    /// A worker that joins a gateway at this port.
    pub(super) async fn over_http(port: u16, at_once: usize) -> Result<Self> {
        let settings = HttpSettings::new(format!("http://127.0.0.1:{port}"));
        let (pool, boot, handlers) = (PoolId::new(POOL)?, Token::new(boot())?, handlers()?);
        let names = handlers.names().cloned().collect();
        let (link, deliveries) = HttpWorker::join(&settings, &pool, &boot, Some(names)).await?;
        Ok(Self::Http(WorkerPool::start(link, deliveries, handlers, options(at_once))))
    }

    /// Leaves, when what it has is done.
    pub(super) async fn leave(self) -> Result<()> {
        match self {
            Self::Nats(pool) => pool.leave().await?,
            Self::Http(pool) => pool.drain().await,
        }
        Ok(())
    }
}

fn options(at_once: usize) -> Options {
    Options::new(NonZeroUsize::new(at_once).unwrap_or(NonZeroUsize::MIN))
}

fn handlers() -> Result<Handlers> {
    Ok(Handlers::new().on(NAME, echo)?)
}

/// What the Step of an agent gets, as far as this one reads it.
#[derive(Deserialize)]
struct EchoInput {
    message: EchoMessage,
}

#[derive(Deserialize)]
struct EchoMessage {
    parts: Vec<EchoPart>,
}

#[derive(Deserialize)]
struct EchoPart {
    text: Option<String>,
}

async fn echo(step: StepContext) -> Result<(), HandlerError> {
    let EchoInput { message } = step.input_json()?;
    let said: Vec<String> = message.parts.into_iter().filter_map(|part| part.text).collect();
    let said = said.join("\n");
    if said != ASKS_TIME {
        return Ok(step.complete_json(&said)?);
    }
    tokio::time::sleep(THINKS).await;
    let told = told_time().map_err(|error| error.to_string())?;
    step.emit_text_artifact("time", &told).await?;
    Ok(step.complete(None)?)
}
