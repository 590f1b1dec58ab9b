//! A scheduler on a directory, a worker that does what the arguments say, and servers for several callers.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use tempfile::TempDir;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{AgentId, PoolId, SessionId};
use tenure_core::record::{Progress, Value};
use tenure_core::status::Role;
use tenure_local::{FileBlobs, JournalOptions, JsonlJournal, MemoryLeases, OpenError};
use tenure_mcp::file::AgentsFile;
use tenure_mcp::offers::{OfferTable, Offers};
use tenure_mcp::{McpCaller, McpServer, McpSettings, OneCaller, ToolFilter};
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::client::Client;
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tokio::sync::Semaphore;

use crate::talk::Talk;

/// A client in this process.
pub(crate) type LocalClient = Client<ClientLink<JsonlJournal, MemoryLeases>>;

/// The tools of the tests.
pub(crate) const FILE: &str = r#"
[[tools]]
name = "act"
description = "Does what it is told."
input_schema = { properties = { do = { type = "string" }, with = { type = "string" } }, required = ["do"] }
labels = { team = "tests" }

[[tools]]
name = "count"
description = "Counts the letters of a text."
handler = "act"
attempts = 2
input_schema = { properties = { do = { type = "string" }, with = { type = "string" } } }
output_schema = { properties = { letters = { type = "integer" } }, required = ["letters"] }

[[tools]]
name = "quick"
description = "Is answered with its result."
handler = "act"
answers = "result"

[[tools]]
name = "slow"
description = "Is answered with a task."
handler = "act"
answers = "task"

[[tools]]
name = "open"
description = "Does what it is told, for all to see."
handler = "act"
shared = true

[[tools]]
name = "pair"
description = "Asks two things at once, in two steps."
template = "pair.yaml"
input_to = "left"
"#;

/// Everything in one process.
pub(crate) struct House {
    dir: Arc<TempDir>,
    scheduler: Scheduler<JsonlJournal, MemoryLeases>,
    workers: WorkerPool<WorkerLink<JsonlJournal, MemoryLeases>>,
    /// Lets as many Steps end that were told `hold` as it has permits.
    pub(crate) gate: Arc<Semaphore>,
    /// The tools of all servers.
    pub(crate) offers: Offers,
}

impl House {
    pub(crate) async fn open() -> Self {
        Self::open_in(Arc::new(tempfile::tempdir().unwrap())).await
    }

    async fn open_in(dir: Arc<TempDir>) -> Self {
        let pool: PoolId = "default".parse().unwrap();
        let path = dir.path().join("data");
        std::fs::create_dir_all(&path).unwrap();
        let journal = loop {
            match JsonlJournal::open(&path, JournalOptions::default()) {
                // Those who spoke with the servers before have gone, and the servers end.
                Err(OpenError::Locked { .. }) => tokio::task::yield_now().await,
                opened => break opened.unwrap().0,
            }
        };
        let mut config = Config::embedded(pool.clone());
        config.limits.lease_ms = 120_000;
        config.blobs = Some(Arc::new(FileBlobs::open(&path, 1 << 30)));
        let leases = Arc::new(MemoryLeases::default());
        let scheduler = Scheduler::start(Arc::new(journal), leases, config).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let id = AgentId::new("ant.b1").unwrap();
        let (link, deliveries) = scheduler.join(id, pool, None).unwrap();
        let options = Options::new(NonZeroUsize::new(8).unwrap());
        let workers = WorkerPool::start(link, deliveries, handlers(&gate), options);
        let offers = Offers::from(table(dir.path(), FILE));
        Self { dir, scheduler, workers, gate, offers }
    }

    /// Ends everything, and begins anew in the same directory.
    pub(crate) async fn reopen(self) -> Self {
        let dir = Arc::clone(&self.dir);
        self.workers.interrupt().await;
        self.scheduler.stop().await;
        drop(self);
        Self::open_in(dir).await
    }

    /// Ends the scheduler: nobody answers any more.
    pub(crate) async fn stop(&self) {
        self.scheduler.stop().await;
    }

    /// Loses all blobs.
    pub(crate) fn lose_blobs(&self) {
        std::fs::remove_dir_all(self.dir.path().join("data/blobs")).unwrap();
    }

    /// Makes the tools of all servers those of another file.
    pub(crate) fn offer(&self, text: &str) {
        self.offers.replace(table(self.dir.path(), text));
    }

    /// A server of its own for this caller, which waits so long for results.
    pub(crate) fn server(&self, agent: &str, role: Role, wait_max: Duration) -> McpServer {
        let client = self.client_as(agent, role);
        let agent = AgentId::new(agent).unwrap();
        let offers = self.offers.clone();
        let settings = McpSettings { offers, wait_max, ..McpSettings::default() };
        McpServer::new(OneCaller(McpCaller { client, agent, role }), Arc::new(settings))
    }

    /// A server that changes nothing.
    pub(crate) fn reading_server(&self) -> McpServer {
        let (client, agent) = (self.client(), AgentId::new("ann").unwrap());
        let (offers, tools) = (self.offers.clone(), ToolFilter::ReadOnly);
        let settings = McpSettings { tools, offers, ..McpSettings::default() };
        let caller = McpCaller { client, agent, role: Role::Orchestrator };
        McpServer::new(OneCaller(caller), Arc::new(settings))
    }

    /// A conversation of a client that knows everything, at a server of its own.
    pub(crate) async fn talk(&self) -> Talk {
        self.talk_as("ann").await
    }

