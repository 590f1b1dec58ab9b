//! Every reason for which a Step is not running, brought about in one process and in a cluster.
//!
//! What is told makes the table of docs/inspect.md: `TENURE_BLESS=1` writes it anew.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use serde_json::{Value, json};
use tenure_core::Context;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Command, StepReport};
use tenure_core::eligibility::Obstacle;
use tenure_core::id::{AgentId, HandlerName, RunId};
use tenure_core::sessions::{Abilities, WorkerSessions};
use tenure_core::view::{ExplainInput, ExplainTaskInput, Explanation, GetInput};
use tenure_local::{JournalOptions, JsonlJournal, MemoryLeases};
use tenure_ports::ClientPort;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort};
use tenure_scheduler::{Config, Scheduler};
use tenure_sdk::nats::{Connection, NatsClient, NatsSettings, NatsWorker};
use tenure_testkit::Faulty;
use tenure_tests::cluster::redis;
use tenure_wire::bus::subject::{Token, WorkerName, inbox};

use crate::common::{Caller, Servers};

/// Longer than the test takes on any machine.
const LEASE_MS: u64 = 120_000;

/// The head of the table.
const HEAD: &str = "| Reason | As it is told, for example | What would change it |";

/// VIEW-17: each reason of the contract is what its cause is told as, alone and in its group; one process and
/// a cluster say the same, and so does the documentation.
#[tokio::test(flavor = "multi_thread")]
async fn every_reason_is_told_where_it_stands() {
    let servers = Servers::start();
    let mut settings = servers.settings("n1");
    settings.scheduler.limits.lease_ms = LEASE_MS;
    let _node = servers.node_of(settings).await;
    let bob = Caller::new(&servers).await;
    let token = |text| Token::new(text).unwrap();
    let name =
        WorkerName { pool: "default".parse().unwrap(), principal: token("w"), boot: token("b1") };
    let handlers: Vec<HandlerName> = vec!["work".parse().unwrap()];

    let settings = NatsSettings::new(servers.url());
    let own = inbox(bob.name.role, &bob.name.principal, &token("b3"));
    let connection = Connection::open(&settings, own).await.unwrap();
    let client = NatsClient::join(connection, &bob.name).await.unwrap();
    let connection = Connection::open(&settings, name.inbox()).await.unwrap();
    let joined = NatsWorker::join(connection, &name, Some(handlers.clone())).await.unwrap();
    // The only worker of its pool, which serves other sessions.
    let pool = "ci".parse().unwrap();
    let guest = WorkerName { pool, principal: token("v"), boot: token("b1") };
    let sessions = WorkerSessions::read("ci-*").unwrap();
    let of_others = Abilities { handlers: None, sessions };
    let connection = Connection::open(&settings, guest.inbox()).await.unwrap();
    let _guest = NatsWorker::join(connection, &guest, of_others.clone()).await.unwrap();
    let there = Place::of(client, joined, servers).tell().await;

    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = JsonlJournal::open(dir.path(), JournalOptions::default()).unwrap();
    let journal = Arc::new(Faulty::new(journal));
    let config = Config::embedded("default".parse().unwrap());
    let leases = Arc::new(MemoryLeases::default());
    let alone = Scheduler::start(Arc::clone(&journal), leases, config).await.unwrap();
    let joined = alone.join(name.agent().unwrap(), name.pool.clone(), Some(handlers)).unwrap();
    let _guest = alone.join(guest.agent().unwrap(), guest.pool.clone(), of_others).unwrap();
    let client = alone.client(bob.name.role, bob.name.agent().unwrap(), bob.name.session.clone());
    let here = Place::of(client, joined, journal).tell().await;

    assert_eq!(there.keys().copied().collect::<Vec<_>>(), Obstacle::ALL);
    let mut alike = there.clone();
    alike.remove(&Obstacle::LeasesUnavailable); // In memory there are always some.
    assert_eq!(here, alike);
    let rows: Vec<String> =
        there.iter().map(|(why, told)| format!("| `{why}` | {told} |")).collect();
    is_documented(&rows);
}

