//! The worker of an agent that speaks A2A (docs/a2a.md). The first word of a message says what it does.
//!
//! `TENURE_NATS_URL=nats://127.0.0.1:4222 cargo run -p tenure-sdk --example agent` takes Steps of the pool
//! `default` until Ctrl-C. This is its part of `agents.toml`:
//!
//! ```toml
//! [[agents]]
//! name = "helper"
//! description = "Says things again, asks, draws and logs in."
//! ```
#![allow(clippy::print_stdout)]

use std::num::NonZeroUsize;

use serde::Deserialize;
use serde_json::{Map, json};
use tenure_sdk::nats::PoolMember;
use tenure_sdk::record::Progress;
use tenure_sdk::worker::{HandlerError, Handlers, Options, StepContext, WorkerPool};

/// What the Step of an agent gets, as far as this agent reads it.
#[derive(Deserialize)]
struct Asked {
    message: AskedMessage,
}

#[derive(Deserialize)]
struct AskedMessage {
    parts: Vec<AskedPart>,
}

#[derive(Deserialize)]
struct AskedPart {
    text: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("TENURE_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".into());
    let member = PoolMember { pool: "default", name: "helper", build: None };
    let at_once = Options::new(NonZeroUsize::new(8).ok_or("none at once")?);
    let handlers = Handlers::new().on("helper", help)?;
    let pool = WorkerPool::connect(url, member, handlers, at_once).await?;
    println!("ready");
    tokio::signal::ctrl_c().await?;
    pool.leave().await?;
    Ok(())
}

async fn help(step: StepContext) -> Result<(), HandlerError> {
    let asked: Asked = step.input_json()?;
    let text = asked.message.parts.into_iter().find_map(|part| part.text).unwrap_or_default();
    let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
    match verb {
        "say" => Ok(step.complete_json(&rest)?),
        "ask" => ask(&step),
        "login" => login(&step),
        "write" => write(&step).await,
        _ => Ok(step.reply_directly("I can say, ask, login and write.")?),
    }
}

/// Asks the caller, and ends with the answer. The handler runs again when the answer has come.
fn ask(step: &StepContext) -> Result<(), HandlerError> {
    match step.answers().last() {
        None => Ok(step.request_input("What is your name?")?),
        Some(name) => Ok(step.respond(None, &format!("Hello, {name}."))?),
    }
}

/// Asks for a login. Credentials come on another way: what is said here stays in the log.
fn login(step: &StepContext) -> Result<(), HandlerError> {
    if !step.answers().is_empty() {
        return Ok(step.respond(None, "Welcome.")?);
    }
    let details = Map::from_iter([("url".to_owned(), "https://example.org/login".into())]);
    Ok(step.request_auth("Log in, and tell me when you have.", details)?)
}

/// Says how far it is, and hands over an artifact at once.
async fn write(step: &StepContext) -> Result<(), HandlerError> {
    let summary = Some("I am looking for words.".into());
    step.send_status(Progress { summary, ..Progress::default() }).await?;
    step.emit_text_artifact("poem.txt", "Roses are red.").await?;
    step.emit_data_artifact("words.json", &json!({ "words": 3 })).await?;
    Ok(step.complete(None)?)
}