    /// The same for another caller.
    pub(crate) async fn talk_as(&self, agent: &str) -> Talk {
        let server = self.server(agent, Role::Orchestrator, LONG);
        Talk::begin(server, json!({"extensions": {TASKS: {}}, "elicitation": {}})).await
    }

    /// A conversation of a client that waits for its results.
    pub(crate) async fn waiting_talk(&self, capabilities: Json, wait_max: Duration) -> Talk {
        let server = self.server("ann", Role::Orchestrator, wait_max);
        Talk::begin(server, capabilities).await
    }

    /// The same for another caller, which waits for long.
    pub(crate) async fn waiting_talk_as(&self, agent: &str) -> Talk {
        Talk::begin(self.server(agent, Role::Orchestrator, LONG), json!({})).await
    }

    /// An orchestrator in the session of the tools.
    pub(crate) fn client(&self) -> LocalClient {
        self.client_as("ann", Role::Orchestrator)
    }

    fn client_as(&self, agent: &str, role: Role) -> LocalClient {
        let agent = AgentId::new(agent).unwrap();
        Client::new(self.scheduler.client(role, agent, SessionId::new("main").unwrap()))
    }
}

/// The name of the extension.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Reads the tools of a file.
fn table(dir: &Path, text: &str) -> OfferTable {
    let path = dir.join("agents.toml");
    std::fs::write(&path, text).unwrap();
    OfferTable::read(&AgentsFile::read(&path).unwrap(), &pair).unwrap()
}

/// Two Steps that ask at once, and one that takes what they say.
fn pair(_: &Path) -> Result<CreateTask, String> {
    let task = json!({
        "task_id": "unused",
        "title": "Pair",
        "output_from": "both",
        "steps": [
            {"step_id": "left", "title": "Left", "handler": "act"},
            {"step_id": "right", "title": "Right", "handler": "act",
             "input": {"data": "{\"do\": \"ask\", \"with\": \"right?\"}"}},
            {"step_id": "both", "title": "Both", "handler": "join",
             "depends_on_step_ids": ["left", "right"]},
        ],
    });
    let task: CreateTask = serde_json::from_value(task).map_err(|error| error.to_string())?;
    Ok(CreateTask { task_id: None, ..task })
}

type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn handlers(gate: &Arc<Semaphore>) -> Handlers {
    let gate = Arc::clone(gate);
    let act = move |ctx: StepContext| act(ctx, Arc::clone(&gate));
    let join = |ctx: StepContext| async move {
        let said = ctx.dependencies().iter().map(|it| {
            let data = it.output.as_ref().and_then(Value::data).unwrap_or_default();
            serde_json::from_slice::<Json>(data).unwrap_or_default()
        });
        let said: Vec<Json> = said.collect();
        Ok(ctx.complete_json(&said)?)
    };
    Handlers::new().on("act", act).unwrap().on("join", join).unwrap()
}

fn object(json: Json) -> Map<String, Json> {
    json.as_object().unwrap().clone()
}

/// Does what the arguments say.
async fn act(ctx: StepContext, gate: Arc<Semaphore>) -> Done {
    let input: Json = ctx.input_json()?;
    let (verb, with) = (input["do"].as_str(), input["with"].as_str().unwrap_or_default());
    let answers = ctx.answers();
    match verb.unwrap_or("echo") {
        "echo" => ctx.complete_json(&with)?,
        "letters" => ctx.complete_json(&json!({"letters": with.len()}))?,
        "large" => ctx.complete_json(&"x".repeat(with.parse()?))?,
        "say" => ctx.respond(Some(Value::inline("image/png", *b"png")), with)?,
        "fail" => ctx.fail("broken", with, None)?,
        "error" => {
            let details = json!({"code": -32001, "data": {"peer": "away"}});
            ctx.fail("jsonrpc_error", with, Some(object(details)))?;
        }
        "ask" => match answers.last() {
            Some(answer) => ctx.complete_json(answer)?,
            None => ctx.request_input(with)?,
        },
        "ask-twice" => match &answers[..] {
            [_, second, ..] => ctx.complete_json(second)?,
            some => ctx.request_input(&format!("question {}", some.len() + 1))?,
        },
        "ask-all" => match &answers[..] {
            [] => {
                let form = json!({
                    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                });
                let questions =
                    json!([{"prompt": "Who?"}, {"prompt": "How many?", "schema": form}]);
                ctx.request_form("some questions", object(json!({"questions": questions})))?;
            }
            some => ctx.complete_json(&some)?,
        },
        "permit" => match answers.last() {
            Some(answer) => ctx.complete_json(answer)?,
            None => ctx.request_auth("log in", object(json!({"url": "https://id.example"})))?,
        },
        "refs" => match ctx.input_refs() {
            [] => ctx.request_input(with)?,
            some => ctx.complete_json(&some)?,
        },
        "steps" => {
            for percent in [25.0, 50.0] {
                let summary = Some(format!("{percent} done"));
                let percent = Some(percent);
                ctx.send_status(Progress { percent, summary, ..Progress::default() }).await?;
                gate.acquire().await?.forget();
            }
            ctx.complete_json(&with)?;
        }
        "hold" => {
            let summary = Some("holds on".to_owned());
            ctx.send_status(Progress { summary, ..Progress::default() }).await?;
            tokio::select! {
                permit = gate.acquire() => permit?.forget(),
                () = ctx.cancellation().cancelled() => return Ok(()),
            }
            ctx.complete_json(&with)?;
        }
        other => ctx.fail("unknown", other, None)?,
    }
    Ok(())
}