/// Holds the table of the documentation against these rows, or writes them there.
fn is_documented(rows: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/inspect.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(HEAD).expect("docs/inspect.md has no table of reasons");
    let old: Vec<&str> = rest.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    if old == rows {
        return;
    }
    assert!(
        std::env::var_os("TENURE_BLESS").is_some(),
        "docs/inspect.md says\n{}\nand what is told is\n{}\nTENURE_BLESS=1 writes it there",
        old.join("\n"),
        rows.join("\n"),
    );
    let after: Vec<&str> = rest.lines().skip(2 + old.len()).collect();
    let table = format!("{HEAD}\n|---|---|---|\n{}", rows.join("\n"));
    std::fs::write(&path, format!("{before}{table}\n{}\n", after.join("\n"))).unwrap();
}

/// What takes away what claims need beside the Task.
trait Breaks {
    /// The log takes no writes, or does again.
    async fn set_full(&self, is_full: bool);
    /// No lease can be had, or one can again. Answers whether that can be.
    async fn keep_leases(&self, keeps: bool) -> bool;
}

impl<J: Sync> Breaks for Arc<Faulty<J>> {
    async fn set_full(&self, is_full: bool) {
        Faulty::set_full(self, is_full);
    }

    async fn keep_leases(&self, _: bool) -> bool {
        false
    }
}

impl Breaks for Servers {
    async fn set_full(&self, is_full: bool) {
        let context = jetstream::new(self.client().await);
        for partition in 0..crate::common::PARTITIONS {
            let mut stream = context.get_stream(format!("TENURE_WAL_{partition}")).await.unwrap();
            let info = stream.info().await.unwrap();
            let mut config = info.config.clone();
            config.max_bytes = if is_full { 1 } else { -1 };
            context.update_stream(config).await.unwrap();
        }
    }

    async fn keep_leases(&self, keeps: bool) -> bool {
        let bytes = if keeps { "0" } else { "1" };
        redis::command(self.redis.port, &["CONFIG", "SET", "maxmemory", bytes]).unwrap();
        true
    }
}

/// One who commands, and one who works.
struct Place<C, W, B> {
    client: C,
    hand: W,
    deliveries: UnboundedReceiver<Delivery>,
    breaks: B,
    /// Commands so far.
    said: u32,
    /// Grants so far.
    seen: u64,
    told: BTreeMap<Obstacle, String>,
}

impl<C: ClientPort, W: WorkerPort, B: Breaks> Place<C, W, B> {
    fn of(client: C, joined: (W, UnboundedReceiver<Delivery>), breaks: B) -> Self {
        let (hand, deliveries) = joined;
        Self { client, hand, deliveries, breaks, said: 0, seen: 0, told: BTreeMap::new() }
    }

    /// What is told of each reason.
    async fn tell(mut self) -> BTreeMap<Obstacle, String> {
        self.of_tasks().await;
        self.of_failures().await;
        self.of_steps().await;
        self.of_runs().await;
        self.of_workers().await;
        self.of_what_is_away().await;
        self.say("auto", "task_cancel", json!({"wait": false})).await;
        self.expect_reason(Obstacle::TaskCancelling, "auto", "merge").await;
        self.told
    }

    async fn of_tasks(&mut self) {
        for (id, by) in [
            ("draft", None),
            ("paused", Some("pause_task")),
            ("blocked", Some("block_task")),
            ("ended", Some("task_cancel")),
        ] {
            let more = json!({"draft": by.is_none()});
            self.create(id, "manual", &[json!({"step_id": "a"})], more).await;
            if let Some(operation) = by {
                self.say(id, operation, json!({})).await;
            }
        }
        self.expect_reason(Obstacle::TaskDraft, "draft", "a").await;
        self.expect_reason(Obstacle::TaskPaused, "paused", "a").await;
        self.expect_reason(Obstacle::TaskBlocked, "blocked", "a").await;
        self.expect_reason(Obstacle::TaskTerminal, "ended", "a").await;
    }

    /// A Task fails once the Step that is at work has ended; until then it gives out nothing more.
    async fn of_failures(&mut self) {
        let steps = ["compile", "test", "publish"].map(|id| json!({"step_id": id}));
        self.create("failing", "auto", &steps, json!({"completion": "auto"})).await;
        let (_, step) = self.take().await;
        assert_eq!(step, "compile");
        let (held, step) = self.take().await;
        let reason = json!({"code": "broken", "message": "it does not work", "retryable": false});
        self.fail(&held, json!({"step_id": step, "status": "failed", "reason": reason})).await;
        self.expect_reason(Obstacle::TaskFailing, "failing", "publish").await;
    }

