//! A program that steers, its workers, and the scheduler in one process: the plan and the handlers of the
//! examples `orchestrator` and `worker` of `tenure-sdk`, which are the same in a cluster.
//!
//! `cargo run -p tenure --example embedded`

#[path = "../../sdk/examples/lab/mod.rs"]
mod lab;
#[path = "../../sdk/examples/plan/mod.rs"]
mod plan;

use tenure::embedded::Embedded;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tenure = Embedded::open(".tenure").await?;
    let _workers = tenure.work(lab::handlers()?, 8)?;
    plan::steer(&tenure.client("default")?).await?;
    Ok(())
}
