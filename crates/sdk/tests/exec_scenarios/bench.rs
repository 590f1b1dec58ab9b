//! What the scenarios stand on: files of their own, and a mark by which to find their processes.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, process};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_sdk::worker::exec::{self, ExecError, ExecOutcome, ExecPaths};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes, even on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(30);
const MARK_ENV: &str = "TENURE_TEST_MARK";

/// One command's surroundings.
pub struct Bench {
    pub dir: TempDir,
    pub mark: String,
    pub cancel: CancellationToken,
}

impl Bench {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (dir, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        Self { dir, mark, cancel }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn paths(&self) -> ExecPaths {
        paths_in(self.dir.path())
    }

    /// What the command finds in its environment besides what its spec says.
    pub fn extra(&self) -> Vec<(String, String)> {
        vec![
            (MARK_ENV.to_owned(), self.mark.clone()),
            ("DIR".to_owned(), self.dir.path().to_str().unwrap().to_owned()),
        ]
    }

    pub async fn run(&self, spec: Value) -> Result<ExecOutcome, ExecError> {
        let spec = serde_json::from_value(spec).unwrap();
        exec::run(&spec, &self.paths(), &self.extra(), &self.cancel).await
    }

    /// Runs a shell line that is expected to run.
    pub async fn shell(&self, line: &str) -> ExecOutcome {
        self.run(json!({ "run": line })).await.unwrap()
    }

    /// Runs `spec` until `condition` holds, then does `then`, and returns the outcome.
    pub async fn run_and(
        &self,
        spec: Value,
        condition: impl Fn() -> bool,
        then: impl FnOnce(),
    ) -> Result<ExecOutcome, ExecError> {
        let meanwhile = async {
            until("the command is ready", condition).await;
            then();
        };
        tokio::join!(self.run(spec), meanwhile).0
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(self.path("stdout")).unwrap()
    }

    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// The living processes of this bench's command.
    pub fn alive(&self) -> Vec<i32> {
        let mark = format!("{MARK_ENV}={}\0", self.mark);
        let is_marked = |pid: &i32| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| contains(&env, &mark))
        };
        processes().filter(is_marked).filter(|pid| is_alive(*pid)).collect()
    }

    /// What both leashes promise: all has been killed.
    pub async fn until_none_left(&self) {
        until("nothing is left of the command", || self.alive().is_empty()).await;
    }

    /// What a guard promises: nothing is left when `run` returns, not even for a moment.
    #[track_caller]
    pub fn assert_none_left(&self) {
        assert_eq!(self.alive(), Vec::<i32>::new(), "processes were left behind");
    }
}

pub fn paths_in(dir: &Path) -> ExecPaths {
    ExecPaths {
        stdout: dir.join("stdout"),
        stderr: dir.join("stderr"),
        output: dir.join("output"),
        inputs: dir.join("inputs"),
    }
}

/// Waits for a condition; how long it takes does not matter.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Gives up on what would otherwise hang a test for ever.
pub async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

/// A zombie answers signals, so only its state tells that it is dead.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The parent of a process, as `/proc` tells it.
pub fn parent_of(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The processes whose parent is this one, ended or not.
pub fn children_of(parent: i32) -> Vec<i32> {
    let line = format!("PPid:\t{parent}\n");
    let is_child = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|text| text.contains(&line))
    };
    processes().filter(is_child).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok())
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}
