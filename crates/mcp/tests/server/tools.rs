//! Each tool, as a model uses it from the guide to the end of a Task.

use serde_json::{Value as Json, json};

use crate::host::ModelHost;
use crate::house::House;

/// A Task that nobody but the model drives.
fn manual() -> Json {
    json!({
        "task_id": "report",
        "title": "A report",
        "steps": [
            { "step_id": "collect", "title": "Collect", "handler": "echo" },
            { "step_id": "write", "title": "Write", "handler": "ask", "depends_on_step_ids": ["collect"] },
            { "step_id": "print", "title": "Print", "handler": "echo", "depends_on_step_ids": ["write"] },
        ],
    })
}

/// Holds the answer of each call against the schema that the tool has for it, and its text against its content.
struct Checked {
    host: ModelHost,
    tools: Vec<Json>,
    used: Vec<String>,
}

impl Checked {
    async fn of(mut host: ModelHost) -> Self {
        let tools = host.ask("tools/list", json!({})).await["tools"].as_array().unwrap().clone();
        Self { host, tools, used: Vec::new() }
    }

    async fn done(&mut self, tool: &str, arguments: Json) -> Json {
        let schemas = self.tools.iter().find(|it| it["name"] == tool).unwrap();
        let input = jsonschema::validator_for(&schemas["inputSchema"]).unwrap();
        input.validate(&arguments).unwrap_or_else(|error| panic!("{tool}: {error}"));
        let result = self.host.call(tool, arguments).await;
        assert_ne!(result["isError"], true, "{tool}: {result}");
        assert_eq!(result["resultType"], "complete");
        let content = &result["structuredContent"];
        let output = jsonschema::validator_for(&schemas["outputSchema"]).unwrap();
        output.validate(content).unwrap_or_else(|error| panic!("{tool}: {error} in {content}"));
        let text = result["content"][0]["text"].as_str().unwrap();
        if !["board", "task_template"].contains(&tool) {
            assert_eq!(&serde_json::from_str::<Json>(text).unwrap(), content, "{tool}");
        }
        self.used.push(tool.to_owned());
        content.clone()
    }
}

