//! A scheduler, a worker that knows servers of tools, and what these servers were asked.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tenure::embedded::{Embedded, LocalClient, LocalWorkers};
use tenure_core::id::{StepId, TaskId};
use tenure_core::patch::Operation;
use tenure_core::record::RetryPolicy;
use tenure_core::retry_policy::Limit;
use tenure_core::status::TaskStatus;
use tenure_sdk::client::{Client, Step, Task, put_blob};
use tenure_sdk::mcp::ToolServers;
use tenure_sdk::worker::Handlers;
use tokio::time::{sleep, timeout};

/// Whatever a test waits for comes sooner than this.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// The server of tools.
pub(crate) const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/server.py");

/// Everything in one process but the servers of tools.
pub(crate) struct Bench {
    pub(crate) client: Client<LocalClient>,
    pub(crate) dir: tempfile::TempDir,
    workers: Option<LocalWorkers>,
    tenure: Embedded,
    /// A server at an address.
    server: Option<Child>,
}

impl Bench {
    /// With a server `tools` that is a program, with these options for it.
    pub(crate) async fn stdio(options: &[&str]) -> Self {
        Self::with(options, "").await
    }

    /// The same, with more lines for it in the file of servers.
    pub(crate) async fn with(options: &[&str], more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file =
            format!("[servers.tools]\ncommand = {}\n{more}\n", json!(command(dir.path(), options)));
        Self::of_file(dir, &file, None).await
    }

    /// With a server `tools` at an address.
    pub(crate) async fn http(options: &[&str], more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (server, url) = serve(dir.path(), options);
        Self::of_file(dir, &format!("[servers.tools]\nurl = {url:?}\n{more}\n"), Some(server)).await
    }

    async fn of_file(dir: tempfile::TempDir, file: &str, server: Option<Child>) -> Self {
        let tenure = Embedded::open(dir.path().join("data")).await.unwrap();
        let servers: ToolServers = toml::from_str(file).unwrap();
        let handlers = Handlers::new().with_mcp(servers).unwrap();
        let workers = Some(tenure.work(handlers, 8).unwrap());
        let client = tenure.client("home").unwrap();
        Self { client, dir, workers, tenure, server }
    }

    /// A Task whose one Step calls a tool, once.
    pub(crate) async fn call(&self, tool: &str, arguments: Json) -> TaskId {
        self.call_up_to(1, tool, arguments).await
    }

    /// The same, up to so many times.
    pub(crate) async fn call_up_to(&self, attempts: u32, tool: &str, arguments: Json) -> TaskId {
        self.ask(attempts, json!({"server": "tools", "tool": tool, "arguments": arguments})).await
    }

    /// A Task whose one Step has this input.
    pub(crate) async fn ask(&self, attempts: u32, input: Json) -> TaskId {
        let retry =
            RetryPolicy { max_attempts: Some(Limit::Of(attempts)), ..RetryPolicy::default() };
        let step = Step::new("call").handler("mcp").input_json(&input).unwrap();
        let task = Task::new("call").step(step).retry(retry);
        let task = task.with(|task| task.output_from = Some("call".parse().unwrap()));
        self.client.create(task).await.unwrap()
    }

    pub(crate) async fn view(&self, task: &TaskId) -> Json {
        json!(self.client.get(task).await.unwrap())
    }