    async fn fail(&mut self, held: &Holding, said: Value) {
        let mut failed: StepReport = serde_json::from_value(said).unwrap();
        failed.attempt_id = Some(held.attempt_id);
        failed.fencing_token = Some(held.fencing_token);
        self.hand.report(held, failed, None).await.unwrap();
    }

    async fn of_steps(&mut self) {
        let steps = [
            json!({"step_id": "fetch"}),
            json!({"step_id": "parse"}),
            json!({"step_id": "ask"}),
            json!({"step_id": "build"}),
            json!({"step_id": "check"}),
            json!({"step_id": "deploy", "depends_on_step_ids": ["build"]}),
            json!({"step_id": "load", "depends_on_step_ids": ["parse"]}),
            json!({"step_id": "sign", "claim_only_by": "bee"}),
        ];
        self.create("steps", "manual", &steps, json!({})).await;
        for (step, status) in [("fetch", "completed"), ("parse", "failed"), ("ask", "blocked")] {
            let report = json!({"step_id": step, "status": status});
            self.say("steps", "task_update_step", report).await;
        }
        self.expect_reason(Obstacle::StepTerminal, "steps", "fetch").await;
        self.expect_reason(Obstacle::StepFailed, "steps", "parse").await;
        self.expect_reason(Obstacle::StepBlocked, "steps", "ask").await;
        self.expect_reason(Obstacle::DependencyPending, "steps", "deploy").await;
        self.expect_reason(Obstacle::DependencyUnsatisfiable, "steps", "load").await;
        let ant: Option<AgentId> = Some("ant".parse().unwrap());
        self.expect_reason_for(Obstacle::AssignedElsewhere, "steps", "sign", (None, ant)).await;
        self.expect_reason(Obstacle::NeedsDispatch, "steps", "build").await;
    }

    async fn of_runs(&mut self) {
        let scope = json!({"worker_pool_id": "default", "allowed_step_ids": ["build"]});
        self.say("steps", "dispatch_worker", scope).await;
        let run =
            self.client.ask(&"steps".parse().unwrap(), GetInput {}).await.unwrap().runs[0].run_id;
        self.expect_reason_for(Obstacle::RunnableNow, "steps", "build", (Some(run), None)).await;
        self.expect_reason_for(Obstacle::ScopeExcludes, "steps", "check", (Some(run), None)).await;
        self.say("steps", "cancel_run", json!({"run_id": run})).await;
    }

    async fn of_workers(&mut self) {
        let backoff = json!({"initial_ms": 60_000, "jitter": 0.0});
        let steps = [
            json!({"step_id": "train", "worker_pool_id": "gpu"}),
            json!({"step_id": "lint", "worker_pool_id": "ci"}),
            json!({"step_id": "mail", "handler": "send"}),
            json!({"step_id": "pull", "retry_policy": {"max_attempts": 3, "backoff": backoff}}),
            json!({"step_id": "sort"}),
            json!({"step_id": "merge"}),
        ];
        self.create("auto", "auto", &steps, json!({})).await;
        self.expect_reason(Obstacle::NoWorkerInPool, "auto", "train").await;
        self.expect_reason(Obstacle::NoWorkerServesSession, "auto", "lint").await;
        self.expect_reason(Obstacle::NoWorkerWithHandler, "auto", "mail").await;
        self.expect_reason(Obstacle::PoolSaturated, "auto", "merge").await;
        let (again, step) = self.take().await;
        assert_eq!(step, "pull");
        self.fail(&again, json!({"step_id": "pull", "status": "failed"})).await;
        self.expect_reason(Obstacle::NotBefore, "auto", "pull").await;
        let (_, step) = self.take().await;
        assert_eq!(step, "sort");
        self.expect_reason(Obstacle::Held, "auto", "sort").await;
    }

    async fn of_what_is_away(&mut self) {
        if self.breaks.keep_leases(false).await {
            self.expect_reason(Obstacle::LeasesUnavailable, "auto", "merge").await;
            self.breaks.keep_leases(true).await;
            self.expect_reason(Obstacle::PoolSaturated, "auto", "merge").await;
        }
        self.breaks.set_full(true).await;
        let refused =
            self.command("auto", "append_task_progress", json!({"progress": {"percent": 1}}));
        let refused = tokio::time::timeout(Duration::from_secs(1), refused).await;
        assert!(!matches!(refused, Ok(Ok(()))), "the log is full");
        self.expect_reason(Obstacle::LogUnavailable, "auto", "merge").await;
        self.breaks.set_full(false).await;
    }