/// DISP-01, DISP-10, PATCH-14, TASK-14, CTRL-10: from the guide to the end, with every tool.
#[tokio::test]
async fn a_model_drives_a_task_to_its_end_with_every_tool() {
    let house = House::open().await;
    let mut host = Checked::of(house.host().await).await;
    let guide = host.done("task_template", json!({})).await;
    assert!(guide["text"].as_str().unwrap().contains("depends_on_step_ids"));
    let made = host.done("task_create", manual()).await;
    assert_eq!(
        (&made["task"]["dispatch"], &made["task"]["completion"]),
        (&json!("manual"), &json!("manual"))
    );

    let dispatch = json!({
        "task_id": "report", "worker_pool_id": "default", "allowed_step_ids": ["collect"], "wait": true,
    });
    let run = host.done("dispatch_worker", dispatch.clone()).await;
    assert_eq!(run["run_end"]["end_reason"], "completed", "{run}");
    let nothing = host.done("dispatch_worker", dispatch).await;
    assert_ne!(
        nothing["run_end"]["end_reason"], "completed",
        "the scope has nothing left: {nothing}"
    );

    let read = host.done("task_get", json!({ "task_id": "report" })).await;
    let patch = json!({
        "task_id": "report",
        "expected_spec_version": read["spec_version"],
        "operations": [{ "op": "delete_step", "step_id": "print" }],
    });
    host.done("task_update", patch.clone()).await;
    let late = host.host.refused("task_update", patch).await;
    assert_eq!(late["code"], "version_conflict", "another patch came before it");
    let steps = host.done("task_query_steps", json!({ "task_id": "report" })).await;
    let ids: Vec<&Json> =
        steps["steps"].as_array().unwrap().iter().map(|it| &it["step_id"]).collect();
    assert_eq!(ids, ["write"]);

    let dispatch = json!({ "task_id": "report", "worker_pool_id": "default" });
    host.done("dispatch_worker", dispatch.clone()).await;
    let asks = host.done("wait", json!({ "task_id": "report", "until": "settled" })).await;
    assert_eq!((&asks["reached"], &asks["ended"]), (&json!(true), &json!(false)), "{asks}");
    let why = host.done("explain", json!({ "task_id": "report", "step_id": "write" })).await;
    assert_eq!(why["status"], "blocked");
    let groups = host.done("explain", json!({ "task_id": "report" })).await;
    assert_eq!(groups["counts"]["blocked"], 1);
    let board = host.done("board", json!({})).await;
    assert!(board["text"].as_str().unwrap().contains("Which colour?"), "{board}");

    let inbox = host.done("inbox", json!({})).await;
    let item = &inbox["waiting"][0];
    assert_eq!(
        (&item["step_id"], &item["waits_for"], &item["tool"]),
        (&json!("write"), &json!("input"), &json!("answer"))
    );
    let mut answer = item["arguments"].clone();
    answer["text"] = "green & blue".into();
    host.done("answer", answer).await;
    host.done("dispatch_worker", dispatch).await;
    let waited = host.done("wait", json!({ "task_id": "report" })).await;
    assert_eq!(waited["task"]["diagnostics"]["completeable"], true, "{waited}");
    let output = host
        .done("task_query_steps", json!({ "task_id": "report", "include_terminal_steps": true }))
        .await;
    let written =
        output["steps"].as_array().unwrap().iter().find(|it| it["step_id"] == "write").unwrap();
    assert_eq!(written["output"]["data"], "\"green & blue\"", "{written}");

    let ended =
        host.done("task_complete", json!({ "task_id": "report", "result_summary": "done" })).await;
    assert_eq!(ended["task"]["native_status"], "completed");
    let more = json!([{ "op": "add_step", "step": { "step_id": "late", "title": "Late" } }]);
    let late = json!({ "task_id": "report", "operations": more });
    assert_eq!(host.host.refused("task_update", late).await["code"], "task_terminal");
    let list = host.done("task_list", json!({ "include_terminal": true })).await;
    assert_eq!(list["tasks"][0]["task_id"], "report");

    for (id, tool) in [("one", "task_fail"), ("two", "task_cancel")] {
        let mut task = manual();
        task["task_id"] = id.into();
        host.done("task_create", task).await;
        let settled = json!({ "task_id": id, "step_id": "collect", "status": "completed", "result_summary": "by hand" });
        host.done("task_update_step", settled).await;
        let ended =
            host.done(tool, json!({ "task_id": id, "reason": { "message": "enough" } })).await;
        let expected = if tool == "task_fail" { "failed" } else { "cancelled" };
        assert_eq!(ended["task"]["native_status"], expected);
    }
    let unused = tenure_mcp::tool_names().filter(|name| !host.used.iter().any(|used| used == name));
    assert_eq!(unused.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// CTRL-06: an answer at its budget is whole; over it, it says where to go on, and going on gives the rest.
#[tokio::test]
async fn an_answer_over_its_budget_says_where_to_go_on() {
    let house = House::open().await;
    let mut host = house.host().await;
    let steps: Vec<Json> = (0..60)
        .map(|n| json!({ "step_id": format!("s{n}"), "title": "x".repeat(80), "handler": "echo" }))
        .collect();
    host.done("task_create", json!({ "task_id": "wide", "title": "Wide", "steps": steps })).await;
    let whole = host.call("task_get", json!({ "task_id": "wide", "max_bytes": 262_144 })).await;
    assert_eq!(whole["structuredContent"]["steps"].as_array().unwrap().len(), 60);
    let bytes = whole["content"][0]["text"].as_str().unwrap().len();
    let same = host.done("task_get", json!({ "task_id": "wide", "max_bytes": bytes })).await;
    assert_eq!(same["steps"].as_array().unwrap().len(), 60);
    let short = host.call("task_get", json!({ "task_id": "wide", "max_bytes": bytes - 1 })).await;
    assert!(
        short["structuredContent"]["more"].as_str().unwrap().contains("task_query_steps"),
        "{short}"
    );
    assert!(short["content"][0]["text"].as_str().unwrap().len() < bytes);

    let (mut offset, mut ids) = (0, Vec::new());
    loop {
        let page = json!({ "task_id": "wide", "offset": offset, "limit": 50, "max_bytes": 8_192 });
        let result = host.call("task_query_steps", page).await;
        assert!(result["content"][0]["text"].as_str().unwrap().len() <= 8_192 + 200);
        let page = &result["structuredContent"];
        ids.extend(page["steps"].as_array().unwrap().iter().map(|it| it["step_id"].clone()));
        match page["next_offset"].as_u64() {
            Some(next) => {
                assert!(page["more"].as_str().unwrap().contains(&format!("offset {next}")));
                offset = next;
            }
            None => break,
        }
    }
    assert_eq!(ids, (0..60).map(|n| json!(format!("s{n}"))).collect::<Vec<_>>());
}

/// IDEM-01: the same command id gets the first answer, and changes nothing again.
#[tokio::test]
async fn a_repeated_call_with_its_command_id_counts_once() {
    let house = House::open().await;
    let mut host = house.host().await;
    host.done("task_create", manual()).await;
    let dispatch = json!({ "task_id": "report", "worker_pool_id": "nobody", "command_id": "d-1" });
    let first = host.done("dispatch_worker", dispatch.clone()).await;
    let again = host.done("dispatch_worker", dispatch).await;
    assert_eq!((&first["run_id"], &first["version"]), (&again["run_id"], &again["version"]));
    let other = json!({ "task_id": "report", "worker_pool_id": "default", "command_id": "d-1" });
    assert_eq!(host.refused("dispatch_worker", other).await["code"], "idempotency_conflict");
}
