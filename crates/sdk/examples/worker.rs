//! A worker with a handler for every way in which a Step can end: those of `lab/mod.rs`.
//!
//! `TENURE_NATS_URL=nats://127.0.0.1:4222 cargo run -p tenure-sdk --example worker`
//! takes Steps of the pool `default` until Ctrl-C, and then finishes what it has begun.
#![allow(clippy::print_stdout)]

mod lab;

use std::num::NonZeroUsize;

use tenure_sdk::nats::PoolMember;
use tenure_sdk::worker::{Options, WorkerPool};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("TENURE_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".into());
    let member = PoolMember { pool: "default", name: "lab", build: None };
    let at_once = Options::new(NonZeroUsize::new(8).ok_or("none at once")?);
    let pool = WorkerPool::connect(url, member, lab::handlers()?, at_once).await?;
    println!("ready");
    tokio::signal::ctrl_c().await?;
    pool.leave().await?;
    Ok(())
}