    async fn create(&mut self, id: &str, dispatch: &str, steps: &[Value], more: Value) {
        let mut all = Vec::new();
        for step in steps {
            let mut whole = json!({"title": "", "summary": "", "depends_on_step_ids": [],
                "handler": "work"});
            whole.as_object_mut().unwrap().extend(step.as_object().unwrap().clone());
            all.push(whole);
        }
        let mut input = json!({"task_id": id, "title": id, "summary": "", "dispatch": dispatch,
            "completion": "manual", "steps": all});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let input: CreateTask = serde_json::from_value(input).unwrap();
        self.client
            .write(&id.parse().unwrap(), context(&format!("create-{id}")), input)
            .await
            .unwrap();
    }

    async fn say(&mut self, task: &str, operation: &str, input: Value) {
        self.command(task, operation, input).await.unwrap();
    }

    async fn command(
        &mut self,
        task: &str,
        operation: &str,
        input: Value,
    ) -> Result<(), tenure_core::Rejection> {
        self.said += 1;
        let command: Command =
            serde_json::from_value(json!({"operation": operation, "input": input})).unwrap();
        let context = context(&format!("c{}", self.said));
        self.client.write(&task.parse().unwrap(), context, command).await.map(drop)
    }

    /// Has room for one Step, and gets it.
    async fn take(&mut self) -> (Holding, String) {
        self.hand.credit(Credit { free: 1, seen: self.seen, lost: 0, number: 2 * self.seen + 1 });
        let next = tokio::time::timeout(Duration::from_secs(30), self.deliveries.next()).await;
        let Ok(Some(Delivery::Grant(claim))) = next else { panic!("no step: {next:?}") };
        self.seen += 1;
        self.hand.credit(Credit { free: 0, seen: self.seen, lost: 0, number: 2 * self.seen });
        (Holding::of(&claim), claim.step.step_id.to_string())
    }

    async fn expect_reason(&mut self, why: Obstacle, task: &str, step: &str) {
        self.expect_reason_for(why, task, step, (None, None)).await;
    }

    /// It comes to this that a Step has this reason, alone and in its group.
    async fn expect_reason_for(
        &mut self,
        why: Obstacle,
        task: &str,
        step: &str,
        (run_id, worker_id): (Option<RunId>, Option<AgentId>),
    ) {
        let (client, task) = (&self.client, task.parse().unwrap());
        let input = ExplainInput { run_id, step_id: step.parse().unwrap(), worker_id };
        let whole = ExplainTaskInput { run_id, worker_id: input.worker_id.clone() };
        let begun = Instant::now();
        let told = loop {
            let told = client.ask(&task, input.clone()).await;
            match told {
                Ok(told) if told.headline == why => break told,
                told => assert!(begun.elapsed() < Duration::from_secs(30), "{why}: {told:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let groups = client.ask(&task, whole).await.unwrap().groups;
        let group = groups.iter().find(|group| group.step_ids.contains(&input.step_id));
        let has_ended = matches!(why, Obstacle::TaskTerminal | Obstacle::StepTerminal);
        assert_eq!(group.map(|group| group.headline), (!has_ended).then_some(why), "{task} {step}");
        self.told.insert(why, row(&told));
    }
}

fn context(command_id: &str) -> Context {
    Context::new(command_id.parse().unwrap())
}

/// The text and the remedies of the first reason, without what no two places share.
fn row(told: &Explanation) -> String {
    let first = &told.reasons[0];
    let text = match told.headline {
        Obstacle::LogUnavailable => format!("{}: …", first.text.split(':').next().unwrap()),
        _ => first.text.split(' ').map(shared).collect::<Vec<_>>().join(" "),
    };
    let remedies: Vec<String> =
        first.remedies.iter().map(|remedy| format!("`{}`", remedy.operation)).collect();
    let remedies = if remedies.is_empty() { "–".to_owned() } else { remedies.join(", ") };
    format!("{text} | {remedies}")
}

fn shared(word: &str) -> &str {
    let is_id = word.len() == 36 && word.matches('-').count() == 4;
    let is_time = word.len() > 3 && word.chars().all(|c| c.is_ascii_digit());
    if is_id || is_time { "…" } else { word }
}
