//! An orchestrator, written from docs/protocol.md alone.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use async_nats::RequestErrorKind;
use futures::StreamExt as _;
use rmpv::Value;
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::message::{Answer, Refusal, field, list, number, text, write};
use super::records::Records;

/// The session of all Tasks here.
pub const SESSION: &str = "default";

/// How long an answer is waited for before the request is sent again.
const PATIENCE: Duration = Duration::from_secs(2);

/// The runtime of everything that speaks over NATS here.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let built = builder.worker_threads(1).enable_all().build();
        built.unwrap_or_else(|error| panic!("no runtime: {error}"))
    })
}

/// Waits for something.
pub fn wait<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

/// The partition of a Task: FNV-1a over session, a zero byte and Task, and a mix.
pub fn partition_of(task: &str, partitions: u32) -> u32 {
    let bytes = SESSION.bytes().chain([0]).chain(task.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53]
        .into_iter()
        .fold(hash, |hash: u64, by| (hash ^ (hash >> 33)).wrapping_mul(by));
    u32::try_from(((mixed ^ (mixed >> 33)) >> 32) % u64::from(partitions)).unwrap_or_default()
}

/// An orchestrator. It notes what it was told to be durable.
#[derive(Debug, Clone)]
pub struct Client {
    nats: async_nats::Client,
    principal: String,
    partitions: u32,
    records: Arc<Records>,
}

