//! An orchestrator that speaks MCP and nothing else: lines of JSON, as any host sends them.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod streams;

use std::future::pending;
use std::num::NonZeroUsize;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use streams::Streams;
use tenure_core::id::{AgentId, PoolId, SessionId};
use tenure_core::status::Role;
use tenure_local::MemoryLeases;
use tenure_mcp::{McpCaller, McpServer, McpSettings, OneCaller};
use tenure_scheduler::{Config, Scheduler};
use tenure_sdk::client::Client;
use tenure_sdk::worker::{HandlerError, Handlers, Options, StepContext, WorkerPool};
use tenure_testkit::MemoryJournal;

/// Says what it was told to say.
async fn say(ctx: StepContext) -> Result<(), HandlerError> {
    let text: String = ctx.input_json()?;
    Ok(ctx.complete_json(&text)?)
}

/// Asks, and says again what was answered.
async fn ask(ctx: StepContext) -> Result<(), HandlerError> {
    match ctx.answers().last() {
        None => Ok(ctx.request_input("Is that the right number?")?),
        Some(answer) => Ok(ctx.complete_json(answer)?),
    }
}

/// A program that calls tools on one Task.
struct Orchestrator(Streams);

impl Orchestrator {
    /// One beside a scheduler in memory with a worker, which go on to the end of the test.
    async fn start() -> Self {
        let pool: PoolId = "default".parse().unwrap();
        let (journal, leases) =
            (Arc::<MemoryJournal>::default(), Arc::new(MemoryLeases::default()));
        let scheduler =
            Scheduler::start(journal, leases, Config::embedded(pool.clone())).await.unwrap();
        let (link, deliveries) =
            scheduler.join(AgentId::new("w1.b1").unwrap(), pool, None).unwrap();
        let handlers = Handlers::new().on("say", say).unwrap().on("ask", ask).unwrap();
        let options = Options::new(NonZeroUsize::new(4).unwrap());
        let workers = WorkerPool::start(link, deliveries, handlers, options);
        let (agent, session) = (AgentId::new("model").unwrap(), SessionId::new("s").unwrap());
        let role = Role::Orchestrator;
        let client = Client::new(scheduler.client(role, agent.clone(), session));
        let caller = OneCaller(McpCaller { client, agent, role });
        tokio::spawn(async move {
            let _go_on = (scheduler, workers);
            pending::<()>().await;
        });
        Self(Streams::of(McpServer::new(caller, Arc::new(McpSettings::default()))))
    }

    async fn call(&mut self, tool: &str, arguments: Json) -> (bool, Json) {
        self.0.call(tool, arguments).await
    }

    /// What a tool answers that has done what it was called for.
    async fn done(&mut self, tool: &str, mut arguments: Json) -> Json {
        arguments["task_id"] = "release".into();
        let (is_error, answer) = self.call(tool, arguments).await;
        assert!(!is_error, "{tool}: {answer:#}");
        answer
    }

    /// The code with which a tool refuses.
    async fn refused(&mut self, tool: &str, mut arguments: Json) -> String {
        arguments["task_id"] = "release".into();
        let (is_error, answer) = self.call(tool, arguments).await;
        assert!(is_error, "{tool}: {answer:#}");
        answer["error"]["code"].as_str().unwrap().to_owned()
    }

    /// The Steps with their statuses.
    async fn steps(&mut self) -> Vec<(String, String)> {
        let page = self.done("task_query_steps", json!({"include_terminal_steps": true})).await;
        let text = |step: &Json, field: &str| step[field].as_str().unwrap().to_owned();
        let steps = page["steps"].as_array().unwrap().iter();
        steps.map(|step| (text(step, "step_id"), text(step, "status"))).collect()
    }

    /// Has a worker do these Steps, and no others.
    async fn dispatch(&mut self, scope: &[&str]) -> Json {
        let asked = json!({"worker_pool_id": "default", "allowed_step_ids": scope, "wait": true});
        self.done("dispatch_worker", asked).await["run_end"].clone()
    }
}

