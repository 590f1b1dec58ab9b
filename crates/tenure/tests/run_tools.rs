//! `tenure mcp` under a Run: the tools of a worker, for the host of a model that the command of a Step starts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/hosted.rs"]
mod hosted;
mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use hosted::{Hosted, Spoken};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use support::{Place, TENURE, wait_until};

/// The tools of a worker (PERM-06).
const TOOLS: [&str; 6] =
    ["task_get", "task_list", "task_query_steps", "board", "task_claim_step", "task_update_step"];

fn exec(id: &str, input: Value) -> Value {
    let input = json!({ "data": input.to_string(), "content_type": "application/json" });
    json!({ "step_id": id, "title": id, "handler": "exec", "input": input })
}

/// The command of a Step that starts `tenure mcp` at two pipes, as the host of a model does.
fn hosting() -> Value {
    let run = format!("env > env; {TENURE} mcp --data data < in > out");
    json!({ "run": run, "run_tools": true })
}

/// A directory with a Task that is steered by hand, and its orchestrator.
struct Scene {
    orchestrator: Hosted,
    place: Place,
}

impl Scene {
    /// `host` and `mate` are in the scope of the Run, the other Steps are not.
    fn begin() -> Self {
        let place = Place::new();
        for pipe in ["in", "out"] {
            mkfifo(&place.path(pipe), Mode::S_IRWXU).unwrap();
        }
        let mut orchestrator = Hosted::start(&place, &["--data", "data"]);
        let mut elsewhere = exec("elsewhere", json!({ "run": "true" }));
        elsewhere["worker_pool_id"] = "far".into();
        let mut after = exec("after", json!({ "run": "true" }));
        after["depends_on_step_ids"] = json!(["host"]);
        let steps = [
            exec("host", hosting()),
            exec("mate", json!({ "run": "true" })),
            exec("secret", json!({ "run": "true" })),
            elsewhere,
            after,
        ];
        let made = json!({ "task_id": "t", "title": "T", "steps": steps });
        orchestrator.done("task_create", made);
        let other = [exec("a", json!({ "run": "true" }))];
        orchestrator.done("task_create", json!({ "task_id": "u", "title": "U", "steps": other }));
        let scope = json!(["host", "mate"]);
        let dispatch =
            json!({ "task_id": "t", "worker_pool_id": "default", "allowed_step_ids": scope });
        orchestrator.done("dispatch_worker", dispatch);
        Self { orchestrator, place }
    }

    /// The host of a model, when the command has started it, and its worker has said that it runs.
    fn agent(&mut self) -> Spoken {
        let input = File::options().write(true).open(self.place.path("in")).unwrap();
        let agent = Spoken::over(input, File::open(self.place.path("out")).unwrap());
        while self.step("host")["status"] != "running" {}
        agent
    }

    /// The versions of both Tasks.
    fn versions(&mut self) -> [Value; 2] {
        ["t", "u"].map(|task| {
            self.orchestrator.done("task_get", json!({ "task_id": task }))["version"].clone()
        })
    }

    fn step(&mut self, id: &str) -> Value {
        let all = json!({ "task_id": "t", "include_terminal_steps": true });
        let steps = self.orchestrator.done("task_query_steps", all)["steps"].clone();
        steps.as_array().unwrap().iter().find(|it| it["step_id"] == id).unwrap().clone()
    }

    /// Waits until the Step of the command is over.
    fn ended(&mut self) -> Value {
        loop {
            let step = self.step("host");
            if !matches!(step["status"].as_str().unwrap(), "claimed" | "running") {
                return step;
            }
        }
    }

    /// The environment of the command.
    fn environment(&self) -> String {
        std::fs::read_to_string(self.place.path("env")).unwrap()
    }

    /// The socket of the command.
    fn socket(&self) -> PathBuf {
        let text = self.environment();
        let path = text.lines().find_map(|line| line.strip_prefix("TENURE_RUN_SOCKET=")).unwrap();
        PathBuf::from(path)
    }
}

fn ids(steps: &Value) -> Vec<&str> {
    steps.as_array().unwrap().iter().map(|it| it["step_id"].as_str().unwrap()).collect()
}