impl Client {
    /// Connects, and learns from some node how many partitions there are.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn connect(url: &str, principal: &str, records: &Arc<Records>) -> Result<Self> {
        wait(Self::join(url.to_owned(), principal.to_owned(), Arc::clone(records)))
    }

    async fn join(url: String, principal: String, records: Arc<Records>) -> Result<Self> {
        let inbox = format!("_INBOX.orchestrator.{principal}.{}", unique());
        let options = async_nats::ConnectOptions::new().custom_inbox_prefix(inbox);
        let options = options.connection_timeout(PATIENCE).retry_on_initial_connect();
        let servers: Vec<&str> = url.split(',').collect();
        let nats = options.name(format!("test-{principal}")).connect(servers).await?;
        let mut client = Self { nats, principal, partitions: 0, records };
        let subject = format!("tenure.v1.orchestrator.{SESSION}.{}.hello", client.principal);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            if let Answer::Done(ok) = client.request(&subject, &json!({"v": 1})).await? {
                let partitions = number(&ok, "partitions").context("no partitions")?;
                ensure!(number(&ok, "placement") == Some(2), "a cluster of another placement");
                client.partitions = u32::try_from(partitions)?;
                return Ok(client);
            }
            sleep(Duration::from_millis(50)).await;
        }
        bail!("no node says how the cluster is made")
    }

    /// Partitions of the cluster.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The connection.
    pub fn nats(&self) -> &async_nats::Client {
        &self.nats
    }

    /// The partition of a Task.
    pub fn partition_of(&self, task: &str) -> u32 {
        partition_of(task, self.partitions)
    }

    /// Where a partition's requests go.
    pub fn subject(&self, partition: u32) -> String {
        format!("tenure.v1.orchestrator.{SESSION}.{}.cmd.{partition}", self.principal)
    }

    /// Asks once.
    ///
    /// # Errors
    /// What came back is no answer.
    pub async fn request(&self, subject: &str, body: &Json) -> Result<Answer> {
        self.send(subject, write(body)?).await
    }

    async fn send(&self, subject: &str, bytes: Vec<u8>) -> Result<Answer> {
        match timeout(PATIENCE, self.nats.request(subject.to_owned(), bytes.into())).await {
            Ok(Ok(message)) => Answer::read(&message.payload),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                Ok(Answer::NoResponders)
            }
            Ok(Err(_)) | Err(_) => {
                self.records.silence();
                Ok(Answer::Silence)
            }
        }
    }

    /// Asks once, and collects every answer that comes within a time: several nodes may believe
    /// that they own the partition.
    ///
    /// # Errors
    /// What came back is no answer.
    pub async fn ask_all(
        &self,
        body: Json,
        partition: u32,
        within: Duration,
    ) -> Result<Vec<Answer>> {
        let inbox = self.nats.new_inbox();
        let mut heard = self.nats.subscribe(inbox.clone()).await?;
        let subject = self.subject(partition);
        self.nats.publish_with_reply(subject, inbox, write(&body)?.into()).await?;
        let (begun, mut answers) = (Instant::now(), Vec::new());
        while let Some(left) = within.checked_sub(begun.elapsed()) {
            match timeout(left, heard.next()).await {
                Ok(Some(message)) if message.payload.is_empty() => break, // Nobody listens.
                Ok(Some(message)) => answers.push(Answer::read(&message.payload)?),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(answers)
    }

    /// Asks the owner of a partition until it answers for good.
    ///
    /// # Errors
    /// A [`Refusal`], or nobody answers within the time.
    pub async fn ask(&self, body: &Json, partition: u32, within: Duration) -> Result<Value> {
        let (subject, bytes) = (self.subject(partition), write(body)?);
        let begun = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let answer = self.send(&subject, bytes.clone()).await?;
            match answer {
                Answer::Done(ok) => return Ok(ok),
                Answer::Refused(refusal) if !refusal.retryable => return Err(refusal.into()),
                Answer::Refused(_) | Answer::NoResponders | Answer::Silence => {}
            }
            ensure!(
                begun.elapsed() < within,
                "no answer within {within:?}, only {answer:?}: {body}"
            );
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Asks about a Task.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn ask_of(&self, task: &str, body: &Json, within: Duration) -> Result<Value> {
        self.ask(body, self.partition_of(task), within).await
    }

    /// Creates a Task, and notes it once that is durable.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn make(&self, input: &Json, within: Duration) -> Result<()> {
        let task = input["task_id"].as_str().context("no task_id")?;
        let body = command("task_create", None, input);
        self.records.attempted(task);
        let done = self.ask_of(task, &body, within).await?;
        self.records.created(task, &events(&done));
        Ok(())
    }

    /// Cancels a Task, and notes it once that is durable.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn drop_task(&self, task: &str, within: Duration) -> Result<()> {
        let body = command("task_cancel", Some(task), &json!({"wait": false}));
        let done = self.ask_of(task, &body, within).await?;
        self.records.cancelled(task, &events(&done));
        Ok(())
    }

    /// Changes a Task, and notes it once that is durable.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn change(
        &self,
        task: &str,
        operation: &str,
        input: &Json,
        within: Duration,
    ) -> Result<()> {
        let body = command(operation, Some(task), input);
        let done = self.ask_of(task, &body, within).await?;
        self.records.changed(task, &events(&done));
        Ok(())
    }

    /// Creates a Task, within ten seconds.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn create(&self, input: &Json) -> Result<()> {
        wait(self.make(input, Duration::from_secs(10)))
    }

    /// Cancels a Task, within ten seconds.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn cancel(&self, task: &str) -> Result<()> {
        wait(self.drop_task(task, Duration::from_secs(10)))
    }

    /// The log of a Task as a file would have it, its status and version.
    ///
    /// # Errors
    /// As [`Client::ask`], or it is not what it was before.
    pub fn log(&self, task: &str, within: Duration) -> Result<Log> {
        wait(self.read_log(task, within))
    }

    /// The same, for whoever waits for other things too.
    ///
    /// # Errors
    /// As [`Client::log`].
    pub async fn read_log(&self, task: &str, within: Duration) -> Result<Log> {
        let (mut log, mut after, mut from) = (Log::default(), 0, 0_u64);
        loop {
            let input = json!({"after": after, "from": from});
            let body = json!({"v": 1, "operation": "read_log", "task_id": task, "input": input});
            let page = self.ask_of(task, &body, within).await?;
            for commit in list(&page, "commits") {
                log.lines.extend_from_slice(commit.as_slice().context("commits are bytes")?);
            }
            log.status = text(&page, "status").context("a page without status")?.to_owned();
            log.version = number(&page, "version").context("a page without version")?;
            from = number(&page, "cut").unwrap_or_default();
            let more = field(&page, "more").and_then(Value::as_bool) == Some(true);
            if from == 0 && !more {
                self.records.read(task, &log.lines)?;
                return Ok(log);
            }
            if from == 0 {
                after = last_seq(&log.lines)?;
            }
        }
    }

    /// The ids of all Tasks, ended ones too.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn tasks(&self, within: Duration) -> Result<Vec<String>> {
        self.listed(true, within)
    }

    /// The ids of all Tasks that have not ended.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn live_tasks(&self, within: Duration) -> Result<Vec<String>> {
        self.listed(false, within)
    }

    fn listed(&self, include_terminal: bool, within: Duration) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for partition in 0..self.partitions {
            let mut after = None;
            loop {
                let input = json!({"after": after, "include_terminal": include_terminal});
                let body = json!({"v": 1, "operation": "list_index", "input": input});
                let page = wait(self.ask(&body, partition, within))?;
                let ids = list(&page, "entries").iter().filter_map(|entry| text(entry, "task_id"));
                found.extend(ids.map(str::to_owned));
                if field(&page, "more").and_then(Value::as_bool) != Some(true) {
                    break;
                }
                after = found.last().cloned();
            }
        }
        Ok(found)
    }

    /// Notes that a Task may end like this.
    pub fn ends(&self, task: &str, ends: &[&'static str]) {
        self.records.may_end(task, ends);
    }

    /// Says something as somebody else, and answers what comes back: these servers let everybody in.
    ///
    /// # Errors
    /// What came back is no answer.
    pub async fn ask_as(&self, inbox: &str, subject: String, body: &Json) -> Result<Answer> {
        let inbox = format!("{inbox}.{}", unique());
        let mut heard = self.nats.subscribe(inbox.clone()).await?;
        self.nats.publish_with_reply(subject, inbox, write(body)?.into()).await?;
        match timeout(PATIENCE, heard.next()).await {
            Ok(Some(message)) if message.payload.is_empty() => Ok(Answer::NoResponders),
            Ok(Some(message)) => Answer::read(&message.payload),
            Ok(None) | Err(_) => Ok(Answer::Silence),
        }
    }
}