fn step(id: &str, handler: &str, says: &str, after: &[&str]) -> Json {
    let input = json!({"content_type": "application/json", "data": json!(says).to_string()});
    json!({"step_id": id, "title": id, "handler": handler, "input": input, "depends_on_step_ids": after})
}

/// CTRL-01, DISP-02, CLAIM-05, PATCH-02, CTX-05: who speaks MCP alone creates a Task, gives out its Steps
/// under a scope, changes what is left, answers a question, and closes.
#[tokio::test]
async fn a_task_is_steered_from_its_creation_to_its_end() {
    let mut model = Orchestrator::start().await;
    let (_, guide) = model.call("task_template", json!({})).await;
    assert!(guide["text"].as_str().is_some_and(|text| text.contains("step")), "{guide:#}");

    let steps = [step("build", "say", "built", &[]), step("publish", "ask", "", &["build"])];
    let task = json!({"title": "Release", "steps": steps, "command_id": "create"});
    let made = model.done("task_create", task.clone()).await;
    let again = model.done("task_create", task).await;
    assert_eq!(made["version"], again["version"], "a repeated call makes nothing");
    let is = |id: &str, status: &str| (id.to_owned(), status.to_owned());
    assert_eq!(
        model.steps().await,
        [is("build", "ready"), is("publish", "pending")],
        "nothing runs by itself"
    );

    assert_eq!(model.dispatch(&["build"]).await["end_reason"], "completed");
    assert_eq!(
        model.steps().await,
        [is("build", "completed"), is("publish", "ready")],
        "the scope is hard"
    );

    let old = model.done("task_get", json!({})).await["spec_version"].clone();
    let sign = json!({"op": "add_step", "step": step("sign", "say", "signed", &["build"])});
    let after = json!({"op": "add_dependency", "step_id": "publish", "depends_on_step_id": "sign"});
    let patch = json!({"operations": [sign, after], "expected_spec_version": old});
    model.done("task_update", patch.clone()).await;
    assert_eq!(
        model.refused("task_update", patch).await,
        "version_conflict",
        "another patch came before it"
    );
    assert_eq!(model.refused("task_complete", json!({})).await, "required_steps_incomplete");
    let why = model.done("explain", json!({"step_id": "publish"})).await;
    assert!(why.to_string().contains("sign"), "{why:#}");
    assert_eq!(model.dispatch(&["sign"]).await["end_reason"], "completed");

    model.dispatch(&["publish"]).await;
    let waited = model.done("wait", json!({"until": "settled", "seconds": 20})).await;
    assert_eq!((&waited["reached"], &waited["ended"]), (&true.into(), &false.into()), "{waited:#}");
    let inbox = model.done("inbox", json!({})).await;
    let item = &inbox["waiting"][0];
    assert_eq!(
        (&item["tool"], &item["step_id"]),
        (&"answer".into(), &"publish".into()),
        "{inbox:#}"
    );
    assert_eq!(item["reason"]["message"], "Is that the right number?");
    let mut answer = item["arguments"].clone();
    answer["text"] = "it is".into();
    model.done("answer", answer).await;
    assert_eq!(model.dispatch(&["publish"]).await["end_reason"], "completed");

    model.done("task_complete", json!({"result_summary": "1.4 is out"})).await;
    let ended = model.done("task_get", json!({})).await;
    assert_eq!(
        (&ended["native_status"], &ended["result_summary"]),
        (&"completed".into(), &"1.4 is out".into())
    );
    let published = ended["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|step| step["step_id"] == "publish")
        .unwrap();
    assert!(
        published.to_string().contains("it is"),
        "the answer came to the worker: {published:#}"
    );
    let late = json!({"op": "add_step", "step": step("late", "say", "", &[])});
    let refused = model.refused("task_update", json!({"operations": [late]})).await;
    assert_eq!(refused, "task_terminal", "an ended task never changes");
}
