//! A data directory with Tasks in it, the binary to look at it, and words that do not change from
//! run to run.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)] // Each test file uses a part.

mod redact;

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tenure::embedded::{Embedded, LocalWorkers};
use tenure_core::Command;
use tenure_core::view::View;
use tenure_ports::journal::TaskKey;
use tenure_scheduler::Envelope;
use tenure_sdk::worker::{Handlers, StepContext};
use tokio::runtime::Runtime;

pub(crate) use redact::redact;

/// How long a condition may take to come true on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A data directory, and the scheduler that works on it until it is closed.
pub(crate) struct Bench {
    dir: TempDir,
    pub(crate) runtime: Runtime,
    open: Option<Embedded>,
    workers: Mutex<Vec<LocalWorkers>>,
}

/// What the binary answered.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    data: PathBuf,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let bench = Self {
            dir: tempfile::tempdir().unwrap(),
            runtime: Runtime::new().unwrap(),
            open: None,
            workers: Mutex::default(),
        };
        bench.opened()
    }

    /// The same directory with a scheduler on it, again.
    pub(crate) fn opened(mut self) -> Self {
        assert!(self.open.is_none());
        self.open = Some(self.runtime.block_on(Embedded::open(self.data())).unwrap());
        self
    }

    /// The scheduler goes away, and the lock with it.
    pub(crate) fn closed(mut self) -> Self {
        self.workers.lock().unwrap().clear();
        if let Some(open) = self.open.take() {
            self.runtime.block_on(open.scheduler().stop());
        }
        // Blocking threads of the journal end with the runtime.
        let runtime = std::mem::replace(&mut self.runtime, Runtime::new().unwrap());
        runtime.shutdown_timeout(PATIENCE);
        let lock = std::fs::File::open(self.data().join("lock")).unwrap();
        until("the lock is free", || lock.try_lock().is_ok());
        self
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn wal(&self, session: &str, name: &str) -> PathBuf {
        self.data().join("tasks").join(session).join(format!("{name}.wal.jsonl"))
    }

    pub(crate) fn tenure(&self) -> &Embedded {
        self.open.as_ref().expect("the scheduler is open")
    }

    /// Makes a Task of session `default`.
    pub(crate) fn create(&self, input: Json) -> TaskKey {
        self.create_in("default", input)
    }

    pub(crate) fn create_in(&self, session: &str, input: Json) -> TaskKey {
        let input = serde_json::from_value(input).expect("a create input");
        self.runtime.block_on(self.tenure().create(session, input)).unwrap()
    }

    /// Waits until what happens next is later than what happened so far.
    pub(crate) fn tick(&self) {
        let now = self.tenure().scheduler().now();
        until("the clock goes on", || self.tenure().scheduler().now() > now);
    }

    /// Carries out a command of the orchestrator.
    pub(crate) fn command(&self, key: &TaskKey, command: Command) -> Option<String> {
        let envelope = self.tenure().envelope(&key.session_id).unwrap();
        self.send(key, envelope, command)
    }

    /// Carries out a command; answers the Run that it made.
    pub(crate) fn send(
        &self,
        key: &TaskKey,
        envelope: Envelope,
        command: Command,
    ) -> Option<String> {
        let scheduler = self.tenure().scheduler();
        let answer = self.runtime.block_on(scheduler.command(key, envelope, command)).unwrap();
        answer.run_id.map(|id| id.to_string())
    }

    /// Waits until a Task is as wanted.
    pub(crate) fn wait(
        &self,
        key: &TaskKey,
        what: &str,
        is: impl Fn(&View<'_>) -> bool + Clone + Send + 'static,
    ) {
        let scheduler = self.tenure().scheduler();
        let start = Instant::now();
        until(what, || {
            let is = self.runtime.block_on(scheduler.read(key, is.clone())).unwrap();
            if !is && start.elapsed() > PATIENCE / 2 {
                let said = self.look(&["step", "list", &key.to_string(), "--all"]);
                panic!("it never came true that {what}:\n{}{}", said.out, said.err);
            }
            is
        });
    }

    /// Starts workers of the default pool.
    pub(crate) fn work(&self) {
        let _guard = self.runtime.enter();
        let workers = self.tenure().work(handlers(), 4).unwrap();
        self.workers.lock().unwrap().push(workers);
    }

    /// Makes a Task and waits for its end.
    pub(crate) fn ran(&self, input: Json) -> TaskKey {
        let key = self.create(input);
        self.wait(&key, "the task ends", |task| task.is_terminal());
        key
    }

    /// Runs the binary on the directory.
    pub(crate) fn look(&self, args: &[&str]) -> Said {
        look_at(&self.data(), args)
    }

    /// Runs the binary for JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Json {
        let said = self.look(&[args, &["-o", "json"]].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        serde_json::from_str(&said.out).expect("JSON")
    }

    /// Every file of the directory with its content.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut work = vec![self.data()];
        while let Some(dir) = work.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => work.push(path),
                    false => found.push((path.clone(), std::fs::read(path).unwrap())),
                }
            }
        }
        found.sort();
        found
    }
}