/// PERM-06, PERM-08, PERM-13, PERM-16, QUERY-04, QUERY-05, CLAIM-03, REPORT-03, REPORT-04, DISP-10: under a Run there
/// are the tools of a worker and no others, whatever the options name, and no tool reaches beyond the scope.
#[test]
fn a_run_bounds_what_its_command_sees_and_does() {
    let mut scene = Scene::begin();
    let mut agent = scene.agent();
    let listed = agent.ask("tools/list", json!({}))["result"]["tools"].clone();
    let listed: Vec<&str> =
        listed.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(listed, TOOLS);
    let before = scene.versions();

    let seen = agent.done("task_get", json!({}));
    assert_eq!((&seen["task_id"], ids(&seen["steps"])), (&json!("t"), vec!["host", "mate"]));
    let ready = agent.done("task_query_steps", json!({ "statuses": ["ready"] }));
    assert_eq!(
        ids(&ready["steps"]),
        [""; 0],
        "the run has claimed its step, so there is none for it"
    );
    let all = json!({ "include_terminal_steps": true });
    assert_eq!(ids(&agent.done("task_query_steps", all)["steps"]), ["host", "mate"]);
    let tasks = agent.done("task_list", json!({ "include_terminal": true }))["tasks"].clone();
    assert_eq!((tasks.as_array().unwrap().len(), &tasks[0]["task_id"]), (1, &json!("t")));
    let board = agent.done("board", json!({}))["text"].to_string();
    assert!(board.contains("host") && !board.contains("secret"), "{board}");

    for tool in ["task_create", "task_update", "task_cancel", "dispatch_worker", "inbox", "wait"] {
        let code = agent.refused(tool, json!({ "task_id": "t" }));
        assert_eq!(code, "tool_not_available", "{tool}");
    }
    let other = [
        ("task_get", json!({ "task_id": "u" })),
        ("task_query_steps", json!({ "task_id": "u" })),
        ("board", json!({ "task_id": "u" })),
        ("task_get", json!({ "task_id": "nowhere" })),
        ("task_update_step", json!({ "task_id": "u", "step_id": "a", "status": "completed" })),
        ("task_update_step", json!({ "task_id": "u", "step_id": "host", "status": "running" })),
        ("task_update_step", json!({ "step_id": "mate", "status": "running" })),
        ("task_update_step", json!({ "step_id": "secret", "status": "completed" })),
        ("task_update_step", json!({ "step_id": "nowhere", "status": "failed" })),
        ("task_update_step", json!({ "title": "mine" })),
        ("task_update_step", json!({ "status": "completed", "depends_on_step_ids": [] })),
        ("task_update_step", json!({ "status": "pending" })),
    ];
    for (tool, arguments) in other {
        assert_eq!(agent.refused(tool, arguments.clone()), "permission_denied", "{arguments}");
    }
    // Under this Run there is nothing to claim in another Task, whichever that is.
    for task in ["u", "nowhere"] {
        let code = agent.refused("task_claim_step", json!({ "task_id": task, "step_id": "a" }));
        assert_eq!(code, "run_not_found", "{task}");
    }
    for step in ["mate", "secret", "elsewhere", "nowhere"] {
        let code = agent.refused("task_claim_step", json!({ "step_id": step }));
        assert_eq!(code, "step_already_claimed_by_run", "{step}");
    }
    for wrong in [
        json!({ "status": "done" }),
        json!({ "status": "failed", "output": { "data": "1" } }),
        json!({ "status": "completed", "wait_kind": "input" }),
    ] {
        assert_eq!(agent.refused("task_update_step", wrong.clone()), "validation_error", "{wrong}");
    }
    assert_eq!(scene.versions(), before, "nothing of this is in a log");
    agent.done("task_update_step", json!({ "status": "completed" }));
    agent.finish();
    assert_eq!(scene.ended()["status"], "completed");
}

