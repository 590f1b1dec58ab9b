//! A caller of a gateway opens one stream of events after another, and reads none of them.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use tenure_tests::cluster::client::wait;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::http::{self, head, held};
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::{LOOK, Stage, token};
use crate::common::victim::Way;

/// More streams than the gateway has connections.
const STREAMS: usize = 1_400;

/// The address that it comes from, which is not the victim's.
const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long the status may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tasks that make something happen for those who should read it.
const TASKS: usize = 20;

pub(crate) const ATTACK: Attack = Attack {
    name: "streams",
    is_in_short: false,
    way: Way::Gateway,
    refused: Some("429"),
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut told = Told::default();
    let mut open: VecDeque<TcpStream> = VecDeque::new();
    let more = "Accept: text/event-stream\r\n";
    let request = head(Some(&token("attacker")), "GET", "/v1/sessions/other/events", more);
    while going.is_on() && open.len() < STREAMS {
        told.sent += 1;
        match wait(async { timeout(PATIENCE, held(FROM, stage.http, request.as_bytes())).await }) {
            Ok(Ok((200, way))) => open.push_back(way),
            Ok(Ok((other, _))) => {
                told.note(other.to_string());
                break;
            }
            Ok(Err(error)) => told.note(error.to_string()),
            Err(_) => told.note("nothing in time"),
        }
    }
    println!("{} streams are open", open.len());
    let mut made = 0;
    while going.is_on() {
        if made < TASKS {
            made += 1;
            let body = serde_json::json!({"task_id": format!("a{made}"), "title": "x".repeat(200),
                "steps": [{"step_id": "a", "title": "a", "handler": "none"}]});
            http::ask(
                stage.http,
                Some(&token("attacker")),
                "POST",
                "/v1/sessions/other/tasks",
                Some(&body),
            )?;
        }
        std::thread::sleep(LOOK);
    }
    Ok(told)
}