/// Runs the binary on a directory.
pub(crate) fn look_at(data: &Path, args: &[&str]) -> Said {
    let mut process = Process::new(env!("CARGO_BIN_EXE_tenure"));
    process.args(args).env("TZ", "UTC").env("TENURE_DATA", data);
    for name in ["TENURE_SESSION", "TENURE_LOG", "NO_COLOR", "CLICOLOR_FORCE"] {
        process.env_remove(name);
    }
    let Output { status, stdout, stderr } = process.output().unwrap();
    Said {
        code: status.code().expect("it was not killed"),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
        data: data.to_owned(),
    }
}

impl Said {
    /// What was answered, without what changes from run to run.
    #[track_caller]
    pub(crate) fn is(&self, expected: &str) -> &Self {
        assert_eq!(self.code, 0, "{}", self.err);
        assert_same(&redact(&self.out, &self.data), expected);
        self
    }

    /// What was said beside the answer.
    #[track_caller]
    pub(crate) fn notes(&self, expected: &str) -> &Self {
        assert_same(&redact(&self.err, &self.data), expected);
        self
    }

    /// It failed like this, and answered nothing.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, expected: &str) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        assert_eq!(self.out, "");
        assert_same(&redact(&self.err, &self.data), expected);
    }
}

#[track_caller]
fn assert_same(found: &str, expected: &str) {
    let expected = expected.strip_prefix('\n').unwrap_or(expected);
    assert!(found == expected, "found:\n{found}\nexpected:\n{expected}");
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "it never came true that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the workers of a bench can do.
fn handlers() -> Handlers {
    let noop = |ctx: StepContext| async move { Ok(ctx.complete(None)?) };
    let echo = |ctx: StepContext| async move {
        ctx.emit_text_artifact("note", "made on the way").await?;
        ctx.complete_json(&json!({"step": ctx.step_id()}))?;
        Ok(ctx.summarise("all done")?)
    };
    let fail = |ctx: StepContext| async move { Ok(ctx.fail("no_luck", "it was not to be", None)?) };
    let ask = |ctx: StepContext| async move { Ok(ctx.request_input("which one?")?) };
    let hang = |ctx: StepContext| async move {
        ctx.start().await?;
        std::future::pending::<()>().await;
        Ok(())
    };
    let all = Handlers::new().on("default", noop).unwrap().on("echo", echo).unwrap();
    all.on("fail", fail).unwrap().on("ask", ask).unwrap().on("hang", hang).unwrap()
}

/// A pipeline of four Steps that runs to its end.
pub(crate) fn pipeline(id: &str) -> Json {
    json!({
        "task_id": id,
        "title": "Nightly load",
        "steps": [
            step("fetch", "echo", &[]),
            step("parse", "default", &["fetch"]),
            step("check", "default", &["fetch"]),
            step("report", "default", &["parse", "check"]),
        ],
    })
}

/// A Step of a create input.
pub(crate) fn step(id: &str, handler: &str, depends_on: &[&str]) -> Json {
    json!({
        "step_id": id,
        "title": format!("Step {id}"),
        "summary": "",
        "handler": handler,
        "depends_on_step_ids": depends_on,
    })
}