/// CTX-07, CTX-08, CTX-10, CTX-13, REPORT-13: a command reports in the words of a worker; its last word counts, once,
/// when it has ended.
#[test]
fn a_command_reports_on_its_step() {
    let mut scene = Scene::begin();
    let mut agent = scene.agent();
    let progress = json!({ "percent": 50, "summary": "half of it" });
    let said = agent.done("task_update_step", json!({ "status": "running", "progress": progress }));
    assert_eq!((&said["recorded"], &said["cancel_requested"]), (&json!(true), &json!(false)));
    let artifact = json!({ "artifact_id": "note", "name": "note", "kind": "text", "data": "text",
        "state": "available" });
    // Whatever it says of its Attempt, it is its own.
    let forged = json!({
        "artifacts": [artifact], "checkpoint_refs": ["at:1"], "fencing_token": 1,
        "attempt_id": "0191e7c0-0000-7000-8000-000000000000",
    });
    agent.done("task_update_step", forged);
    let shown = scene.step("host");
    assert_eq!(shown["progress"]["summary"], "half of it", "{shown}");
    assert_eq!(shown["artifact_ids"], json!(["note"]), "{shown}");

    let output = json!({ "data": "{\"answer\":42}" });
    let last = json!({ "status": "completed", "output": output, "result_summary": "it is done" });
    let said = agent.done("task_update_step", last.clone());
    assert_eq!(said["recorded"], false, "{said}");
    assert_eq!(scene.step("host")["status"], "running", "its command goes on");
    for late in [last, json!({ "status": "failed" }), json!({ "progress": { "percent": 60 } })] {
        assert_eq!(agent.refused("task_update_step", late), "stale_attempt");
    }
    agent.finish();
    let step = scene.ended();
    assert_eq!(
        (&step["status"], &step["result_summary"]),
        (&json!("completed"), &json!("it is done"))
    );
    assert_eq!(step["output"]["data"], "{\"answer\":42}", "{step}");
    let task = scene.orchestrator.done("task_get", json!({ "task_id": "t" }));
    assert_eq!(task["attempts"].as_array().unwrap().len(), 1, "{task}");
}

/// CTX-05: a command may ask, and its Step waits for the answer.
#[test]
fn a_command_asks() {
    let mut scene = Scene::begin();
    let mut agent = scene.agent();
    let asks = json!({
        "status": "blocked", "wait_kind": "input", "reason": { "message": "Which colour?" },
    });
    agent.done("task_update_step", asks);
    agent.finish();
    let step = scene.ended();
    assert_eq!((&step["status"], &step["wait_kind"]), (&json!("blocked"), &json!("input")));
    let waiting = scene.orchestrator.done("inbox", json!({ "task_id": "t" }))["waiting"].clone();
    assert!(waiting.to_string().contains("Which colour?"), "{waiting}");
}

/// A command gets no login, and nobody else gets at its socket: neither a process of another Step or of the same user,
/// nor another user, nor anybody when it has ended. Without a last word its exit code decides.
#[test]
fn the_socket_is_for_the_command_alone() {
    let mut scene = Scene::begin();
    let mut agent = scene.agent();
    agent.done("task_get", json!({}));
    let environment = scene.environment();
    let names = environment.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name);
    let names: BTreeSet<&str> = names.filter(|name| name.starts_with("TENURE_")).collect();
    let expected =
        ["ATTEMPT", "INPUTS", "OUTPUT", "RUN_ID", "RUN_SOCKET", "SESSION_ID", "STEP_ID", "TASK_ID"];
    assert_eq!(
        names,
        expected.map(|name| format!("TENURE_{name}")).iter().map(String::as_str).collect()
    );
    let socket = scene.socket();
    let dir = socket.parent().unwrap();
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);

    let before = scene.versions();
    let path = socket.to_str().unwrap();
    let mut stranger = Hosted::start(&scene.place, &["--run-socket", path]);
    for (tool, arguments) in
        [("task_get", json!({})), ("task_update_step", json!({ "status": "completed" }))]
    {
        assert_eq!(stranger.refused(tool, arguments), "unavailable", "{tool}");
    }
    assert_eq!(scene.versions(), before);
    agent.finish();
    assert_eq!(scene.ended()["status"], "completed");
    wait_until(|| !socket.exists(), Path::new("the end of the socket"));
    assert!(!dir.exists());
    assert_eq!(stranger.refused("task_get", json!({})), "run_ended");
}
