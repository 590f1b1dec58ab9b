//! Gives mutated messages to the readers of what others send: servers of tools, agents, and streams of events. Each
//! reads or refuses them.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

use serde_json::{Value as Json, json};
use tenure_testkit::fuzz::{Corpus, InputForm, fuzz};

use super::answer::{ServerAnswer, ToolTask};
use super::message::ServerMessage;
use super::settings::ToolServers;
use crate::http::sse::SseReader;

fn corpus(samples: Vec<Json>) -> Corpus {
    Corpus::new(InputForm::Json, samples.into_iter().map(|sample| sample.to_string().into_bytes()))
}

#[test]
fn fuzz_messages_of_tool_servers() {
    let content = json!([
        {"type": "text", "text": "a"}, {"type": "image", "data": "cG5n", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "a:b", "text": "x"}}, {"type": "resource_link", "uri": "a:b", "name": "n"},
    ]);
    let asks = json!({"q": {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {}}}});
    let task = json!({
        "resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 100, "statusMessage": "m",
    });
    let samples = vec![
        json!({"jsonrpc": "2.0", "id": 7, "result": {"content": content, "structuredContent": {"a": 1}}}),
        json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "no", "data": {"a": 1}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/progress",
               "params": {"progressToken": 7, "progress": 1.5, "total": 4, "message": "on"}}),
        json!({"jsonrpc": "2.0", "id": "a", "method": "ping"}),
        json!({"content": content, "isError": true}),
        json!({"resultType": "input_required", "inputRequests": asks}),
        task,
        json!({"resultType": "task", "taskId": "t", "status": "completed", "result": {"content": content}}),
        json!({"resultType": "task", "taskId": "t", "status": "input_required", "inputRequests": asks}),
    ];
    fuzz("messages of tool servers", &corpus(samples), |bytes| {
        let message = ServerMessage::read(bytes).is_ok();
        let Ok(value) = serde_json::from_slice::<Json>(bytes) else { return message };
        message | ServerAnswer::read(value.clone()).is_ok() | ToolTask::read(value).is_ok()
    });
}

#[test]
fn fuzz_settings_of_tool_servers() {
    let sample = json!({"servers": {
        "one": {"command": ["a", "b"], "env": ["KEY"], "cwd": "/c", "allow": ["t"], "calls_max": 3},
        "two": {"url": "https://one/mcp", "token_env": "T", "call_timeout_s": 5, "answer_bytes_max": 100_000},
    }});
    fuzz("settings of tool servers", &corpus(vec![sample]), |bytes| {
        serde_json::from_slice::<ToolServers>(bytes).is_ok()
    });
}

/// Events are the same however their bytes are cut.
#[test]
fn fuzz_streams_of_events() {
    let sample =
        b"id: 7\nevent: log\ndata: {\"a\": 1}\ndata: b\n\n: nothing\n\ndata:x\r\n\r\nretry: 5\n\n";
    let tokens = ["data: ", "\n\n", "\r", "id:", "event: ", ":", "\u{feff}"];
    let corpus = Corpus::new(InputForm::Bytes, [sample.to_vec()]).with_tokens(&tokens);
    fuzz("streams of events", &corpus, |bytes| {
        let whole = SseReader::of_length(1 << 10).read(bytes);
        let mut reader = SseReader::of_length(1 << 10);
        let pieces: Result<Vec<_>, _> = bytes.chunks(3).map(|piece| reader.read(piece)).collect();
        if let (Ok(whole), Ok(pieces)) = (&whole, &pieces) {
            let pieces: Vec<_> = pieces.iter().flatten().collect();
            assert_eq!(whole.iter().collect::<Vec<_>>(), pieces);
        }
        whole.is_ok()
    });
}

#[cfg(feature = "a2a")]
#[test]
fn fuzz_cards_of_agents() {
    use crate::a2a::card::PeerCard;

    let samples = vec![
        json!({
            "name": "n", "supportedInterfaces": [
                {"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                {"url": "https://a.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            ],
            "capabilities": {"streaming": true}, "skills": [],
        }),
        json!({
            "name": "n", "url": "https://a.example/", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC",
            "additionalInterfaces": [{"url": "https://a.example/x", "transport": "HTTP+JSON"}],
            "capabilities": {"streaming": false},
        }),
    ];
    fuzz("cards of agents", &corpus(samples), |bytes| {
        let Ok(card) = serde_json::from_slice::<Json>(bytes) else { return false };
        let open = PeerCard::read("http://a.example/card", card.clone(), None).is_ok();
        PeerCard::read("https://a.example/card", card, None).is_ok() | open
    });
}
