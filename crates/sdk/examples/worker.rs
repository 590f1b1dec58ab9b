//! A worker with a handler for every way in which a Step can end.
//!
//! `TENURE_NATS_URL=nats://127.0.0.1:4222 cargo run -p tenure-sdk --example worker`
//! takes Steps of the pool `default` until Ctrl-C, and then finishes what it has begun.
#![allow(clippy::print_stdout)]

use std::num::NonZeroUsize;

use anyhow::Result;
use serde_json::json;
use tenure_core::record::Progress;
use tenure_sdk::nats::{Connection, NatsWorker, Settings};
use tenure_sdk::worker::{HandlerError, Handlers, Options, StepContext, WorkerPool};
use tenure_wire::bus::subject::{Token, WorkerName};

/// Completes with a result that later Steps get as their input, and says how far it has come.
async fn measure(ctx: StepContext) -> Result<(), HandlerError> {
    for percent in [25.0, 50.0, 75.0] {
        ctx.send_status(Progress { percent: Some(percent), ..Progress::default() }).await?;
    }
    ctx.emit_text_artifact("notes", "three samples were taken").await?;
    Ok(ctx.complete_json(&json!({"samples": 3}))?)
}

/// Fails, for the policy of the Step to judge: it is tried again if that says so.
async fn flaky(ctx: StepContext) -> Result<(), HandlerError> {
    if ctx.attempt() < 2 {
        return Ok(ctx.fail("no_answer", "the instrument did not answer", None)?);
    }
    Ok(ctx.complete(None)?)
}

/// Waits for a person: the Step is blocked until somebody answers, and then runs once more.
async fn choose(ctx: StepContext) -> Result<(), HandlerError> {
    match ctx.answers().first() {
        None => Ok(ctx.request_input("which sample is to be kept, 1, 2 or 3?")?),
        Some(answer) => Ok(ctx.complete_json(answer)?),
    }
}

/// Is not this worker's business: the Step is not tried again here.
async fn refuse(ctx: StepContext) -> Result<(), HandlerError> {
    Ok(ctx.reject("nobody here can do that")?)
}

/// Works until it is told to stop, and says what it leaves behind.
async fn watch(ctx: StepContext) -> Result<(), HandlerError> {
    ctx.cancellation().cancelled().await;
    Ok(ctx.fail("stopped", "it was asked to", None)?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("TENURE_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".into());
    let boot = uuid::Uuid::new_v4().simple().to_string();
    let name = WorkerName {
        pool: "default".parse()?,
        principal: Token::new("lab")?,
        boot: Token::new(&boot[..8])?,
    };
    let handlers = Handlers::new()
        .on("measure", measure)?
        .on("flaky", flaky)?
        .on("choose", choose)?
        .on("refuse", refuse)?
        .on("watch", watch)?;
    let connection = Connection::open(&Settings::new(url), name.inbox()).await?;
    let known = handlers.names().cloned().collect();
    let (port, deliveries) = NatsWorker::join(connection, &name, Some(known)).await?;
    let eight = NonZeroUsize::MIN.saturating_add(7);
    let pool = WorkerPool::start(port, deliveries, handlers, Options::new(eight));
    println!("ready");
    tokio::signal::ctrl_c().await?;
    pool.drain().await;
    pool.port().leave_pool().await?;
    Ok(())
}
