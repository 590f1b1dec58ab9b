//! Workers with a command in place of handlers: `tenure mcp` under a Run claims a Step, and reports on it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/hosted.rs"]
mod hosted;
#[path = "support/dev.rs"]
mod process;
mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hosted::{Hosted, Spoken};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::Dev;
use serde_json::{Value, json};
use support::{PATIENCE, Place, Running, TENURE};

/// A server, an orchestrator that speaks MCP, and a worker of the pool `models`.
struct Scene {
    orchestrator: Hosted,
    worker: Running,
    dev: Dev,
    place: Place,
}

fn step(id: &str) -> Value {
    json!({ "step_id": id, "title": id, "handler": "research", "worker_pool_id": "models" })
}

/// A command for each Run: the test speaks to its `tenure mcp` at two pipes that have the name of the Run.
fn at_pipes() -> String {
    format!(
        "mkfifo in.$TENURE_RUN_ID out.$TENURE_RUN_ID; echo $$ > new.$TENURE_RUN_ID; \
         mv new.$TENURE_RUN_ID pid.$TENURE_RUN_ID; echo at work; {TENURE} mcp < in.$TENURE_RUN_ID > out.$TENURE_RUN_ID"
    )
}

impl Scene {
    fn begin(line: &str) -> Self {
        let place = Place::new();
        let dev = Dev::start(&place, &[]);
        let orchestrator = Hosted::start(&place, &["--http", &dev.url]);
        let worker = Self::worker(&place, &dev, line);
        Self { orchestrator, worker, dev, place }
    }

    fn worker(place: &Place, dev: &Dev, line: &str) -> Running {
        let options = ["--pool", "models", "--drain", "0", "--run-command", line];
        let mut worker = place.start(&[&["worker", "--http", &dev.url], &options[..]].concat());
        worker.hears("runs steps of pool");
        worker
    }

    /// Dispatches a Run with this scope.
    fn dispatch(&mut self, scope: &[&str]) -> String {
        let arguments =
            json!({ "task_id": "t", "worker_pool_id": "models", "allowed_step_ids": scope });
        let sent = self.orchestrator.done("dispatch_worker", arguments);
        sent["run_id"].as_str().unwrap().to_owned()
    }

    /// The command of a Run, when it has begun.
    fn agent(&self, run: &str) -> Spoken {
        self.place.wait_for(&format!("pid.{run}"));
        let path = |name: &str| self.place.path(&format!("{name}.{run}"));
        let input = File::options().write(true).open(path("in")).unwrap();
        Spoken::over(input, File::open(path("out")).unwrap())
    }

    /// Kills the command of a Run.
    fn kill_command(&self, run: &str) {
        let pid = std::fs::read_to_string(self.place.path(&format!("pid.{run}"))).unwrap();
        kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    }

    /// The directory of a Run, with what its command prints.
    fn files_of(&self, run: &str) -> PathBuf {
        self.place.path(&format!(".tenure/files/default/t/run.{run}"))
    }

    fn task(&mut self) -> Value {
        self.orchestrator.done("task_get", json!({ "task_id": "t" }))
    }

