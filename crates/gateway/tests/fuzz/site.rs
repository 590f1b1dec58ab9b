//! A scheduler in memory and the routes of a gateway, which requests reach without a socket. Time stands still unless
//! everything waits, and then goes on at once: so no request is waited for.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::{Extension, Router};
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper::{Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use serde_json::{Map, Value as Json, json};
use tenure_core::command::create::CreateTask;
use tenure_core::id::PoolId;
use tenure_gateway::a2a::Agents;
use tenure_gateway::identity::Identity;
use tenure_gateway::{EmbeddedBackend, Gateway, GatewaySettings};
use tenure_local::MemoryLeases;
use tenure_mcp::McpSettings;
use tenure_mcp::file::AgentsFile;
use tenure_mcp::offers::OfferTable;
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::{MemoryBlobs, MemoryJournal};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// How much of an answer is read. Streams go on for ever.
const ANSWER: Duration = Duration::from_secs(2);

/// The agents and tools that are served.
pub(crate) const AGENTS: &str = r#"
[push]
allow = ["127.0.0.1"]

[[agents]]
name = "echo"
title = "Echo"
description = "Does what it is told."
handler = "act"

[[agents.skills]]
id = "act"
name = "Act"
description = "Does what it is told."
tags = ["test"]

[[agents]]
name = "trips"
description = "Plans, then books."
template = "trip.yaml"
shared = true
version = "2"

[[agents.extensions]]
uri = "https://example.org/needed"
"#;

/// Tools for models.
pub(crate) const TOOLS: &str = r#"
[[tools]]
name = "draw"
description = "Draws."
handler = "draw"

[tools.hints]
read_only = true
"#;

/// Everything in one process, on one thread.
pub(crate) struct Site {
    runtime: Runtime,
    routes: Router,
}

impl Site {
    pub(crate) fn open() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let routes = runtime.block_on(routes());
        Self { runtime, routes }
    }

    /// Sends what a JSON object says: `method`, `path`, `headers` and `body`, which is JSON or text. Whether it was
    /// taken; a request that is none in HTTP is not.
    pub(crate) fn takes(&self, request: &[u8]) -> bool {
        let Some(made) = to_http(request) else { return false };
        let (status, _) = self.runtime.block_on(self.answer(made));
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "a fault of the gateway");
        status.is_success()
    }

    /// What is at a path.
    pub(crate) fn json(&self, path: &str) -> Json {
        self.answered(&request("GET", path, &[], &Json::Null))
    }

    /// The answer to a request that is taken.
    pub(crate) fn answered(&self, request: &[u8]) -> Json {
        let made = to_http(request).unwrap();
        let (status, body) = self.runtime.block_on(self.answer(made));
        assert!(status.is_success(), "{status} {}", String::from_utf8_lossy(&body));
        let text = String::from_utf8(body).unwrap();
        let data = text.lines().rev().find_map(|line| line.strip_prefix("data: {"));
        let text = data.map_or(text.clone(), |rest| format!("{{{rest}"));
        serde_json::from_str(&text).unwrap()
    }

    async fn answer(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let service = TowerToHyperService::new(self.routes.clone());
        let Ok(response) = timeout(Duration::from_secs(3_600), service.call(request)).await else {
            panic!("there is no answer");
        };
        let (parts, body) = response.unwrap().into_parts();
        let Ok(Ok(body)) = timeout(ANSWER, body.collect()).await else {
            return (parts.status, Vec::new());
        };
        let body = body.to_bytes().to_vec();
        let is_json =
            parts.headers.get("content-type").is_some_and(|it| it.as_bytes().ends_with(b"json"));
        if is_json && !body.is_empty() {
            let read = serde_json::from_slice::<Json>(&body);
            assert!(read.is_ok(), "the answer is no JSON: {read:?}");
        }
        (parts.status, body)
    }
}

async fn routes() -> Router {
    let pool: PoolId = "default".parse().unwrap();
    let mut config = Config::embedded(pool);
    config.blobs = Some(Arc::new(MemoryBlobs::of_quota(1 << 30)));
    let (journal, leases) = (Arc::<MemoryJournal>::default(), Arc::<MemoryLeases>::default());
    let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agents.toml");
    std::fs::write(&path, AGENTS).unwrap();
    let agents = Agents::read(&AgentsFile::read(&path).unwrap(), &|_| Ok(template())).unwrap();
    std::fs::write(&path, TOOLS).unwrap();
    let tools = AgentsFile::read(&path).unwrap();
    let offers = OfferTable::read(&tools, &|_| Err("there is none".into())).unwrap().into();
    let usual = GatewaySettings::new("main".parse().unwrap());
    let mcp = McpSettings { offers, ..usual.mcp.clone() };
    let settings = GatewaySettings { agents: agents.into(), mcp, ..usual };
    let gateway = Gateway::new(EmbeddedBackend::new(scheduler, None), settings);
    tenure_gateway::routes(gateway).layer(Extension(Identity::local()))
}

/// The task of an agent that has a template.
pub(crate) fn template() -> CreateTask {
    let task = json!({
        "task_id": "unused", "title": "Trip",
        "steps": [{"step_id": "plan", "title": "Plan", "handler": "act"}],
    });
    let task: CreateTask = serde_json::from_value(task).unwrap();
    CreateTask { task_id: None, ..task }
}

/// A request as a sample.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &Json) -> Vec<u8> {
    let headers: Map<String, Json> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let request = json!({ "method": method, "path": path, "headers": headers, "body": body });
    request.to_string().into_bytes()
}

/// The request that a sample describes; none if HTTP has no such request.
fn to_http(sample: &[u8]) -> Option<Request<Body>> {
    let sample: Json = serde_json::from_slice(sample).ok()?;
    let mut made = Request::builder()
        .method(sample["method"].as_str().unwrap_or("GET"))
        .uri(sample["path"].as_str().unwrap_or_default());
    for (name, value) in sample["headers"].as_object().into_iter().flatten() {
        made = made.header(name, value.as_str().unwrap_or_default());
    }
    let body = match &sample["body"] {
        Json::Null => Body::empty(),
        Json::String(text) => Body::from(text.clone()),
        body => Body::from(body.to_string()),
    };
    made.body(body).ok().filter(|made| made.uri().path().starts_with('/'))
}