/// The log of a Task.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// As a file would have it.
    pub lines: Vec<u8>,
    /// Native status.
    pub status: String,
    /// Version.
    pub version: u64,
}

impl Log {
    /// Its events of a kind, or all.
    pub fn events(&self, kind: &str) -> Vec<Json> {
        let lines = self.lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let events = lines.filter_map(|line| serde_json::from_slice::<Json>(line).ok());
        events.filter(|event| kind.is_empty() || event["event_type"] == kind).collect()
    }

    /// The claims of a Step, oldest first.
    pub fn claims(&self, step: &str) -> Vec<Json> {
        let claims = self.events("task_step_claimed").into_iter();
        claims.filter(|claim| claim["step_id"] == step).collect()
    }

    /// Steps that a worker of this name has claimed and not ended.
    pub fn held_by(&self, worker: &str) -> Vec<String> {
        let mut held = BTreeMap::new();
        for event in self.events("") {
            let step = event["step_id"].as_str().unwrap_or_default().to_owned();
            match event["event_type"].as_str().unwrap_or_default() {
                "task_step_claimed" => {
                    let by = event["payload"]["worker_id"].as_str().unwrap_or_default();
                    held.insert(step, by.split('.').next() == Some(worker));
                }
                "task_step_completed" | "task_step_failed" | "task_step_lease_expired" => {
                    held.remove(&step);
                }
                _ => {}
            }
        }
        held.into_iter().filter_map(|(step, is_his)| is_his.then_some(step)).collect()
    }

    /// Whether the Task has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.as_str(), "completed" | "failed" | "cancelled" | "archived")
    }
}

/// A command with an id of its own.
pub fn command(operation: &str, task: Option<&str>, input: &Json) -> Json {
    let command_id = unique();
    let mut body =
        json!({"v": 1, "operation": operation, "command_id": command_id, "input": input});
    if let Some(task) = task {
        body["task_id"] = json!(task);
    }
    body
}

fn events(done: &Value) -> Vec<String> {
    let ids = list(done, "event_ids").iter().filter_map(Value::as_str);
    ids.map(str::to_owned).collect()
}

fn last_seq(lines: &[u8]) -> Result<u64> {
    let last = lines.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty());
    let last: BTreeMap<String, Json> = serde_json::from_slice(last.context("an empty page")?)?;
    last.get("wal_seq").and_then(Json::as_u64).context("a line without a number")
}

/// A word that nobody here has used.
fn unique() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    format!("{now:x}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Whether an error is a refusal with this code.
pub fn is_refusal(error: &anyhow::Error, code: &str) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == code)
}
