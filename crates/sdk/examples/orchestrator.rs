//! A program that steers: the plan of `plan/mod.rs`, in a cluster.
//!
//! `TENURE_NATS_URL=nats://127.0.0.1:4222 cargo run -p tenure-sdk --example orchestrator`
//! needs a cluster and the worker of the example `worker`. The same in one process is the example
//! `embedded` of the package `tenure`.

mod plan;

use tenure_sdk::client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("TENURE_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".into());
    let client = Client::connect(url, "default", "planner").await?;
    plan::steer(&client).await?;
    Ok(())
}
