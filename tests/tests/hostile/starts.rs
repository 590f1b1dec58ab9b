//! An agent that speaks MACP starts one session after another, on many connections, and takes part in none of them.

use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tenure_tests::cluster::client::wait;
use tokio::time::timeout;

use crate::common::judge::{Attack, Going, Told};
use crate::common::macp::MacpAgent;
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many connections it has, and how many messages are under way on each.
const CONNECTIONS: usize = 8;
const AT_ONCE: usize = 64;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const ATTACK: Attack = Attack {
    name: "starts",
    is_in_short: true,
    way: Way::Macp,
    refused: Some("RATE_LIMITED"),
    memory_mib: 768,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    wait(async {
        let mut agents = Vec::new();
        for _ in 0..CONNECTIONS {
            agents.push(MacpAgent::connect(stage, "attacker").await?);
        }
        let (mut told, mut open) = (Told::default(), FuturesUnordered::new());
        while going.is_on() {
            while open.len() < CONNECTIONS * AT_ONCE {
                let agent = agents[open.len() % CONNECTIONS].clone();
                told.sent += 1;
                let id = agent.session_id(told.sent);
                open.push(async move { timeout(PATIENCE, agent.start(&id)).await });
            }
            match open.next().await {
                Some(Ok(Ok(code))) => told.note(code),
                Some(Ok(Err(error))) => told.note(format!("{error:.60}")),
                Some(Err(_)) => told.note("silence"),
                None => {}
            }
        }
        Ok(told)
    })
}
