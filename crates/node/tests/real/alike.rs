//! A Task that is steered by hand leaves the same log in a cluster as in the files of one process.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use serde_json::{Value, json};
use tenure_core::Context;
use tenure_core::command::{Command, GiveBack, StepReport};
use tenure_core::status::Policy;
use tenure_local::{JournalOptions, JsonlJournal, MemoryLeases};
use tenure_ports::ClientPort;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort};
use tenure_scheduler::{Config, Scheduler};
use tenure_sdk::nats::{Connection, NatsClient, NatsSettings, NatsWorker};
use tenure_wire::bus::subject::{Token, WorkerName, inbox};

use crate::calls::shared;
use crate::common::{Caller, Servers, input};

/// Longer than the test takes on any machine.
const LEASE_MS: u64 = 120_000;

/// WAL-15: dispatches, claims and reports of one who works by hand too.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_by_hand_is_the_same_in_the_files_of_one_process() {
    let servers = Servers::start();
    let mut settings = servers.settings("n1");
    settings.scheduler.limits.lease_ms = LEASE_MS;
    let _node = servers.node_of(settings).await;
    let bob = Caller::new(&servers).await;
    let token = |text| Token::new(text).unwrap();
    let name =
        WorkerName { pool: "default".parse().unwrap(), principal: token("w"), boot: token("b1") };

    let settings = NatsSettings::new(servers.url());
    let own = inbox(bob.name.role, &bob.name.principal, &token("b3"));
    let connection = Connection::open(&settings, own).await.unwrap();
    let client = NatsClient::join(connection, &bob.name).await.unwrap();
    let connection = Connection::open(&settings, name.inbox()).await.unwrap();
    let (hand, offers) = NatsWorker::join(connection, &name, None).await.unwrap();
    Steering { client, hand, offers, said: 0, seen: 0 }.steer().await;
    let page = bob.log("t1").await.unwrap();
    assert!(!page.more);
    let there: Vec<u8> = page.commits.iter().flat_map(|commit| commit.0.iter().copied()).collect();

    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = JsonlJournal::open(dir.path(), JournalOptions::default()).unwrap();
    let config = Config::embedded("default".parse().unwrap());
    let leases = Arc::new(MemoryLeases::default());
    let alone = Scheduler::start(Arc::new(journal), leases, config).await.unwrap();
    let (hand, offers) = alone.join(name.agent().unwrap(), name.pool.clone(), None).unwrap();
    let client = alone.client(bob.name.role, bob.name.agent().unwrap(), bob.name.session.clone());
    Steering { client, hand, offers, said: 0, seen: 0 }.steer().await;
    let here = std::fs::read(dir.path().join("tasks/s1/t1.wal.jsonl")).unwrap();

    let (here, there) = (events(&here), events(&there));
    let claims = here.iter().filter(|event| event["event_type"] == "task_step_claimed").count();
    assert_eq!(claims, 4, "{here:#?}");
    assert_eq!(here, there);
}

/// The events of a log without what no two logs share.
fn events(log: &[u8]) -> Vec<Value> {
    let lines = log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events = lines.map(|line| {
        let mut event = shared(serde_json::from_slice(line).unwrap());
        if event["event_type"] == "task_step_claimed" {
            // The claim named the Run, whose id no two logs share.
            event.as_object_mut().unwrap().remove("command_digest");
            // Only a worker that says hello names its machine.
            event["payload"].as_object_mut().unwrap().remove("worker_host");
        }
        event
    });
    events.collect()
}

/// One who commands, and one who works.
struct Steering<C, W> {
    client: C,
    hand: W,
    offers: UnboundedReceiver<Delivery>,
    /// Commands so far.
    said: u32,
    /// Runs that were offered so far.
    seen: u64,
}

impl<C: ClientPort, W: WorkerPort> Steering<C, W> {
    async fn steer(mut self) {
        let mut create = input("t1", &["a", "b"]);
        (create.dispatch, create.completion) = (Some(Policy::Manual), Some(Policy::Manual));
        self.client.write(&"t1".parse().unwrap(), context("create"), create).await.unwrap();
        let patch = json!([
            {"op": "add_step", "step": {"step_id": "c", "title": "c", "summary": "",
             "depends_on_step_ids": ["a"], "handler": "noop"}},
            {"op": "delete_step", "step_id": "b"}]);
        self.say("task_update", json!({"operations": patch})).await;

        let held = self.claim("a").await;
        self.report(&held, json!({"step_id": "a", "status": "running"})).await;
        let progress = json!({"percent": 50, "summary": "half of it"});
        self.report(&held, json!({"step_id": "a", "progress": progress})).await;
        let output = json!({"content_type": "application/json", "data": "{\"is\": \"done\"}"});
        let done = json!({"step_id": "a", "status": "completed", "output": output,
            "result_summary": "all of it"});
        self.report(&held, done.clone()).await;
        self.report(&held, done).await; // Said twice, it is written once.

        let held = self.claim("c").await;
        let reason = json!({"code": "no", "message": "not like that", "retryable": false});
        self.report(&held, json!({"step_id": "c", "status": "failed", "reason": reason})).await;
        let again = json!([{"op": "reopen_step", "step_id": "c"}]);
        self.say("task_update", json!({"operations": again})).await;
        let held = self.claim("c").await;
        self.hand.release(&held, GiveBack::default(), None).await.unwrap();
        let held = self.claim("c").await;
        self.report(&held, json!({"step_id": "c", "status": "completed"})).await;
        self.say("task_complete", json!({"result_summary": "done by hand"})).await;
    }

    async fn say(&mut self, operation: &str, input: Value) {
        self.said += 1;
        let command = json!({"operation": operation, "input": input});
        let command: Command = serde_json::from_value(command).unwrap();
        let context = context(&format!("c{}", self.said));
        self.client.write(&"t1".parse().unwrap(), context, command).await.unwrap();
    }

    /// Gives a Step out, and takes it.
    async fn claim(&mut self, step: &str) -> Holding {
        self.hand.credit(Credit { free: 1, seen: self.seen, lost: 0, number: self.seen + 1 });
        let scope = json!({"worker_pool_id": "default", "allowed_step_ids": [step]});
        self.say("dispatch_worker", scope).await;
        let offer = loop {
            match tokio::time::timeout(Duration::from_secs(30), self.offers.next()).await {
                Ok(Some(Delivery::Run(offer))) => break offer,
                Ok(Some(Delivery::Lost(_))) => {} // What it has just ended itself.
                other => panic!("no run: {other:?}"),
            }
        };
        self.seen += 1;
        let (step, id) = (step.parse().unwrap(), format!("claim-{}", self.seen));
        let claim = self.hand.claim(&offer, &step, &id.parse().unwrap()).await.unwrap();
        Holding::of(&claim)
    }

    async fn report(&self, held: &Holding, word: Value) {
        let mut report: StepReport = serde_json::from_value(word).unwrap();
        report.attempt_id = Some(held.attempt_id);
        report.fencing_token = Some(held.fencing_token);
        self.hand.report(held, report, None).await.unwrap();
    }
}

fn context(command_id: &str) -> Context {
    Context::new(command_id.parse().unwrap())
}
