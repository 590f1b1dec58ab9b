//! A caller of a gateway listens in every way that MCP and A2A have, from several addresses, and reads nothing of what
//! it is told.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tenure_tests::cluster::client::wait;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::asker::ManyRequests;
use crate::common::http::{held, posted};
use crate::common::judge::{Attack, Going, Told};
use crate::common::mcp::{NEWEST, begin, in_session};
use crate::common::stage::{LOOK, Stage};
use crate::common::victim::Way;

/// More streams than the gateway has connections.
const STREAMS: usize = 1_400;

/// Addresses that it comes from: each may have three quarters of the connections.
const ADDRESSES: u8 = 3;

/// Streams of one session of MCP: more than these take the place of others.
const STREAMS_OF_SESSION: usize = 24;

/// How long the status may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The task of which it wants to be told.
const TASK: &str = "watched";

pub(crate) const ATTACK: Attack = Attack {
    name: "listeners",
    is_in_short: false,
    way: Way::Gateway,
    refused: Some("429"),
    memory_mib: 768,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut told = Told::default();
    let mut asker = ManyRequests::connect(stage, "orchestrator-2")?;
    let step = |id: &str| {
        json!({"step_id": id, "title": "", "summary": "", "depends_on_step_ids": [], "handler": "none",
            "worker_pool_id": "other"})
    };
    let task = json!({"task_id": TASK, "title": "w", "summary": "", "steps": [step("a")]});
    asker.command("task_create", None, &task)?;
    let mut open: VecDeque<TcpStream> = VecDeque::new();
    let (mut session, mut refused) = (String::new(), false);
    while going.is_on() && open.len() < STREAMS && !refused {
        let n = open.len();
        if n.is_multiple_of(3 * STREAMS_OF_SESSION) {
            session = begin(stage.http)?;
        }
        let request = match n % 3 {
            0 => in_session("GET", &session, None),
            1 => listens(n),
            _ => streams(n),
        };
        let from = Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(n % usize::from(ADDRESSES))?);
        told.sent += 1;
        match wait(async { timeout(PATIENCE, held(from, stage.http, &request)).await }) {
            Ok(Ok((200, way))) => open.push_back(way),
            Ok(Ok((other, _))) => {
                told.note(other.to_string());
                refused = true;
            }
            Ok(Err(error)) => told.note(error.to_string()),
            Err(_) => told.note("nothing in time"),
        }
    }
    println!("{} streams are open", open.len());
    let mut made = 0;
    while going.is_on() {
        made += 1;
        let add = json!({"operations": [{"op": "add_step", "step": step(&format!("s{made}"))}]});
        asker.command("task_update", Some(TASK), &add)?;
        std::thread::sleep(LOOK);
    }
    Ok(told)
}

/// A subscription of the newest version of MCP.
fn listens(number: usize) -> Vec<u8> {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": NEWEST,
        "io.modelcontextprotocol/clientCapabilities": {}});
    let wanted = json!({"resourceSubscriptions": [format!("tenure://task/other/{TASK}")]});
    let body = json!({"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen",
        "params": {"notifications": wanted, "_meta": meta}});
    let more = format!(
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {NEWEST}\r\n\
         Mcp-Method: subscriptions/listen\r\n"
    );
    posted("/mcp?session=other", &more, &body)
}

/// A message to an agent whose answer is a stream.
fn streams(number: usize) -> Vec<u8> {
    let message = json!({"messageId": format!("m{number}"), "role": "ROLE_USER",
        "parts": [{"text": "x".repeat(1_000)}]});
    let body = json!({"jsonrpc": "2.0", "id": number, "method": "SendStreamingMessage",
        "params": {"message": message}});
    posted("/a2a/echo", "A2A-Version: 1.0\r\nAccept: text/event-stream\r\n", &body)
}