    /// Waits until something is there in the Task.
    fn wait_for<T>(&mut self, what: &str, find: impl Fn(&Value) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            let task = self.task();
            if let Some(found) = find(&task) {
                return found;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {task:#}");
        }
    }

    /// Waits until a Run is over, and says how it has ended.
    fn end_of(&mut self, run: &str) -> String {
        self.wait_for("the end of a run", |task| {
            let found = task["runs"].as_array().unwrap().iter().find(|it| it["run_id"] == run)?;
            found["end_reason"].as_str().map(str::to_owned)
        })
    }

    /// Waits until a Step has this status.
    fn reaches(&mut self, id: &str, status: &str) {
        self.wait_for(status, |task| {
            let steps = task["steps"].as_array().unwrap();
            steps.iter().find(|it| it["step_id"] == id && it["status"] == status).map(|_| ())
        });
    }

    fn outcomes(&mut self) -> Vec<String> {
        let task = self.task();
        let attempts = task["attempts"].as_array().unwrap();
        attempts.iter().map(|it| it["outcome"].as_str().unwrap_or("none").to_owned()).collect()
    }

    fn end(self) {
        self.worker.signal(Signal::SIGTERM);
        self.worker.end().with(0);
        drop(self.orchestrator);
        self.dev.stop();
    }
}

fn ids(steps: &Value) -> Vec<&str> {
    steps.as_array().unwrap().iter().map(|it| it["step_id"].as_str().unwrap()).collect()
}

fn completed(agent: &mut Spoken) {
    let output = json!({ "data": "\"by hand\"" });
    agent.done("task_update_step", json!({ "status": "completed", "output": output }));
    agent.finish();
}

/// CLAIM-03, CLAIM-05, CLAIM-09, DISP-10, DISP-12, QUERY-11, REPORT-03, RUN-04: commands of dispatched Runs see the
/// Steps in their scope, claim one each, and report on it; whatever is outside is refused, and changes nothing.
#[test]
fn commands_of_runs_claim_steps_in_their_scope() {
    let mut scene = Scene::begin(&at_pipes());
    let steps = ["a", "b", "c"].map(step);
    scene.orchestrator.done("task_create", json!({ "task_id": "t", "title": "T", "steps": steps }));
    let runs = [scene.dispatch(&["a", "b"]), scene.dispatch(&["a", "b"])];
    let [mut one, mut two] = [scene.agent(&runs[0]), scene.agent(&runs[1])];
    let before = scene.task()["version"].clone();
    for agent in [&mut one, &mut two] {
        assert_eq!(ids(&agent.done("task_get", json!({}))["steps"]), ["a", "b"]);
        let ready = agent.done("task_query_steps", json!({ "statuses": ["ready"] }));
        assert_eq!(ids(&ready["steps"]), ["a", "b"]);
        for (tool, arguments, code) in [
            (
                "task_update_step",
                json!({ "step_id": "a", "status": "running" }),
                "permission_denied",
            ),
            ("task_update_step", json!({ "status": "completed" }), "permission_denied"),
            ("task_claim_step", json!({ "step_id": "c" }), "step_out_of_scope"),
            ("task_claim_step", json!({ "step_id": "nowhere" }), "step_out_of_scope"),
            ("task_claim_step", json!({ "task_id": "u", "step_id": "a" }), "run_not_found"),
            ("task_get", json!({ "task_id": "u" }), "permission_denied"),
        ] {
            assert_eq!(agent.refused(tool, arguments.clone()), code, "{tool} {arguments}");
        }
    }
    assert_eq!(scene.task()["version"], before, "nothing of this is in a log");

    assert_eq!(one.done("task_claim_step", json!({ "step_id": "b" }))["step"]["step_id"], "b");
    assert_eq!(two.refused("task_claim_step", json!({ "step_id": "b" })), "step_already_claimed");
    assert_eq!(two.done("task_claim_step", json!({ "step_id": "a" }))["step"]["step_id"], "a");
    for (agent, other) in [(&mut one, "a"), (&mut two, "b")] {
        let code = agent.refused("task_claim_step", json!({ "step_id": other }));
        assert_eq!(code, "step_already_claimed_by_run");
        let report = json!({ "step_id": other, "status": "completed" });
        assert_eq!(agent.refused("task_update_step", report), "permission_denied");
        agent.done("task_update_step", json!({ "progress": { "summary": "nearly" } }));
        completed(agent);
    }
    assert_eq!(runs.map(|run| scene.end_of(&run)), ["completed", "completed"]);

    // One that finds nothing, and one that says nothing of its Step.
    let run = scene.dispatch(&["c"]);
    let mut agent = scene.agent(&run);
    agent.done("task_get", json!({}));
    agent.finish();
    assert_eq!(scene.end_of(&run), "no_step_claimed");
    let run = scene.dispatch(&["c"]);
    let mut agent = scene.agent(&run);
    agent.done("task_claim_step", json!({ "step_id": "c" }));
    agent.finish();
    assert_eq!(scene.end_of(&run), "finished_without_terminal_step_status");
    let statuses: Vec<Value> =
        scene.task()["steps"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert_eq!(statuses, ["completed", "completed", "failed"]);
    scene.end();
}

/// LEASE-07, RETRY-04, RUN-10: a command that dies fails its Attempt, and a worker that dies loses it, with its
/// command; each time another Attempt follows, under another Run.
#[test]
fn another_attempt_follows_a_command_that_dies() {
    let mut scene = Scene::begin(&at_pipes());
    let mut one = step("a");
    one["retry_policy"] =
        json!({ "max_attempts": 3, "heartbeat_ms": 5_000, "backoff": { "initial_ms": 1 } });
    scene.orchestrator.done("task_create", json!({ "task_id": "t", "title": "T", "steps": [one] }));

    let run = scene.dispatch(&["a"]);
    let mut agent = scene.agent(&run);
    agent.done("task_claim_step", json!({ "step_id": "a" }));
    scene.kill_command(&run);
    assert!(agent.message().is_none(), "its processes are gone");
    scene.reaches("a", "ready");
    assert_eq!(scene.outcomes(), ["failed"]);

    let run = scene.dispatch(&["a"]);
    let mut agent = scene.agent(&run);
    agent.done("task_claim_step", json!({ "step_id": "a" }));
    scene.worker.signal(Signal::SIGKILL);
    assert!(agent.message().is_none(), "its command has died with the worker");
    scene.reaches("a", "ready");
    assert_eq!(scene.outcomes(), ["failed", "lost"]);
    scene.worker = Scene::worker(&scene.place, &scene.dev, &at_pipes());

    let run = scene.dispatch(&["a"]);
    let mut agent = scene.agent(&run);
    agent.done("task_claim_step", json!({ "step_id": "a" }));
    completed(&mut agent);
    assert_eq!(scene.end_of(&run), "completed");
    assert_eq!(scene.outcomes(), ["failed", "lost", "completed"]);
    scene.end();
}

/// QUERY-16, RUN-02: commands that have claimed nothing end with their Run, and with its Task, and leave nothing.
#[test]
fn a_command_without_a_claim_ends_with_its_run() {
    let mut scene = Scene::begin(&at_pipes());
    scene
        .orchestrator
        .done("task_create", json!({ "task_id": "t", "title": "T", "steps": [step("a")] }));
    let runs = [scene.dispatch(&["a"]), scene.dispatch(&["a"])];
    let [mut one, mut two] = [scene.agent(&runs[0]), scene.agent(&runs[1])];
    for agent in [&mut one, &mut two] {
        agent.done("task_get", json!({}));
    }
    let files = [0, 1].map(|at| scene.files_of(&runs[at]));
    assert!(files.iter().all(|dir| dir.exists()), "{files:?}");
    let cancel = ["runs", "cancel", "t", &runs[0], "--http", &scene.dev.url];
    scene.place.tenure(&cancel).with(0);
    assert!(one.message().is_none(), "its run is over");
    two.done("task_get", json!({}));
    scene.orchestrator.done("task_cancel", json!({ "task_id": "t" }));
    assert!(two.message().is_none(), "its task is over");
    scene.end();
    assert!(files.iter().all(|dir| !dir.exists()), "{files:?}");
}

/// RUN-12: a command that fails without a claim has not found nothing: its Run is declined, and what it said stays.
#[test]
fn a_run_is_declined_whose_command_fails() {
    let mut scene = Scene::begin("echo no such model; exit 7");
    scene
        .orchestrator
        .done("task_create", json!({ "task_id": "t", "title": "T", "steps": [step("a")] }));
    let run = scene.dispatch(&["a"]);
    assert_eq!(scene.end_of(&run), "declined");
    let task = scene.task();
    let ended = task["runs"].as_array().unwrap().iter().find(|it| it["run_id"] == run.as_str());
    let why = ended.unwrap().to_string();
    assert!(why.contains("exec_failed") && why.contains("exited with 7"), "{why}");
    let said = std::fs::read_to_string(scene.files_of(&run).join("stdout.log")).unwrap();
    assert_eq!(said, "no such model\n");
    scene.worker.hears(&format!("run.{run}"));
    scene.end();
}

/// LEASE-18, DISP-16: a worker that leaves has its commands end; a Step that one held goes back, and a Run that one has
/// not used is there for others.
#[test]
fn a_command_ends_with_its_worker() {
    let mut scene = Scene::begin(&at_pipes());
    let steps = ["a", "b"].map(step);
    scene.orchestrator.done("task_create", json!({ "task_id": "t", "title": "T", "steps": steps }));
    let runs = [scene.dispatch(&["a"]), scene.dispatch(&["b"])];
    let [mut holds, mut looks] = [scene.agent(&runs[0]), scene.agent(&runs[1])];
    holds.done("task_claim_step", json!({ "step_id": "a" }));
    looks.done("task_get", json!({}));
    scene.worker.signal(Signal::SIGTERM);
    assert!(holds.message().is_none() && looks.message().is_none(), "both are asked to end");
    scene.reaches("a", "ready");
    let worker = Scene::worker(&scene.place, &scene.dev, &at_pipes());
    std::mem::replace(&mut scene.worker, worker).end().with(0);
    let task = scene.task();
    let unused =
        task["runs"].as_array().unwrap().iter().find(|it| it["run_id"] == runs[1].as_str());
    assert!(unused.unwrap()["end_reason"].is_null(), "{task}");
    scene.end();
}

/// DISP-14: the example of an agent claims a Step in the scope of a dispatched Run, and finds it claimed where the Task
/// gives its Steps out by itself. What it prints is shown as that of any command (ART-09).
#[test]
fn the_example_of_an_agent_does_steps() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mcp-agent/agent.py");
    let line = format!("python3 {} {TENURE}", example.display());
    let mut scene = Scene::begin(&line);
    let steps = ["a", "b"].map(step);
    scene.orchestrator.done("task_create", json!({ "task_id": "t", "title": "T", "steps": steps }));
    let run = scene.dispatch(&["b"]);
    assert_eq!(scene.end_of(&run), "completed");
    let run = scene.dispatch(&["b"]);
    assert_eq!(scene.end_of(&run), "no_step_claimed");
    let shown = scene.place.tenure(&["logs", "t", "b", "--http", &scene.dev.url]).with(0);
    assert!(shown.stdout.contains("works on b"), "{shown:#?}");

    let steps = ["a", "b"].map(step);
    let auto = json!({
        "task_id": "auto", "title": "T", "steps": steps,
        "dispatch": "auto", "completion": "auto",
    });
    scene.orchestrator.done("task_create", auto);
    let ended = scene.orchestrator.done("wait", json!({ "task_id": "auto", "seconds": 50 }));
    assert_eq!(ended["ended"], true, "{ended}");
    let task = scene.orchestrator.done("task_get", json!({ "task_id": "auto" }));
    let output = |at: usize| task["steps"][at]["output"]["data"].clone();
    assert_eq!([output(0), output(1)], ["{\"title\": \"a\"}", "{\"title\": \"b\"}"], "{task}");
    scene.end();
}