    /// The Step when this holds of it.
    pub(crate) async fn until(&self, task: &TaskId, holds: impl Fn(&Json) -> bool) -> Json {
        let comes = async {
            loop {
                let step = self.view(task).await["steps"][0].clone();
                if holds(&step) {
                    return step;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        match timeout(SOON, comes).await {
            Ok(step) => step,
            Err(_) => panic!("it does not come to be so: {:#}", self.view(task).await),
        }
    }

    /// The Step when it has this status.
    pub(crate) async fn when(&self, task: &TaskId, status: &str) -> Json {
        self.until(task, |step| step["status"] == status).await
    }

    /// The output of a Task that completes.
    pub(crate) async fn output(&self, task: &TaskId) -> Json {
        let ended = timeout(SOON, self.client.wait_for_end(task)).await;
        assert!(ended.is_ok(), "no end: {:#}", self.view(task).await);
        let view = self.view(task).await;
        let status = self.client.get(task).await.unwrap().task.native_status;
        assert_eq!(status, TaskStatus::Completed, "{view:#}");
        parsed(&view["output"]["data"])
    }

    /// Why the Step has failed: the code and the message.
    pub(crate) async fn failure(&self, task: &TaskId) -> (String, String) {
        let step = self.when(task, "failed").await;
        let reason = &step["status_reason"];
        let text = |name: &str| reason[name].as_str().unwrap_or_default().to_owned();
        (text("code"), text("message"))
    }

    pub(crate) async fn answer(&self, task: &TaskId, text: &str) {
        let step: StepId = "call".parse().unwrap();
        self.client.answer(task, step, text).await.unwrap();
    }

    /// The same by a blob, as gateways do it with a long one.
    pub(crate) async fn answer_by_blob(&self, task: &TaskId, text: &str) {
        let blob = put_blob(self.client.port(), task, text.as_bytes()).await.unwrap();
        let (input_refs, step_id) = (vec![blob.reference()], "call".parse().unwrap());
        let operations = vec![Operation::ReopenStep { input_refs, reason: None, step_id }];
        self.client.update(task, operations).await.unwrap();
    }

    /// What the servers were asked, in order.
    pub(crate) fn log(&self) -> Vec<Json> {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        // The last line may be on its way.
        text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The requests of this method.
    pub(crate) fn asked(&self, method: &str) -> Vec<Json> {
        self.log().into_iter().filter(|it| it["method"] == method).collect()
    }

    /// Waits until the servers were asked something like this.
    pub(crate) async fn logged(&self, holds: impl Fn(&Json) -> bool) -> Json {
        let comes = async {
            loop {
                if let Some(entry) = self.log().into_iter().find(|it| holds(it)) {
                    return entry;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        match timeout(SOON, comes).await {
            Ok(entry) => entry,
            Err(_) => panic!("it does not come: {:#}", json!(self.log())),
        }
    }

    /// Has the task of a server end so.
    pub(crate) fn end_job(&self, name: &str, end: &Json) {
        write_state(self.dir.path(), &format!("{name}.done"), end);
    }

    /// Stops the worker, and all that it has.
    pub(crate) async fn stop_workers(&mut self) {
        let workers = self.workers.take().unwrap();
        workers.interrupt().await;
    }

    /// Another worker, with the same servers.
    pub(crate) fn hire(&mut self, file: &str) {
        let servers: ToolServers = toml::from_str(file).unwrap();
        let handlers = Handlers::new().with_mcp(servers).unwrap();
        self.workers = Some(self.tenure.work(handlers, 8).unwrap());
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The command of a server that is a program.
pub(crate) fn command(dir: &Path, options: &[&str]) -> Vec<String> {
    let (log, state) = (dir.join("log"), dir.display().to_string());
    let own = ["python3", "-u", SERVER, "--log", log.to_str().unwrap(), "--state", &state];
    own.iter().chain(options).map(|word| (*word).to_owned()).collect()
}

/// Starts a server at an address, and returns it.
pub(crate) fn serve(dir: &Path, options: &[&str]) -> (Child, String) {
    let port = dir.join("port");
    let words = command(dir, &[&["--port", port.to_str().unwrap()], options].concat());
    let mut made = Command::new(&words[0]);
    let server = made.args(&words[1..]).stdin(Stdio::null()).spawn().unwrap();
    crate::support::wait_until(|| port.exists(), &port);
    let port = std::fs::read_to_string(&port).unwrap();
    (server, format!("http://127.0.0.1:{port}/mcp"))
}

/// Writes a file of the server's state as a whole.
pub(crate) fn write_state(dir: &Path, name: &str, value: &Json) {
    let (path, new): (PathBuf, PathBuf) = (dir.join(name), dir.join("new"));
    std::fs::write(&new, value.to_string()).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Whether a process is there and has not ended.
pub(crate) fn is_alive(pid: &Json) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// A value that is JSON, as views show it or as the text that it is in a log.
fn parsed(data: &Json) -> Json {
    data.as_str().map_or_else(|| data.clone(), |text| serde_json::from_str(text).unwrap())
}
