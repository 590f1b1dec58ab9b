//! In whose turn a long log is read, and who is charged for that.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Hand, Node, POOL, cancel, create, dag, envelope, key, status, step_id};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Link, StepReport, Why};
use tenure_core::id::{AgentId, AttemptId, CommandId, PoolId, Ref, RunId};
use tenure_core::record::{Value, ValueBody};
use tenure_core::status::{EdgeKind, Role, TaskStatus};
use tenure_core::view::RunOffer;
use tenure_core::{Code, Command, Rejection};
use tenure_local::MemoryLeases;
use tenure_ports::bus::{Holding, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Config, LiveTaskLimits, ReadHold, ReadTurns, Scheduler, overloaded};
use tenure_wire::bus::request::ReadLog;

/// Turns that are counted, and refused while nobody may read.
#[derive(Debug, Default)]
struct CountedTurns {
    taken: AtomicUsize,
    refuses: AtomicBool,
    charged: Arc<ChargedTime>,
}

#[derive(Debug, Default)]
struct ChargedTime(AtomicU64);

impl ReadHold for ChargedTime {
    fn charge(&self, busy: Duration) {
        self.0.fetch_add(u64::try_from(busy.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl ReadTurns for CountedTurns {
    fn turn<'a>(
        &'a self,
        _: Role,
        principal: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn ReadHold>, Rejection>> {
        async move {
            assert!(["o", "w"].contains(&principal), "{principal}");
            if self.refuses.load(Ordering::SeqCst) {
                return Err(overloaded());
            }
            self.taken.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::clone(&self.charged) as Arc<dyn ReadHold>)
        }
        .boxed()
    }
}

impl CountedTurns {
    /// How many turns were taken since this was asked last, for which somebody was charged.
    fn news(&self) -> usize {
        let (taken, charged) =
            (self.taken.swap(0, Ordering::SeqCst), self.charged.0.swap(0, Ordering::SeqCst));
        assert_eq!(taken > 0, charged > 0);
        taken
    }
}

/// A draft of more than a megabyte.
fn long(name: &str) -> CreateTask {
    let mut draft = dag(name, "a b c d e f g h i j k l m n o p q r s t");
    for step in &mut draft.steps {
        let body = ValueBody::Data(vec![b'x'; 60_000].into());
        step.input = Some(Value::of("text/plain", body));
    }
    CreateTask { draft: Some(true), ..draft }
}

/// A node with turns, on the journal of another on which these Tasks have ended.
async fn with_ended(inputs: Vec<CreateTask>, live: LiveTaskLimits) -> (Node, Arc<CountedTurns>) {
    let first = crate::common::node().await;
    for input in inputs {
        let task = create(&first, input).await.unwrap();
        cancel(&first, &task).await.unwrap();
    }
    first.stop().await;
    let turns = Arc::new(CountedTurns::default());
    let config = Config {
        live,
        turns: Some(Arc::clone(&turns) as _),
        ..Config::embedded(PoolId::new(POOL).unwrap())
    };
    let (journal, leases) = (Arc::clone(first.journal()), Arc::new(MemoryLeases::default()));
    (Scheduler::start(journal, leases, config).await.unwrap(), turns)
}

fn offer(task: &TaskKey) -> RunOffer {
    RunOffer {
        session_id: task.session_id.clone(),
        task_id: task.task_id.clone(),
        run_id: RunId(uuid::Uuid::nil()),
        worker_pool_id: PoolId::new(POOL).unwrap(),
        allowed_step_ids: None,
        instructions: None,
        bindings: None,
        expires_at: None,
    }
}

/// LIVE-04: whoever has the long log of an ended Task read, by whatever request, does so in its turn, and is charged.
/// While it gets no turn, nothing is read.
#[tokio::test]
async fn a_long_log_is_read_in_the_turn_of_whoever_asks() {
    let names = ["command", "create", "claim", "report", "query"];
    let (node, turns) = with_ended(names.map(long).into(), LiveTaskLimits::default()).await;
    let hand = Hand::join(&node, "w");
    let ask = async |name: &str| {
        let task = key(name);
        match name {
            "command" => cancel(&node, &task).await.map(drop),
            "create" => create(&node, long(name)).await.map(drop),
            "claim" => {
                let id = CommandId::new("c").unwrap();
                hand.link.claim_anew(&offer(&task), &step_id("a"), &id).await.map(drop)
            }
            "report" => {
                let attempt_id = AttemptId(uuid::Uuid::nil());
                let held = Holding {
                    task,
                    run_id: RunId(uuid::Uuid::nil()),
                    attempt_id,
                    fencing_token: 1,
                    lease_ms: 0,
                    input_seen: None,
                };
                let report = StepReport::on(step_id("a"));
                hand.link.report(&held, report, None).await.map(drop)
            }
            _ => hand.link.query(&offer(&task), 0).await.map(drop),
        }
    };
    for name in names {
        let read = node.journal().commits_read();
        turns.refuses.store(true, Ordering::SeqCst);
        let refused = ask(name).await.unwrap_err();
        assert_eq!(refused.code, Code::Unavailable, "{name}: {refused}");
        assert_eq!((turns.news(), node.journal().commits_read()), (0, read), "{name}");
        turns.refuses.store(false, Ordering::SeqCst);
        let refused = ask(name).await.err().map(|refused| refused.code);
        assert_ne!(refused, Some(Code::Unavailable), "{name}");
        assert_eq!(turns.news(), 1, "{name}");
        assert!(node.journal().commits_read() > read, "{name}");
    }
    turns.refuses.store(true, Ordering::SeqCst);
    assert_ne!(ask("query").await.unwrap_err().code, Code::Unavailable, "it was read just now");
    let task = create(&node, dag("short", "a")).await.unwrap();
    cancel(&node, &task).await.unwrap();
    assert_eq!(cancel(&node, &task).await.unwrap_err().code, Code::TaskTerminal, "it is short");
}

/// LIVE-02, LIVE-04: so it is with a live Task that was put away, and with readers that wait for its news.
#[tokio::test(start_paused = true)]
async fn a_long_task_comes_back_in_the_turn_of_whoever_asks() {
    let memory = LiveTaskLimits { memory: 12 << 20, ..LiveTaskLimits::default() };
    let (node, turns) = with_ended(Vec::new(), memory).await;
    for n in 0..9 {
        create(&node, long(&format!("t{n}"))).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(turns.news(), 0);
    turns.refuses.store(true, Ordering::SeqCst);
    let submit = Command::SubmitTask(Why::default());
    let refused = node.command(&key("t0"), envelope(), submit.clone()).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    let observer = node.client(Role::Observer, AgentId::new("o").unwrap(), key("t").session_id);
    let t1 = key("t1");
    let waits = || {
        let which = ReadLog { after: 1 << 20, wait_ms: 1, ..ReadLog::default() };
        observer.held_page(&t1.task_id, which, 1 << 20, || Ok(()))
    };
    assert_eq!(waits().await.unwrap_err().code, Code::Unavailable);
    node.command(&key("t8"), envelope(), submit.clone()).await.unwrap();
    turns.refuses.store(false, Ordering::SeqCst);
    assert!(waits().await.unwrap().is_none());
    node.command(&key("t0"), envelope(), submit).await.unwrap();
    assert_eq!(turns.news(), 2);
    assert_ne!(status(&node, &key("t0")).await, TaskStatus::Draft);
}

/// REL-06, LIVE-04: so are Tasks that are read in search of a cycle of blocking Tasks.
#[tokio::test]
async fn links_are_followed_in_the_turn_of_whoever_links() {
    let (node, turns) = with_ended(Vec::new(), LiveTaskLimits::default()).await;
    for name in ["a", "b"] {
        create(&node, dag(name, "s")).await.unwrap();
    }
    let link = Link { kind: EdgeKind::Blocks, reason: None, to: Ref::new("b").unwrap() };
    let link = Command::LinkTasks(link);
    let before = node.read(&key("a"), |task| task.version()).await.unwrap();
    turns.refuses.store(true, Ordering::SeqCst);
    let refused = node.command(&key("a"), envelope(), link.clone()).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    assert_eq!(node.read(&key("a"), |task| task.version()).await.unwrap(), before);
    turns.refuses.store(false, Ordering::SeqCst);
    node.command(&key("a"), envelope(), link).await.unwrap();
    assert_eq!(turns.news(), 1);
}
